# SPDX-License-Identifier: GPL-2.0
"""Runs the selftests of a plan in guests, a few to a guest, and counts results."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import threading
import time
from dataclasses import dataclass, field, replace
from pathlib import Path

from tap import Count, tap

ROOT = Path(__file__).resolve().parents[2]
PLAN = ROOT / "tests/selftests/plan.txt"
NIGHTLY = ROOT / "tests/selftests/nightly.txt"  # too long for every check; by name
OUT = ROOT / "build/results/guest"
SLOTS = 3  # guests that run at a time: they wait for timeouts about as long as they compute
BATCHES = 2  # guests that share the scripts of one kernel
SKIP = 4
# batch.sh's lines around a script's output.
BEGIN = re.compile(r"batch: begin (\S+)$")
END = re.compile(r"batch: end (\S+) (\d+) (\d+)$")


@dataclass(frozen=True)
class Entry:
    """One script on one kernel."""

    script: str  # path in the tree
    kernel: str
    guests: int
    seconds: int
    hardware: tuple[str, ...] = ()  # of the guest: options of tests/guest/run without the dashes, NAME=VALUE

    @property
    def name(self) -> str:
        return Path(self.script).name

    def __str__(self) -> str:
        pair = ", two guests" if self.guests == 2 else ""
        cards = [f", {word.partition('=')[2]}" for word in self.hardware if word.startswith("nic=")]
        return f"{self.name} on {self.kernel}{pair}{''.join(cards)}"


def plan(text: str, directory: str = "tests/selftests") -> list[Entry]:
    """Entries of a plan: script, kernels, guests, time limit in seconds, hardware."""
    entries = []
    for number, line in enumerate(text.splitlines(), 1):
        words = line.partition("#")[0].split()
        if not words:
            continue
        good = len(words) in (4, 5) and words[2] in ("1", "2") and words[3].isdigit()
        hardware = tuple(words[4].split(",")) if len(words) == 5 else ()
        if not good or not all(re.fullmatch(r"[a-z-]+=\w+", word) for word in hardware):
            raise ValueError(
                f"plan line {number}: should be SCRIPT KERNELS 1|2 SECONDS [NAME=VALUE,...], is '{line.strip()}'"
            )
        for kernel in words[1].split(","):
            entries.append(Entry(f"{directory}/{words[0]}", kernel, int(words[2]), int(words[3]), hardware))
    return entries


@dataclass
class Batch:
    """Scripts that share a guest, or a pair of guests."""

    entries: list[Entry]
    number: int = 0

    @property
    def kernel(self) -> str:
        return self.entries[0].kernel

    @property
    def guests(self) -> int:
        return self.entries[0].guests

    @property
    def hardware(self) -> tuple[str, ...]:
        return self.entries[0].hardware

    @property
    def seconds(self) -> int:
        return sum(e.seconds for e in self.entries)


def batches(entries: list[Entry]) -> list[Batch]:
    """Share the scripts out: per kernel, number of guests and hardware, the longest first."""
    groups: dict[tuple[str, int, tuple[str, ...]], list[Entry]] = {}
    for entry in entries:
        groups.setdefault((entry.kernel, entry.guests, entry.hardware), []).append(entry)
    result = []
    for (_, guests, _), group in groups.items():
        shares = [Batch([]) for _ in range(BATCHES if guests == 1 and len(group) > 3 else 1)]
        for entry in sorted(group, key=lambda e: -e.seconds):
            min(shares, key=lambda b: b.seconds).entries.append(entry)
        result += shares
    return sorted(result, key=lambda b: -b.seconds)


@dataclass
class Report:
    """What came of one script."""

    entry: Entry
    status: int | None = None
    seconds: float = 0
    text: str = ""
    troubles: list[str] = field(default_factory=list)  # what the lab saw

    def count(self) -> Count:
        count = Count()
        if self.status == SKIP:
            # The plan says where a script can run; that it cannot is news.
            reasons = re.findall(r"# ?SKIP:? *(.+)", self.text) or ["it does not say why"]
            count.fail(f"{self.entry}: skipped as a whole: {'; '.join(r.strip() for r in reasons)}")
        elif self.status in (124, 137):
            count = tap(self.text)
            count.fail(f"no end within {self.entry.seconds} s")
        elif self.text or self.status is not None:
            count = tap(self.text)
            if self.status not in (0, None) and not count.failed:
                count.fail(f"exit status {self.status}, though no test failed")
            elif self.status == 0 and count.failed:
                count.fail("exit status 0, though a test failed")
        for trouble in self.troubles:
            count.fail(trouble)
        if count.total == 0:
            count.fail("it never ran")
        count.failures = [f if f.startswith(str(self.entry)) else f"{self.entry}: {f}" for f in count.failures]
        count.skips = [f"{self.entry}: {s}" for s in count.skips]
        return count


def split_output(text: str) -> dict[str, tuple[str, int | None, float]]:
    """A batch's output by script: text, status and seconds; None if it did not end."""
    found: dict[str, tuple[str, int | None, float]] = {}
    current, lines = None, []
    for line in text.splitlines():
        begin = BEGIN.match(line)
        end = END.match(line)
        if begin:
            current, lines = begin[1], []
            found[current] = ("", None, 0)
        elif end and end[1] == current:
            found[current] = ("\n".join(lines), int(end[2]), float(end[3]))
            current = None
        elif current:
            lines.append(line)
            found[current] = ("\n".join(lines), None, 0)
    return found


