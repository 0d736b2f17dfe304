# SPDX-License-Identifier: GPL-2.0
"""Is this a block device that may be given to tenants? Whatever speaks against it is found before it is touched."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass

from rflash_tuning.errors import TuneError, UsageError
from rflash_tuning.system import System
from rflash_tuning.targets import gpt
from rflash_tuning.targets.machine import Machine


@dataclass(frozen=True)
class Device:
    """A whole block device."""

    path: str  # /dev/nvme0n1, links followed
    name: str  # nvme0n1, as in /sys/block
    size: int  # bytes
    sector: int  # bytes of a logical block


def find(machine: Machine, path: str) -> Device:
    """The device behind a path. Raises UsageError when it is none that can be shared out."""
    system = machine.system
    try:
        real = system.resolve(path if "/" in path else f"/dev/{path}")
    except OSError as error:
        raise UsageError(f"there is no device {path}{_others(system)}") from error
    name = real.removeprefix("/dev/").replace("/", "!")
    if not machine.sectors.is_device(real) or not system.exists(f"/sys/class/block/{name}"):
        raise UsageError(f"{path} is not a block device")
    if system.exists(f"/sys/class/block/{name}/partition"):
        raise UsageError(f"{path} is a partition: give the whole device, with --use-partitions to keep its partitions")
    facts = geometry(system, name)
    if facts is None or facts[0] == 0:
        raise UsageError(f"{path} has no medium, or none that can be read")
    if system.number(f"/sys/block/{name}/ro", 0):
        raise UsageError(f"{path} is read-only")
    if (system.text(f"/sys/block/{name}/queue/zoned", "none") or "none") != "none":
        raise UsageError(f"{path} is zoned, and partitions of it could not be written at will")
    return Device(real, name, *facts)


def geometry(system: System, name: str) -> tuple[int, int] | None:
    """Bytes of the device and of its logical blocks; None when there is none."""
    size = system.number(f"/sys/block/{name}/size")  # in 512 bytes, whatever the device's blocks are
    if size is None:
        return None
    return size * 512, system.number(f"/sys/block/{name}/queue/logical_block_size", 512) or 512


def _others(system: System) -> str:
    flash = [name for name in system.names("/sys/block") if name.startswith("nvme")]
    return f"; NVMe devices here are {', '.join('/dev/' + name for name in flash)}" if flash else ""


def partition(system: System, path: str, number: int) -> str:
    """Path of a partition's device: /dev/nvme0n1p1, /dev/sda1; "" gives way to the next poll when it is not there."""
    name = path.removeprefix("/dev/").replace("/", "!")
    for entry in system.names(f"/sys/block/{name}"):
        if system.number(f"/sys/block/{name}/{entry}/partition") == number:
            return f"/dev/{entry}"
    return f"/dev/{name}{'p' if name[-1].isdigit() else ''}{number}"


def refuse_table(machine: Machine, device: Device) -> None:
    """Raises UsageError when a new table could destroy something, or could not be."""
    system = machine.system
    refuse_use(machine, device.path)
    existing = _partitions(system, device.name)
    if existing:
        raise UsageError(
            f"{device.path} has partitions ({', '.join(existing)}): --use-partitions takes them as they are, "
            f"`wipefs -a {device.path}` removes them for good"
        )
    found = signatures(machine, device.path)
    if found:
        raise UsageError(
            f"{device.path} is not empty, it has a signature ({', '.join(found)}): "
            f"`wipefs -a {device.path}` removes it for good"
        )
    if (system.number(f"/sys/block/{device.name}/ext_range", 256) or 0) <= 1:
        raise UsageError(f"{device.path} can't have partitions (its driver allows none)")
    if system.text(f"/sys/block/{device.name}/loop/partscan") == "0":
        raise UsageError(f"{device.path} was set up without partitions: `losetup -P` allows them")


def existing(machine: Machine, device: Device, tenants: int) -> list[tuple[str, int, str]]:
    """Path, bytes and unique GUID of each of the partitions that are to be used. Raises UsageError."""
    refuse_use(machine, device.path)
    system = machine.system
    names = _partitions(system, device.name)
    if len(names) != tenants:
        count = f"{len(names)} partitions" if len(names) != 1 else "1 partition"
        raise UsageError(f"{device.path} has {count}, and {tenants} tenants want one each")
    try:
        table = gpt.read(lambda offset, length: machine.sectors.read(device.path, offset, length), device.sector)
    except OSError as error:
        raise UsageError(f"{device.path} can't be read: {error.strerror}") from error
    guids = {part.number: part.guid for part in table.parts} if table else {}
    found = []
    for name in names:
        base = f"/sys/block/{device.name}/{name}"
        number = system.number(f"{base}/partition", 0) or 0
        found.append((f"/dev/{name}", (system.number(f"{base}/size", 0) or 0) * 512, guids.get(number, "")))
    return found


