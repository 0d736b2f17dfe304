# SPDX-License-Identifier: GPL-2.0
"""Turns what the guests measured into one self-contained HTML page.

    page.py RESULTS-DIRECTORY BENCHMARK-DIRECTORY PAGE

Prints the table of results. Needs matplotlib.
"""

import html
import json
import sys
from itertools import pairwise
from pathlib import Path
from statistics import median

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE), str(HERE.parent / "bench")]

import fiodata

# As on the page, and what the benchmark calls them.
SUBJECTS = {"local": "null_blk", "nvme-tcp": "nvme-tcp", "rflash": "rflash"}
CASES = {
    "randread-qd1": "read, QD 1",
    "randread-qd32": "read, QD 32",
    "randwrite-qd1": "write, QD 1",
    "randwrite-qd32": "write, QD 32",
}


def collect(bench):
    """{case: {subject: [figures of each round]}}."""
    measured = json.loads((bench / "driver.json").read_text())
    runs = {}
    for row in measured["cases"]:
        rounds = range(measured["provenance"]["rounds"])
        runs[row["case"]] = {
            ours: [
                fiodata.figures(bench / "driver.runs" / f"{row['case']}.{theirs}.{number}.json") for number in rounds
            ]
            for ours, theirs in SUBJECTS.items()
        }
    missing = set(CASES) - set(runs)
    if missing:
        raise fiodata.FioError(f"{bench}: not measured: {', '.join(sorted(missing))}")
    return runs, measured["provenance"]


def joined(rounds):
    """The latency histogram over all rounds."""
    total = {}
    for run in rounds:
        for ns, count in run["bins"].items():
            total[ns] = total.get(ns, 0) + count
    return total


def outage(results):
    """Every I/O of the run through the outage, and when the target was away."""
    report = fiodata.load(results / "outage.json")
    job = report["jobs"][0]
    if job["error"]:
        raise fiodata.FioError(f"fio reports error {job['error']} in the run through the outage")
    events = {}
    for line in (results / "events").read_text().splitlines():
        ms, what = line.split()
        events[what] = int(ms)
    log = next(iter(results.glob("outage_lat*.log")), None)
    if log is None:
        raise fiodata.FioError(f"{results}: fio left no log of its latencies")
    rows = []
    for line in log.read_text().splitlines():
        when, ns, direction = (int(word) for word in line.split(",")[:3])
        rows.append((when, ns / 1e6, direction == 1))
    start = min(when - ms for when, ms, _ in rows)
    ios = [((when - start) / 1000, ms, write) for when, ms, write in rows]
    times = sorted(when for when, _, _ in ios)
    _, stopped, resumed = max((b - a, a, b) for a, b in pairwise(times))
    marks = {what: (ms - start) / 1000 for what, ms in events.items()}
    lost = sum(job[side][kind] for side in ("read", "write") for kind in ("short_ios", "drop_ios"))
    return {
        "ios": ios,
        "writes": job["write"]["total_ios"],
        "verified": job["read"]["total_ios"],
        "errors": lost,
        "away": marks["away"],
        "back": marks["back"],
        "stopped": stopped,
        "resumed": resumed,
    }


def table(runs):
    """[header, row...] of words."""
    rows = [
        ["4 KiB random", *(f"{s}, kIOPS" for s in SUBJECTS), "rflash / nvme-tcp"]
        + [f"{s}, p50 / p99 µs" for s in SUBJECTS]
    ]
    for case, title in CASES.items():
        iops = {s: median(r["iops"] for r in runs[case][s]) for s in SUBJECTS}
        row = [title, *(f"{iops[s] / 1000:.1f}" for s in SUBJECTS)]
        row.append(f"{iops['rflash'] / iops['nvme-tcp']:.2f}")
        for subject in SUBJECTS:
            lat = [r["lat_us"] for r in runs[case][subject]]
            p50, p99 = (median(run[key] for run in lat) for key in ("p50", "p99"))
            row.append(f"{p50:.0f} / {p99:.0f}")
        rows.append(row)
    return rows


def as_text(rows):
    widths = [max(len(row[i]) for row in rows) for i in range(len(rows[0]))]
    return "\n".join(
        "  ".join(
            word.ljust(width) if i == 0 else word.rjust(width)
            for i, (word, width) in enumerate(zip(row, widths, strict=True))
        )
        for row in rows
    )


def as_html(rows):
    def line(row, tag):
        return "<tr>" + "".join(f"<{tag}>{html.escape(word)}</{tag}>" for word in row) + "</tr>"

    return (
        f"<table><thead>{line(rows[0], 'th')}</thead>"
        f"<tbody>{''.join(line(row, 'td') for row in rows[1:])}</tbody></table>"
    )


