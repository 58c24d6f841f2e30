#!/usr/bin/env python3
"""The findings in a folder of measure_torch.py as Markdown. Usage: report.py DIR [--peak 989e12]

Fit of matrix products: t = t0 + 2 (m + 64)(n + 64)(k + 100) / (peak e); e and t0 minimise the mean absolute error of
log t. MFU counts 6 FLOP per parameter in a matrix product (head included, embedding not) and token, and causal
attention at half of the square; recomputation does not count.
"""
import argparse
import csv
import math
import os
import statistics
import sys


def read(folder, part):
    path = os.path.join(folder, f"{part}.csv")
    if not os.path.exists(path):
        return []
    with open(path, encoding="utf-8") as file:
        lines = [line for line in file if not line.startswith("#")]
    return list(csv.DictReader(lines))


def number(row, column):
    return float(row[column]) if row.get(column) else None


def quantile(values, part):
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(part * len(ordered)))]


def spread(values, form="{:.2f}"):
    """median (10th to 90th percentile, count)"""
    if not values:
        return "-"
    words = [form.format(x) for x in (statistics.median(values), quantile(values, 0.1), quantile(values, 0.9))]
    return f"{words[0]} ({words[1]} to {words[2]}, {len(values)})"


def table(head, rows):
    print("| " + " | ".join(head) + " |")
    print("|" + "---|" * len(head))
    for row in rows:
        print("| " + " | ".join(str(cell) for cell in row) + " |")
    print()


def golden(cost, low, high):
    ratio = (math.sqrt(5) - 1) / 2
    for _ in range(60):
        left, right = high - ratio * (high - low), low + ratio * (high - low)
        if cost(left) < cost(right):
            high = right
        else:
            low = left
    return (low + high) / 2


def fit(points, peak):
    """(e, t0, errors) of [(m, n, k, seconds)]"""
    work = [(2 * (m + 64) * (n + 64) * (k + 100) / peak, t) for m, n, k, t in points]

    def cost(e, t0):
        return sum(abs(math.log((t0 + w / e) / t)) for w, t in work)

    def best_e(t0):
        return golden(lambda e: cost(e, t0), 0.05, 1.2)
    t0 = min((i * 0.25e-6 for i in range(121)), key=lambda t: cost(best_e(t), t))
    e = best_e(t0)
    return e, t0, [abs((t0 + w / e) / t - 1) for w, t in work]


def gemm(rows, peak):
    good = [row for row in rows if row["result"] == "ok"]
    times = {}
    for row in good:
        shape = tuple(int(row[x]) for x in "mnk")
        times[(row["dtype"], row["layout"], shape, row["mode"])] = number(row, "time_us") * 1e-6
    print(f"## Matrix products ({len(good)} rows of {len(rows)})\n")
    bins = [(0, 50e-6), (50e-6, 200e-6), (200e-6, 1e-3), (1e-3, 4e-3), (4e-3, 1e9)]
    lines = []
    for dtype in ("bf16", "fp8", "fp8+cast"):
        for low, high in bins:
            ratios = [t / times[(d, layout, shape, "burst")] for (d, layout, shape, mode), t in times.items()
                      if d == dtype and mode == "sustained" and low <= times[(d, layout, shape, "burst")] < high]
            if ratios:
                name = f"{low * 1e6:.0f} to {high * 1e6:.0f} us" if high < 1 else f"over {low * 1e6:.0f} us"
                lines.append((dtype, name, spread(ratios, "{:.3f}")))
    table(("dtype", "burst time", "sustained / burst: median (p10 to p90, n)"), lines)

    lines = []
    for dtype, scale in (("bf16", 1), ("fp8", 2), ("fp8+cast", 2)):
        for layout in ("TN", "NN", "NT"):
            for mode in ("burst", "sustained"):
                points = [(*shape, t) for (d, l, shape, o), t in times.items() if (d, l, o) == (dtype, layout, mode)]
                if len(points) >= 6:
                    e, t0, errors = fit(points, peak * scale)
                    lines.append((dtype, layout, mode, len(points), f"{e:.4f}", f"{t0 * 1e6:.2f}",
                                  f"{statistics.median(errors) * 100:.1f}", f"{quantile(errors, 0.9) * 100:.1f}"))
    table(("dtype", "layout", "mode", "n", "e", "t0, us", "median error, %", "p90 error, %"), lines)

    lines = []
    for mode in ("burst", "sustained"):
        for layout, name in (("NN", "input gradient / forward"), ("NT", "weight gradient / forward")):
            ratios = [t / times[("bf16", "TN", shape, mode)] for (d, l, shape, o), t in times.items()
                      if (d, l, o) == ("bf16", layout, mode) and ("bf16", "TN", shape, mode) in times]
            lines.append((name, mode, spread(ratios, "{:.3f}")))
        for dtype in ("fp8", "fp8+cast"):
            ratios = [t / times[("bf16", "TN", shape, mode)] for (d, l, shape, o), t in times.items()
                      if (d, o) == (dtype, mode) and ("bf16", "TN", shape, mode) in times]
            lines.append((f"{dtype} / bf16 forward", mode, spread(ratios, "{:.3f}")))
    table(("ratio of times", "mode", "median (p10 to p90, n)"), lines)