def split_messages(log: str, reasons: list[str], names: list[str]) -> dict[str, list[str]]:
    """Which script each of the lab's reasons belongs to, by marks in the kernel's log.

    A reason that the log does not tell belongs to the last script that ran.
    """
    found: dict[str, list[str]] = {name: [] for name in names}
    for reason in reasons:
        message = reason.rpartition(": ")[2] if "kernel" not in reason else reason.partition(": ")[2]
        owner = names[-1]
        current = None
        for line in log.splitlines():
            mark = re.search(r"batch: begin (\S+)", line)
            if mark:
                current = mark[1]
            elif message and message[:60] in line and current in found:
                owner = current
                break
        found[owner].append(reason)
    return found


class Runner:
    """Runs batches, at most SLOTS guests at a time."""

    def __init__(self, entries: list[Entry]):
        self.queue = batches(entries)
        self.reports: list[Report] = []
        self.free = SLOTS
        self.changed = threading.Condition()
        self.counter = 0
        self.stopped = False
        self.processes: set[subprocess.Popen[str]] = set()

    def run(self) -> Count:
        threads = []
        try:
            while True:
                with self.changed:
                    batch = next((b for b in self.queue if b.guests <= self.free), None)
                    if batch is None:
                        if not self.queue and self.free == SLOTS:
                            break
                        self.changed.wait(1)
                        continue
                    self.queue.remove(batch)
                    self.free -= batch.guests
                    self.counter += 1
                    batch.number = self.counter
                thread = threading.Thread(target=self._work, args=(batch,))
                thread.start()
                threads.append(thread)
        except BaseException:
            self.stopped = True
            for process in list(self.processes):
                process.terminate()
            raise
        finally:
            for thread in threads:
                thread.join()
        total = Count()
        for report in self.reports:
            total.add(report.count())
        return total

    def _work(self, batch: Batch) -> None:
        again: list[Entry] = []
        try:
            again = self._run_batch(batch)
        finally:
            with self.changed:
                self.free += batch.guests
                if again and not self.stopped:
                    self.queue.append(Batch(again))
                self.changed.notify_all()

    def _run_batch(self, batch: Batch) -> list[Entry]:
        """Run one batch; the entries that still have to run in another guest."""
        out = OUT / f"{batch.number:02d}-{batch.kernel}"
        out.mkdir(parents=True)
        command = [str(ROOT / "tests/guest/run"), "--kernel", batch.kernel, "--out", str(out),
                   "--timeout", str(batch.seconds + 60)]  # fmt: skip
        if batch.guests == 2:
            command += ["--server", "--env", "RFLASH_TARGETS=server"]
        for word in batch.hardware:
            name, _, value = word.partition("=")
            command += [f"--{name}", value]
        command += ["--", "tests/check/batch.sh", *(f"{e.script}:{e.seconds}" for e in batch.entries)]
        entries = {e.name: e for e in batch.entries}
        text: list[str] = []
        with open(out / "lab.log", "w") as log:
            process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=log, text=True, errors="replace")
        self.processes.add(process)
        assert process.stdout is not None
        with open(out / "output.log", "w", buffering=1) as log:
            for line in process.stdout:
                text.append(line)
                log.write(line)
                ended = END.match(line)
                if ended:
                    print(f"#   {ended[1]} on {batch.kernel} ended with {ended[2]} after {ended[3]} s", flush=True)
        process.wait()
        self.processes.discard(process)
        parts = split_output("".join(text))
        lab = (out / "lab.log").read_text(errors="replace")
        reasons = re.findall(r"^lab:   (?!logs: )(.*)$", lab, re.MULTILINE)
        if process.returncode == 125 or (process.returncode and not reasons):
            reasons.append(lab.strip().splitlines()[-1] if lab.strip() else f"exit status {process.returncode}")
        kernel_log = ""
        for name in ("host-dmesg.log", "host-console.log"):
            path = out / "lab" / name
            kernel_log += path.read_text(errors="replace") if path.exists() else ""
        ran = [name for name in parts if name in entries]
        again: list[Entry] = []
        reports = []
        if not ran:
            # Not one script began: that is nobody's fault but the lab's.
            reports = [Report(e, troubles=reasons or ["the guest ran nothing"]) for e in batch.entries]
        else:
            owned = split_messages(kernel_log, reasons, ran)
            for name in ran:
                part, status, seconds = parts[name]
                reports.append(Report(entries[name], status, seconds, part, owned[name]))
                if status is None and not owned[name]:
                    reports[-1].troubles.append("it did not end")
            again = [e for e in batch.entries if e.name not in parts]
        with self.changed:
            self.reports += reports
            for report in reports:
                show(report, out)
        return again


