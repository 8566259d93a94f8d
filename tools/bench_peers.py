#!/usr/bin/env python3
"""Time mxfa beside what PyTorch offers for the same attention, in one process, interleaved.

usage: bench_peers.py LIBMXFA SUITE [--repeats N] [--rest-ms MS] [--json FILE]

LIBMXFA is libmxfa.so; SUITE a folder of shape files (configs/shapes/h200).  Needs PyTorch and a GPU that mxfa
has kernels for.  Peers: cuDNN and FlashAttention-2 behind scaled_dot_product_attention (dense shapes),
FlashAttention-2 with cumulative lengths (jagged ones), and FlashAttention-3 where the module
flash_attn_interface can be imported.  A peer that cannot do a shape is left out and named.

Every repeat runs each contestant once, after a rest, and a cuBLAS product of 8192^3 as the yardstick; figures
are medians, their fraction of the yardstick and the ratio to mxfa.  FLOPs: 4 D H sum(sq sk) forward, half of
it when causal, 2.5 times that backward.  Outputs are compared with those of the first peer.
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


def offsets(lengths):
    total = [0]
    for n in lengths:
        total.append(total[-1] + n)
    return total


class Shape:
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


def peers(shape, q, k, v):
    """(name, f(q, k, v) -> O) of every peer that might do the shape; O packed like Q, one Q a sequence."""
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
    cu_q, cu_k = (torch.tensor(o, dtype=torch.int32, device="cuda")
                  for o in (offsets(shape.per_sequence_q), shape.offsets_k))
    most_q, most_k = max(shape.per_sequence_q), max(shape.lens_k)
    if not shape.dense:
        try:
            from torch.nn.attention.varlen import varlen_attn
            window = (-1, 0) if shape.causal else (-1, -1)
            yield "FlashAttention-2 varlen", lambda q, k, v: varlen_attn(
                q, k, v, cu_q, cu_k, most_q, most_k, window_size=window)
        except ImportError:
            print("  PyTorch has no torch.nn.attention.varlen")
    try:
        from flash_attn_interface import flash_attn_varlen_func
        yield "FlashAttention-3", lambda q, k, v: flash_attn_varlen_func(
            q, k, v, cu_q, cu_k, most_q, most_k, causal=shape.causal)
    except ImportError:
        pass


def timed(run):
    begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    begin.record()
    run()
    end.record()
    end.synchronize()
    return begin.elapsed_time(end)


def relative_rms(got, want):
    got, want = got.float(), want.float()
    return ((got - want).square().mean() / want.square().mean()).sqrt().item()


def measure(shape, direction, mxfa, options, yardstick):
    generator = torch.Generator("cuda").manual_seed(1)
    rows = (shape.offsets_q[-1], shape.offsets_k[-1], shape.offsets_k[-1], shape.rows_o)
    q, k, v, d_o = (torch.randn(n, shape.heads, shape.head_dim, generator=generator, device="cuda").to(BF16)
                    for n in rows)
    run, o, lse = mxfa.forward(shape, q, k, v)
    run()
    contestants, ours, differences = {"cuBLAS 8192^3": yardstick}, o, {}
    if direction == "backward":
        run, ours = mxfa.backward(shape, q, k, v, o, lse, d_o)
        run()
    contestants["mxfa"] = run
    repeated_q = q.repeat(len(shape.lens_k), 1, 1) if shape.broadcast else q
    for name, attention in peers(shape, q, k, v):
        try:
            leaves = [x.detach().requires_grad_(direction == "backward") for x in (repeated_q, k, v)]
            result = attention(*leaves)
            result = result[0] if isinstance(result, tuple) else result
            if direction == "forward":
                differences[name] = relative_rms(o, result)
                contestants[name] = lambda f=attention, x=leaves: f(*x)
            else:
                grad = lambda o=result, x=leaves: torch.autograd.grad(o, x, d_o, retain_graph=True)
                theirs = list(grad())
                if shape.broadcast:
                    theirs[0] = theirs[0].view(len(shape.lens_k), *q.shape).float().sum(0)
                differences[name] = max(relative_rms(a, b) for a, b in zip(ours, theirs))
                contestants[name] = grad
        except (RuntimeError, TypeError, ValueError) as error:
            print(f"  {name} does not do {shape.name}: {str(error).splitlines()[0][:120]}")
    times = {name: [] for name in contestants}
    for repeat in range(options.repeats + 2):
        for name, contestant in contestants.items():
            torch.cuda.synchronize()
            time.sleep(options.rest_ms / 1000)
            ms = timed(contestant)
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
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("library", type=pathlib.Path)
    parser.add_argument("suite", type=pathlib.Path)
    parser.add_argument("--repeats", type=int, default=15)
    parser.add_argument("--rest-ms", type=float, default=30)
    parser.add_argument("--json", type=pathlib.Path)
    options = parser.parse_args()
    mxfa = Mxfa(options.library)
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
            rows += measure(shape, direction, mxfa, options, yardstick)
            torch.cuda.empty_cache()
    if options.json:
        options.json.write_text(json.dumps(rows, indent=1))


if __name__ == "__main__":
    main()
