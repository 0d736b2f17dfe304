# SPDX-License-Identifier: GPL-2.0
"""A target's threads on their tenant's cores.

:What: ``sched_setaffinity`` of LIO's thread pairs: ``iscsi_trx``, which receives
    and submits, on the core of the tenant's NIC queue; ``iscsi_ttx``, which
    answers, on its I/O core. The pairs of several sessions take a tenant's cores
    in turn. LIO makes new threads at each login, so ``rflash-tune watch`` places
    them again. ``cpus_allowed_list`` is one for all tenants and stays as it is.
    nvmet has no threads of a tenant's, and rflashd takes CPU sets.
:Why: A thread that runs where its packets arrive saves a wake-up on another core
    and keeps its caches.
:Source: Flash Storage Disaggregation, section 4; Linux, drivers/target/iscsi/iscsi_target.c
    (iscsit_thread_get_cpumask: one for both, in turn over all CPUs).
:Disruption: none.
:Undo: The former CPUs, for threads that still run.
"""

from __future__ import annotations

from rflash_tuning.cpulist import format_list
from rflash_tuning.host.model import Task, Tenant
from rflash_tuning.knobs.draft import PAPER, Draft
from rflash_tuning.tune.change import Share
from rflash_tuning.tune.settings import TaskSetting

NAME = "threads"
TITLE = "A target's threads on their tenant's cores"


def draw(draft: Draft) -> None:
    if draft.request.target != "iscsi" or draft.request.role != "server" or draft.allocation.rule == "spread":
        return
    tasks = {task.tid: task for task in draft.host.tasks}
    shares = {share.tenant: share for share in draft.allocation.shares}
    known: set[int] = set()
    for tenant in draft.host.tenants:
        known.update(tenant.tasks)
        if tenant.kind == "iscsi" and tenant.name in shares:
            _draw_tenant(draft, tenant, shares[tenant.name], tasks)
    lost = [task.tid for task in draft.host.tasks if task.name in ("iscsi_trx", "iscsi_ttx") and task.tid not in known]
    if lost:
        draft.warn(f"it is not known which tenant {len(lost)} of LIO's threads serve, so they are not placed")


def _draw_tenant(draft: Draft, tenant: Tenant, share: Share, tasks: dict[int, Task]) -> None:
    mine = [tasks[tid] for tid in sorted(tenant.tasks) if tid in tasks]
    for name, cpus, why in (
        ("iscsi_trx", share.connection_cpus, "receives and submits: where the tenant's packets arrive"),
        ("iscsi_ttx", share.io_cpus, "answers: on the tenant's core for I/O"),
    ):
        for place, task in enumerate(task for task in mine if task.name == name):
            draft.want(
                TaskSetting(task.tid, task.name, task.start),
                format_list(task.cpus),
                str(cpus[place % len(cpus)]),
                "the kernel binds this thread" if task.bound else why,
                PAPER,
                tenant=share.tenant,
                foreseen="unchangeable" if task.bound else "",
            )
