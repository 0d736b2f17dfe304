# SPDX-License-Identifier: GPL-2.0
"""The demo's plots, as SVG to be put into a page.

Text and lines take their colour from the page, so that it can be light or dark.
"""

import io
import re

import matplotlib as mpl

mpl.use("svg")
from matplotlib import pyplot as plt

INK, FAINT = "#010203", "#040506"  # stand-ins, replaced by the page's own
COLOURS = {"local": "#8b8f98", "nvme-tcp": "#3f83f8", "rflash": "#f0741c"}
READ, WRITE, AWAY = "#3f83f8", "#f0741c", "#e02424"

mpl.rcParams.update(
    {
        "svg.fonttype": "none",
        "font.family": "sans-serif",
        "font.sans-serif": ["system-ui", "DejaVu Sans"],
        "font.size": 11,
        "text.color": INK,
        "axes.labelcolor": INK,
        "axes.edgecolor": INK,
        "axes.titlecolor": INK,
        "axes.titlesize": 12,
        "xtick.color": INK,
        "ytick.color": INK,
        "grid.color": FAINT,
        "axes.grid": True,
        "axes.axisbelow": True,
        "axes.spines.top": False,
        "axes.spines.right": False,
        "legend.frameon": False,
    }
)


def svg(figure, name):
    """Inline SVG of a figure; name makes its ids its own."""
    mpl.rcParams["svg.hashsalt"] = name
    out = io.StringIO()
    figure.savefig(
        out,
        format="svg",
        transparent=True,
        bbox_inches="tight",
        metadata={"Date": None},
    )
    plt.close(figure)
    text = out.getvalue()
    text = text[text.index("<svg") :]
    text = text.replace(INK, "currentColor").replace(FAINT, "var(--faint)")
    # Matplotlib's own ids ("axes_1") repeat from figure to figure.
    text = re.sub(r'\bid="([A-Za-z]+_\d+)"', rf'id="{name}-\1"', text)
    return re.sub(
        r'(<svg[^>]*?) width="[^"]*"',
        r"\1",
        re.sub(r' height="[^"]*pt"', "", text, count=1),
        count=1,
    )


def iops(cases, subjects):
    """cases: [(title, {subject: [IOPS of each round]})]."""
    figure, axes = plt.subplots(figsize=(9, 3.6))
    width = 0.8 / len(subjects)
    for i, subject in enumerate(subjects):
        middle, low, high = [], [], []
        for _, runs in cases:
            values = sorted(v / 1000 for v in runs[subject])
            median = values[len(values) // 2]
            middle.append(median)
            low.append(median - values[0])
            high.append(values[-1] - median)
        at = [x + (i - (len(subjects) - 1) / 2) * width for x in range(len(cases))]
        bars = axes.bar(
            at,
            middle,
            width * 0.92,
            label=subject,
            color=COLOURS[subject],
            yerr=(low, high),
            ecolor=INK,
            error_kw={"elinewidth": 1, "capsize": 2},
        )
        axes.bar_label(bars, fmt="%.1f", padding=3, fontsize=9)
    axes.set_xticks(range(len(cases)), [title for title, _ in cases])
    axes.set_ylabel("thousand I/Os per second")
    axes.grid(axis="x", visible=False)
    axes.legend(ncols=len(subjects), loc="upper left", bbox_to_anchor=(0, 1.15))
    axes.margins(y=0.12)
    return svg(figure, "iops")


def latency(panels, subjects):
    """panels: [(title, {subject: {nanoseconds: count}})]: cumulative curves."""
    figure, all_axes = plt.subplots(1, len(panels), figsize=(9, 3.4), sharey=True)
    for axes, (title, histograms) in zip(all_axes, panels, strict=True):
        for subject in subjects:
            bins = sorted(histograms[subject].items())
            total = sum(count for _, count in bins)
            xs, ys, seen = [], [], 0
            for ns, count in bins:
                seen += count
                xs.append(ns / 1000)
                ys.append(100 * seen / total)
            axes.step(
                xs,
                ys,
                where="post",
                color=COLOURS[subject],
                label=subject,
                linewidth=1.8,
            )
        axes.set_xscale("log")
        axes.set_title(title, loc="left")
        axes.set_xlabel("latency, µs")
    all_axes[0].set_ylabel("% of I/Os at most this slow")
    all_axes[0].legend(loc="lower right")
    return svg(figure, "latency")


def timeline(ios, away, back, resumed):
    """ios: [(seconds, latency in ms, is write)]; the others: seconds."""
    figure, (top, low) = plt.subplots(2, 1, figsize=(9, 4.6), sharex=True, gridspec_kw={"height_ratios": [2, 1]})
    for is_write, label, colour in (
        (True, "write", WRITE),
        (False, "verifying read", READ),
    ):
        points = [(t, ms) for t, ms, w in ios if w is is_write]
        if points:
            top.scatter(*zip(*points, strict=True), s=5, color=colour, label=label, linewidths=0)
    top.set_yscale("log")
    top.set_ylabel("latency, ms")
    bucket = 0.2
    counts = {}
    for t, _, _ in ios:
        counts[int(t / bucket)] = counts.get(int(t / bucket), 0) + 1
    last = max(counts)
    low.bar(
        [(i + 0.5) * bucket for i in range(last + 1)],
        [counts.get(i, 0) / bucket for i in range(last + 1)],
        bucket,
        color=INK,
        alpha=0.55,
    )
    low.set_ylabel("I/Os per s")
    low.set_xlabel("seconds since fio started")
    for axes in (top, low):
        axes.axvspan(away, back, color=AWAY, alpha=0.16, linewidth=0)
        axes.axvline(resumed, color=INK, linewidth=0.8, linestyle=":")
    label_y = 1.03
    top.text((away + back) / 2, label_y, "target away", ha="center", transform=top.get_xaxis_transform())
    top.text(
        resumed,
        label_y,
        " I/O goes on",
        ha="left",
        transform=top.get_xaxis_transform(),
    )
    top.legend(loc="upper right", markerscale=3)
    return svg(figure, "timeline")
