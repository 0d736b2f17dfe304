# SPDX-License-Identifier: GPL-2.0
"""A picture of an allocation: which tenant is on which core."""

from __future__ import annotations

import re
from collections.abc import Iterable

from rflash_tuning.cpulist import format_list
from rflash_tuning.host.model import Cpu, Host
from rflash_tuning.tune.change import Allocation
from rflash_tuning.tune.paint import Paint, visible

CONNECTION, IO, BOTH, FREE, OFFLINE = "●", "○", "◉", "·", "x"
LEGEND = {
    CONNECTION: "connection and NIC queue",
    IO: "I/O and disk interrupts",
    BOTH: "both",
    FREE: "left alone",
    OFFLINE: "offline",
}
MARGIN = "  "


def short(tenants: Iterable[str]) -> str:
    """ "t1-3,5" of t1 t2 t3 t5; other names in full, with the count of what is too long."""
    names = list(dict.fromkeys(tenants))
    if all(re.fullmatch(r"t\d{1,5}", name) for name in names) and names:
        return "t" + format_list(int(name[1:]) for name in names)
    # An IQN's or NQN's last part tells tenants apart; the rest is all the same.
    tails = [re.split(r"[:.]", name)[-1] or name for name in names]
    return ",".join(tails) if len(tails) <= 2 else f"{tails[0]}+{len(tails) - 1}"


def core_map(host: Host, allocation: Allocation, paint: Paint) -> list[str]:
    """Two lines per row of CPUs, a row of them for each NUMA node; hardware threads of a core stand together."""
    cells = {cpu.id: _cell(cpu, allocation) for cpu in host.cpus}
    nodes = sorted({cpu.node for cpu in host.cpus})
    threads = any(len(cpu.siblings) > 1 for cpu in host.cpus)
    used = [sign for sign in LEGEND if any(cell.endswith(sign) for cell in cells.values())]
    lines = ["Cores  " + paint("  ".join(f"{sign} {LEGEND[sign]}" for sign in used), "dim")]
    for node in nodes:
        cpus = sorted((cpu for cpu in host.cpus if cpu.node == node), key=_place)
        lines += _node(f"node {node}", cpus, cells, threads, paint)
    return lines


def _place(cpu: Cpu) -> tuple[int, int, int]:
    """Siblings together, in the order of their first thread. An offline CPU knows no siblings."""
    return cpu.package, min(cpu.siblings | {cpu.id}), cpu.id


def _cell(cpu: Cpu, allocation: Allocation) -> str:
    if not cpu.online:
        return OFFLINE
    owners = [share.tenant for share in allocation.shares if cpu.id in share.connection_cpus]
    workers = [share.tenant for share in allocation.shares if cpu.id in share.io_cpus]
    if not owners and not workers:
        return FREE
    sign = BOTH if owners and workers else CONNECTION if owners else IO
    return short(owners + workers) + sign


def _node(name: str, cpus: list[Cpu], cells: dict[int, str], threads: bool, paint: Paint) -> list[str]:
    label = len(name) + 2
    if all(cells[cpu.id] in (FREE, OFFLINE) for cpu in cpus):
        return _idle(name.ljust(label), cpus)
    groups: list[list[Cpu]] = []
    for cpu in cpus:
        if threads and groups and groups[-1][0].siblings == cpu.siblings:
            groups[-1].append(cpu)
        else:
            groups.append([cpu])
    width = max(visible(cells[cpu.id]) for cpu in cpus)
    width = max(width, len(str(max(cpu.id for cpu in cpus)))) + 1
    between = "│ " if threads else ""
    lines: list[str] = []
    ids, who, first = "", "", True

    def flush() -> None:
        nonlocal ids, who, first
        if who:
            lines.append(MARGIN + (name if first else "").ljust(label) + paint(ids, "dim"))
            lines.append(MARGIN + " " * label + who)
        ids, who, first = "", "", False

    for group in groups:
        size = len(group) * width + len(between)
        if who and len(MARGIN) + label + visible(who) + size > paint.width:
            flush()
        ids += "".join(str(cpu.id).ljust(width) for cpu in group) + between
        who += "".join(_coloured(cells[cpu.id], width, paint) for cpu in group) + between
    flush()
    return lines


def _idle(label: str, cpus: list[Cpu]) -> list[str]:
    """A node that nobody uses is not worth a picture."""
    off = format_list(cpu.id for cpu in cpus if not cpu.online)
    free = format_list(cpu.id for cpu in cpus if cpu.online)
    words = ([f"{free} {FREE}"] if free else []) + ([f"{off} {OFFLINE}"] if off else [])
    return [f"{MARGIN}{label}{', '.join(words)}"]


def _coloured(cell: str, width: int, paint: Paint) -> str:
    style = {CONNECTION: "green", IO: "cyan", BOTH: "blue"}.get(cell[-1], "dim")
    return paint(cell, style) + " " * (width - visible(cell))
