"""What tools/bench_peers.py hands a peer library, without PyTorch or a GPU."""
import argparse
import ctypes as c
import math
import pathlib
import sys
import unittest
from unittest import mock

sys.path.insert(0, str(pathlib.Path(__file__).parents[2] / "tools"))
import peer_library
from peer_library import PeerLibrary, Shape

POINTER, INT = c.c_void_p, c.c_int
CU_Q, CU_K, STREAM = 101, 102, 103
FORWARD_TENSORS, BACKWARD_TENSORS = range(1, 6), range(1, 10)


class Recorder:
    """Stands for the loaded library: the documented C functions, written down here once more."""

    def __init__(self, status=0):
        self.calls = []

        def record(*arguments):
            self.calls.append(arguments)
            return status

        sizes = [POINTER] * 2 + [INT] * 8 + [POINTER]
        self.peer_attention_forward = c.CFUNCTYPE(INT, *[POINTER] * 5, *sizes)(record)
        self.peer_attention_backward = c.CFUNCTYPE(INT, *[POINTER] * 9, *sizes)(record)

    def library(self):
        with mock.patch.object(peer_library.c, "CDLL", lambda path: self):
            return PeerLibrary("peer", "peer.so")


def shape(head_dim=64, **given):
    return Shape("shape", {"heads_q": 3, **given}, head_dim)


class PeerLibraryTest(unittest.TestCase):
    def test_jagged_sequences_come_with_their_offsets_totals_and_longest(self):
        recorder = Recorder()
        jagged = shape(seqlens_q=[70, 30], seqlens_k=[20, 90])
        recorder.library().forward(jagged, FORWARD_TENSORS, CU_Q, CU_K, STREAM)
        batch, heads, head_dim, total_q, total_k, max_q, max_k, causal = 2, 3, 64, 100, 110, 70, 90, 0
        self.assertEqual(recorder.calls, [(*FORWARD_TENSORS, CU_Q, CU_K, batch, heads, head_dim, total_q,
                                           total_k, max_q, max_k, causal, STREAM)])

    def test_sequences_of_one_length_come_without_offsets(self):
        recorder = Recorder()
        dense = shape(head_dim=128, seqlens_q=[256] * 4, seqlens_k="same", causal=True)
        recorder.library().backward(dense, BACKWARD_TENSORS, CU_Q, CU_K, STREAM)
        self.assertEqual(recorder.calls,
                         [(*BACKWARD_TENSORS, None, None, 4, 3, 128, 1024, 1024, 256, 256, 1, STREAM)])

    def test_broadcast_queries_count_once_for_every_sequence(self):
        recorder = Recorder()
        broadcast = shape(seqlens_q=[16], seqlens_k=[20, 90, 5], broadcast_q=True)
        recorder.library().forward(broadcast, FORWARD_TENSORS, CU_Q, CU_K, STREAM)
        self.assertEqual(recorder.calls,
                         [(*FORWARD_TENSORS, CU_Q, CU_K, 3, 3, 64, 48, 115, 16, 90, 0, STREAM)])

    def test_a_status_other_than_0_is_an_error_that_names_the_function(self):
        library = Recorder(status=7).library()
        jagged = shape(seqlens_q=[70, 30], seqlens_k="same")
        with self.assertRaisesRegex(RuntimeError, "peer_attention_backward returned 7"):
            library.backward(jagged, BACKWARD_TENSORS, CU_Q, CU_K, STREAM)

    def test_a_causal_mask_halves_the_flops(self):
        whole = shape(seqlens_q=[70, 30], seqlens_k="same")
        half = shape(seqlens_q=[70, 30], seqlens_k="same", causal=True)
        self.assertEqual(whole.flops, 4 * 64 * 3 * (70 * 70 + 30 * 30))
        self.assertEqual(half.flops, whole.flops / 2)

    def test_a_difference_that_is_not_a_number_is_the_largest(self):
        self.assertTrue(math.isnan(peer_library.largest([1e-3, math.nan, 2e-3])))
        self.assertEqual(peer_library.largest([1e-3, 2e-3]), 2e-3)

    def test_a_library_on_the_command_line_has_a_name_and_a_file(self):
        here = pathlib.Path(__file__).resolve()
        self.assertEqual(peer_library.named_library(f"mine={here}"), ("mine", here))
        for wrong in ("mine", "mine=", f"={__file__}", "mine=/no/such/file.so"):
            with self.assertRaises(argparse.ArgumentTypeError, msg=wrong):
                peer_library.named_library(wrong)


if __name__ == "__main__":
    unittest.main()
