# SPDX-License-Identifier: GPL-2.0
"""nvmet-tcp goes on looking for a while before it sleeps, for latency.

:What: With the goal latency, the module parameter ``idle_poll_period_usecs`` of
    nvmet_tcp of at least 50 us. Only raised; other goals leave it alone.
:Why: Its work item stays on its core between requests, and the next one is not
    woken for. 50 us is a choice, that of busy polling.
:Source: Linux, drivers/nvme/target/tcp.c (idle_poll_period_usecs).
:Disruption: none.
:Undo: The former value.
"""

from __future__ import annotations

from rflash_tuning.knobs.draft import Draft

NAME = "nvmet-poll"
TITLE = "nvmet-tcp goes on looking for a while before it sleeps, for latency"
PATH = "/sys/module/nvmet_tcp/parameters/idle_poll_period_usecs"
LEAST = 50  # microseconds


def draw(draft: Draft) -> None:
    request = draft.request
    if request.target != "nvmet-tcp" or request.role != "server" or request.goal != "latency":
        return
    reason = "the next request is not woken for"
    draft.raise_file(PATH, LEAST, reason, "Linux, drivers/nvme/target/tcp.c")
