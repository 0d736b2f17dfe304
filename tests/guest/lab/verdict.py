# SPDX-License-Identifier: GPL-2.0
"""What the kernel's own messages say about a run."""

from __future__ import annotations

import re

# The first match of a message decides; the texts are those of lib/bug.c,
# kernel/panic.c, mm/kasan, kernel/locking/lockdep.c and their like.
PANIC = re.compile(r"Kernel panic - not syncing: .*")
TROUBLE = re.compile(
    r"(?P<oops>Oops(:|\b.*\[#\d+\])|general protection fault.*|double fault: .*|invalid opcode: .*"
    r"|BUG: unable to handle .*|BUG: kernel NULL pointer .*|Unable to handle kernel .*|kernel BUG at .*)"
    r"|(?P<report>BUG: .*|KASAN: .*|KFENCE: .*|UBSAN: .*|KCSAN: .*)"
    r"|(?P<warning>WARNING: .*)"
    r"|(?P<lockdep>INFO: possible (circular|recursive) locking.*|INFO: inconsistent lock state.*"
    r"|INFO: trying to register non-static key.*|possible (circular|recursive) locking dependency.*"
    r"|suspicious RCU usage.*)"
    r"|(?P<stuck>INFO: task .* blocked for more than .*|INFO: rcu.* detected .*|rcu: INFO: .* stall.*"
    r"|watchdog: BUG: soft lockup.*|Workqueue lockup.*|refcount_t: .*)"
    r"|(?P<leak>kmemleak: \d+ new suspected memory leaks.*|Objects remaining in .*|BUG .* Objects remaining.*)"
)
KINDS = {
    "oops": "kernel oops",
    "report": "kernel bug report",
    "warning": "kernel warning",
    "lockdep": "lock or RCU rule broken",
    "stuck": "kernel stuck",
    "leak": "memory leak",
}
# What guests print that is no fault of anything under test.
HARMLESS = re.compile(
    r"MDS CPU bug|Spectre V2|RETBleed|L1TF CPU bug|MMIO Stale Data CPU bug|SRBDS|Speculative Return Stack"
    r"|module verification failed|Unmaintained driver is detected"
)


def _message(line: str) -> str:
    """A line without its time stamp."""
    return re.sub(r"^(<\d+>)?\[\s*\d+\.\d+\]\s*(\[.*?\]\s*)?", "", line.strip())


def panic(console: str) -> str | None:
    found = PANIC.search(console)
    return found.group(0).strip() if found else None


def troubles(text: str, allowed: list[re.Pattern[str]]) -> list[tuple[str, str]]:
    """(kind, message) of everything in a kernel log that should not be there.

    `allowed` are messages that the script provokes on purpose.
    """
    found: list[tuple[str, str]] = []
    for line in text.splitlines():
        match = TROUBLE.search(line)
        if not match or HARMLESS.search(line) or any(a.search(line) for a in allowed):
            continue
        if re.search(r"\bDEBUG: |printk: ", line):
            continue
        kind = KINDS[match.lastgroup or "report"]
        entry = (kind, _message(line)[:300])
        if entry not in found:
            found.append(entry)
    return found
