# SPDX-License-Identifier: GPL-2.0
"""Counting: every way in which a test program can end without having passed."""

import pytest
import tap


def counts(text):
    count = tap.tap(text)
    return count.passed, count.failed, count.skipped


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("TAP version 13\n1..2\nok 1 a\nok 2 - b\n", (2, 0, 0)),
        ("1..2\nok 1 a\nnot ok 2 b\n", (1, 1, 0)),
        ("ok 1 a\nok 2 b\n1..2\n", (2, 0, 0)),
        ("1..2\nok 1 a # SKIP no xfs\nok 2 b\n", (1, 0, 1)),
        ("1..1\nnot ok 1 a # TODO later\n", (1, 0, 0)),
        ("1..1\nnot ok 1 a # SKIP but failed\n", (0, 1, 0)),
        ("1..0 # SKIP no device\n", (0, 0, 1)),
        # It stopped half-way.
        ("1..3\nok 1 a\nok 2 b\n", (2, 1, 0)),
        # It ran more than it planned.
        ("1..1\nok 1 a\nok 2 b\n", (2, 1, 0)),
        # It printed no TAP at all.
        ("all is well\n", (0, 1, 0)),
        ("", (0, 1, 0)),
        ("1..2\nok 1 a\nBail out! no disk\n", (1, 1, 0)),
        # Results of something nested do not count twice.
        ("1..1\n    ok 1 inner\nok 1 outer\n", (1, 0, 0)),
        # Words that only begin like a result.
        ("1..1\nokay then\nok 1 a\n", (1, 0, 0)),
    ],
)
def test_tap(text, expected):
    assert counts(text) == expected


def test_tap_names_what_failed():
    assert tap.tap("1..1\nnot ok 1 the disk comes back\n").failures == ["the disk comes back"]


def test_summary_takes_the_last():
    text = "a: 1 passed, 0 failed, 0 skipped\nall: 5 passed, 2 failed, 1 skipped\n"
    count = tap.summary(text)
    assert (count.passed, count.failed, count.skipped) == (5, 2, 1)


def test_summary_missing():
    assert tap.summary("nothing here") is None


def test_cargo_adds_up():
    text = (
        "test a ... ok\ntest b ... FAILED\n"
        "test result: FAILED. 1 passed; 1 failed; 0 ignored; 0 measured; 0 filtered out; finished in 0.00s\n"
        "test c ... ignored, needs root\n"
        "test result: ok. 3 passed; 0 failed; 1 ignored; 0 measured; 0 filtered out; finished in 0.00s\n"
    )
    count = tap.cargo(text)
    assert (count.passed, count.failed, count.skipped) == (4, 1, 1)
    assert count.failures == ["b"]


@pytest.mark.parametrize(
    ("closing", "expected"),
    [
        ("10 passed in 0.12s", (10, 0, 0)),
        ("2 failed, 10 passed, 1 skipped in 1.20s", (10, 2, 1)),
        ("1 error in 0.05s", (0, 1, 0)),
        ("no tests ran in 0.01s", (0, 0, 0)),
    ],
)
def test_pytest(closing, expected):
    count = tap.pytest(f"..\n{closing}\n")
    assert (count.passed, count.failed, count.skipped) == expected