def attention(rows, peak):
    print("## Attention, causal, sustained\n")
    lines = []
    for row in rows:
        if row["mode"] != "sustained" and row["result"] == "ok":
            continue
        b, h, g, s, d, v = (int(row[x]) for x in "batch,heads,kv_heads,seq,head_dim,head_dim_v".split(","))
        flop = b * h * s * s * (d + v)
        ahead, back = number(row, "forward_us"), number(row, "backward_us")
        lines.append((row["backend"], f"{d}" if d == v else f"{d}/{v}", f"{h}/{g}", s, b,
                      f"{flop / (ahead * 1e-6 * peak):.3f}" if ahead else "-",
                      f"{2.5 * flop / (back * 1e-6 * peak):.3f}" if back else "-",
                      f"{back / ahead:.2f}" if back else "-", row["result"][:60]))
    lines.sort(key=lambda line: (line[0], line[1], line[2], line[3]))
    table(("backend", "head_dim", "heads", "seq", "batch", "forward efficiency", "backward efficiency",
           "backward / forward", "result"), lines)


def pointwise(rows):
    print("## Memory-bound operations and launches\n")
    lines = []
    for row in rows:
        if row["result"] != "ok":
            lines.append((row["op"], row["stack"], "-", "-", "-", row["result"][:60]))
        elif row["mode"] == "host":
            lines.append((row["op"], row["stack"], "host", row["time_us"] + " us per launch", "-", ""))
        elif row["mode"] == "sustained":
            extra = float(row["extra_bytes"]) / float(row["bytes"]) if row["extra_bytes"] else 0
            lines.append((row["op"], row["stack"], row["mode"], row["time_us"] + " us", row["peak_fraction"],
                          f"extra {extra:.2f} of the bytes"))
    table(("operation", "stack", "mode", "time", "fraction of the bandwidth", "note"), lines)


def model_flop(row):
    """(FLOP of a step, parameters in matrix products)"""
    layers, hidden, ffn, heads, kv, dim, vocab, seq = (
        int(row[x]) for x in "layers,hidden,ffn,heads,kv_heads,head_dim,vocab,seq".split(","))
    block = hidden * dim * (2 * heads + 2 * kv) + (3 if row["gated"] == "1" else 2) * hidden * ffn
    weights = layers * block + vocab * hidden
    tokens = seq * int(row["mbs"]) * int(row["grad_acc"])
    return tokens * (6 * weights + 6 * layers * heads * dim * seq), weights


def steps(rows, peak):
    print("## Training steps\n")
    lines = []
    for row in rows:
        name = (row["model"], row["stack"], row["recompute"], f'{row["seq"]} x {row["mbs"]} x {row["grad_acc"]}')
        if row["result"] != "ok":
            lines.append((*name, *"------", row["result"][:60]))
            continue
        seconds = number(row, "step_time_s")
        parts = " + ".join(f"{1e3 * number(row, x):.0f}" for x in ("forward_s", "backward_s", "update_s"))
        memory = [f"{float(row[x]) / 2**30:.1f}" if row[x] else "-"
                  for x in ("state_bytes", "max_allocated", "max_reserved", "device_used")]
        lines.append((*name, f"{1e3 * seconds:.1f}", parts, f'{1e3 * number(row, "host_s"):.0f}',
                      f"{model_flop(row)[0] / seconds / peak:.3f}", " / ".join(memory), row["mhz"], "ok"))
    table(("model", "stack", "recompute", "seq x mbs x acc", "step, ms", "forward + backward + update, ms", "host, ms",
           "MFU", "state / allocated / reserved / device, GiB", "MHz", "result"), lines)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder")
    parser.add_argument("--peak", type=float, default=989e12, help="dense bf16 FLOP/s")
    args = parser.parse_args()
    if not os.path.isdir(args.folder):
        parser.error(f"{args.folder} is no folder")
    gemm(read(args.folder, "gemm"), args.peak)
    attention(read(args.folder, "attention"), args.peak)
    pointwise(read(args.folder, "pointwise"))
    steps(read(args.folder, "steps"), args.peak)
    return 0


if __name__ == "__main__":
    sys.exit(main())
