# SPDX-License-Identifier: GPL-2.0
"""The flash's request queue.

:What: For each flash device: scheduler ``none``; ``rq_affinity`` 2, so that a
    request completes on the core that made it; ``add_random`` 0; for latency
    ``nomerges`` 2. Only what the device has.
:Why: Flash has no seeks to sort for, tenants' random requests seldom merge, and
    each tenant's completions belong on its core.
:Source: Documentation/block/switching-sched.rst; Documentation/ABI/stable/sysfs-block.
:Disruption: none.
:Undo: The former values.
"""

from __future__ import annotations

from rflash_tuning.host.model import Disk
from rflash_tuning.knobs.draft import Draft
from rflash_tuning.tune.settings import FileSetting

NAME = "disk-queue"
TITLE = "The flash's request queue"
ABI = "Documentation/ABI/stable/sysfs-block"


def draw(draft: Draft) -> None:
    for disk in draft.disks:
        queue = f"/sys/block/{disk.name}/queue"
        _scheduler(draft, disk, queue)
        draft.want_file(f"{queue}/rq_affinity", "number", 2, "a request completes on the core that made it", ABI)
        draft.want_file(f"{queue}/add_random", "number", 0, "flash's timing is no source of randomness", ABI)
        if draft.request.goal == "latency":
            draft.want_file(f"{queue}/nomerges", "number", 2, "looking for merges costs time on random requests", ABI)


def _scheduler(draft: Draft, disk: Disk, queue: str) -> None:
    if "none" not in disk.schedulers or len(disk.schedulers) < 2:
        return
    draft.want(
        FileSetting(f"{queue}/scheduler", "choice"),
        disk.scheduler,
        "none",
        "flash has no seeks to sort requests for",
        "Documentation/block/switching-sched.rst",
    )