PAGE = """<!doctype html>
<html lang="en">
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>rflash: remote flash at work</title>
<style>
:root {{ color-scheme: light dark; --ink: #1c2026; --paper: #ffffff; --soft: #5b6470;
  --faint: #dfe3e8; --card: #f6f7f9; }}
@media (prefers-color-scheme: dark) {{
  :root {{ --ink: #e7eaee; --paper: #14171b; --soft: #9aa4b0; --faint: #333a43; --card: #1c2026; }}
}}
body {{ margin: 0 auto; padding: 2rem 1.25rem 4rem; max-width: 62rem; color: var(--ink);
  background: var(--paper); font: 16px/1.55 system-ui, sans-serif; }}
h1 {{ font-size: 1.7rem; margin: 0 0 .3rem; }}
h2 {{ font-size: 1.2rem; margin: 2.5rem 0 .4rem; }}
p {{ max-width: 46rem; margin: .4rem 0; }}
.soft, figcaption {{ color: var(--soft); font-size: .92rem; }}
.label {{ display: inline-block; border: 1px solid var(--faint); border-radius: 1rem;
  padding: .1rem .8rem; font-size: .85rem; color: var(--soft); }}
figure {{ margin: 1rem 0; padding: 1rem; background: var(--card); border-radius: .6rem; }}
svg {{ width: 100%; height: auto; color: var(--ink); }}
.wide {{ overflow-x: auto; }}
table {{ border-collapse: collapse; font-variant-numeric: tabular-nums; font-size: .92rem; }}
th, td {{ padding: .35rem .7rem; text-align: right; border-bottom: 1px solid var(--faint); }}
th:first-child, td:first-child {{ text-align: left; white-space: nowrap; }}
th {{ font-weight: 600; color: var(--soft); vertical-align: bottom; }}
pre {{ background: var(--card); border-radius: .6rem; padding: 1rem; overflow-x: auto;
  font-size: .85rem; line-height: 1.45; }}
</style>
<h1>rflash: remote flash at work</h1>
<p class="label">measured in an emulator: {where}</p>
<p>Two machines, a flash server and a datastore host, on one network with MTU 9000.
The host reaches the server's flash as <code>/dev/rflash0</code>, by NVMe over TCP.</p>
<h2>The target goes away and comes back</h2>
<p>A program writes to a file on <code>/dev/rflash0</code> and verifies what it wrote. After
{away:.1f} s the target is taken away, {gone:.1f} s later it is back. I/O stands still for
{still:.1f} s; then it goes on where it was.
<strong>{writes} writes, {verified} verified reads, {errors} errors: nothing was lost.</strong></p>
<figure>{timeline}<figcaption>Each point is one I/O, at the time of its completion. Below:
completions.</figcaption></figure>
<h2>How fast</h2>
<p>4 KiB random I/O by fio on the target's own device (local), by the kernel's nvme-tcp at its
best, and by rflash. QD 32 is submitted in batches of 8. One machine is host and target, and
its clock counts instructions: a nanosecond is one instruction. So the figures are what an I/O
costs in fio, block layer, driver, TCP and target together, and they repeat exactly: the
whiskers are the slowest and the fastest of {rounds} rounds of {runtime} ms.</p>
<figure>{iops}</figure>
<div class="wide">{table}</div>
<figure>{latency}<figcaption>Total latency of random reads, in guest time.</figcaption></figure>
<p class="soft">Counted instructions charge nothing for cache misses and for waking up another
CPU, and no real network or flash is in these figures: they compare drivers, they do not
promise microseconds. <code>make bench-driver</code> measures more cases the same way.</p>
<h2>What happened</h2>
<pre>{story}</pre>
<p class="soft">{provenance}</p>
</html>
"""


def build(results, bench, page):
    import plots  # needs matplotlib; the rest of this file does not

    runs, about = collect(bench)
    through = outage(results)
    rows = table(runs)
    provenance = (results / "provenance").read_text().splitlines()
    text = PAGE.format(
        where=html.escape(provenance[-1]),
        away=through["away"],
        gone=through["back"] - through["away"],
        still=through["resumed"] - through["stopped"],
        writes=through["writes"],
        verified=through["verified"],
        errors=through["errors"],
        timeline=plots.timeline(through["ios"], through["away"], through["back"], through["resumed"]),
        iops=plots.iops(
            [(title, {s: [r["iops"] for r in runs[case][s]] for s in SUBJECTS}) for case, title in CASES.items()],
            SUBJECTS,
        ),
        latency=plots.latency(
            [(CASES[case], {s: joined(runs[case][s]) for s in SUBJECTS}) for case in ("randread-qd1", "randread-qd32")],
            SUBJECTS,
        ),
        table=as_html(rows),
        rounds=about["rounds"],
        runtime=about["runtime_ms"],
        story=html.escape((results / "story").read_text()),
        provenance=html.escape("; ".join([*provenance, about["qemu"], f"commit {about['commit']}", about["date"]])),
    )
    page.write_text(text)
    print(as_text(rows))
    print(
        f"\nThrough the outage of {through['back'] - through['away']:.1f} s: "
        f"{through['writes']} writes, {through['verified']} verified reads, "
        f"{through['errors']} errors."
    )
    if through["errors"]:
        raise fiodata.FioError("I/O failed in the run through the outage")


if __name__ == "__main__":
    if len(sys.argv) != 4:
        sys.exit("usage: page.py RESULTS-DIRECTORY BENCHMARK-DIRECTORY PAGE")
    try:
        build(*(Path(argument) for argument in sys.argv[1:]))
    except (fiodata.FioError, OSError, KeyError) as err:
        sys.exit(f"the page can't be made: {err}")
