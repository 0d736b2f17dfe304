# SPDX-License-Identifier: GPL-2.0
"""Block devices with their hardware queues. Model and serial number are not read.

Sources: /sys/block (Documentation/ABI/stable/sysfs-block), /sys/class/nvme.

The head of a multipath NVMe namespace (nvme0n1) has no queues; they are those
of its paths (nvme0c1n1 is the path by controller 1). Volumes of device-mapper
and md have none either.
"""

from __future__ import annotations

import re

from rflash_tuning.cpulist import parse_list
from rflash_tuning.host import irqs, nics
from rflash_tuning.host.model import Disk, DiskQueue
from rflash_tuning.system import System

BLOCK = "/sys/block"
_SECTOR = 512  # bytes; what /sys/block/*/size counts, whatever the device's own block size
_SKIPPED = re.compile(r"(loop|sr|fd|zram|mtdblock)\d+")
_PATH = re.compile(r"nvme(\d+)c(\d+)n(\d+)")
_KINDS = ((r"nvme\d+n\d+", "nvme"), (r"vd[a-z]+", "virtio"), (r"sd[a-z]+", "scsi"), (r"ram\d+", "ram"))


def read(system: System, named: dict[int, str]) -> tuple[Disk, ...]:
    """Every disk that has a size; `named` is what irqs.actions gave."""
    names = [name for name in system.names(BLOCK) if not _SKIPPED.fullmatch(name) and not _PATH.fullmatch(name)]
    return tuple(_disk(system, name, named) for name in names if system.number(f"{BLOCK}/{name}/size", 0))


def queue_owner(system: System, name: str) -> str:
    """The device whose queues carry a disk's requests: itself, or a path of a multipath NVMe namespace."""
    if system.exists(f"{BLOCK}/{name}/mq"):
        return name
    head = re.fullmatch(r"nvme(\d+)n(\d+)", name)
    for other in system.names(BLOCK) if head else ():
        path = _PATH.fullmatch(other)
        if head and path and (path[1], path[3]) == (head[1], head[2]):
            return other
    return name


def transport(system: System, name: str) -> str:
    """How an NVMe disk is reached: pcie, tcp, rdma, fc, loop; "" where the kernel does not say."""
    match = re.fullmatch(r"nvme(\d+)(?:c(\d+))?n\d+", queue_owner(system, name))
    return (system.text(f"/sys/class/nvme/nvme{match[2] or match[1]}/transport", "") or "") if match else ""


def whole(device: str, names: list[str]) -> str | None:
    """The disk among `names` that a device file ("/dev/nvme0n1p3") is, or is a partition of."""
    name = device.removeprefix("/dev/")
    for disk in sorted(names, key=len, reverse=True):
        separator = "p" if disk[-1:].isdecimal() else ""
        if re.fullmatch(rf"{re.escape(disk)}({separator}\d+)?", name):
            return disk
    return None


def _disk(system: System, name: str, named: dict[int, str]) -> Disk:
    base = f"{BLOCK}/{name}"
    owner = queue_owner(system, name)
    kind, bus = _kind(system, name)
    numbers = irqs.of_device(system, f"{BLOCK}/{owner}/device")
    choices = (system.text(f"{BLOCK}/{owner}/queue/scheduler", "") or "").split()
    vectors = {number: named.get(number, "") for number in numbers}
    return Disk(
        name=name,
        kind=kind,
        node=nics.node_of(system, f"{BLOCK}/{owner}/device"),
        bus=bus,
        size=(system.number(f"{base}/size", 0) or 0) * _SECTOR,
        block_size=system.number(f"{base}/queue/logical_block_size", _SECTOR) or _SECTOR,
        rotational=bool(system.number(f"{base}/queue/rotational", 0)),
        model="",
        schedulers=tuple(choice.strip("[]") for choice in choices),
        scheduler=next((choice.strip("[]") for choice in choices if choice.startswith("[")), ""),
        queues=_queues(system, owner, vectors),
        irqs=irqs.read(system, numbers, named),
    )


def _kind(system: System, name: str) -> tuple[str, str]:
    """Kind and bus. NVMe over a network is "other", with its transport as the bus: the flash is elsewhere."""
    kind = next((kind for pattern, kind in _KINDS if re.fullmatch(pattern, name)), "other")
    # Made by configfs, null_blk's disks have any name.
    if kind == "other" and (re.fullmatch(r"nullb\d+", name) or system.exists(f"/sys/kernel/config/nullb/{name}")):
        kind = "null"
    if kind == "nvme":
        way = transport(system, name)
        if way not in ("", "pcie"):
            return "other", way
    try:
        path = system.resolve(f"{BLOCK}/{queue_owner(system, name)}/device")
    except OSError:
        return kind, ""
    return kind, nics.bus_of(path)


def _queues(system: System, owner: str, vectors: dict[int, str]) -> tuple[DiskQueue, ...]:
    base = f"{BLOCK}/{owner}/mq"
    found = []
    for name in system.names(base):
        text = system.text(f"{base}/{name}/cpu_list")
        if name.isdecimal() and text is not None:
            index = int(name)
            found.append(DiskQueue(index, parse_list(text.replace(" ", "")), _vector(vectors, index)))
    return tuple(found)


def _vector(vectors: dict[int, str], index: int) -> int | None:
    """The interrupt of a hardware queue: nvme0q1 serves queue 0 (0q0 is the admin queue), virtio2-req.0 queue 0."""
    wanted = re.compile(rf"nvme\d+q{index + 1}|virtio\d+-req(uest)?\.{index}")
    for number, action in vectors.items():
        if any(wanted.fullmatch(name.strip()) for name in action.split(",")):
            return number
    return None
