# SPDX-License-Identifier: GPL-2.0
"""From the runs' files to rows, verdicts and a table."""

from statistics import median

import cases
import fiodata


def run_name(case, subject, round_):
    return f"{case.name}.{subject}.{round_}"


def context_switches(base):
    """Of the whole guest, while the job ran."""
    counts = []
    for moment in ("prerun", "postrun"):
        path = base.with_name(f"{base.name}.{moment}.txt")
        words = path.read_text().split()
        if len(words) != 2 or words[0] != "ctxt":
            raise fiodata.FioError(f"{path} is not the count of context switches")
        counts.append(int(words[1]))
    return counts[1] - counts[0]


def collect(chosen, subjects, rounds, runtime_ms, out):
    rows = []
    for case in chosen:
        row = {"case": case.name, "title": case.title, "fio": case.command(runtime_ms)}
        row["subjects"] = {}
        for subject in subjects:
            runs = []
            for round_ in range(rounds):
                base = out / run_name(case, subject, round_)
                run = fiodata.figures(base.with_name(base.name + ".json"))
                switches = context_switches(base)
                run["context_switches_per_io"] = switches / run["ios"]
                del run["bins"]
                runs.append(run)
            iops = [run["iops"] for run in runs]
            row["subjects"][subject] = {
                "iops": median(iops),
                "noise": max(iops) / min(iops) - 1,
                "lat_us": {key: median(run["lat_us"][key] for run in runs) for key in runs[0]["lat_us"]},
                "context_switches_per_io": median(r["context_switches_per_io"] for r in runs),
                "runs": runs,
            }
        rows.append(row)
    return rows


def judge(rows):
    """What was promised about the cases that were measured."""
    verdicts = []
    for promise in cases.PROMISES:
        for row in rows:
            measured = row["subjects"]
            if row["case"] != promise.case or not {promise.subject, promise.against} <= set(measured):
                continue
            ratio = measured[promise.subject]["iops"] / measured[promise.against]["iops"]
            verdicts.append(
                {
                    "case": promise.case,
                    "title": row["title"],
                    "subject": promise.subject,
                    "against": promise.against,
                    "ratio": ratio,
                    "at_least": promise.at_least,
                    "kept": ratio >= promise.at_least,
                }
            )
    return verdicts


def cell(value, form, width):
    return (format(value, form) if value is not None else "-").rjust(width)


# (heading, first line of it, width); the title takes the rest.
COLUMNS = [
    ("null_blk", "kIOPS", 10),
    ("nvme-tcp", "kIOPS", 10),
    ("rflash", "kIOPS", 8),
    ("", "ratio", 7),
    ("nvme-tcp", "p99 µs", 10),
    ("rflash", "p99 µs", 8),
    ("nvme-tcp", "switches/IO", 13),
    ("rflash", "switches/IO", 13),
    ("", "noise", 8),
]


def table(rows, verdicts, about):
    wide = max(len(row["title"]) for row in rows)
    lines = [
        " " * wide + "".join(cell(top, "", width) for _, top, width in COLUMNS),
        " " * wide + "".join(cell(low, "", width) for low, _, width in COLUMNS),
    ]
    for row in rows:
        got = row["subjects"]

        def value(subject, pick, got=got):
            return pick(got[subject]) if subject in got else None

        def kilo(measured):
            return measured["iops"] / 1000

        def p99(measured):
            return measured["lat_us"].get("p99")

        def switches(measured):
            return measured["context_switches_per_io"]

        ratio = None
        if {"rflash", "nvme-tcp"} <= set(got):
            ratio = got["rflash"]["iops"] / got["nvme-tcp"]["iops"]
        values = [
            (value("null_blk", kilo), ".1f"),
            (value("nvme-tcp", kilo), ".1f"),
            (value("rflash", kilo), ".1f"),
            (ratio, ".2f"),
            (value("nvme-tcp", p99), ".0f"),
            (value("rflash", p99), ".0f"),
            (value("nvme-tcp", switches), ".2f"),
            (value("rflash", switches), ".2f"),
            (max(m["noise"] for m in got.values()), ".1%"),
        ]
        lines.append(
            row["title"].ljust(wide)
            + "".join(cell(number, form, width) for (number, form), (_, _, width) in zip(values, COLUMNS, strict=True))
        )
    lines.append("")
    lines.append(
        f"Measured in an emulator, {about['clock']}; {about['rounds']} rounds of "
        f"{about['runtime_ms']} ms, subjects alternating. Latency is fio's total, in guest time. "
        "Noise: the largest difference between rounds of the same subject and case."
    )
    for verdict in verdicts:
        lines.append(
            f"{'kept' if verdict['kept'] else 'NOT KEPT'}: {verdict['title']}: "
            f"{verdict['subject']} has {verdict['ratio']:.2f} x the IOPS of "
            f"{verdict['against']}, promised {verdict['at_least']}"
        )
    return "\n".join(lines)
