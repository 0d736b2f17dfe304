# SPDX-License-Identifier: GPL-2.0
"""CPUs with their cores, packages and NUMA nodes.

Sources: /sys/devices/system/cpu, /sys/devices/system/node
(Documentation/admin-guide/cputopology.rst). The kernel removes the topology of
a CPU that is offline; its NUMA node stays.
"""

from __future__ import annotations

from rflash_tuning.cpulist import parse_list
from rflash_tuning.host.model import Cpu
from rflash_tuning.system import System

_CPU = "/sys/devices/system/cpu"
_NODE = "/sys/devices/system/node"


def read(system: System) -> tuple[Cpu, ...]:
    """All CPUs that are present, by number."""
    online = parse_list(system.text(f"{_CPU}/online", "0") or "0")
    present = parse_list(system.text(f"{_CPU}/present") or "") or online
    nodes = _nodes(system)
    return tuple(_cpu(system, number, number in online, nodes.get(number, 0)) for number in sorted(present))


def smt(system: System) -> str:
    """on, off, forceoff, notsupported, notimplemented. Source: /sys/devices/system/cpu/smt/control."""
    return system.text(f"{_CPU}/smt/control", "notimplemented") or "notimplemented"


def _nodes(system: System) -> dict[int, int]:
    """CPU -> node, by the links in the nodes' directories, which offline CPUs keep."""
    found = {}
    for node in system.names(_NODE):
        if not node.startswith("node") or not node[4:].isdecimal():
            continue
        for name in system.names(f"{_NODE}/{node}"):
            if name.startswith("cpu") and name[3:].isdecimal():
                found[int(name[3:])] = int(node[4:])
    return found


def _cpu(system: System, number: int, online: bool, node: int) -> Cpu:
    topology = f"{_CPU}/cpu{number}/topology"
    siblings = system.text(f"{topology}/thread_siblings_list") if online else None
    return Cpu(
        id=number,
        online=online,
        node=node,
        package=max(system.number(f"{topology}/physical_package_id", 0) or 0, 0),
        core=max(system.number(f"{topology}/core_id", number) or 0, 0),
        siblings=parse_list(siblings) if siblings else frozenset({number}),
    )
