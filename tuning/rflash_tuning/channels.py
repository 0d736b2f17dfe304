# SPDX-License-Identifier: GPL-2.0
"""What a driver does to a NIC when its number of channels changes (in a SnapshotSystem).

Drivers free their vectors and ask for new ones, so interrupts get default
affinities and some of them other numbers; queues come and go with their
attributes; the RSS table is laid out again unless somebody has set it. virtio-net keeps all its vectors
and places them itself (virtnet_set_affinity).
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from rflash_tuning import behaviour
from rflash_tuning.cpulist import parse_mask
from rflash_tuning.host import irqnames, irqs, nics
from rflash_tuning.tree import natural

if TYPE_CHECKING:
    from rflash_tuning.snapshot import SnapshotSystem


def rebuild(system: SnapshotSystem, nic: str, rx: int, tx: int) -> None:
    """Give a NIC this many receive and transmit queues, with everything as a driver leaves it."""
    before = behaviour.queue_count(system, nic)
    _resize_queues(system, nic, "rx", rx)
    _resize_queues(system, nic, "tx", tx)
    _reset_xps(system, nic, tx)
    if nics.driver(system, nic) == "virtio_net":
        _place_virtio(system, nic, rx)
    else:
        _renew_vectors(system, nic, before, rx)
    rss = system.state.ethtool.get(nic, {}).get("rss")
    if rss and rss.get("table") and nic not in system.rss_configured:
        rss["table"] = [entry % rx for entry in range(len(rss["table"]))]


def _resize_queues(system: SnapshotSystem, nic: str, kind: str, count: int) -> None:
    base = f"/sys/class/net/{nic}/queues"
    if not system.exists(base):
        return
    first = f"{base}/{kind}-0"
    for name in system.names(base):
        if name.startswith(f"{kind}-") and int(name.partition("-")[2]) >= count:
            system.tree.remove(f"{base}/{name}")
    for index in range(count):
        if system.exists(f"{base}/{kind}-{index}"):
            continue
        system.tree.mkdir(f"{base}/{kind}-{index}")
        for name in system.names(first):
            text = system.text(f"{first}/{name}")
            if text is not None:
                system.tree.put(f"{base}/{kind}-{index}/{name}", re.sub(r"[0-9a-f]", "0", text) + "\n")


def _reset_xps(system: SnapshotSystem, nic: str, count: int) -> None:
    """One CPU for each queue where the driver had set any; nothing otherwise."""
    files = [f"/sys/class/net/{nic}/queues/tx-{index}/xps_cpus" for index in range(count)]
    files = [path for path in files if system.text(path) is not None]
    used = any(parse_mask(system.read(path)) for path in files)
    cpus = sorted(behaviour.online(system))
    for index, path in enumerate(files):
        chosen = frozenset([cpus[index % len(cpus)]] if used else [])
        system.tree.put(path, behaviour.mask_like(system.read(path), chosen) + "\n")


def _vectors(system: SnapshotSystem, nic: str) -> dict[int, str]:
    named = irqs.actions(system)
    return {number: named.get(number, "") for number in irqs.of_device(system, f"/sys/class/net/{nic}/device")}


def _place_virtio(system: SnapshotSystem, nic: str, count: int) -> None:
    cpus = sorted(behaviour.online(system))
    for queue in irqnames.queues(_vectors(system, nic), nic, count):
        chosen = frozenset([cpus[queue.index % len(cpus)]])
        for number in (queue.irq, queue.tx_irq):
            if number is not None:
                behaviour.set_irq(system, number, chosen, chosen)


def _renew_vectors(system: SnapshotSystem, nic: str, before: int, count: int) -> None:
    names = _vectors(system, nic)
    old = irqnames.queues(names, nic, before)
    for queue in old[count:]:
        for number in (queue.irq, queue.tx_irq):
            if number is not None:
                _remove_vector(system, nic, number)
    if old and old[0].irq is not None:
        for index in range(before, count):
            _add_vector(system, nic, old[0].irq, _numbered(names[old[0].irq], nic, index))
    default = parse_mask(system.text("/proc/irq/default_smp_affinity", "") or "0") or behaviour.online(system)
    cpus = sorted(behaviour.online(system))
    for place, queue in enumerate(irqnames.queues(_vectors(system, nic), nic, count)):
        for number in (queue.irq, queue.tx_irq):
            if number is not None:
                behaviour.set_irq(system, number, default, frozenset([cpus[place % len(cpus)]]))


def _numbered(name: str, nic: str, index: int) -> str:
    """The name of queue `index` like that of queue 0; some drivers count from 1."""
    known = irqnames.role(name, nic)
    if known is None or known.index < 0:
        return f"{nic}-TxRx-{index}"
    return f"{name[: known.span[0]]}{known.index + index}{name[known.span[1] :]}"


def _msi_directory(system: SnapshotSystem, nic: str) -> str:
    path = system.resolve(f"/sys/class/net/{nic}/device")
    while path.count("/") > 3 and not system.exists(f"{path}/msi_irqs"):
        path = path.rpartition("/")[0]
    return f"{path}/msi_irqs"


def _remove_vector(system: SnapshotSystem, nic: str, number: int) -> None:
    system.tree.remove(f"{_msi_directory(system, nic)}/{number}")
    system.tree.remove(f"/proc/irq/{number}")
    lines = system.read("/proc/interrupts").splitlines(keepends=True)
    kept = [line for line in lines if line.partition(":")[0].strip() != str(number)]
    system.tree.put("/proc/interrupts", "".join(kept))


def _add_vector(system: SnapshotSystem, nic: str, like: int, name: str) -> None:
    """Another vector like a given one, with a number that was never used."""
    used = [int(entry) for entry in system.names("/proc/irq") if entry.isdecimal()]
    number = max(used) + 1
    for entry in system.names(f"/proc/irq/{like}"):
        text = system.text(f"/proc/irq/{like}/{entry}")
        if text is not None:
            system.tree.put(f"/proc/irq/{number}/{entry}", text + "\n")
    system.tree.put(f"{_msi_directory(system, nic)}/{number}", "msix\n")
    lines = system.read("/proc/interrupts").splitlines(keepends=True)
    model = next(line for line in lines if line.partition(":")[0].strip() == str(like))
    counts = re.match(r"\s*\d+:((?:\s+\d+)+)\s", model)
    width = len(counts[1].split()) if counts else 1
    new = f" {number}: " + " ".join("0" for _ in range(width)) + f"  PCI-MSIX  {number}-edge      {name}\n"
    numbered = [line for line in lines if line.partition(":")[0].strip().isdecimal()] + [new]
    others = [line for line in lines[1:] if not line.partition(":")[0].strip().isdecimal()]
    system.tree.put("/proc/interrupts", "".join([lines[0], *sorted(numbered, key=natural), *others]))
