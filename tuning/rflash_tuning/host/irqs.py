# SPDX-License-Identifier: GPL-2.0
"""Interrupts: their names, their CPUs, and which of them the kernel lets nobody move.

What an errno of a write to smp_affinity means is known here and nowhere else.
"""

from __future__ import annotations

import errno
import re
from collections.abc import Iterable

from rflash_tuning.cpulist import parse_list
from rflash_tuning.host.model import Irq
from rflash_tuning.system import System

# Drivers that ask for PCI_IRQ_AFFINITY: nvme (all queues but the admin queue's
# vector), virtio-blk (virtblk_probe), virtio-scsi (request queues), mpt3sas and
# megaraid_sas (reply queues). The kernel then places the interrupts itself.
_MANAGED = re.compile(r"^(?:nvme\d+q[1-9]\d*|virtio\d+-req(?:uest)?(?:\.\d+)?|mpt3sas\d+-msix\d+|megasas\d*-msix\d+)$")
# The column before the actions: "0-edge" (x86), "16384 Edge" (arm64), a bare number.
_NO_ACTION = re.compile(r"(?:.*\s)?(?:\d+(?:-\w+)?|Edge|Level)")


def actions(system: System) -> dict[int, str]:
    """Interrupt number -> its actions, separated by ", ". Source: /proc/interrupts.

    Samples, on x86 and arm64 (kernel/irq/proc.c: show_interrupts):
      ` 25:    12     0  PCI-MSIX-0000:00:03.0   1-edge      virtio0-input.0`
      ` 47:     0     3   ITS-MSI 16385 Edge      eth0-TxRx-0`
    """
    found = {}
    for line in (system.text("/proc/interrupts", "") or "").splitlines():
        number, colon, rest = line.partition(":")
        if not colon or not number.strip().isdecimal():
            continue
        last = re.split(r"\s{2,}", rest.strip())[-1]
        found[int(number)] = "" if _NO_ACTION.fullmatch(last) else last
    return found


def managed(system: System, number: int, action: str) -> bool:
    """Does the kernel place this interrupt and refuse to move it?

    Certain where debugfs shows it (CONFIG_GENERIC_IRQ_DEBUGFS, as root),
    otherwise by the drivers that are known to ask for it. The errno of a write
    is the proof: see `unchangeable`.
    """
    shown = system.text(f"/sys/kernel/debug/irq/irqs/{number}")
    if shown:
        return "IRQD_AFFINITY_MANAGED" in shown
    names = [name.strip() for name in action.split(",") if name.strip()]
    return bool(names) and all(_MANAGED.match(name) for name in names)


def refusal(release: str) -> int:
    """The errno of a write to a managed interrupt: EIO before Linux 6.11, EPERM since (kernel/irq/proc.c)."""
    match = re.match(r"(\d+)\.(\d+)", release)
    version = (int(match[1]), int(match[2])) if match else (6, 12)
    return errno.EIO if version < (6, 11) else errno.EPERM


def unchangeable(error: OSError) -> bool:
    """Did a write to smp_affinity fail for good? EPERM and EIO: managed; EOPNOTSUPP: the chip can't."""
    return error.errno in (errno.EIO, errno.EPERM, errno.EOPNOTSUPP)


def out_of_vectors(error: OSError) -> bool:
    """Did it fail because the CPU has no free interrupt vector? Fewer queues would help."""
    return error.errno == errno.ENOSPC


def read(system: System, numbers: Iterable[int], named: dict[int, str]) -> tuple[Irq, ...]:
    """The interrupts of these numbers that are in use, by number; `named` is what actions() gave."""
    found = []
    for number in sorted(set(numbers)):
        affinity = system.text(f"/proc/irq/{number}/smp_affinity_list")
        if affinity is None:
            continue
        effective = system.text(f"/proc/irq/{number}/effective_affinity_list", "") or ""
        name = named.get(number, "")
        found.append(
            Irq(number, name, parse_list(affinity), parse_list(effective), managed(system, number, name)),
        )
    return tuple(found)


def of_device(system: System, device: str) -> tuple[int, ...]:
    """A PCI device's message-signalled interrupts, or those of the nearest PCI device above it.

    `device` is a path in sysfs. virtio devices have their interrupts at the
    PCI function above them. A device with a single legacy interrupt has it in
    the file `irq`.
    """
    try:
        path = system.resolve(device)
    except OSError:
        return ()
    while path.startswith("/sys/devices/") and path.count("/") > 3:
        numbers = [int(name) for name in system.names(f"{path}/msi_irqs") if name.isdecimal()]
        if numbers:
            return tuple(sorted(numbers))
        if system.exists(f"{path}/irq"):
            legacy = system.number(f"{path}/irq", 0) or 0
            return (legacy,) if legacy else ()
        path = path.rpartition("/")[0]
    return ()
