# SPDX-License-Identifier: GPL-2.0
"""What the benchmark of rflashd concludes from figures."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))

import verdicts
from verdicts import Case, Run, Subject, judge

CASE = Case("c", "title", Subject("a", (72, 4120)), Subject("b"), 1, 0.9, p99=1.3, over=(1e6, 1.75e6))


def runs(*iops, p99=10.0):
    return [Run(i, p99, 500.0) for i in iops]


def test_medians_are_compared():
    got = judge(CASE, runs(100, 110, 1000), runs(100, 99, 1))
    assert got.passed and got.ratio == 99 / 110 and got.busy_ns == 500


def test_a_broken_promise_is_named():
    got = judge(CASE, runs(100), runs(89))
    assert not got.passed and got.why == "0.89 < 0.90"
    got = judge(CASE, runs(100), runs(100, p99=14.0))
    assert got.why == "p99 1.40 > 1.30"
    got = judge(CASE, runs(1.8e6), runs(1.7e6))
    assert got.passed
    low = Case("c", "t", CASE.base, CASE.subject, 128, 0.5, over=(1e6, 1.75e6))
    assert judge(low, runs(1.8e6), runs(9.9e5)).why == "990000 < 1000000 IOPS"
    assert judge(low, runs(1.7e6), runs(9.9e5)).passed


def test_order_is_balanced():
    assert verdicts.order(2) == "ABBABAAB"
    assert verdicts.order(3).count("A") == verdicts.order(3).count("B")


def test_spread():
    assert verdicts.spread([100.0]) == 0
    assert round(verdicts.spread([100.0, 110.0, 100.0]), 3) == 0.095


def test_table_has_a_line_for_each():
    text = verdicts.table([judge(CASE, runs(100), runs(89)), judge(CASE, runs(100), runs(95))])
    assert "FAIL: 0.89 < 0.90" in text and text.count("\n") == 3 and "pass" in text


def test_cases_are_told_apart():
    names = [c.name for c in verdicts.CASES]
    assert len(set(names)) == len(names)