def _partitions(system: System, name: str) -> list[str]:
    found = [(system.number(f"/sys/block/{name}/{entry}/partition"), entry)
             for entry in system.names(f"/sys/block/{name}")]  # fmt: skip
    return [entry for number, entry in sorted((number, entry) for number, entry in found if number is not None)]


def signatures(machine: Machine, path: str) -> list[str]:
    """What wipefs(8) finds: "ext4", "gpt". Raises TuneError, UsageError."""
    output = machine.command(["wipefs", "--json", path], "util-linux")
    # {"signatures": [{"device": "sda", "offset": "0x438", "type": "ext4", ...}]}, or nothing
    start = output.find("{")
    if start < 0:
        return []
    try:
        found = json.loads(output[start:])["signatures"]
        return list(dict.fromkeys(str(item["type"]) for item in found))
    except (ValueError, KeyError, TypeError) as error:
        raise TuneError(f"wipefs says what was not understood: {output.strip()[:60]}") from error


def refuse_use(machine: Machine, path: str) -> None:
    """Raises UsageError when a device or one of its partitions is used by anybody."""
    found = users(machine, path)
    if found:
        raise UsageError(f"{path} is in use: {found[0]}")
    try:
        with machine.sectors.claim(path):
            pass
    except PermissionError as error:
        raise UsageError(f"{path} can't be opened: this needs root") from error
    except OSError as error:
        raise UsageError(f"{path} is in use, it can't be had exclusively: {error.strerror}") from error


def users(machine: Machine, path: str) -> list[str]:
    """Who uses a device or its partitions, targets included, as ends of a sentence."""
    return occupants(machine, path) + _targets(machine, set(_nodes(machine.system, path).values()))


def _nodes(system: System, path: str) -> dict[str, str]:
    """A device and its partitions, by their device numbers."""
    name = path.removeprefix("/dev/").replace("/", "!")
    nodes = {}
    for node in [name, *_partitions(system, name)]:
        number = system.text(f"/sys/class/block/{node}/dev")
        if number:
            nodes[number] = node
    return nodes


def occupants(machine: Machine, path: str) -> list[str]:
    """What this host itself does with a device or its partitions: mounts, swap, device mapper."""
    system = machine.system
    nodes = _nodes(system, path)
    found = []
    for line in (system.text("/proc/self/mountinfo") or "").splitlines():
        fields = line.split()
        source = fields[fields.index("-") + 2] if "-" in fields else ""
        # btrfs has device numbers of its own, and names the device.
        node = nodes.get(fields[2]) or next((node for node in nodes.values() if source == f"/dev/{node}"), None)
        if node:
            found.append(f"/dev/{node} is mounted at {fields[4]}")
    for line in (system.text("/proc/swaps") or "").splitlines()[1:]:
        if line.split()[0].removeprefix("/dev/") in nodes.values():
            found.append(f"{line.split()[0]} is swap space")
    for node in nodes.values():
        for holder in system.names(f"/sys/class/block/{node}/holders"):
            found.append(f"/dev/{node} is held by {holder}")
    return found


def _targets(machine: Machine, nodes: set[str]) -> list[str]:
    """Devices that targets of this kernel use already; nvmet does not claim them."""
    configfs, found = machine.configfs, []
    places = [f"nvmet/subsystems/{nqn}/namespaces/{number}/device_path"
              for nqn in configfs.directories("nvmet/subsystems")
              for number in configfs.directories(f"nvmet/subsystems/{nqn}/namespaces")]  # fmt: skip
    places += [f"target/core/{hba}/{name}/udev_path"
               for hba in configfs.directories("target/core") if re.match(r"(iblock|pscsi)_", hba)
               for name in configfs.directories(f"target/core/{hba}")]  # fmt: skip
    for place in places:
        try:
            real = machine.system.resolve(configfs.read(place))
        except OSError:
            continue
        if real.removeprefix("/dev/") in nodes:
            found.append(f"{real} is behind the target {place.split('/')[2 if place.startswith('nvmet') else 3]}")
    return found
