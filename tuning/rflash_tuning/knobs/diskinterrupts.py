# SPDX-License-Identifier: GPL-2.0
"""The disk's interrupts on the cores that do I/O.

:What: ``smp_affinity_list`` of a disk's queue interrupts, where the kernel lets
    them be moved: to the I/O core among those that submit to the queue. NVMe
    queues' can't be moved since Linux 4.8; they arrive on the core that
    submitted, so placing a tenant's I/O threads places them. One line says so
    for each disk.
:Why: The second core of the paper's two takes I/O threads and NVMe interrupts.
:Source: Flash Storage Disaggregation, section 4; Linux, drivers/nvme/host/pci.c
    (nvme_setup_irqs) and kernel/irq/affinity.c.
:Disruption: none.
:Undo: The former list.
"""

from __future__ import annotations

from rflash_tuning.cpulist import format_list
from rflash_tuning.host.model import Disk, DiskQueue, Irq
from rflash_tuning.knobs.draft import PAPER, Draft
from rflash_tuning.tune.settings import IrqSetting

NAME = "disk-interrupts"
TITLE = "The disk's interrupts on the cores that do I/O"
MANAGED = "Linux, kernel/irq/affinity.c (managed interrupts)"


def draw(draft: Draft) -> None:
    io_cpus = tuple(dict.fromkeys(cpu for share in draft.allocation.shares for cpu in share.io_cpus))
    for disk in draft.disks:
        irqs = {irq.number: irq for irq in disk.irqs}
        with_irq = [(queue, irqs[queue.irq]) for queue in disk.queues if queue.irq in irqs]
        managed = [(queue, irq) for queue, irq in with_irq if irq.managed]
        if managed:
            _draw_managed(draft, disk, managed, io_cpus)
        for queue, irq in with_irq:
            if not irq.managed:
                _draw_movable(draft, disk, queue, irq, io_cpus)


def _draw_managed(draft: Draft, disk: Disk, managed: list[tuple[DiskQueue, Irq]], io_cpus: tuple[int, ...]) -> None:
    """One line for all of a disk's: its first interrupt stands for them."""
    first = managed[0][1]
    count = len(managed)
    label = "queue" if count == 1 else f"all {count} queues, first"
    draft.want(
        IrqSetting(first.number, disk.name, label),
        format_list(frozenset().union(*(irq.affinity for _, irq in managed))),
        format_list(io_cpus),
        "the kernel places these and they arrive where a request was submitted: the submitters are placed instead",
        MANAGED,
        foreseen="unchangeable",
    )


def _draw_movable(draft: Draft, disk: Disk, queue: DiskQueue, irq: Irq, io_cpus: tuple[int, ...]) -> None:
    among = [cpu for cpu in io_cpus if cpu in queue.cpus]
    cpu = among[0] if among else io_cpus[queue.index % len(io_cpus)]
    owners = [share.tenant for share in draft.allocation.shares if cpu in share.io_cpus]
    draft.want(
        IrqSetting(irq.number, disk.name, f"queue {queue.index}"),
        format_list(irq.affinity),
        str(cpu),
        "completions arrive on a core that does I/O",
        PAPER,
        tenant=owners[0] if len(owners) == 1 else "",
    )
