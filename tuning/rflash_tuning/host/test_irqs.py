# SPDX-License-Identifier: GPL-2.0
"""Interrupts of several kernels and drivers: names, queues, who is managed."""

from __future__ import annotations

import errno

import pytest

from rflash_tuning import samples
from rflash_tuning.host import irqnames, irqs
from rflash_tuning.host.model import NicQueue
from rflash_tuning.snapshot import Snapshot, SnapshotSystem

# Lines as kernels print them: x86 6.1, x86 6.12, arm64, legacy, shared, without an action.
INTERRUPTS = """           CPU0       CPU1
   9:          0          0   IO-APIC    9-fasteoi   acpi
  16:          3          0   IO-APIC   16-fasteoi   ehci_hcd:usb1, i801_smbus
  24:          0          1   PCI-MSI 65536-edge      nvme0q0
  25:    1244683          0   PCI-MSI 65537-edge      nvme0q1
  30:         12          0  PCI-MSIX-0000:00:03.0   1-edge      virtio0-input.0
  31:          7          0  IR-PCI-MSIX-0000:81:00.1   12-edge      mlx5_comp11@pci:0000:81:00.1
  47:          0          3   ITS-MSI 16385 Edge      eth0-TxRx-0
  48:          0          0     GICv3  27 Level     arch_timer
  49:          0          0   PCI-MSI 65540-edge
  50:          0          0   ITS-MSI 16390 Edge
  51:          0          0  PCI-MSIX-0000:00:04.0   0-edge      nvme1q0, nvme1q1
  52:          0          0  IR-IO-APIC    9-fasteoi   i915 display
NMI:          0          0   Non-maskable interrupts
ERR:          0
"""


def machine(files: dict[str, str]) -> SnapshotSystem:
    snapshot = Snapshot()
    for path, text in files.items():
        snapshot.tree.put(path, text)
    return SnapshotSystem(snapshot)


def test_actions_are_read_from_every_kernels_lines() -> None:
    assert irqs.actions(machine({"/proc/interrupts": INTERRUPTS})) == {
        9: "acpi",
        16: "ehci_hcd:usb1, i801_smbus",
        24: "nvme0q0",
        25: "nvme0q1",
        30: "virtio0-input.0",
        31: "mlx5_comp11@pci:0000:81:00.1",
        47: "eth0-TxRx-0",
        48: "arch_timer",
        49: "",
        50: "",
        51: "nvme1q0, nvme1q1",
        52: "i915 display",
    }


@pytest.mark.parametrize(
    ("name", "managed"),
    [
        ("nvme0q0", False),
        ("nvme0q1", True),
        ("nvme12q64", True),
        ("nvme1q0, nvme1q1", False),  # one vector for all: not managed
        ("virtio2-req.0", True),
        ("virtio1-request", True),
        ("virtio1-config", False),
        ("virtio0-input.0", False),
        ("mpt3sas0-msix4", True),
        ("eth0-TxRx-0", False),
        ("", False),
    ],
)
def test_managed_by_the_drivers_that_ask_for_it(name: str, managed: bool) -> None:
    assert irqs.managed(machine({"/proc/interrupts": INTERRUPTS}), 25, name) is managed


def test_debugfs_is_believed_more_than_a_name() -> None:
    shown = "handler:  handle_edge_irq\ndstate:   0x1d409200\n            IRQD_AFFINITY_MANAGED\n"
    system = machine({"/sys/kernel/debug/irq/irqs/7": shown, "/sys/kernel/debug/irq/irqs/8": "handler: x\n"})
    assert irqs.managed(system, 7, "eth0-TxRx-0")
    assert not irqs.managed(system, 8, "nvme0q1")


@pytest.mark.parametrize(
    ("release", "error"),
    [("6.1.0-28-amd64", errno.EIO), ("5.14.0", errno.EIO), ("6.12.107", errno.EPERM), ("7.2", errno.EPERM), ("?", 1)],
)
def test_the_refusal_is_that_kernels(release: str, error: int) -> None:
    assert irqs.refusal(release) == error


def test_what_the_errno_of_a_refused_write_means() -> None:
    assert [irqs.unchangeable(OSError(e, "")) for e in (errno.EIO, errno.EPERM, errno.ENOSPC)] == [True, True, False]
    assert irqs.out_of_vectors(OSError(errno.ENOSPC, ""))


def test_interrupts_that_are_gone_are_left_out() -> None:
    system = machine({"/proc/irq/30/smp_affinity_list": "0-1\n", "/proc/irq/30/effective_affinity_list": "1\n"})
    found = irqs.read(system, [31, 30], {30: "virtio0-input.0"})
    assert [(irq.number, irq.affinity, irq.effective) for irq in found] == [(30, {0, 1}, {1})]


def test_a_virtio_devices_vectors_are_its_pci_functions_and_a_legacy_one_is_alone() -> None:
    pci = "/sys/devices/pci0000:00/0000:00:03.0"
    system = machine({f"{pci}/msi_irqs/30": "msix\n", f"{pci}/irq": "11\n", f"{pci}/virtio0/vendor": "0x1af4\n",
                      "/sys/devices/platform/soc/eth/irq": "88\n"})  # fmt: skip
    assert irqs.of_device(system, f"{pci}/virtio0") == (30,)
    assert irqs.of_device(system, "/sys/devices/platform/soc/eth") == (88,)
    assert irqs.of_device(system, "/sys/none") == ()


@pytest.mark.parametrize("driver", samples.VECTORS)
def test_queues_are_found_by_every_drivers_names(driver: str) -> None:
    names = {samples.FIRST_IRQ + place: name for place, name in enumerate(samples.VECTORS[driver])}
    nic = samples.nic(driver)
    assert irqnames.queues(names, "eth0", len(nic.queues)) == nic.queues


def test_a_renamed_nics_vectors_keep_their_old_name() -> None:
    assert irqnames.queues({40: "eth0-TxRx-0", 41: "eth0-TxRx-1"}, "lan0", 2) == (NicQueue(0, 40), NicQueue(1, 41))


def test_order_decides_where_no_name_is_understood() -> None:
    assert irqnames.queues({9: "odd", 10: "odd-a3", 11: "odd-a4"}, "eth0", 2) == (NicQueue(0, 10), NicQueue(1, 11))
    assert irqnames.queues({9: "one", 10: "two", 11: "three"}, "eth0", 2) == (NicQueue(0, 10), NicQueue(1, 11))
    assert irqnames.queues({9: "eth0"}, "eth0", 1) == (NicQueue(0, 9),)
    assert irqnames.queues({}, "eth0", 2) == (NicQueue(0, None), NicQueue(1, None))


def test_queues_without_a_vector_of_their_own_say_so() -> None:
    assert irqnames.queues({40: "eth0-TxRx-0"}, "eth0", 2) == (NicQueue(0, 40), NicQueue(1, None))
