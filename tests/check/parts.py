# SPDX-License-Identifier: GPL-2.0
"""The parts of "make check": what each runs and how its results are counted."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tomllib
from collections.abc import Callable
from pathlib import Path

import guests
import lint
import tap
import venv_dir

ROOT = Path(__file__).resolve().parents[2]
MANIFEST = "userspace/Cargo.toml"


def show_and_keep(command: list[str], cwd: Path = ROOT) -> tuple[int, str]:
    """Run a command; its output goes to the terminal and is returned as well."""
    print(f"$ {' '.join(command)}", flush=True)
    try:
        process = subprocess.Popen(
            command, cwd=cwd, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, errors="replace"
        )
    except FileNotFoundError:
        text = f"{command[0]} is not there"
        print(text)
        return 127, text
    assert process.stdout is not None
    lines = []
    for line in process.stdout:
        sys.stdout.write(line)
        sys.stdout.flush()
        lines.append(line)
    return process.wait(), "".join(lines)


def counted(command: list[str], count: Callable[[str], tap.Count | None], what: str) -> tap.Count:
    """Run a test program; its exit status has to agree with what it prints."""
    status, text = show_and_keep(command)
    result = count(text)
    if result is None or result.total == 0:
        result = result or tap.Count()
        result.fail(f"{what}: no test ran (exit status {status})")
    elif status and not result.failed:
        result.fail(f"{what}: exit status {status}")
    elif result.failed and len(result.failures) < result.failed:
        result.failures.append(f"{what}: {result.failed} failed")
    result.failures = [f if f.startswith(what) else f"{what}: {f}" for f in result.failures]
    return result


def build() -> tap.Count:
    """The tools, and the module for every series of kernels, without a warning."""
    count = tap.Count()
    status, _ = show_and_keep(["cargo", "build", "--release", "--locked", "--manifest-path", MANIFEST])
    if status:
        count.fail("build: the tools do not build")
    else:
        count.passed += 1
    with open(ROOT / "tests/guest/kernels.toml", "rb") as stream:
        series = list(tomllib.load(stream)["series"])
    for name in series:
        status, text = show_and_keep(["tests/guest/build-module", "--kernel", name])
        warnings = [line for line in text.splitlines() if re.search(r"\bwarning:", line) and "pahole" not in line]
        if status:
            count.fail(f"build: the module does not build for kernel {name}")
        elif warnings:
            count.fail(f"build: the module for kernel {name} has warnings: {warnings[0]}")
        else:
            count.passed += 1
    return count


def unit() -> tap.Count:
    """Rust and Python tests, without privileges."""
    count = counted(["cargo", "test", "--locked", "--workspace", "--manifest-path", MANIFEST], tap.cargo, "cargo test")
    # Half of their time is waiting for networks and processes: more workers than cores.
    command = [str(venv_dir.python()), "-m", "pytest", "-q", "-rfEs", "-n", "4", "--dist", "worksteal"]
    count.add(counted(command, tap.pytest, "pytest"))
    return count


def kunit() -> tap.Count:
    """The driver's own unit tests, in a User Mode Linux kernel."""
    return counted(["driver/kunit/run"], tap.summary, "kunit")


def meta() -> tap.Count:
    """Does the guest lab report what happens?"""
    return counted(["tests/meta/run"], tap.tap, "meta")


def guest() -> tap.Count:
    """The selftests in guests."""
    count = build()
    if count.failed:
        count.fail("guest: not run, since the module or the tools do not build")
        return count
    count.add(guests.run(os.environ.get("TESTS", "").split(), os.environ.get("KERNEL") or None))
    return count


# In the order of "make check": quick ones first.
PARTS: dict[str, Callable[[], tap.Count]] = {
    "lint": lint.run,
    "unit": unit,
    "kunit": kunit,
    "guest": guest,
    "meta": meta,
}
