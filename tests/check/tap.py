# SPDX-License-Identifier: GPL-2.0
"""Counts results: TAP, and the closing lines of cargo and pytest."""

from __future__ import annotations

import re
from dataclasses import dataclass, field


@dataclass
class Count:
    """How many tests passed, failed and were skipped, and which ones failed."""

    passed: int = 0
    failed: int = 0
    skipped: int = 0
    failures: list[str] = field(default_factory=list)
    skips: list[str] = field(default_factory=list)

    def add(self, other: Count) -> None:
        self.passed += other.passed
        self.failed += other.failed
        self.skipped += other.skipped
        self.failures += other.failures
        self.skips += other.skips

    def fail(self, what: str) -> None:
        self.failed += 1
        self.failures.append(what)

    @property
    def total(self) -> int:
        return self.passed + self.failed + self.skipped

    def __str__(self) -> str:
        return f"{self.passed} passed, {self.failed} failed, {self.skipped} skipped"


RESULT = re.compile(r"(not )?ok\b(?: +(\d+))?(?: +-)? *(.*)")
PLAN = re.compile(r"1\.\.(\d+)(?: *# *SKIP *(.*))?\s*$", re.IGNORECASE)


def tap(text: str) -> Count:
    """Count the top-level results of a TAP stream.

    Results that were planned and never came are failures: a script that ends
    early with a good exit status has not passed.
    """
    count = Count()
    planned = None
    for line in text.splitlines():
        plan = PLAN.match(line)
        if plan:
            planned = int(plan[1])
            if planned == 0:
                count.skipped += 1
                count.skips.append(plan[2] or "no reason given")
            continue
        if line.startswith("Bail out!"):
            count.fail(line.strip())
        result = RESULT.match(line)
        if not result:
            continue
        bad, _, what = result.groups()
        directive = re.search(r"# *(SKIP|TODO)\b *(.*)", what, re.IGNORECASE)
        if directive and directive[1].upper() == "SKIP" and not bad:
            count.skipped += 1
            count.skips.append(what.strip())
        elif bad and not (directive and directive[1].upper() == "TODO"):
            count.fail(what.strip() or "a test without a name")
        else:
            count.passed += 1
    if planned is None:
        count.fail("no TAP plan was printed")
    elif (planned and count.total < planned) or (planned and count.total > planned):
        count.fail(f"{planned} tests were planned and {count.total} reported")
    return count


def summary(text: str) -> Count | None:
    """The last "N passed, N failed, N skipped" of a program's output."""
    found = re.findall(r"(\d+) passed, (\d+) failed, (\d+) skipped", text)
    if not found:
        return None
    passed, failed, skipped = map(int, found[-1])
    count = Count(passed, failed, skipped)
    count.failures += re.findall(r"^\s*not ok \d+ (.*)$", text, re.MULTILINE)[:failed]
    return count


def cargo(text: str) -> Count:
    """Add up the closing lines of all test programs that cargo ran."""
    count = Count()
    for passed, failed, ignored in re.findall(
        r"^test result: \w+\. (\d+) passed; (\d+) failed; (\d+) ignored;", text, re.MULTILINE
    ):
        count.passed += int(passed)
        count.failed += int(failed)
        count.skipped += int(ignored)
    count.failures += re.findall(r"^test (.*) \.\.\. FAILED$", text, re.MULTILINE)
    count.skips += re.findall(r"^test (.*) \.\.\. ignored.*$", text, re.MULTILINE)
    return count


def pytest(text: str) -> Count:
    """pytest's closing line: "2 failed, 10 passed, 1 skipped in 0.12s"."""
    count = Count()
    closing = [line for line in text.splitlines() if re.search(r"\bin [\d.]+s\b", line)]
    for number, word in re.findall(
        r"(\d+) (passed|failed|skipped|errors?|xfailed|xpassed)", closing[-1] if closing else ""
    ):
        if word in ("passed", "xfailed"):
            count.passed += int(number)
        elif word == "skipped":
            count.skipped += int(number)
        else:
            count.failed += int(number)
    count.failures += re.findall(r"^(?:FAILED|ERROR) (\S+)", text, re.MULTILINE)
    count.skips += re.findall(r"^SKIPPED \[\d+\] (.*)$", text, re.MULTILINE)
    return count
