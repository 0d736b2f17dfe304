# SPDX-License-Identifier: GPL-2.0
"""What rflashd promises against its floor, and whether runs keep it."""

from __future__ import annotations

import itertools
import statistics
from dataclasses import dataclass

READ = 72, 4096 + 24
READ_1K = 72, 1024 + 24
WRITE = 72 + 4096, 24


@dataclass(frozen=True)
class Subject:
    """One side of a comparison: the floor, or a server with a load."""

    name: str
    # Bytes in and out of the floor; None: a server.
    floor: tuple[int, int] | None = None
    load: tuple[str, ...] = ()
    # Registered tenants; 0: without the scheduler.
    tenants: int = 0


@dataclass(frozen=True)
class Case:
    name: str
    title: str
    base: Subject
    subject: Subject
    qd: int
    # The subject's IOPS by the base's.
    least: float
    # The subject's p99 by the base's; None: no promise.
    p99: float | None = None
    # IOPS the subject must reach where the base has the second.
    over: tuple[float, float] | None = None


def load(name: str, *options: str, tenants: int = 0) -> Subject:
    return Subject(name, load=options, tenants=tenants)


RAND = load("rflashd randread 4k", "--rw", "randread", "--bs", "4k")
ONE = load("one tenant", "--rw", "randread", "--bs", "4k", tenants=1)
ONE_TEN = load("one tenant, ten connections", "--rw", "randread", "--bs", "4k", "--connections", "10", tenants=1)
MANY = load("1000 tenants, ten connections", "--rw", "randread", "--bs", "4k", "--connections", "10", tenants=1000)
FLOOR = Subject("floor 72/4120", READ)

CASES = [
    Case("read-qd1", "4 KiB random read, QD 1, of the floor", FLOOR, RAND, 1, 0.90, p99=1.3),
    Case("read-qd32", "4 KiB random read, QD 32, of the floor", FLOOR, RAND, 32, 0.70),
    Case("read-qd128", "4 KiB random read, QD 128, of the floor", FLOOR, RAND, 128, 0.65, over=(1e6, 1.75e6)),
    Case("write-floor", "4 KiB random write, QD 32, of its floor (no promise)", Subject("floor 4168/24", WRITE),
         load("rflashd randwrite 4k", "--rw", "randwrite", "--bs", "4k"), 32, 0.0),
    Case("write", "4 KiB random write, QD 32, of the reads", RAND,
         load("rflashd randwrite 4k", "--rw", "randwrite", "--bs", "4k"), 32, 0.80),
    Case("mixed", "4 KiB 70/30, QD 32, of the reads", RAND,
         load("rflashd 70/30 4k", "--rw", "randrw", "--bs", "4k", "--read-pct", "70"), 32, 0.80),
    Case("small", "1 KiB random read, QD 32, of 4 KiB reads", RAND,
         load("rflashd randread 1k", "--rw", "randread", "--bs", "1k"), 32, 1.0),
    Case("tenants", "1000 tenants registered, ten connections, of one tenant", ONE_TEN, MANY, 8, 0.95),
    Case("scheduler", "scheduler on, QD 32, of off", RAND, ONE, 32, 0.95),
]  # fmt: skip


@dataclass
class Run:
    iops: float
    p99: float
    # Of the server per command; None: the floor does not say.
    busy_ns: float | None = None


def order(rounds: int) -> str:
    """ABBA BAAB and so on: what drifts hits both alike."""
    return "".join("ABBA" if i % 2 == 0 else "BAAB" for i in range(rounds))


def spread(values: list[float]) -> float:
    """A against A: how far neighbouring runs of one side are apart, median."""
    pairs = [abs(a / b - 1) for a, b in itertools.pairwise(values) if b]
    return statistics.median(pairs) if pairs else 0.0


@dataclass
class Verdict:
    case: str
    title: str
    base_iops: float
    iops: float
    ratio: float
    # None where nothing is promised.
    least: float | None
    p99_us: float
    p99_ratio: float
    p99_most: float | None
    noise: float
    busy_ns: float | None
    passed: bool
    why: str


def judge(case: Case, base: list[Run], subject: list[Run]) -> Verdict:
    """Medians and their ratios; a promise is kept or it is not, noise or no noise."""
    iops = statistics.median(r.iops for r in subject)
    base_iops = statistics.median(r.iops for r in base)
    p99 = statistics.median(r.p99 for r in subject)
    base_p99 = statistics.median(r.p99 for r in base)
    ratio = iops / base_iops if base_iops else 0.0
    p99_ratio = p99 / base_p99 if base_p99 else 0.0
    why = []
    if ratio < case.least:
        why.append(f"{ratio:.2f} < {case.least:.2f}")
    if case.p99 is not None and p99_ratio > case.p99:
        why.append(f"p99 {p99_ratio:.2f} > {case.p99:.2f}")
    if case.over and base_iops >= case.over[1] and iops < case.over[0]:
        why.append(f"{iops:.0f} < {case.over[0]:.0f} IOPS")
    busy = [r.busy_ns for r in subject if r.busy_ns is not None]
    return Verdict(
        case=case.name,
        title=case.title,
        base_iops=base_iops,
        iops=iops,
        ratio=ratio,
        least=case.least or None,
        p99_us=p99,
        p99_ratio=p99_ratio,
        p99_most=case.p99,
        noise=max(spread([r.iops for r in base]), spread([r.iops for r in subject])),
        busy_ns=statistics.median(busy) if busy else None,
        passed=not why,
        why=", ".join(why),
    )


def table(verdicts: list[Verdict]) -> str:
    lines = [
        f"{'':58} {'base':>9} {'IOPS':>9} {'ratio':>6} {'least':>6} {'p99 us':>8} "
        f"{'ratio':>6} {'noise':>6} {'busy ns':>8}"
    ]
    for v in verdicts:
        least = f"{v.least:.2f}" if v.least else "-"
        busy = f"{v.busy_ns:.0f}" if v.busy_ns is not None else "-"
        lines.append(
            f"{v.title:58} {v.base_iops:9.0f} {v.iops:9.0f} {v.ratio:6.2f} {least:>6} {v.p99_us:8.1f} "
            f"{v.p99_ratio:6.2f} {v.noise:6.1%} {busy:>8}  {'pass' if v.passed else 'FAIL: ' + v.why}"
        )
    return "\n".join(lines) + "\n"