def show(report: Report, out: Path) -> None:
    """One line for a script that passed, everything that failed for one that did not."""
    count = report.count()
    word = "not ok" if count.failed else "ok"
    print(f"{word} {report.entry}: {count} ({report.seconds:.0f} s)", flush=True)
    if not count.failed:
        return
    for failure in count.failures:
        print(f"#   {failure}")
    # The comments after a failed test say why.
    shown, following = 0, False
    for line in report.text.splitlines():
        if line.startswith("not ok"):
            following = True
        elif not line.startswith("#"):
            following = False
        if following and shown < 60:
            print(f"    {line}")
            shown += 1
    if report.status is None and report.text:
        print("    the last lines were:")
        for line in report.text.splitlines()[-10:]:
            print(f"    {line}")
    print(f"#   everything: {os.path.relpath(out, ROOT)}", flush=True)


def run(only: list[str], kernel: str | None) -> Count:
    """Run the plan, or those of its scripts that are named."""
    shutil.rmtree(OUT, ignore_errors=True)
    # tests/guest/run stretches its own limits; those of the scripts are ours.
    factor = float(os.environ.get("RFLASH_TIMEOUT_SCALE") or 1)
    entries = plan(PLAN.read_text()) + (plan(NIGHTLY.read_text()) if only else [])
    entries = [replace(e, seconds=round(e.seconds * factor)) for e in entries]
    if only:
        unknown = [name for name in only if name not in {e.name for e in entries}]
        if unknown:
            raise ValueError(f"{', '.join(unknown)} is neither in {PLAN.relative_to(ROOT)} nor in {NIGHTLY.name}")
        entries = [e for e in entries if e.name in only]
    if kernel:
        entries = [e for e in entries if e.kernel == kernel]
    total = Count()
    ready = []
    for entry in entries:
        if os.access(ROOT / entry.script, os.X_OK):
            ready.append(entry)
        else:
            total.fail(f"{entry}: {entry.script} is not there or not executable")
    for name in sorted({e.kernel for e in ready}):
        # One at a time: two at once would install their packages at once too.
        if subprocess.run([str(ROOT / "tests/guest/run"), "--kernel", name, "--prepare"], check=False).returncode:
            print(f"# kernel {name} can't be prepared", file=sys.stderr)
    begin = time.monotonic()
    print(f"# {len(ready)} scripts in guests, {SLOTS} guests at a time", flush=True)
    total.add(Runner(ready).run())
    print(f"# guests: {total} ({time.monotonic() - begin:.0f} s)", flush=True)
    return total
