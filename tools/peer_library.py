"""Attention behind two C functions, which bench_peers.py times without PyTorch's autograd.

A peer library exports, for BF16 tensors packed as [token][head][head_dim] and scores scaled by
1 / sqrt(head_dim):

  int peer_attention_forward(
      const void* q, const void* k, const void* v, void* o, float* lse,
      const int32_t* cu_q, const int32_t* cu_k, int batch, int heads, int head_dim,
      int total_q, int total_k, int max_q, int max_k, int causal, void* stream);
  int peer_attention_backward(
      const void* q, const void* k, const void* v, const void* o, const float* lse, const void* d_o,
      void* dq, void* dk, void* dv,
      const int32_t* cu_q, const int32_t* cu_k, int batch, int heads, int head_dim,
      int total_q, int total_k, int max_q, int max_k, int causal, void* stream);

All pointers are device memory.  cu_q and cu_k hold the batch + 1 offsets of the sequences, or are both null
when every sequence has max_q queries and max_k keys.  lse has heads * total_q elements; the forward writes
it and the backward reads it in whatever order the library likes.  Everything is enqueued on the stream,
and everything a call needs done (preparation, zeroing, conversion) is done by the call: it is what is timed.
Workspace is the library's own, allocated in the first call.  0 is success; any other result leaves the shape
out.
"""
import argparse
import ctypes as c
import math
import pathlib

SIZES = [c.c_void_p] * 2 + [c.c_int] * 8 + [c.c_void_p]  # the cumulative lengths to the stream


def offsets(lengths):
    total = [0]
    for n in lengths:
        total.append(total[-1] + n)
    return total


class Shape:
    """An attention case of a shape file."""

    def __init__(self, name, given, head_dim):
        self.name, self.head_dim, self.heads = name, head_dim, given["heads_q"]
        self.causal, self.broadcast = bool(given.get("causal")), bool(given.get("broadcast_q"))
        self.lens_q = given["seqlens_q"]
        self.lens_k = self.lens_q if given["seqlens_k"] == "same" else given["seqlens_k"]
        self.offsets_q, self.offsets_k = offsets(self.lens_q), offsets(self.lens_k)
        self.per_sequence_q = self.lens_q * len(self.lens_k) if self.broadcast else self.lens_q
        self.rows_o = sum(self.per_sequence_q)
        pairs = sum(a * b for a, b in zip(self.per_sequence_q, self.lens_k))
        self.flops = 4 * head_dim * self.heads * pairs * (0.5 if self.causal else 1)
        self.dense = len(set(self.lens_q + self.lens_k)) == 1 and not self.broadcast


def largest(differences):
    """The largest of them, NaN if any is: max() would pass over it."""
    return max(differences, key=lambda x: math.inf if math.isnan(x) else x)


class PeerLibrary:
    def __init__(self, name, path):
        self.name, self.library = name, c.CDLL(str(path))
        self.library.peer_attention_forward.argtypes = [c.c_void_p] * 5 + SIZES
        self.library.peer_attention_backward.argtypes = [c.c_void_p] * 9 + SIZES

    def forward(self, shape, tensors, cu_q, cu_k, stream):
        """tensors: addresses of q, k, v, o, lse, q with the rows of o; cu_q, cu_k: addresses."""
        self._call("peer_attention_forward", shape, tensors, cu_q, cu_k, stream)

    def backward(self, shape, tensors, cu_q, cu_k, stream):
        """tensors: addresses of q, k, v, o, lse, d_o, dq, dk, dv."""
        self._call("peer_attention_backward", shape, tensors, cu_q, cu_k, stream)

    def _call(self, function, shape, tensors, cu_q, cu_k, stream):
        if shape.dense:
            cu_q = cu_k = None
        status = getattr(self.library, function)(
            *tensors, cu_q, cu_k, len(shape.lens_k), shape.heads, shape.head_dim, shape.rows_o,
            shape.offsets_k[-1], max(shape.per_sequence_q), max(shape.lens_k), shape.causal, stream)
        if status:
            raise RuntimeError(f"{function} returned {status}")


def named_library(text):
    """NAME=LIBRARY of the command line."""
    name, separator, path = text.partition("=")
    if not (name and separator and path):
        raise argparse.ArgumentTypeError(f"'{text}' is not NAME=LIBRARY")
    if not pathlib.Path(path).is_file():
        raise argparse.ArgumentTypeError(f"no file {path}")
    return name, pathlib.Path(path).resolve()  # a bare name would be looked for on the loader's path
