# SPDX-License-Identifier: GPL-2.0
"""A reader that waits looks at the NIC itself, for latency.

:What: With the goal latency, ``net.core.busy_read`` and ``net.core.busy_poll`` of at
    least 50 us. Only raised; other goals leave them alone.
:Why: It saves the interrupt and the wake-up, for CPU time. It is for sockets that
    somebody waits at: LIO, rflashd and applications; nvmet-tcp does not wait.
:Source: Documentation/admin-guide/sysctl/net.rst (busy_poll: "Recommended value ... 50").
:Disruption: none; it counts for sockets made afterwards.
:Undo: The former values.
"""

from __future__ import annotations

from rflash_tuning.knobs.draft import Draft

NAME = "busy-poll"
TITLE = "A reader that waits looks at the NIC itself, for latency"
SOURCE = "Documentation/admin-guide/sysctl/net.rst"
LEAST = 50  # microseconds, the document's


def draw(draft: Draft) -> None:
    served_by_arrival = draft.request.role == "server" and draft.request.target == "nvmet-tcp"
    if draft.request.goal != "latency" or served_by_arrival:
        return
    for name in ("busy_read", "busy_poll"):
        reason = "a waiting reader polls the queue instead of sleeping"
        draft.raise_file(f"/proc/sys/net/core/{name}", LEAST, reason, SOURCE)
