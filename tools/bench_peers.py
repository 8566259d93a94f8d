#!/usr/bin/env python3
"""Time mxfa beside what PyTorch offers for the same attention, in one process, interleaved.

usage: bench_peers.py LIBMXFA SUITE [--library NAME=LIBRARY]... [--repeats N] [--rest-ms MS] [--json FILE]

LIBMXFA is libmxfa.so; SUITE a folder of shape files (configs/shapes/h200).  Needs PyTorch and a GPU that mxfa
has kernels for.  Peers: cuDNN and FlashAttention-2 behind scaled_dot_product_attention (dense shapes),
FlashAttention-2 with cumulative lengths (jagged ones), and every --library, a shared library with two C
functions (below).  A peer that cannot do a shape is left out and named.  Broadcast queries are repeated for
peers, and the sum of their dQ over the batch is not in a peer's time.

Every repeat runs each contestant once, after a rest, and a cuBLAS product of 8192^3 as the yardstick, each
repeat beginning with another one.  A short wait on the device goes ahead of each timed call, so that the
host has enqueued it before the first event.  Figures are medians, their fraction of the yardstick and the
ratio to mxfa.  FLOPs: 4 D H sum(sq sk) forward, half of it when causal, 2.5 times that backward.  Outputs
and gradients are compared with mxfa's.
"""
import argparse
import ctypes as c
import json
import math
import pathlib
import statistics
import time

import torch
from torch.nn.attention import SDPBackend, sdpa_kernel

import peer_library
from peer_library import PeerLibrary, Shape, largest, offsets

HOST_SHARE_CYCLES = 2_000_000  # about 1 ms, longer than the host needs to enqueue any contestant
BF16 = torch.bfloat16


class Scales(c.Structure):
    _fields_ = [("data", c.c_void_p), ("bytes", c.c_uint64), ("orientation", c.c_int32)]


class Tensor(c.Structure):
    _fields_ = [("data", c.c_void_p), ("row_stride", c.c_int64), ("rows", c.c_int64), ("scales", Scales)]

    @staticmethod
    def of(t):
        return Tensor(t.data_ptr(), t.stride(0), t.shape[0], Scales())


class Attention(c.Structure):  # mxfa_attention
    _fields_ = [("size", c.c_uint32)] + [
        (n, c.c_int32) for n in ("dtype", "head_dim", "heads_q", "heads_kv", "batch")
    ] + [("offsets_q", c.POINTER(c.c_int32)), ("offsets_k", c.POINTER(c.c_int32))] + [
        (n, c.c_int32) for n in ("broadcast_q", "causal", "window_left", "window_right")
    ] + [("scale", c.c_float)] + [(n, c.c_int32) for n in ("scaling_mode", "block", "p_scale")] + [
        ("kernel", c.c_char_p)] + [
        (n, c.c_int32) for n in ("max_total_q", "max_total_k", "max_length_q", "max_length_k")]


class ForwardArgs(c.Structure):
    _fields_ = [("size", c.c_uint32), ("q", Tensor), ("k", Tensor), ("v", Tensor), ("o", Tensor),
                ("lse", c.c_void_p), ("workspace", c.c_void_p)]


class BackwardArgs(c.Structure):
    _fields_ = [("size", c.c_uint32)] + [(n, Tensor) for n in ("q", "k", "v", "o", "d_o")] + [
        ("lse", c.c_void_p)] + [(n, Tensor) for n in ("dq", "dk", "dv")] + [("workspace", c.c_void_p)]


