# SPDX-License-Identifier: GPL-2.0
"""Sets of CPUs as the kernel writes them: lists ("0-3,8") and masks ("ff,00000000").

Formats: Documentation/admin-guide/cputopology.rst, lib/bitmap-str.c.
"""

from __future__ import annotations

from collections.abc import Iterable


def parse_list(text: str) -> frozenset[int]:
    """The CPUs of "0-3,8". Raises ValueError."""
    cpus: set[int] = set()
    for part in text.strip().split(","):
        if not part:
            continue
        first, dash, last = part.partition("-")
        low, high = int(first), int(last) if dash else int(first)
        if low > high or low < 0:
            raise ValueError(f"'{part}' is not a range of CPUs")
        cpus.update(range(low, high + 1))
    return frozenset(cpus)


def format_list(cpus: Iterable[int]) -> str:
    """ "0-3,8" of {0, 1, 2, 3, 8}; "" of nothing."""
    parts: list[str] = []
    run: list[int] = []
    for cpu in sorted(set(cpus)):
        if run and cpu == run[-1] + 1:
            run.append(cpu)
            continue
        if run:
            parts.append(_span(run))
        run = [cpu]
    if run:
        parts.append(_span(run))
    return ",".join(parts)


def _span(run: list[int]) -> str:
    return str(run[0]) if len(run) == 1 else f"{run[0]}-{run[-1]}"


def parse_mask(text: str) -> frozenset[int]:
    """The CPUs of "3f" or "1,00000000". Raises ValueError."""
    value = int(text.strip().replace(",", "") or "0", 16)
    return frozenset(bit for bit in range(value.bit_length()) if value >> bit & 1)


def format_mask(cpus: Iterable[int]) -> str:
    """ "1,00000000" of {32}: groups of 32 bits, as the kernel reads and writes them."""
    value = sum(1 << cpu for cpu in set(cpus))
    digits = f"{value:x}"
    if len(digits) <= 8:
        return digits
    groups = []
    while digits:
        groups.append(digits[-8:].rjust(8, "0"))
        digits = digits[:-8]
    groups[-1] = groups[-1].lstrip("0")
    return ",".join(reversed(groups))
