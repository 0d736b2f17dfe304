# SPDX-License-Identifier: GPL-2.0
"""Receive packet steering: off where the NIC has queues, on where it has one.

:What: ``rps_cpus`` of each receive queue: none on a NIC with several queues; on a
    NIC with one, all CPUs that own connections.
:Why: On a NIC with queues of its own RPS does the work of spreading twice, and
    two other projects measured it as a loss; with a single queue it is the only
    way to more than one core.
:Source: Documentation/networking/scaling.rst ("RPS Configuration": redundant with
    one queue per CPU).
:Disruption: none.
:Undo: The former masks.
"""

from __future__ import annotations

from rflash_tuning.cpulist import format_list
from rflash_tuning.knobs.draft import SCALING, Draft
from rflash_tuning.tune.settings import NET, FileSetting

NAME = "rps"
TITLE = "Receive packet steering: off where the NIC has queues, on where it has one"


def draw(draft: Draft) -> None:
    cpus = {cpu for share in draft.allocation.shares for cpu in share.connection_cpus}
    for port in draft.ports:
        single = len(port.rps) == 1 and len(cpus) > 1
        wanted = format_list(cpus) if single else ""
        reason = "one queue: packets are spread over cores by software" if single else "the NIC's queues do it"
        for index, present in enumerate(port.rps):
            draft.want(
                FileSetting(f"{NET}/{port.name}/queues/rx-{index}/rps_cpus", "cpumask", port.name, port.bus),
                format_list(present),
                wanted,
                reason,
                SCALING,
            )
