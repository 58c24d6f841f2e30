#!/usr/bin/env python3
"""Measures one GPU with PyTorch: matrix products, attention, memory-bound operations, whole training steps.

Needs torch (2.5 or later) and nothing else. Nothing of the GPU's settings is changed.

    python3 measure_torch.py --out DIR                    # all parts, stops by itself before --budget-s (420)
    python3 measure_torch.py --out DIR --parts gemm,steps # some parts, in this order
    python3 measure_torch.py --out DIR --list             # the cases in their order, nothing is run
    python3 measure_torch.py --out DIR --device cpu --tiny  # tries the script itself; its numbers mean nothing
    python3 report.py DIR                                 # the findings as Markdown

Every part runs in a process of its own, so that a failure in one leaves the others alone. Rows are flushed as they are
made; a case that fails is a row too: `result` is `oom`, or `error: ...`, or `crash` where the process died in it. A part
that died is started again behind that case. The most valuable cases come first. Lines with # hold date, GPU, versions.

How times are taken: operands are views into a large pool of normal random numbers, another place for every launch, so
that nothing is left in L2; outputs rotate as well. Three modes:

    burst      a few launches after 20 ms of idle: the clock is not yet lowered by the power limit
    sustained  launches back to back for at least --sustained-s (0.4 s); median of pieces of about 10 ms of the last half
    host       wall clock of one host thread that launches tiny kernels

Both GPU modes replay a CUDA graph between two events, behind a spinning kernel that hides the host's launch; a kernel's
time so includes the gap to the next one (about 1 us). Backward passes and optimizers run without graph: they are sized
so that the GPU is slower than the host. mhz and watt are medians of NVML's SM clock and power over the last half of the
sustained piece (watt only where NVML has it).

gemm.csv       gpu,dtype,layout,m,n,k,mode,time_us,tflop_per_s,mhz,watt,shape,result
    m tokens, n outputs, k inputs of the forward product, in all layouts (each is 2 m n k FLOP):
    TN forward y[m,n] = x[m,k] W[n,k]^T;  NN input gradient dx[m,k] = dy[m,n] W[n,k];  NT weight gradient
    dW[n,k] = dy[m,n]^T x[m,k]. dtype bf16; fp8 e4m3 with scalar scales, bf16 output and fast accumulation; fp8+cast
    the same with one kernel that casts the bf16 input before it (W is fp8 already). shape: where the shape is from.
attention.csv  gpu,dtype,backend,batch,heads,kv_heads,seq,head_dim,head_dim_v,mode,forward_us,backward_us,
               forward_mhz,backward_mhz,result
    causal scaled_dot_product_attention, inputs [batch, seq, heads, head_dim] transposed. Backward is what autograd runs
    for it (gradients of q, k and v; for grouped heads the sum over the group is part of it).
pointwise.csv  gpu,op,stack,mode,elements,bytes,time_us,bytes_per_s,peak_fraction,extra_bytes,launches,mhz,watt,result
    bytes: the fewest that the operation must move (each input read once, each output written once), whatever the
    kernels really move. peak_fraction: of --bandwidth (4.8e12 B/s). extra_bytes: what the allocator's peak rises by
    during one call. stack: eager, compile, or graph. host rows: time_us is per launch, bytes empty.
steps.csv      model facts, then stack,recompute,seq,mbs,grad_acc, times, memory, result: see STEP_COLUMNS below
    A step: grad_acc micro-batches forward and backward, gradients clipped to norm 1 (foreach), fused AdamW on fp32
    parameters with fp32 gradients, zero_grad(set_to_none); bf16 autocast; random tokens; flash attention; the host waits
    for the GPU at the end of each step. stack compile: every block and the loss through torch.compile, the rest eager.
    recompute full: torch.utils.checkpoint (not reentrant) around every block. `llama` models: RMSNorm, rotary, separate
    q, k, v, gate and up products, no biases, untied head, residual stream bf16. `gpt` models: LayerNorm, learned
    positions, one qkv product, tanh GELU, biases, tied head, and the residual stream that autocast leaves (fp32).
    step_time_s is the median of `steps` steps after warm-up; forward_s, backward_s, update_s are GPU times of all
    micro-batches of the median step, host_s is how long the host needed to launch a step. state_bytes: allocated between
    steps (parameters and optimizer); forward_bytes: allocated after the forward pass of the last micro-batch;
    max_allocated, max_reserved: the allocator's peaks; device_used: nvidia-smi's memory.used after the steps.
"""
import argparse
import csv
import ctypes
import datetime
import gc
import math
import os
import platform
import random
import statistics
import subprocess
import sys
import threading
import time

# ---------------------------------------------------------------------------------------------------------- columns

GEMM_COLUMNS = "gpu,dtype,layout,m,n,k,mode,time_us,tflop_per_s,mhz,watt,shape,result".split(",")
ATTENTION_COLUMNS = ("gpu,dtype,backend,batch,heads,kv_heads,seq,head_dim,head_dim_v,mode,forward_us,backward_us,"
                     "forward_mhz,backward_mhz,result").split(",")
POINTWISE_COLUMNS = ("gpu,op,stack,mode,elements,bytes,time_us,bytes_per_s,peak_fraction,extra_bytes,launches,mhz,watt,"
                     "result").split(",")
STEP_COLUMNS = ("gpu,model,layers,hidden,ffn,heads,kv_heads,head_dim,vocab,gated,tied,residual_dtype,params,"
                "stack,recompute,seq,mbs,grad_acc,"
                "step_time_s,step_min_s,step_max_s,steps,tokens_per_s,forward_s,backward_s,update_s,host_s,compile_s,"
                "state_bytes,forward_bytes,max_allocated,max_reserved,device_used,mhz,watt,result").split(",")
COLUMNS = {"gemm": GEMM_COLUMNS, "attention": ATTENTION_COLUMNS, "pointwise": POINTWISE_COLUMNS, "steps": STEP_COLUMNS}

# Share of the budget of each part; what one leaves goes to the next ones.
SHARES = {"steps": 0.46, "gemm": 0.27, "attention": 0.12, "pointwise": 0.15}

# ------------------------------------------------------------------------------------------------------------ cases


