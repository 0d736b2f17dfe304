# SPDX-License-Identifier: GPL-2.0
"""Receive flow steering, where nothing else brings packets to a tenant's threads.

:What: ``rps_sock_flow_entries`` of at least 32768 and ``rps_flow_cnt`` of each queue
    an equal part of it, rounded down to a power of two: with LIO and rflashd,
    on a NIC that has neither flow rules nor a table to rely on. Elsewhere both
    stay as they are. It can't help nvmet, which has no threads to follow.
:Why: Packets follow the thread that reads them, which is pinned.
:Source: Documentation/networking/scaling.rst ("RFS Configuration": 32768, divided by queues).
:Disruption: none.
:Undo: The former numbers.
"""

from __future__ import annotations

from rflash_tuning.knobs import steering
from rflash_tuning.knobs.draft import SCALING, Draft
from rflash_tuning.tune.settings import NET, FileSetting

NAME = "rfs"
TITLE = "Receive flow steering, where nothing else brings packets to a tenant's threads"
ENTRIES = 32768
ENTRIES_FILE = "/proc/sys/net/core/rps_sock_flow_entries"


def draw(draft: Draft) -> None:
    for port in draft.ports:
        if steering.means(draft, port).means != "rfs" or not port.rps_flows:
            continue
        reason = "packets follow the tenant's pinned threads, since this NIC can't be told where to put them"
        draft.raise_file(ENTRIES_FILE, ENTRIES, reason, SCALING)
        each = ENTRIES // len(port.rps_flows)
        each = 1 << each.bit_length() - 1
        for index, present in enumerate(port.rps_flows):
            draft.want(
                FileSetting(f"{NET}/{port.name}/queues/rx-{index}/rps_flow_cnt", "number", port.name, port.bus),
                present,
                max(present, each),
                reason,
                SCALING,
            )
