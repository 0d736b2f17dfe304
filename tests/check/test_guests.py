# SPDX-License-Identifier: GPL-2.0
"""The selftests' runner: who gets which guest, and who is to blame."""

import guests
import pytest

PLAN = """
# comment
smoke.sh 6.1,6.12 1 120
long.sh\t6.12\t1\t300  # a remark
a.sh 6.12 1 100
b.sh 6.12 1 100
pair.sh 6.12 2 200
"""


def entry(name="a.sh", kernel="6.12", count=1, seconds=10):
    return guests.Entry(f"tests/selftests/{name}", kernel, count, seconds)


def test_plan():
    entries = guests.plan(PLAN)
    assert [(e.name, e.kernel, e.guests, e.seconds) for e in entries] == [
        ("smoke.sh", "6.1", 1, 120),
        ("smoke.sh", "6.12", 1, 120),
        ("long.sh", "6.12", 1, 300),
        ("a.sh", "6.12", 1, 100),
        ("b.sh", "6.12", 1, 100),
        ("pair.sh", "6.12", 2, 200),
    ]


def test_plan_with_hardware():
    first, second = guests.plan("t.sh 6.12 2 200 smp=6,nic=igb\nt.sh 6.12 2 200 nic-queues=6\n")
    assert first.hardware == ("smp=6", "nic=igb")
    assert (str(first), str(second)) == ("t.sh on 6.12, two guests, igb", "t.sh on 6.12, two guests")
    # Each needs a guest of its own.
    assert sorted(len(b.entries) for b in guests.batches([first, second])) == [1, 1]


@pytest.mark.parametrize(
    "line", ["a.sh 6.12 1", "a.sh 6.12 3 100", "a.sh 6.12 1 soon", "a.sh 6.12 1 9 igb", "a.sh 6.12 1 9 nic=igb more"]
)
def test_plan_refuses(line):
    with pytest.raises(ValueError, match="plan line 1: should be"):
        guests.plan(line)


def test_batches_share_a_kernel_and_lose_nothing():
    entries = guests.plan(PLAN)
    shares = guests.batches(entries)
    assert sorted((e for b in shares for e in b.entries), key=str) == sorted(entries, key=str)
    assert all(len({(e.kernel, e.guests) for e in b.entries}) == 1 for b in shares)
    # 300 alone against 120 + 100 + 100.
    assert [b.seconds for b in shares if b.kernel == "6.12" and b.guests == 1] == [320, 300]


def test_split_output():
    text = "batch: begin a.sh\n1..1\nok 1 x\nbatch: end a.sh 0 3\nbatch: begin b.sh\n1..2\nok 1 y\n"
    assert guests.split_output(text) == {"a.sh": ("1..1\nok 1 x", 0, 3.0), "b.sh": ("1..2\nok 1 y", None, 0)}


def test_a_script_that_never_ends_its_line():
    assert guests.split_output("batch: begin a.sh\n") == {"a.sh": ("", None, 0)}


def test_trouble_is_charged_to_the_script_that_ran():
    log = "[1.0] batch: begin a.sh\n[2.0] WARNING: CPU: 0 at driver/x.c:5\n[3.0] batch: begin b.sh\n"
    reasons = ["kernel warning: WARNING: CPU: 0 at driver/x.c:5"]
    assert guests.split_messages(log, reasons, ["a.sh", "b.sh"]) == {"a.sh": reasons, "b.sh": []}


def test_trouble_without_a_trace_is_charged_to_the_last():
    reasons = ["the guest powered off before its script had ended"]
    assert guests.split_messages("", reasons, ["a.sh", "b.sh"])["b.sh"] == reasons


def report(status, text="1..1\nok 1 x\n", troubles=()):
    count = guests.Report(entry(), status, 1, text, list(troubles)).count()
    return count.passed, count.failed, count.skipped


def test_report_of_a_pass():
    assert report(0) == (1, 0, 0)


@pytest.mark.parametrize(
    ("status", "text", "troubles"),
    [
        (1, "1..1\nok 1 x\n", []),  # a bad status though nothing failed
        (0, "1..1\nnot ok 1 x\n", []),  # a good one though something did
        (4, "1..0 # SKIP no nvmet\n", []),  # planned here, and not run
        (124, "1..1\nok 1 x\n", []),  # over its time
        (0, "1..1\nok 1 x\n", ["kernel warning: WARNING: x"]),
        (None, "", []),  # never ran
        (None, "1..1\nok 1 x\n", ["it did not end"]),
    ],
)
def test_report_of_a_failure(status, text, troubles):
    assert report(status, text, troubles)[1] >= 1
