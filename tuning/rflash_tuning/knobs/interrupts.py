# SPDX-License-Identifier: GPL-2.0
"""Each NIC queue's interrupt on its tenant's core.

:What: ``smp_affinity_list`` of each queue's interrupt: the CPU that owns the
    tenant's connections; queues of no tenant in turn over the CPUs in use.
    Interrupts that carry no packets stay where they are.
:Why: +21 % for one tenant with interrupts over all cores, +6 % for three tenants
    with two cores each, +11 % for six with one core each.
:Source: Flash Storage Disaggregation, section 4; Documentation/core-api/irq/irq-affinity.rst.
:Disruption: none.
:Undo: The former list. Interrupts that the kernel manages can't be moved (EIO
    before Linux 6.11, EPERM since); they are listed as unchangeable.
"""

from __future__ import annotations

from rflash_tuning.cpulist import format_list
from rflash_tuning.host.model import Irq, Nic
from rflash_tuning.knobs.draft import PAPER, Draft
from rflash_tuning.tune.settings import IrqSetting

NAME = "interrupts"
TITLE = "Each NIC queue's interrupt on its tenant's core"
GAINS = {
    "spread": "interrupts over all cores: +21 % for one tenant on six",
    "two-cores": "on the core that owns the connection: +6 % with two cores per tenant",
    "one-core": "all of a tenant on one core: +11 % with one core per tenant",
    "shared": "on the core that the tenants share: up to three per core in the paper",
}


def draw(draft: Draft) -> None:
    for port in draft.ports:
        irqs = {irq.number: irq for irq in port.irqs}
        if not any(queue.irq in irqs for queue in port.queues):
            draft.warn(f"{port.name} ({port.driver or 'no driver'}) has no interrupts of its queues' own to place")
            continue
        seen: set[int] = set()
        for queue, (cpu, tenant) in sorted(draft.queue_cpu(port).items()):
            if queue >= len(port.queues):
                continue
            mine = port.queues[queue]
            for number, label in ((mine.irq, f"rx-{queue}"), (mine.tx_irq, f"tx-{queue}")):
                if number in irqs and number not in seen:
                    seen.add(number)
                    _draw_irq(draft, port, irqs[number], label, cpu, tenant)


def _draw_irq(draft: Draft, port: Nic, irq: Irq, label: str, cpu: int, tenant: str) -> None:
    reason = GAINS[draft.allocation.rule] if tenant else "a queue of no tenant's: in turn over the CPUs in use"
    draft.want(
        IrqSetting(irq.number, port.name, label),
        format_list(irq.affinity),
        str(cpu),
        "the kernel manages this interrupt and does not let it be moved" if irq.managed else reason,
        PAPER,
        tenant=tenant if " " not in tenant else "",
        foreseen="unchangeable" if irq.managed else "",
    )