class Mxfa:
    def __init__(self, path):
        self.lib = c.CDLL(str(path))
        self.lib.mxfa_error.restype = self.lib.mxfa_plan_describe.restype = c.c_char_p
        self.lib.mxfa_plan_workspace.restype = c.c_uint64
        self.context = c.c_void_p()
        self.check(self.lib.mxfa_create(None, c.byref(self.context)))

    def check(self, status):
        if status:
            raise RuntimeError(self.lib.mxfa_error(self.context).decode())

    def plan(self, make, shape, *options):
        a = Attention()
        self.lib.mxfa_attention_defaults(c.byref(a), c.c_uint32(c.sizeof(a)))
        offsets = [(c.c_int32 * (len(o)))(*o) for o in (shape.offsets_q, shape.offsets_k)]
        a.head_dim, a.heads_q, a.heads_kv = shape.head_dim, shape.heads, shape.heads
        a.batch, a.causal, a.broadcast_q = len(shape.lens_k), shape.causal, shape.broadcast
        a.offsets_q, a.offsets_k = offsets
        plan = c.c_void_p()
        self.check(make(self.context, c.byref(a), *options, c.byref(plan)))
        size = max(self.lib.mxfa_plan_workspace(plan), 256)
        workspace = torch.empty(size, dtype=torch.uint8, device="cuda")
        self.check(self.lib.mxfa_plan_prepare(plan, c.c_void_p(workspace.data_ptr()), stream()))
        return plan, workspace

    def forward(self, shape, q, k, v):
        plan, workspace = self.plan(self.lib.mxfa_plan_attention_forward, shape)
        o = torch.full((shape.rows_o, shape.heads, shape.head_dim), math.nan, dtype=BF16, device="cuda")
        lse = torch.full((shape.heads, shape.rows_o), math.nan, device="cuda")
        args = ForwardArgs(c.sizeof(ForwardArgs), *map(Tensor.of, (q, k, v, o)), lse.data_ptr(),
                           workspace.data_ptr())
        run = lambda: self.check(self.lib.mxfa_attention_forward(plan, c.byref(args), stream()))
        run.keep = (plan, workspace)  # the arguments hold addresses only
        return run, o, lse

    def backward(self, shape, q, k, v, o, lse, d_o):
        plan, workspace = self.plan(self.lib.mxfa_plan_attention_backward, shape, None)
        grads = [torch.full_like(t, math.nan) for t in (q, k, v)]
        args = BackwardArgs(c.sizeof(BackwardArgs), *map(Tensor.of, (q, k, v, o, d_o)), lse.data_ptr(),
                            *map(Tensor.of, grads), workspace.data_ptr())
        run = lambda: self.check(self.lib.mxfa_attention_backward(plan, c.byref(args), stream()))
        run.keep = (plan, workspace)
        return run, grads


def stream():
    return c.c_void_p(torch.cuda.current_stream().cuda_stream)


def peers(shape):
    """(name, f(q, k, v) -> O) of what PyTorch has for the shape; O packed like Q, one Q a sequence."""
    if shape.dense:
        b, s = len(shape.lens_q), shape.lens_q[0]

        def sdpa(backend):
            def call(*qkv):
                with sdpa_kernel(backend):
                    per_head = (x.view(b, s, shape.heads, shape.head_dim).transpose(1, 2) for x in qkv)
                    o = torch.nn.functional.scaled_dot_product_attention(*per_head, is_causal=shape.causal)
                return o.transpose(1, 2).reshape(b * s, shape.heads, shape.head_dim)
            return call

        yield "cuDNN", sdpa(SDPBackend.CUDNN_ATTENTION)
        yield "FlashAttention-2", sdpa(SDPBackend.FLASH_ATTENTION)
        return
    try:
        from torch.nn.attention.varlen import varlen_attn
    except ImportError:
        print("  PyTorch has no torch.nn.attention.varlen")
        return
    cu_q, cu_k = cumulative(shape)
    most_q, most_k = max(shape.per_sequence_q), max(shape.lens_k)
    window = (-1, 0) if shape.causal else (-1, -1)
    yield "FlashAttention-2 varlen", lambda q, k, v: varlen_attn(
        q, k, v, cu_q, cu_k, most_q, most_k, window_size=window)


def cumulative(shape):
    return [torch.tensor(o, dtype=torch.int32, device="cuda")
            for o in (offsets(shape.per_sequence_q), shape.offsets_k)]


def through_autograd(attention, direction, q, k, v, d_o):
    """(run, results) of a peer of PyTorch's."""
    leaves = [x.detach().requires_grad_(direction == "backward") for x in (q, k, v)]
    result = attention(*leaves)
    if direction == "forward":
        return lambda: attention(*leaves), [result]
    run = lambda: torch.autograd.grad(result, leaves, d_o, retain_graph=True)
    return run, list(run())


def through_library(library, shape, direction, q, k, v, d_o):
    """(run, results) of a peer library."""
    lengths = cumulative(shape)
    o, lse = torch.full_like(q, math.nan), torch.full((q.shape[0] * shape.heads,), math.nan, device="cuda")
    call = lambda function, tensors: function(shape, [t.data_ptr() for t in tensors],
                                              *[t.data_ptr() for t in lengths], stream())
    forward = lambda: call(library.forward, (q, k, v, o, lse))
    forward()
    if direction == "forward":
        return forward, [o]
    grads = [torch.full_like(t, math.nan) for t in (q, k, v)]
    backward = lambda: call(library.backward, (q, k, v, o, lse, d_o, *grads))
    backward()
    return backward, grads


def timed(run):
    begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    torch.cuda._sleep(HOST_SHARE_CYCLES)
    begin.record()
    run()
    end.record()
    end.synchronize()
    return begin.elapsed_time(end)