def gemm_cases():
    """(shape name, dtype, layout, m, n, k), the most valuable first."""
    models = {  # hidden, outputs of qkv, inputs of the output projection, ffn, gated, vocabulary
        "llama-8b": (4096, 6144, 4096, 14336, True, 128256),
        "llama-70b": (8192, 10240, 8192, 28672, True, 128256),
        "qwen3-8b": (4096, 6144, 4096, 12288, True, 151936),
        "qwen3-32b": (5120, 10240, 8192, 25600, True, 151936),
        "mpt-7b": (4096, 12288, 4096, 16384, False, 50432),
        "mpt-30b": (7168, 21504, 7168, 28672, False, 50432),
    }

    def matrices(name, tp):
        h, qkv, o, f, gated, vocab = models[name]
        up = (2 if gated else 1) * f
        return {"qkv": (qkv // tp, h), "out": (h, o // tp), "up": (up // tp, h), "down": (h, f // tp)}

    def family(names, tps, ms, layouts, dtype="bf16", which=("qkv", "out", "up", "down")):
        return [(f"{name}/tp{tp}/{matrix}", dtype, layout, m, *matrices(name, tp)[matrix])
                for name in names for tp in tps for matrix in which for m in ms for layout in layouts]

    every = ("TN", "NN", "NT")
    heads = [("llama-8b/tp1/head", "bf16", layout, 8192, 128256, 4096) for layout in every]
    squares = [("square", "bf16", "TN", s, s, s) for s in (512, 1024, 2048, 4096, 8192, 16384)]
    thin = [("grid", "bf16", "TN", m, n, k) for m in (512, 1024, 2048, 4096, 8192, 16384)
            for n, k in ((1024, 4096), (4096, 1024), (2048, 2048), (16384, 512))]
    fp8 = [case for dtype in ("fp8", "fp8+cast")
           for case in family(("llama-8b", "llama-70b"), (1,), (8192,), ("TN",), dtype)
           + family(("llama-70b",), (8,), (4096,), ("TN",), dtype)]
    lists = [
        family(("llama-8b", "llama-70b"), (1,), (8192,), every),
        fp8,
        squares,
        family(("llama-8b",), (1,), (2048, 4096), every) + heads,
        family(("llama-70b",), (8, 4), (4096,), every),
        family(("llama-8b",), (8, 2), (4096,), every),
        family(("mpt-30b", "qwen3-32b"), (1,), (4096,), ("TN",)),
        family(("llama-8b",), (1,), (1024, 16384), ("TN",)),
        thin,
        family(("qwen3-32b", "mpt-7b"), (1, 8), (2048, 8192), ("TN",)),
        family(("llama-70b",), (1, 2, 4, 8), (1024, 2048, 16384), ("TN",)),
        family(("mpt-7b", "mpt-30b", "qwen3-8b", "qwen3-32b"), (1,), (2048, 8192), ("NN", "NT")),
        family(tuple(models), (2, 4), (4096, 8192), every),
    ]
    order, seen = [], set()
    for part in lists:
        random.Random(7).shuffle(part)  # so that a list that is cut is still a fair sample
        for case in part:
            if case[1:] not in seen:
                seen.add(case[1:])
                order.append(case)
    return order


def attention_cases():
    """(backend, batch, heads, kv heads, seq, head_dim, head_dim_v)"""
    cases = []
    for seq in (4096, 8192, 2048, 1024, 16384, 32768):
        for backend in ("flash", "cudnn"):
            cases.append((backend, max(1, 16384 // seq), 32, 8, seq, 128, 128))
            cases.append((backend, max(1, 16384 // seq), 32, 32, seq, 64, 64))
        if seq == 4096:
            cases += [(backend, 4, 16, 16, seq, 192, 128) for backend in ("cudnn", "flash")]
            cases += [(backend, 4, 8, 1, seq, 128, 128) for backend in ("flash", "cudnn")]
        if seq == 8192:
            cases += [("flash", 2, 32, 32, seq, 128, 128), ("flash", 1, 64, 8, seq, 128, 128)]
            cases += [(backend, 2, 16, 16, seq, 192, 128) for backend in ("cudnn",)]
    cases += [("flash", 16, 32, 32, 1024, 128, 128), ("flash", 4, 32, 32, 4096, 128, 128),
              ("flash", 1, 32, 8, 4096, 128, 128), ("flash", 1, 32, 32, 4096, 64, 64)]
    return cases


MODELS = {  # layers, hidden, ffn, heads, kv heads, vocabulary, gated
    "llama-2048x16": (16, 2048, 8192, 32, 8, 128256, True),
    "llama-4096x8": (8, 4096, 14336, 32, 8, 128256, True),
    "llama-4096x6": (6, 4096, 14336, 32, 8, 128256, True),
    "gpt-2048x24": (24, 2048, 8192, 16, 16, 50257, False),
}


def step_cases():
    """(model, stack, recompute, seq, mbs, grad_acc)"""
    a, b, c, d = "llama-2048x16", "llama-4096x8", "gpt-2048x24", "llama-4096x6"
    return [
        (a, "eager", "none", 4096, 2, 1), (a, "compile", "none", 4096, 2, 1),
        (a, "eager", "full", 4096, 2, 1), (a, "eager", "none", 2048, 1, 1),
        (b, "eager", "none", 4096, 2, 1), (b, "compile", "none", 4096, 2, 1),
        (b, "eager", "full", 4096, 2, 1), (b, "eager", "none", 4096, 1, 4), (b, "eager", "none", 8192, 1, 1),
        (c, "eager", "none", 2048, 4, 1), (c, "compile", "none", 2048, 4, 1),
        (c, "eager", "full", 2048, 4, 1), (c, "eager", "none", 2048, 2, 4),
        (a, "compile", "full", 4096, 2, 1), (a, "eager", "none", 8192, 2, 1), (a, "eager", "none", 128, 1, 1),
        (a, "eager", "none", 4096, 1, 4), (a, "eager", "none", 2048, 4, 1), (a, "eager", "full", 8192, 4, 1),
        (a, "compile", "none", 8192, 1, 1), (a, "compile", "none", 2048, 1, 4),
        (b, "compile", "full", 8192, 2, 1), (b, "eager", "none", 2048, 1, 1), (b, "eager", "full", 8192, 2, 4),
        (b, "eager", "full", 4096, 4, 1), (b, "compile", "none", 2048, 2, 4),
        (c, "eager", "none", 4096, 1, 1), (c, "eager", "full", 4096, 4, 1), (c, "compile", "full", 2048, 4, 1),
        (c, "compile", "none", 4096, 2, 4), (c, "eager", "none", 8192, 1, 1),
        (d, "eager", "none", 4096, 4, 1), (d, "compile", "none", 8192, 2, 1), (d, "eager", "full", 8192, 4, 4),
        (d, "eager", "none", 2048, 2, 4),
        (a, "compile", "none", 128, 1, 1), (a, "compile", "none", 4096, 4, 1), (a, "eager", "none", 4096, 4, 1),
    ]


# "op/stack" in their order; the operations themselves are in class Pointwise.
POINTWISE_CASES = [
    "copy/eager", "launch_add/eager", "launch_mm/eager", "launch_add/graph", "launch_graph/graph",
    "rms_norm_forward/eager", "rms_norm_backward/eager", "layer_norm_forward/eager", "layer_norm_backward/eager",
    "swiglu_forward/eager", "swiglu_backward/eager", "gelu_forward/eager", "gelu_backward/eager",
    "residual_add/eager", "rotary_forward/eager", "cast_fp32_bf16/eager", "accumulate_fp32/eager",
    "adamw/eager", "clip_norm/eager", "cross_entropy/eager",
    "rotary_forward/compile", "cross_entropy/compile", "swiglu_forward/compile", "swiglu_backward/compile",
    "rms_norm_forward/compile", "rms_norm_backward/compile", "rotary_backward/compile", "rotary_backward/eager",
    "layer_norm_forward/compile", "layer_norm_backward/compile", "launch_layer/eager", "softmax_forward/eager",
    "embedding_forward/eager", "embedding_backward/eager",
]


def cases_of(part):
    if part == "pointwise":
        return [tuple(case.split("/")) for case in POINTWISE_CASES]
    return {"gemm": gemm_cases, "attention": attention_cases, "steps": step_cases}[part]()


def key_of(case):
    return "/".join(str(word) for word in case)


# ------------------------------------------------------------------------------------------------------- clock, power


class FieldValue(ctypes.Structure):  # nvmlFieldValue_t
    _fields_ = [("field", ctypes.c_uint), ("scope", ctypes.c_uint), ("stamp", ctypes.c_longlong),
                ("latency", ctypes.c_longlong), ("type", ctypes.c_int), ("status", ctypes.c_int),
                ("value", ctypes.c_ulonglong)]


class Telemetry:
    """Samples SM clock and power through NVML every 50 ms; medians over a span of time. Reads only."""

    def __init__(self, on):
        self.samples = []
        if not on:
            return
        try:
            self.nvml = ctypes.CDLL("libnvidia-ml.so.1")
            self.device = ctypes.c_void_p()
            if self.nvml.nvmlInit_v2() or self.nvml.nvmlDeviceGetHandleByIndex_v2(0, ctypes.byref(self.device)):
                raise OSError("NVML does not start")
            threading.Thread(target=self.loop, daemon=True).start()
        except (OSError, AttributeError) as problem:
            note(f"no clocks and power: {problem}")

    def power(self):
        wanted = FieldValue(field=186)  # NVML_FI_DEV_POWER_INSTANT, in mW
        if self.nvml.nvmlDeviceGetFieldValues(self.device, 1, ctypes.byref(wanted)) == 0 and wanted.status == 0:
            return (wanted.value & 0xFFFFFFFF) / 1000
        milliwatt = ctypes.c_uint()
        if self.nvml.nvmlDeviceGetPowerUsage(self.device, ctypes.byref(milliwatt)) == 0:
            return milliwatt.value / 1000
        return None

    def loop(self):
        while True:
            try:
                clock = ctypes.c_uint()
                status = self.nvml.nvmlDeviceGetClockInfo(self.device, 1, ctypes.byref(clock))
                self.samples.append((time.perf_counter(), None if status else clock.value, self.power()))
            except AttributeError:
                return
            time.sleep(0.05)

    def median(self, start, end):
        taken = [sample for sample in self.samples if start <= sample[0] <= end]
        columns = [[sample[i] for sample in taken if sample[i] is not None] for i in (1, 2)]
        return [round(statistics.median(column), 1) if column else "" for column in columns]


def note(text):
    print(f"[{time.perf_counter() - START:7.1f} s] {text}", file=sys.stderr, flush=True)


START = time.perf_counter()

# ------------------------------------------------------------------------------------------------------------- timing


class Bench:
    """Times of GPU work. On the CPU (for trying the script) the same calls by the wall clock."""

    def __init__(self, args):
        import torch
        self.torch, self.args = torch, args
        self.cuda = args.device == "cuda"
        self.device = torch.device(args.device)
        self.telemetry = Telemetry(self.cuda)
        self.gpu = gpu_name(torch, self.cuda)
        torch.manual_seed(1)
        if self.cuda:
            torch.cuda.set_device(0)
            # One stream for warm-up, capture and timing: cuBLAS allocates its workspace in the warm-up, not in a graph.
            torch.cuda.set_stream(torch.cuda.Stream())
        self.sustained_s = args.sustained_s if self.cuda else 0.01

    def sync(self):
        if self.cuda:
            self.torch.cuda.synchronize()

    def free(self):
        gc.collect()
        if self.cuda:
            self.torch.cuda.empty_cache()

    def allocated(self, peak=False):
        if not self.cuda:
            return 0
        return self.torch.cuda.max_memory_allocated() if peak else self.torch.cuda.memory_allocated()

    def capture(self, call, count):
        graph = self.torch.cuda.CUDAGraph()
        self.sync()
        graph.capture_begin(capture_error_mode="thread_local")
        try:
            for i in range(count):
                call(i)
        finally:
            graph.capture_end()
        return graph

    def span(self, run, spin_cycles=0):
        """GPU seconds of run(); waits for it."""
        if not self.cuda:
            start = time.perf_counter()
            run()
            return time.perf_counter() - start
        first, last = (self.torch.cuda.Event(enable_timing=True) for _ in range(2))
        if spin_cycles:
            self.torch.cuda._sleep(spin_cycles)
        first.record()
        run()
        last.record()
        last.synchronize()
        return first.elapsed_time(last) / 1e3

    def repeat(self, call, count, graph):
        """A function that launches call(0) .. call(count - 1), as one graph where `graph` says so."""
        if graph and self.cuda:
            return self.capture(call, count).replay

        def run():
            for i in range(count):
                call(i)
        return run

    def time(self, call, guess_s, graph=True):
        """{mode: (seconds per call, mhz, watt)}; call(i) launches with the i-th operands."""
        for i in range(2):
            call(i)
        self.sync()
        count = max(2, min(16, int(1e-3 / guess_s)))
        burst = self.repeat(call, count, graph)
        spin = 400_000 if graph else 4_000_000  # 0.2 ms, 2 ms
        self.span(burst)
        times = []
        for _ in range(5):
            if self.cuda:
                time.sleep(0.02)
            times.append(self.span(burst, spin) / count)
        seconds = statistics.median(times)
        result = {"burst": (seconds, "", "")}

        count = max(1, min(256, int(0.01 / seconds)))
        piece = self.repeat(call, count, graph)
        pieces = max(4, math.ceil(self.sustained_s / (seconds * count)))
        if not self.cuda:
            result["sustained"] = (statistics.median(self.span(piece) / count for _ in range(2)), "", "")
            return result
        piece()
        marks = [self.torch.cuda.Event(enable_timing=True) for _ in range(pieces + 1)]
        self.sync()
        start = time.perf_counter()
        marks[0].record()
        for mark in marks[1:]:
            piece()
            mark.record()
        self.sync()
        end = time.perf_counter()
        spans = [a.elapsed_time(b) / 1e3 / count for a, b in zip(marks, marks[1:])]
        clock, power = self.telemetry.median((start + end) / 2, end)
        result["sustained"] = (statistics.median(spans[len(spans) // 2:]), clock, power)
        return result


def gpu_name(torch, cuda):
    return torch.cuda.get_device_name(0).replace("NVIDIA ", "") if cuda else "cpu"


def microseconds(seconds):
    return float(f"{seconds * 1e6:.5g}")


# --------------------------------------------------------------------------------------------------------------- gemm


class Gemm:
    def __init__(self, bench):
        self.bench, torch = bench, bench.torch
        self.torch = torch
        size = 4 << 30 if bench.cuda and not bench.args.tiny else 4 << 20  # elements: 8 GiB
        self.size = size
        self.inputs = torch.empty(size, dtype=torch.bfloat16, device=bench.device)
        for start in range(0, size, 1 << 28):
            self.inputs[start:start + (1 << 28)].normal_()
        self.outputs = torch.empty(size // 2, dtype=torch.bfloat16, device=bench.device)
        self.fp8 = None
        self.place = {}

    def take(self, pool, rows, columns):
        """The next rows x columns of a pool."""
        need = rows * columns
        start = self.place.get(id(pool), 0)
        if start + need > pool.numel():
            start = 0
        if need > pool.numel():
            raise MemoryError(f"pool of {pool.numel()} elements is too small for {rows} x {columns}")
        self.place[id(pool)] = start + (need + 511) // 512 * 512
        return pool[start:start + need].view(rows, columns)

    def calls(self, dtype, layout, m, n, k):
        """A list of functions, each of which launches the product with other operands."""
        torch = self.torch
        width = 2 if dtype == "bf16" else 1
        sets = max(2, min(128, math.ceil(400e6 / (width * (m * k + n * k) + 2 * m * n))))
        if not self.bench.cuda:
            sets = 2
        if dtype != "bf16" and self.fp8 is None:
            fp8 = torch.empty(self.size // 4, dtype=torch.float8_e4m3fn, device=self.bench.device)
            for start in range(0, fp8.numel(), 1 << 28):
                end = min(start + (1 << 28), fp8.numel())
                fp8[start:end].copy_(self.inputs[start:end])
            self.fp8 = fp8
        one = torch.ones((), dtype=torch.float32, device=self.bench.device)

        def make():
            if dtype == "bf16":
                if layout == "TN":
                    a, b, shape = self.take(self.inputs, m, k), self.take(self.inputs, n, k).t(), (m, n)
                elif layout == "NN":
                    a, b, shape = self.take(self.inputs, m, n), self.take(self.inputs, n, k), (m, k)
                else:
                    a, b, shape = self.take(self.inputs, m, n).t(), self.take(self.inputs, m, k), (n, k)
                out = self.take(self.outputs, *shape)
                return lambda: torch.mm(a, b, out=out)
            b = self.take(self.fp8, n, k).t()
            if dtype == "fp8":
                a = self.take(self.fp8, m, k)
                return lambda: torch._scaled_mm(a, b, one, one, out_dtype=torch.bfloat16, use_fast_accum=True)
            x = self.take(self.inputs, m, k)
            return lambda: torch._scaled_mm(x.to(torch.float8_e4m3fn), b, one, one, out_dtype=torch.bfloat16,
                                            use_fast_accum=True)
        return [make() for _ in range(sets)]

    def run(self, case):
        shape, dtype, layout, m, n, k = case
        if self.bench.args.tiny:
            m, n, k = (max(16, size // 64 // 16 * 16) for size in (m, n, k))
        calls = self.calls(dtype, layout, m, n, k)
        flop = 2.0 * m * n * k
        guess = 4e-6 + max(flop / 7e14, 2.0 * (m * k + n * k + m * n) / 4e12)
        times = self.bench.time(lambda i: calls[i % len(calls)](), guess)
        for mode, (seconds, clock, power) in times.items():
            yield {"dtype": dtype, "layout": layout, "m": m, "n": n, "k": k, "mode": mode, "shape": shape,
                   "time_us": microseconds(seconds), "tflop_per_s": round(flop / seconds / 1e12, 1),
                   "mhz": clock, "watt": power}

    def facts(self, case):
        shape, dtype, layout, m, n, k = case
        return {"shape": shape, "dtype": dtype, "layout": layout, "m": m, "n": n, "k": k}


# ---------------------------------------------------------------------------------------------------------- attention


class Attention:
    def __init__(self, bench):
        self.bench, self.torch = bench, bench.torch

    def run(self, case):
        from torch.nn.attention import SDPBackend, sdpa_kernel
        torch, bench = self.torch, self.bench
        backend, batch, heads, kv_heads, seq, dim, dim_v = case
        if bench.args.tiny:
            seq //= 64
        chosen = {"flash": SDPBackend.FLASH_ATTENTION, "cudnn": SDPBackend.CUDNN_ATTENTION}[backend]
        if not bench.cuda:
            chosen = SDPBackend.MATH

        def operand(count, width):
            made = torch.randn(batch, seq, count, width, dtype=torch.bfloat16, device=bench.device)
            return made.transpose(1, 2).detach().requires_grad_()

        sets = [(operand(heads, dim), operand(kv_heads, dim), operand(kv_heads, dim_v)) for _ in range(2)]
        gradient = operand(heads, dim_v).detach()
        attend = torch.nn.functional.scaled_dot_product_attention

        def forward(i):
            return attend(*sets[i % 2], is_causal=True, enable_gqa=heads != kv_heads)

        flop = 1.0 * batch * heads * seq * seq * (dim + dim_v)
        with sdpa_kernel([chosen]):
            with torch.no_grad():
                ahead = bench.time(forward, flop / 4e14 + 1e-5)
            try:
                outputs = [forward(i) for i in range(2)]
                back = bench.time(lambda i: torch.autograd.grad(outputs[i % 2], sets[i % 2], gradient,
                                                                retain_graph=True), 2.5 * flop / 4e14 + 1e-5, False)
                result = "ok"
            except RuntimeError as problem:  # some backends have the forward pass only
                back, result = {}, "forward only: " + short(problem)
        for mode, (seconds, clock, _) in ahead.items():
            behind = back.get(mode)
            yield {**self.facts(case), "seq": seq, "mode": mode, "forward_us": microseconds(seconds),
                   "forward_mhz": clock, "backward_us": microseconds(behind[0]) if behind else "",
                   "backward_mhz": behind[1] if behind else "", "result": result}

    def facts(self, case):
        names = "backend,batch,heads,kv_heads,seq,head_dim,head_dim_v".split(",")
        return {"dtype": "bf16", **dict(zip(names, case))}


# ---------------------------------------------------------------------------------------------------------- pointwise


def rotate(x, cosine, sine):
    half = x.shape[-1] // 2
    first, second = x[..., :half], x[..., half:]
    import torch
    return x * cosine + torch.cat((-second, first), dim=-1) * sine


class Pointwise:
    def __init__(self, bench):
        self.bench, self.torch = bench, bench.torch
        self.functional = bench.torch.nn.functional
        self.scale = 64 if bench.args.tiny else 1
        import torch._functorch.config as functorch
        functorch.donated_buffer = False  # backward is called many times on one forward

    def random(self, *shape, dtype=None, grad=False):
        torch = self.torch
        made = torch.randn(*shape, dtype=dtype or torch.bfloat16, device=self.bench.device)
        return made.requires_grad_() if grad else made

    def rows(self):
        return 16384 // self.scale

    # Each returns (call(i), elements, bytes per element, graph?) for a function and its operands.

    def both(self, function, operands, direction, stack, forward_bytes, backward_bytes, elements):
        torch = self.torch
        if stack == "compile":
            torch._dynamo.reset()
            function = torch.compile(function, dynamic=False)
        if direction == "forward":
            def call(i):
                with torch.no_grad():
                    return function(*operands[i % 2])
            return call, elements, forward_bytes, True
        outputs = [function(*args) for args in operands]
        gradients = [torch.randn_like(out) for out in outputs]
        wanted = [[arg for arg in args if arg.requires_grad] for args in operands]

        def back(i):
            return torch.autograd.grad(outputs[i % 2], wanted[i % 2], gradients[i % 2], retain_graph=True)
        return back, elements, backward_bytes, False

    def build(self, op, stack):
        torch, functional = self.torch, self.functional
        rows, wide = self.rows(), 8192
        base, _, direction = op.rpartition("_")
        if op == "copy":
            pairs = [(self.random(rows, 4 * wide), self.random(rows, 4 * wide)) for _ in range(2)]
            return lambda i: pairs[i % 2][0].copy_(pairs[i % 2][1]), rows * 4 * wide, 4, True
        if base in ("rms_norm", "layer_norm"):
            weight = self.random(wide, grad=True)
            bias = self.random(wide, grad=True)
            operands = [(self.random(rows, wide, grad=True), weight, bias)[:2 if base == "rms_norm" else 3]
                        for _ in range(2)]

            def rms_norm(x, w):
                return functional.rms_norm(x, (wide,), w, 1e-5)

            def layer_norm(x, w, b):
                return functional.layer_norm(x, (wide,), w, b, 1e-5)
            return self.both(rms_norm if base == "rms_norm" else layer_norm, operands, direction, stack, 4, 6,
                             rows * wide)
        if base == "swiglu":
            operands = [(self.random(rows, wide, grad=True), self.random(rows, wide, grad=True)) for _ in range(2)]
            return self.both(lambda gate, up: functional.silu(gate) * up, operands, direction, stack, 6, 10,
                             rows * wide)
        if base == "gelu":
            operands = [(self.random(rows, wide, grad=True),) for _ in range(2)]
            return self.both(lambda x: functional.gelu(x, approximate="tanh"), operands, direction, stack, 4, 6,
                             rows * wide)
        if base == "softmax":
            operands = [(self.random(rows, wide, grad=True),) for _ in range(2)]
            return self.both(lambda x: functional.softmax(x, dim=-1), operands, direction, stack, 4, 6, rows * wide)
        if op == "residual_add":
            operands = [(self.random(rows, wide), self.random(rows, wide)) for _ in range(2)]
            return self.both(lambda x, y: x + y, operands, "forward", stack, 6, 6, rows * wide)
        if base == "rotary":  # q of 64 heads of 128; cosine and sine are small
            heads, dim = 64, 128
            angle = self.random(rows, dim, dtype=torch.float32)
            cosine, sine = angle.cos().bfloat16(), angle.sin().bfloat16()
            operands = [(self.random(1, rows, heads, dim).transpose(1, 2).requires_grad_(), cosine, sine)
                        for _ in range(2)]
            return self.both(rotate, operands, direction, stack, 4, 4, rows * heads * dim)
        if op == "cast_fp32_bf16":
            operands = [(self.random(rows, wide, dtype=torch.float32),) for _ in range(2)]
            return self.both(lambda x: x.bfloat16(), operands, "forward", stack, 6, 6, rows * wide)
        if op == "accumulate_fp32":
            pairs = [(self.random(rows, wide, dtype=torch.float32), self.random(rows, wide, dtype=torch.float32))
                     for _ in range(2)]
            return lambda i: pairs[i % 2][0].add_(pairs[i % 2][1]), rows * wide, 12, True
        if op in ("adamw", "clip_norm"):
            matrices = [self.random(4096 // self.scale, 8192, dtype=torch.float32, grad=True) for _ in range(32)]
            for matrix in matrices:
                matrix.grad = torch.randn_like(matrix) * 1e-3
            elements = sum(matrix.numel() for matrix in matrices)
            if op == "clip_norm":
                clip = torch.nn.utils.clip_grad_norm_
                return lambda i: clip(matrices, 1.0, foreach=True), elements, 12, False
            optimizer = torch.optim.AdamW(matrices, lr=1e-4, fused=True)
            return lambda i: optimizer.step(), elements, 28, False
        if op == "cross_entropy":  # forward and backward, from bf16 logits to their gradient
            tokens, vocab = 8192 // self.scale, 128256 // self.scale
            logits = [self.random(tokens, vocab, grad=True) for _ in range(2)]
            labels = torch.randint(vocab, (tokens,), device=self.bench.device)

            def loss(x, y):
                return functional.cross_entropy(x.float(), y)
            if stack == "compile":
                torch._dynamo.reset()
                loss = torch.compile(loss, dynamic=False)
            return lambda i: torch.autograd.grad(loss(logits[i % 2], labels), logits[i % 2]), tokens * vocab, 6, False
        if base == "embedding":
            tokens, vocab = rows, 128256 // self.scale
            table = self.random(vocab, 4096, dtype=torch.float32, grad=True)
            indices = [(torch.randint(vocab, (tokens,), device=self.bench.device), table) for _ in range(2)]
            # forward: a row read and written; backward: gradient of the whole table zeroed, rows read and added to it
            return self.both(functional.embedding, indices, direction, stack, 8,
                             12 + 4 * vocab / tokens, tokens * 4096)
        raise KeyError(op)

    def run(self, case):
        op, stack = case
        if op.startswith("launch_"):
            yield from self.launches(op, stack)
            return
        call, elements, width, graph = self.build(op, stack)
        size = elements * width
        call(0), call(1)
        self.bench.sync()
        before = self.bench.allocated()
        if self.bench.cuda:
            self.torch.cuda.reset_peak_memory_stats()
        kept = call(0)
        self.bench.sync()
        extra = self.bench.allocated(peak=True) - before
        del kept
        times = self.bench.time(call, size / 2e12, graph)
        for mode, (seconds, clock, power) in times.items():
            yield {"op": op, "stack": stack, "mode": mode, "elements": elements, "bytes": int(size),
                   "time_us": microseconds(seconds), "bytes_per_s": float(f"{size / seconds:.4g}"),
                   "peak_fraction": round(size / seconds / self.bench.args.bandwidth, 4), "extra_bytes": extra,
                   "mhz": clock, "watt": power}

    def launches(self, op, stack):
        """Tiny kernels: what one launch costs the host (or, in a graph, the GPU)."""
        torch, bench = self.torch, self.bench
        count = 20000 if bench.cuda else 200
        x = torch.ones(16, device=bench.device)
        a = torch.randn(64, 64, dtype=torch.bfloat16, device=bench.device)
        out = torch.empty_like(a)
        if op == "launch_layer":  # norm, product and SwiGLU of 64 tokens, forward and backward: 2 x 16 launches or so
            count = max(10, count // 100)
            weight = [torch.randn(64, 64, dtype=torch.bfloat16, device=bench.device, requires_grad=True)
                      for _ in range(3)]

            def call(_):
                y = self.functional.rms_norm(a, (64,))
                y = self.functional.silu(y @ weight[0]) * (y @ weight[1])
                torch.autograd.grad((a + y @ weight[2]).sum(), weight)
        elif op == "launch_mm":
            def call(_):
                torch.mm(a, a, out=out)
        else:
            def call(_):
                x.add_(1)
        per_run = 1
        if stack == "graph":
            per_run = 1000 if op == "launch_add" else 1
            count = max(5, count // (per_run if per_run > 1 else 4))
            call(0)
            run = bench.repeat(call, per_run, True)
        else:
            run = lambda: call(0)
        with torch.enable_grad() if op == "launch_layer" else torch.no_grad():
            for _ in range(min(count, 200)):
                run()
            bench.sync()
            times = []
            for _ in range(5):
                start = time.perf_counter()
                for _ in range(count // 5):
                    run()
                bench.sync()
                times.append((time.perf_counter() - start) / (count // 5 * per_run))
        yield {"op": op, "stack": stack, "mode": "host", "time_us": microseconds(statistics.median(times)),
               "launches": count * per_run}

    def facts(self, case):
        return {"op": case[0], "stack": case[1]}


# -------------------------------------------------------------------------------------------------------------- steps


def build_model(torch, name, tiny, device):
    """The model and its facts. Fresh weights; fp32 parameters."""
    nn, functional = torch.nn, torch.nn.functional
    layers, hidden, ffn, heads, kv_heads, vocab, gated = MODELS[name]
    if tiny:
        layers, hidden, ffn, vocab = 2, hidden // 16, ffn // 16, 512
    dim = hidden // heads

    class RMSNorm(nn.Module):
        def __init__(self):
            super().__init__()
            self.weight = nn.Parameter(torch.ones(hidden))

        def forward(self, x):
            return functional.rms_norm(x, (hidden,), self.weight.to(x.dtype), 1e-5)

    class Block(nn.Module):
        def __init__(self):
            super().__init__()
            if gated:
                self.norm1, self.norm2 = RMSNorm(), RMSNorm()
                self.q = nn.Linear(hidden, heads * dim, bias=False)
                self.k = nn.Linear(hidden, kv_heads * dim, bias=False)
                self.v = nn.Linear(hidden, kv_heads * dim, bias=False)
                self.gate = nn.Linear(hidden, ffn, bias=False)
            else:
                self.norm1, self.norm2 = nn.LayerNorm(hidden), nn.LayerNorm(hidden)
                self.qkv = nn.Linear(hidden, 3 * hidden)
            self.out = nn.Linear(heads * dim, hidden, bias=not gated)
            self.up = nn.Linear(hidden, ffn, bias=not gated)
            self.down = nn.Linear(ffn, hidden, bias=not gated)

        def forward(self, x, cosine, sine):
            batch, seq, _ = x.shape
            y = self.norm1(x)
            q, k, v = (self.q(y), self.k(y), self.v(y)) if gated else self.qkv(y).split(hidden, dim=-1)
            q, k, v = (part.view(batch, seq, -1, dim).transpose(1, 2) for part in (q, k, v))
            if gated:
                q, k = rotate(q, cosine, sine), rotate(k, cosine, sine)
            y = functional.scaled_dot_product_attention(q, k, v, is_causal=True, enable_gqa=heads != kv_heads)
            x = x + self.out(y.transpose(1, 2).reshape(batch, seq, heads * dim))
            y = self.norm2(x)
            y = functional.silu(self.gate(y)) * self.up(y) if gated else functional.gelu(self.up(y), approximate="tanh")
            return x + self.down(y)

    class Model(nn.Module):
        def __init__(self):
            super().__init__()
            self.embedding = nn.Embedding(vocab, hidden)
            if not gated:
                self.positions = nn.Embedding(8192, hidden)
            self.blocks = nn.ModuleList(Block() for _ in range(layers))
            self.norm = RMSNorm() if gated else nn.LayerNorm(hidden)
            self.head = nn.Linear(hidden, vocab, bias=False)
            if not gated:
                self.head.weight = self.embedding.weight
            self.residual = ""

        def forward(self, tokens, cosine, sine, blocks, recompute):
            x = self.embedding(tokens)
            if gated:
                x = x.to(torch.bfloat16)
            else:
                x = x + self.positions(torch.arange(tokens.shape[1], device=tokens.device))
            for block in blocks:
                if recompute == "full":
                    x = torch.utils.checkpoint.checkpoint(block, x, cosine, sine, use_reentrant=False,
                                                          preserve_rng_state=False)
                else:
                    x = block(x, cosine, sine)
            self.residual = str(x.dtype).replace("torch.", "")
            return self.head(self.norm(x))

    with torch.device(device):
        model = Model()
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.dim() == 2:
                parameter.normal_(0, 0.02)
    facts = dict(zip("layers,hidden,ffn,heads,kv_heads,vocab,gated".split(","),
                     (layers, hidden, ffn, heads, kv_heads, vocab, int(gated))))
    facts.update(model=name, head_dim=dim, tied=int(not gated), params=sum(p.numel() for p in model.parameters()))
    return model, facts


class Steps:
    def __init__(self, bench):
        self.bench, self.torch = bench, bench.torch
        import torch.utils.checkpoint  # noqa: F401
        torch = bench.torch
        backends = torch.backends.cuda
        backends.enable_cudnn_sdp(False)
        backends.enable_mem_efficient_sdp(False)
        if bench.cuda:
            backends.enable_math_sdp(False)
            q, k = (torch.zeros(1, heads, 256, 128, dtype=torch.bfloat16, device=bench.device) for heads in (8, 2))
            try:
                torch.nn.functional.scaled_dot_product_attention(q, k, k, is_causal=True, enable_gqa=True)
            except RuntimeError as problem:
                note(f"steps: no flash attention, the library chooses: {short(problem)}")
                backends.enable_cudnn_sdp(True), backends.enable_mem_efficient_sdp(True), backends.enable_math_sdp(True)
        torch._dynamo.config.recompile_limit = 32
        self.name = None

    def load(self, name):
        if self.name == name:
            return
        self.name = self.model = self.optimizer = None
        self.bench.free()
        self.model, self.model_facts = build_model(self.torch, name, self.bench.args.tiny, self.bench.device)
        self.optimizer = self.torch.optim.AdamW(self.model.parameters(), lr=1e-4, fused=True)
        self.name = name

    def run(self, case):
        torch, bench, cuda = self.torch, self.bench, self.bench.cuda
        name, stack, recompute, seq, mbs, grad_acc = case
        self.load(name)
        if bench.args.tiny:
            seq //= 32
        model, optimizer, facts = self.model, self.optimizer, self.model_facts
        optimizer.zero_grad(set_to_none=True)
        functional = torch.nn.functional

        def loss_of(logits, labels):
            return functional.cross_entropy(logits.view(-1, logits.shape[-1]).float(), labels.reshape(-1))
        blocks = list(model.blocks)
        if stack == "compile":
            torch._dynamo.reset()
            blocks = [torch.compile(block, dynamic=False) for block in blocks]
            loss_of = torch.compile(loss_of, dynamic=False)
        bench.free()
        angle = torch.outer(torch.arange(seq, device=bench.device).float(),
                            500000.0 ** (-torch.arange(0, 1, 2 / facts["head_dim"], device=bench.device)))
        angle = torch.cat((angle, angle), dim=-1)
        cosine, sine = angle.cos().bfloat16(), angle.sin().bfloat16()
        data = torch.randint(facts["vocab"], (4, grad_acc, mbs, seq + 1), device=bench.device)
        marks, forward_bytes = [], 0

        def mark():
            if cuda:
                event = torch.cuda.Event(enable_timing=True)
                event.record()
                marks.append(event)
            else:
                marks.append(time.perf_counter())

        def step(number):
            nonlocal forward_bytes
            marks.clear()
            mark()
            for micro in range(grad_acc):
                tokens = data[number % 4, micro]
                with torch.autocast(bench.device.type, dtype=torch.bfloat16):
                    logits = model(tokens[:, :-1], cosine, sine, blocks, recompute)
                    loss = loss_of(logits, tokens[:, 1:]) / grad_acc
                del logits
                mark()
                forward_bytes = bench.allocated()
                loss.backward()
                mark()
            torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0, foreach=True)
            optimizer.step()
            optimizer.zero_grad(set_to_none=True)
            mark()
            return loss

        start = time.perf_counter()
        step(0)
        bench.sync()
        compile_s = time.perf_counter() - start
        for number in (1, 2):
            step(number)
        bench.sync()
        bench.free()
        state_bytes = bench.allocated()
        if cuda:
            torch.cuda.reset_peak_memory_stats()
        times, hosts, parts = [], [], []
        begin = time.perf_counter()
        while len(times) < 8 or (time.perf_counter() - begin < (1.5 if cuda else 0) and len(times) < 40):
            start = time.perf_counter()
            loss = step(len(times))
            hosts.append(time.perf_counter() - start)
            bench.sync()
            times.append(time.perf_counter() - start)
            spans = [a.elapsed_time(b) / 1e3 if cuda else b - a for a, b in zip(marks, marks[1:])]
            parts.append((sum(spans[0:-1:2]), sum(spans[1:-1:2]), spans[-1]))
        end = time.perf_counter()
        clock, power = bench.telemetry.median((begin + end) / 2, end)
        median = statistics.median(times)
        middle = min(range(len(times)), key=lambda i: abs(times[i] - median))
        value = loss.item()
        row = {**self.facts(case), "seq": seq, "residual_dtype": model.residual, "step_time_s": f"{median:.6f}",
               "step_min_s": f"{min(times):.6f}", "step_max_s": f"{max(times):.6f}", "steps": len(times),
               "tokens_per_s": round(seq * mbs * grad_acc / median, 1), "host_s": f"{statistics.median(hosts):.6f}",
               "forward_s": f"{parts[middle][0]:.6f}", "backward_s": f"{parts[middle][1]:.6f}",
               "update_s": f"{parts[middle][2]:.6f}", "compile_s": f"{compile_s:.2f}", "state_bytes": state_bytes,
               "forward_bytes": forward_bytes, "mhz": clock, "watt": power,
               "result": "ok" if math.isfinite(value) else "error: loss is not finite"}
        if cuda:
            row.update(max_allocated=torch.cuda.max_memory_allocated(), max_reserved=torch.cuda.max_memory_reserved(),
                       device_used=device_used(torch))
        yield row

    def facts(self, case):
        known = dict(zip("model,stack,recompute,seq,mbs,grad_acc".split(","), case))
        return {**(self.model_facts if self.name == case[0] else {}), **known}


def smi(query):
    done = subprocess.run(["nvidia-smi", f"--query-gpu={query}", "--format=csv,noheader,nounits"], capture_output=True,
                          text=True, timeout=20, check=True)
    return done.stdout.splitlines()[0].strip()


def device_used(torch):
    try:
        return int(smi("memory.used")) << 20
    except (OSError, subprocess.SubprocessError, ValueError, IndexError):
        free, total = torch.cuda.mem_get_info()
        return total - free


# --------------------------------------------------------------------------------------------------------------- parts


def short(problem):
    return " ".join(f"{type(problem).__name__}: {problem}".split())[:160].replace(",", ";").strip()


def header(torch, args):
    """The # lines of a file."""
    cuda = args.device == "cuda"
    try:
        driver, limit = smi("driver_version"), smi("power.limit") + " W"
    except (OSError, subprocess.SubprocessError, IndexError):
        driver = limit = "unknown"
    cudnn = torch.backends.cudnn.version() if cuda else "none"
    return [f"# measured {args.date} on one {gpu_name(torch, cuda)}; driver {driver}, power limit {limit};"
            f" torch {torch.__version__}, CUDA {torch.version.cuda if cuda else 'none'}, cuDNN {cudnn},"
            f" Python {platform.python_version()}",
            "# by measure_torch.py; columns: its first lines"]


def run_part(part, args):
    """In a process of its own: the cases of one part until its time is over. Exit code 5: start again behind here."""
    deadline = START + args.budget_s
    threading.Thread(target=lambda: (time.sleep(args.budget_s + 12), note("too long"), os._exit(6)),
                     daemon=True).start()
    import torch
    path, current = (os.path.join(args.out, f"{part}.{end}") for end in ("csv", "current"))
    done = set()
    if args.resume:
        with open(current, encoding="utf-8") as file:
            done = set(file.read().split("\n"))
    fresh = not os.path.exists(path) or not args.resume
    with open(path, "w" if fresh else "a", newline="", encoding="utf-8") as file, \
            open(current, "w" if fresh else "a", encoding="utf-8") as log:
        if fresh:
            file.write("\n".join(header(torch, args)) + "\n")
        writer = csv.DictWriter(file, COLUMNS[part], restval="", lineterminator="\n")
        if fresh:
            writer.writeheader()
        bench = Bench(args)
        worker = {"gemm": Gemm, "attention": Attention, "pointwise": Pointwise, "steps": Steps}[part](bench)
        note(f"{part}: begins")
        reserve = 15 if part == "steps" else 3
        for case in cases_of(part)[:args.cases]:
            if key_of(case) in done:
                continue
            # A step through the compiler takes long; a shorter case behind it may still fit.
            if time.perf_counter() + reserve * (2 if "compile" in case and bench.cuda else 1) > deadline:
                note(f"{part}: no time for {key_of(case)}")
                if time.perf_counter() + reserve > deadline:
                    break
                continue
            log.write(key_of(case) + "\n")
            log.flush()
            rows, problem = [], None
            try:
                rows = [{"result": "ok", **row} for row in worker.run(case)]
            except Exception as caught:  # whatever it is, it is that case's result
                memory = isinstance(caught, (torch.OutOfMemoryError, MemoryError)) or "out of memory" in str(caught)
                problem = "oom" if memory else "error: " + short(caught)
                caught.__traceback__ = None
            if problem:
                rows = [{**worker.facts(case), "result": problem}]
                note(f"{key_of(case)}: {problem}")
            for row in rows:
                writer.writerow({"gpu": bench.gpu, **row})
                if args.verbose or part == "steps":
                    note(" ".join(str(value) for value in row.values())[:230])
            file.flush()
            os.fsync(file.fileno())
            try:
                if problem or part != "gemm":
                    bench.free()
                bench.sync()
            except RuntimeError as broken:  # the device's context is lost
                note(f"{part}: {short(broken)}")
                os._exit(5)
    note(f"{part}: ends")


def main():
    parser = argparse.ArgumentParser(description="Measures one GPU with PyTorch; see the head of this file.")
    parser.add_argument("--out", required=True, help="folder for the CSV files")
    parser.add_argument("--parts", default="steps,gemm,attention,pointwise")
    parser.add_argument("--budget-s", type=float, default=420)
    parser.add_argument("--sustained-s", type=float, default=0.4)
    parser.add_argument("--bandwidth", type=float, default=4.8e12, help="peak B/s of the device memory")
    parser.add_argument("--date", default=datetime.date.today().isoformat())
    parser.add_argument("--device", default="cuda", choices=("cuda", "cpu"))
    parser.add_argument("--tiny", action="store_true", help="small sizes, to try the script")
    parser.add_argument("--cases", type=int, default=None, help="only so many cases of each part")
    parser.add_argument("--verbose", action="store_true")
    parser.add_argument("--list", action="store_true")
    parser.add_argument("--only", help=argparse.SUPPRESS)  # this process runs this part
    parser.add_argument("--resume", action="store_true", help=argparse.SUPPRESS)
    args = parser.parse_args()
    parts = args.parts.split(",")
    unknown = [part for part in parts if part not in COLUMNS]
    if unknown:
        parser.error(f"unknown parts: {', '.join(unknown)}")
    if args.list:
        for part in parts:
            for case in cases_of(part):
                print(part, *case)
        return 0
    os.makedirs(args.out, exist_ok=True)
    if args.only:
        run_part(args.only, args)
        return 0

    failed = 0
    for index, part in enumerate(parts):
        left = args.budget_s - (time.perf_counter() - START)
        budget = left * SHARES[part] / sum(SHARES[later] for later in parts[index:])
        stop = time.perf_counter() + budget
        code, resume = None, False
        for _ in range(3):
            seconds = stop - time.perf_counter()
            if seconds < 10 and resume:
                break
            command = [sys.executable, "-u", os.path.abspath(__file__), *sys.argv[1:], "--only", part, "--budget-s",
                       str(seconds)] + (["--resume"] if resume else [])
            child = subprocess.Popen(command)
            try:
                code = child.wait(timeout=seconds + 20)
            except subprocess.TimeoutExpired:
                child.kill()
                code = child.wait()
            if code == 0:
                break
            resume = mark_crash(part, args, code)
            if not resume:
                break
        failed += code != 0
        note(f"{part}: exit code {code}")
        current = os.path.join(args.out, f"{part}.current")
        if os.path.exists(current):
            os.remove(current)
    return 1 if failed else 0


def mark_crash(part, args, code):
    """A row for the case in which the process died; whether to go on behind it."""
    path, current = (os.path.join(args.out, f"{part}.{end}") for end in ("csv", "current"))
    if not os.path.exists(current):
        return False
    with open(current, encoding="utf-8") as file:
        started = file.read().split()
    if not started:
        return False
    if code != 5:
        with open(path, "a", newline="", encoding="utf-8") as file:
            row = {"gpu": "", "result": f"crash ({code}): {started[-1]}"}
            csv.DictWriter(file, COLUMNS[part], restval="", lineterminator="\n").writerow(row)
    return True


if __name__ == "__main__":
    sys.exit(main())
