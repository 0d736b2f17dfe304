#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0
"""Kills an apply at each of its steps with SIGKILL, reverts, and compares the machine.

A step is one change of the machine: a write to the kernel, a configuration
file, a NIC, a thread. The apply is killed right before an odd step and right
after an even one; with --shift the other way round. Then the revert runs, in a
process of its own, and everything that a tuner could have changed is read by
tunestate.py, which knows nothing of it.

usage: tunekill.py [--shift] [--every N] STATE-DIR ARGUMENTS OF APPLY...
"""

from __future__ import annotations

import os
import signal
import sys
import traceback
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE.parents[1] / "tuning"), str(HERE)]

import tunestate
from rflash_tuning.live import LiveSystem
from rflash_tuning.tune import commands

STEPS = ("write", "replace", "ethtool_set", "set_affinity")
# What an apply may touch; the rest is compared once, by the script.
PARTS = ["sysctls", "nics", "interrupts", "disks", "threads"]
MOST = 500


def arm(number: int, after: bool) -> None:
    """From here on this process dies at its step of this number, the first being 1."""
    counted = 0

    def wrapped(name):
        original = getattr(LiveSystem, name)

        def step(self, *arguments):
            nonlocal counted
            counted += 1
            if counted == number and not after:
                os.kill(os.getpid(), signal.SIGKILL)
            result = original(self, *arguments)
            if counted == number:
                os.kill(os.getpid(), signal.SIGKILL)
            return result

        return step

    for name in STEPS:
        setattr(LiveSystem, name, wrapped(name))


def in_child(work) -> int:
    """The exit status of work in a process of its own; negative for a signal."""
    sys.stdout.flush()
    pid = os.fork()
    if pid == 0:
        status = 99
        try:
            sys.stdout = open(os.devnull, "w")  # noqa: SIM115
            status = work()
        except SystemExit as end:
            status = end.code if isinstance(end.code, int) else 1
        except BaseException:
            traceback.print_exc()
        finally:
            os._exit(status)
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])


def first_difference(one: str, other: str) -> str:
    return "; ".join(f"{a} -> {b}" for a, b in zip(one.splitlines(), other.splitlines(), strict=False) if a != b)[:400]


def main(arguments: list[str]) -> int:
    shift = arguments[:1] == ["--shift"]
    arguments = arguments[shift:]
    every = 1
    if arguments[:1] == ["--every"]:
        every, arguments = int(arguments[1]), arguments[2:]
    where = ["--state-dir", arguments[0]]
    apply = ["apply", *arguments[1:], *where]
    before = tunestate.state(PARTS)
    killed = 0
    bad = 0
    for number in range(1, MOST, every):
        after = (number % 2 == 0) != shift

        def doomed(number: int = number, after: bool = after) -> int:
            arm(number, after)
            return commands.main(apply)

        status = in_child(doomed)
        if status != -signal.SIGKILL:
            print(f"step {number}: the apply ended by itself, with {status}")
            bad += status not in (0, 3)
            bad += in_child(lambda: commands.main(["revert", *where])) != 0
            break
        killed += 1
        reverted = in_child(lambda: commands.main(["revert", *where]))
        difference = first_difference(before, tunestate.state(PARTS))
        if reverted or difference:
            bad += 1
            word = "after" if after else "before"
            print(f"killed {word} step {number}: revert ended with {reverted}; {difference or 'no difference'}")
    print(f"killed {killed} times, {bad} bad")
    return 1 if bad or not killed else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
