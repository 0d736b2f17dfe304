# SPDX-License-Identifier: GPL-2.0
"""A tenant's cores send on the tenant's queue.

:What: ``xps_cpus`` of each transmit queue: the cores of the tenants whose receive
    queue has its number; none for queues of no tenant. Left alone where there
    are fewer transmit than receive queues, or where it can't be set.
:Why: Sends and their completions stay with the tenant's core, and two tenants do
    not meet in one queue's lock.
:Source: Documentation/networking/scaling.rst ("XPS: Transmit Packet Steering").
:Disruption: none.
:Undo: The former masks.
"""

from __future__ import annotations

from rflash_tuning.cpulist import format_list
from rflash_tuning.host.model import Nic
from rflash_tuning.knobs.draft import SCALING, Draft
from rflash_tuning.tune.settings import NET, FileSetting

NAME = "xps"
TITLE = "A tenant's cores send on the tenant's queue"


def draw(draft: Draft) -> None:
    for port in draft.ports:
        if len(port.xps) > 1 and len(port.xps) >= draft.used_queues(port):
            _draw_port(draft, port)


def _draw_port(draft: Draft, port: Nic) -> None:
    senders = _senders(draft, port)
    for index, present in enumerate(port.xps):
        if present is None:
            continue
        draft.want(
            FileSetting(f"{NET}/{port.name}/queues/tx-{index}/xps_cpus", "cpumask", port.name, port.bus),
            format_list(present),
            format_list(senders.get(index, set())),
            "a tenant's cores send on its own queue" if index in senders else "a queue of no tenant's",
            SCALING,
        )


def _senders(draft: Draft, port: Nic) -> dict[int, set[int]]:
    """Transmit queue -> CPUs that send on it; a CPU sends on one queue only."""
    found: dict[int, set[int]] = {}
    placed: set[int] = set()
    for share, queues in zip(draft.allocation.shares, draft.queues(port), strict=True):
        for cpus in (share.connection_cpus, share.io_cpus):
            for place, cpu in enumerate(cpus):
                if cpu not in placed:
                    placed.add(cpu)
                    found.setdefault(queues[place % len(queues)], set()).add(cpu)
    return found