def relative_rms(got, want):
    got, want = got.float(), want.float()
    return ((got - want).square().mean() / want.square().mean()).sqrt().item()


def measure(shape, direction, mxfa, libraries, options, yardstick):
    generator = torch.Generator("cuda").manual_seed(1)
    rows = (shape.offsets_q[-1], shape.offsets_k[-1], shape.offsets_k[-1], shape.rows_o)
    q, k, v, d_o = (torch.randn(n, shape.heads, shape.head_dim, generator=generator, device="cuda").to(BF16)
                    for n in rows)
    run, o, lse = mxfa.forward(shape, q, k, v)
    run()
    contestants, ours, differences = {"cuBLAS 8192^3": yardstick}, [o], {}
    if direction == "backward":
        run, ours = mxfa.backward(shape, q, k, v, o, lse, d_o)
        run()
    contestants["mxfa"] = run
    repeated_q = q.repeat(len(shape.lens_k), 1, 1) if shape.broadcast else q
    makers = {name: lambda f=attention: through_autograd(f, direction, repeated_q, k, v, d_o)
              for name, attention in peers(shape)}
    makers |= {x.name: lambda x=x: through_library(x, shape, direction, repeated_q, k, v, d_o)
               for x in libraries}
    for name, make in makers.items():
        try:
            run, theirs = make()
            if shape.broadcast and direction == "backward":
                of_sequences, *others = theirs  # run() keeps writing to the list's tensors
                theirs = [of_sequences.view(len(shape.lens_k), *q.shape).float().sum(0), *others]
            differences[name] = largest(relative_rms(a, b) for a, b in zip(theirs, ours))
            contestants[name] = run
        except (RuntimeError, TypeError, ValueError) as error:
            print(f"  {name} does not do {shape.name}: {str(error).splitlines()[0][:120]}")
    times = {name: [] for name in contestants}
    names = list(contestants)
    for repeat in range(options.repeats + 2):
        first = repeat % len(names)
        for name in names[first:] + names[:first]:
            torch.cuda.synchronize()
            time.sleep(options.rest_ms / 1000)
            ms = timed(contestants[name])
            if repeat >= 2:  # two to warm up
                times[name].append(ms)
    medians = {name: statistics.median(t) for name, t in times.items()}
    cublas = 2 * 8192**3 / medians.pop("cuBLAS 8192^3") / 1e9
    flops = shape.flops * (2.5 if direction == "backward" else 1)
    found = []
    for name, ms in medians.items():
        rate = flops / ms / 1e9
        r = {"shape": shape.name, "head_dim": shape.head_dim, "direction": direction, "contestant": name,
             "ms": ms, "samples_ms": times[name], "tflops": rate, "fraction": rate / cublas,
             "cublas_tflops": cublas, "ratio_to_mxfa": ms / medians["mxfa"],
             "relative_rms_to_mxfa": differences.get(name)}
        found.append(r)
        print(f"{shape.name:34} {shape.head_dim:4} {direction:8} {name:24} {ms:9.4f} ms {rate:7.1f} TFLOP/s "
              f"{r['fraction']:.3f} of cuBLAS, {r['ratio_to_mxfa']:6.2f} x mxfa's time"
              + (f", differs by {differences[name]:.1e}" if name in differences else ""), flush=True)
    return found


def main():
    parser = argparse.ArgumentParser(description=f"{__doc__}\n{peer_library.__doc__}",
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("libmxfa", type=pathlib.Path)
    parser.add_argument("suite", type=pathlib.Path)
    parser.add_argument("--library", type=peer_library.named_library, action="append", default=[],
                        metavar="NAME=LIBRARY", help="a peer library, any number of times")
    parser.add_argument("--repeats", type=int, default=15)
    parser.add_argument("--rest-ms", type=float, default=30)
    parser.add_argument("--json", type=pathlib.Path)
    options = parser.parse_args()
    mxfa = Mxfa(options.libmxfa)
    libraries = [PeerLibrary(*named) for named in options.library]
    a, b = (torch.randn(8192, 8192, device="cuda").to(BF16) for _ in range(2))
    yardstick = lambda: torch.matmul(a, b)
    rows = []
    for file in sorted(options.suite.glob("*.json")):
        given = json.loads(file.read_text())
        if given["op"] not in ("attn_fwd", "attn_bwd"):
            continue
        for case in given.get("cases", [given]):
            shape = Shape(file.stem, given, case["head_dim"])
            direction = "backward" if given["op"] == "attn_bwd" else "forward"
            rows += measure(shape, direction, mxfa, libraries, options, yardstick)
            torch.cuda.empty_cache()
    if options.json:
        options.json.write_text(json.dumps(rows, indent=1))


if __name__ == "__main__":
    main()
