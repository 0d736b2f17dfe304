# SPDX-License-Identifier: GPL-2.0
"""What a guest can have besides CPUs and memory: a network card, flash, NUMA nodes."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

from . import cache

# Model: QEMU's device and the guest's driver.
NICS = {
    "virtio": ("virtio-net-pci", "virtio_net"),
    "vmxnet3": ("vmxnet3", "vmxnet3"),
    "igb": ("igb", "igb"),
    "e1000e": ("e1000e", "e1000e"),
}
# QEMU before 8.0 does not have these.
NEW_NICS = ("igb",)
# What these receive in one piece (LRO) comes only over a link that carries large segments.
NICS_WITH_LRO = ("vmxnet3",)
DISKS = ("nvme",)
MAX_QUEUES = 64
FIRST_BUS = 128  # of the PCI hierarchy that belongs to the last NUMA node


@dataclass(frozen=True)
class Hardware:
    """The main guest's: the host that is to be tuned."""

    nic: str = "virtio"
    nic_queues: int = 1  # virtio only; the others' drivers choose by number of CPUs
    disk: str = ""
    disk_size: int = 512  # MB, sparse
    nodes: int = 1

    def check(self, cpus: int) -> None:
        """Refuse what can't be built. `cpus`: of the guest."""
        if self.nic not in NICS:
            raise cache.LabError(f"no network card '{self.nic}'; there are {', '.join(NICS)}")
        if self.disk and self.disk not in DISKS:
            raise cache.LabError(f"no disk '{self.disk}'; there is {', '.join(DISKS)}")
        if not 1 <= self.nic_queues <= MAX_QUEUES:
            raise cache.LabError(f"{self.nic_queues} queues: there can be 1 to {MAX_QUEUES}")
        if self.nic_queues > 1 and self.nic != "virtio":
            raise cache.LabError(f"the number of queues of {self.nic} is its driver's choice, by number of CPUs")
        if self.disk_size < 1:
            raise cache.LabError(f"a disk of {self.disk_size} MB")
        if self.nodes < 1 or cpus % self.nodes:
            raise cache.LabError(f"{cpus} CPUs can't be shared out evenly over {self.nodes} NUMA nodes")

    @property
    def taps(self) -> bool:
        """Does the data link need taps? A stream between two QEMUs has one queue and no large segments."""
        return self.nic_queues > 1 or self.nic in NICS_WITH_LRO

    def arguments(self) -> list[str]:
        """What to tell the guest's kernel and stage/boot."""
        modules = [NICS[self.nic][1]] if self.nic != "virtio" else []
        words = []
        if self.disk:
            modules.append(self.disk)
            # Newer QEMUs' drives claim a second controller and would then show no queues of their own.
            words.append("nvme_core.multipath=N")
        if modules:
            words.append(f"lab.modprobe={','.join(modules)}")
        if self.taps:
            words.append("lab.taps=1")
        return words


@dataclass
class Buses:
    """Where a guest's devices go: with NUMA nodes, behind a root port of the last one."""

    nodes: int = 1
    used: int = 0
    line: list[str] = field(default_factory=list)

    def next(self) -> str:
        """The option that puts a device there."""
        if self.nodes == 1:
            return ""
        if not self.used:
            self.line += ["-device", f"pxb-pcie,id=far,bus=pcie.0,bus_nr={FIRST_BUS},numa_node={self.nodes - 1}"]
        self.used += 1
        self.line += ["-device", f"pcie-root-port,id=far{self.used},bus=far,chassis={self.used},slot={self.used}"]
        return f",bus=far{self.used}"


def cpus(number: int, nodes: int, memory: int) -> list[str]:
    """CPUs and memory (MB). Each NUMA node is a package of its own with an equal part of both."""
    line = ["-m", str(memory), "-smp", str(number)]
    if nodes == 1:
        return line
    each = number // nodes
    line[-1] += f",sockets={nodes},cores={each},threads=1"
    for node in range(nodes):
        size = memory // nodes + (memory % nodes if node == 0 else 0)
        own = f"{node * each}-{(node + 1) * each - 1}"
        line += ["-object", f"memory-backend-ram,id=memory{node},size={size}M",
                 "-numa", f"node,nodeid={node},memdev=memory{node},cpus={own}"]  # fmt: skip
    return line


def nic(model: str, netdev: str, mac: str, mtu: int, queues: int, bus: str) -> list[str]:
    """A network card on an existing netdev."""
    device = f"{NICS[model][0]},netdev={netdev},mac={mac},romfile={bus}"
    if model == "virtio":
        if mtu != 1500:
            device += f",host_mtu={mtu}"
        if queues > 1:
            # An interrupt for each direction of each queue, and two of the device.
            device += f",mq=on,rss=on,hash=on,rx_queue_size=1024,vectors={2 * queues + 2}"
    return ["-device", device]


def nvme(image: Path, size: int, queues: int, bus: str) -> list[str]:
    """An NVMe drive on a new sparse image, with this many I/O queues. Size in MB."""
    with open(image, "wb") as stream:
        stream.truncate(size << 20)
    drive = f"file={image},format=raw,if=none,id=flash,cache=unsafe,discard=unmap"
    device = f"nvme,drive=flash,serial=flash0,max_ioqpairs={queues},msix_qsize={queues + 1}{bus}"
    return ["-drive", drive, "-device", device]
