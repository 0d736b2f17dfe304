# SPDX-License-Identifier: GPL-2.0
"""Makes a machine of a description: the inverse of probe.py.

A Host that was written from a driver's documentation becomes a Snapshot, on
which the executors can be tried. What a Host does not hold (a backstore's
name, a partition table) gets a plausible value.
"""

from __future__ import annotations

import dataclasses
import ipaddress
import re
from typing import Any

from rflash_tuning.cpulist import format_list
from rflash_tuning.host.disks import BLOCK
from rflash_tuning.host.model import Connection, Cpus, Disk, Host, Irq, Nic, Task, Tenant
from rflash_tuning.host.targets import LIO, NVMET, RFLASHD
from rflash_tuning.host.tasks import Process
from rflash_tuning.host.tuners import process_of
from rflash_tuning.recorder import stat_line
from rflash_tuning.tree import Tree

_PCI = re.compile(r"[0-9a-f]{4,}:[0-9a-f]{2}:[0-9a-f]{2}\.[0-7]")
_CPU = "/sys/devices/system/cpu"
_KTHREAD, _BOUND = 0x00200000, 0x04000000
_TYPES = {"loopback": 772}


class Machine:
    """A machine in the making: a tree and what is beside it."""

    def __init__(self, host: Host) -> None:
        self.host = host
        self.tree = Tree()
        self.sections: dict[str, dict[str, Any]] = {}
        self.affinities: dict[int, Cpus] = {}
        self.digits = max(-(-(max((cpu.id for cpu in host.cpus), default=0) + 1) // 4), 1)

    def mask(self, cpus: Cpus) -> str:
        """As wide as the kernel prints it on this machine."""
        value = f"{sum(1 << cpu for cpu in cpus):x}".rjust(self.digits, "0")
        groups = []
        while value:
            groups.append(value[-8:])
            value = value[:-8]
        return ",".join(reversed(groups)) + "\n"


def build(host: Host) -> Machine:
    """The whole machine. Files of Host.files come last and win."""
    machine = Machine(host)
    _identity(machine)
    _cpus(machine)
    irqs: dict[int, Irq] = {}
    for nic in host.nics:
        _nic(machine, nic)
        irqs.update({irq.number: irq for irq in nic.irqs})
    _stack(machine)
    for place, disk in enumerate(host.disks):
        _disk(machine, disk, place)
        irqs.update({irq.number: irq for irq in disk.irqs})
    _interrupts(machine, irqs)
    for task in host.tasks:
        _task(machine, task)
    _tuners(machine)
    for place, tenant in enumerate(host.tenants):
        _tenant(machine, tenant, place)
    _logins(machine)
    _connections(machine)
    for path, text in host.files.items():
        machine.tree.put(path, text + "\n")
    return machine


def _identity(machine: Machine) -> None:
    host, tree = machine.host, machine.tree
    tree.put("/proc/sys/kernel/osrelease", host.release + "\n")
    tree.put("/proc/sys/kernel/arch", host.machine + "\n")
    tree.put("/proc/sys/kernel/random/boot_id", host.boot_id + "\n")
    tree.put("/etc/machine-id", host.host_id + "\n")  # of which probe makes another host_id
    tree.mkdir("/run/systemd/system")


def _cpus(machine: Machine) -> None:
    host, tree = machine.host, machine.tree
    tree.put(f"{_CPU}/present", format_list(cpu.id for cpu in host.cpus) + "\n")
    tree.put(f"{_CPU}/online", format_list(cpu.id for cpu in host.online) + "\n")
    if host.smt != "notimplemented":
        tree.put(f"{_CPU}/smt/control", host.smt + "\n")
    for cpu in host.cpus:
        base = f"{_CPU}/cpu{cpu.id}"
        tree.mkdir(base)
        tree.mkdir(f"/sys/devices/system/node/node{cpu.node}", [f"cpu{cpu.id}"])
        tree.put(f"{base}/topology/physical_package_id", f"{cpu.package}\n")
        tree.put(f"{base}/topology/core_id", f"{cpu.core}\n")
        if cpu.online:
            tree.put(f"{base}/topology/thread_siblings_list", format_list(cpu.siblings) + "\n")


def _interrupts(machine: Machine, irqs: dict[int, Irq]) -> None:
    cpus = [cpu.id for cpu in machine.host.online]
    lines = ["           " + " ".join(f"CPU{cpu}" for cpu in cpus)]
    for number, irq in sorted(irqs.items()):
        base = f"/proc/irq/{number}"
        for name, value in (("smp_affinity", irq.affinity), ("effective_affinity", irq.effective)):
            machine.tree.put(f"{base}/{name}", machine.mask(value))
            machine.tree.put(f"{base}/{name}_list", format_list(value) + "\n")
        state = "IRQD_AFFINITY_MANAGED" if irq.managed else "IRQD_ACTIVATED"
        machine.tree.put(f"/sys/kernel/debug/irq/irqs/{number}", f"handler:  handle_edge_irq\n            {state}\n")
        counts = " ".join("0" for _ in cpus)
        lines.append(f" {number}: {counts}  PCI-MSIX  {number}-edge      {irq.name}".rstrip())
    machine.tree.put("/proc/interrupts", "\n".join(lines) + "\n")
    machine.tree.put("/proc/irq/default_smp_affinity", machine.mask(frozenset(cpus)))


def _device(machine: Machine, bus: str, node: int, irqs: tuple[Irq, ...]) -> str:
    """A device of a bus, with its node and its vectors."""
    base = f"/sys/devices/pci0000:00/{bus}" if _PCI.fullmatch(bus) else f"/sys/devices/platform/{bus}"
    machine.tree.put(f"{base}/numa_node", f"{node}\n")
    for irq in irqs:
        machine.tree.put(f"{base}/msi_irqs/{irq.number}", "msix\n")
    return base


# Network interfaces


def _nic(machine: Machine, nic: Nic) -> None:
    tree = machine.tree
    if nic.kind == "physical":
        device = _device(machine, nic.bus or nic.name, nic.node, nic.irqs)
        if nic.driver == "virtio_net":
            device = f"{device}/virtio{sum(1 for name in machine.sections)}"
        base = f"{device}/net/{nic.name}"
        tree.mkdir(base)
        tree.link(f"{base}/device", device)
        tree.mkdir(f"/sys/bus/drivers/{nic.driver}")
        tree.link(f"{device}/driver", f"/sys/bus/drivers/{nic.driver}")
    else:
        base = f"/sys/devices/virtual/net/{nic.name}"
    tree.link(f"/sys/class/net/{nic.name}", base)
    tree.put(f"{base}/mtu", f"{nic.mtu}\n")
    tree.put(f"{base}/address", f"{nic.mac}\n")
    tree.put(f"{base}/flags", "0x1003\n" if nic.up else "0x1002\n")
    tree.put(f"{base}/type", f"{_TYPES.get(nic.kind, 1)}\n")
    tree.put(f"{base}/uevent", f"DEVTYPE={nic.kind}\n" if nic.kind in ("vlan", "bond", "bridge") else "")
    if nic.kind in ("bond", "bridge"):
        tree.mkdir(f"{base}/{'bonding' if nic.kind == 'bond' else 'bridge'}")
    _queues(machine, nic, base)
    _sections(machine, nic)


def _queues(machine: Machine, nic: Nic, base: str) -> None:
    tree = machine.tree
    tree.mkdir(f"{base}/queues")
    for place in range(len(nic.queues)):
        cpus = nic.rps[place] if place < len(nic.rps) else frozenset()
        flows = nic.rps_flows[place] if place < len(nic.rps_flows) else 0
        tree.put(f"{base}/queues/rx-{place}/rps_cpus", machine.mask(cpus))
        tree.put(f"{base}/queues/rx-{place}/rps_flow_cnt", f"{flows}\n")
    for place in range(max(nic.tx_queues, len(nic.xps))):
        chosen = nic.xps[place] if place < len(nic.xps) else None
        if chosen is None:
            tree.refuse(f"{base}/queues/tx-{place}/xps_cpus", "ENOENT")
        else:
            tree.put(f"{base}/queues/tx-{place}/xps_cpus", machine.mask(chosen))


def _sections(machine: Machine, nic: Nic) -> None:
    """What ethtool says; a section that is absent is one that the driver has not."""
    found: dict[str, Any] = {
        "driver": {"driver": nic.driver, "version": "", "firmware": "", "bus": nic.bus},
        "link": {"speed": nic.speed, "max-mtu": nic.max_mtu},
        "features": {name: dataclasses.asdict(feature) for name, feature in nic.features.items()},
    }
    for name in ("channels", "rings", "coalesce", "pause"):
        if getattr(nic, name) is not None:
            found[name] = dict(getattr(nic, name))
    if nic.rss is not None:
        found["rss"] = {
            "table": list(nic.rss.table),
            "key": nic.rss.key,
            "function": nic.rss.function,
            "table-settable": nic.rss.table_settable,
            "key-settable": nic.rss.key_settable,
        }
    if nic.rules is not None:
        found["rules"] = {}
        for rule in nic.rules:
            fields = dataclasses.asdict(rule)
            found["rules"][str(fields.pop("location"))] = fields
    machine.sections[nic.name] = found


def _stack(machine: Machine) -> None:
    """lower_ and upper_ links of bonds, VLANs and bridges."""
    for nic in machine.host.nics:
        for lower in nic.lowers:
            if machine.host.nic(lower) is None:
                continue
            here, there = (machine.tree.walk(f"/sys/class/net/{name}") for name in (nic.name, lower))
            machine.tree.link(f"{here}/lower_{lower}", there)
            machine.tree.link(f"{there}/upper_{nic.name}", here)


# Disks


def _disk(machine: Machine, disk: Disk, place: int) -> None:
    tree = machine.tree
    base, device = _disk_paths(machine, disk, place)
    tree.link(f"{BLOCK}/{disk.name}", base)
    if device:
        tree.mkdir(device)
        tree.link(f"{base}/device", device)
    tree.put(f"{base}/size", f"{disk.size // 512}\n")
    tree.put(f"{base}/queue/logical_block_size", f"{disk.block_size}\n")
    tree.put(f"{base}/queue/rotational", f"{int(disk.rotational)}\n")
    words = [f"[{name}]" if name == disk.scheduler else name for name in disk.schedulers]
    tree.put(f"{base}/queue/scheduler", " ".join(words) + "\n")
    for queue in disk.queues:
        tree.put(f"{base}/mq/{queue.index}/cpu_list", ", ".join(str(cpu) for cpu in sorted(queue.cpus)) + "\n")


def _disk_paths(machine: Machine, disk: Disk, place: int) -> tuple[str, str]:
    """The disk's directory, and that of its device ("" where it has none)."""
    nvme = re.fullmatch(r"(nvme\d+)n\d+", disk.name)
    if nvme and disk.kind != "nvme":
        controller = f"/sys/devices/virtual/nvme-fabrics/ctl/{nvme[1]}"
        machine.tree.put(f"{controller}/transport", f"{disk.bus}\n")
        machine.tree.link(f"/sys/class/nvme/{nvme[1]}", controller)
        return f"{controller}/{disk.name}", controller
    if disk.kind in ("null", "ram", "other") or not disk.bus:
        return f"/sys/devices/virtual/block/{disk.name}", ""
    above = _device(machine, disk.bus, disk.node, disk.irqs)
    if nvme:
        controller = f"{above}/nvme/{nvme[1]}"
        machine.tree.put(f"{controller}/transport", "pcie\n")
        machine.tree.link(f"/sys/class/nvme/{nvme[1]}", controller)
        return f"{controller}/{disk.name}", controller
    below = f"{above}/virtio{place + 64}" if disk.kind == "virtio" else above
    return f"{below}/block/{disk.name}", below


# Processes


def _task(machine: Machine, task: Task) -> None:
    flags = (_KTHREAD if task.kernel else 0) | (_BOUND if task.bound else 0)
    line = stat_line(Process(task.tid, task.name, flags, task.start))
    if task.tid == task.pid:
        machine.tree.put(f"/proc/{task.tid}/stat", line)
    machine.tree.put(f"/proc/{task.pid}/task/{task.tid}/stat", line)
    machine.affinities[task.tid] = task.cpus


def _tuners(machine: Machine) -> None:
    free = max((task.tid for task in machine.host.tasks), default=1) + 1
    running = {task.name for task in machine.host.tasks}
    for place, tuner in enumerate(machine.host.tuners):
        if tuner.config:
            machine.tree.put(tuner.config, "")
        name = process_of(tuner.name)
        if tuner.active and name not in running:
            machine.tree.put(f"/proc/{free + place}/stat", stat_line(Process(free + place, name, 0, 1)))
            machine.affinities[free + place] = frozenset(cpu.id for cpu in machine.host.online)


# Tenants


def _tenant(machine: Machine, tenant: Tenant, place: int) -> None:
    if _is_elsewhere(machine.host, tenant):
        _session(machine, tenant, place)
    elif tenant.kind == "iscsi":
        _lio(machine, tenant, place)
    elif tenant.kind == "rflashd":
        _rflashd(machine, tenant)
    else:
        _nvmet(machine, tenant, place)


def _is_elsewhere(host: Host, tenant: Tenant) -> bool:
    """Is the host this tenant's client? Its connections lead to the tenant's port then."""
    ends = [(c.remote_port == tenant.port, c.local_port == tenant.port) for c in host.connections]
    return any(leads for leads, _ in ends) and not any(comes for _, comes in ends)


def _session(machine: Machine, tenant: Tenant, place: int) -> None:
    """What open-iscsi's and nvme's classes in sysfs show; rflash's disks show no address."""
    tree = machine.tree
    if tenant.kind == "iscsi":
        base = f"/sys/class/iscsi_connection/connection{place + 1}:0"
        tree.put(f"{base}/persistent_address", f"{tenant.address}\n")
        tree.put(f"{base}/persistent_port", f"{tenant.port}\n")
        base = f"/sys/class/iscsi_session/session{place + 1}"
        tree.put(f"{base}/targetname", f"{tenant.identity}\n")
        tree.put(f"{base}/state", "LOGGED_IN\n" if tenant.sessions else "FAILED\n")
    elif tenant.kind == "rflashd":
        tree.put(f"{BLOCK}/rflash{place}/nqn", f"{tenant.identity}\n")
    else:
        base = f"/sys/class/nvme/nvme{place + 100}"
        tree.put(f"{base}/transport", tenant.kind.removeprefix("nvmet-") + "\n")
        tree.put(f"{base}/subsysnqn", f"{tenant.identity}\n")
        tree.put(f"{base}/address", f"traddr={tenant.address},trsvcid={tenant.port}\n")
        tree.put(f"{base}/state", "live\n" if tenant.sessions else "connecting\n")


def _logins(machine: Machine) -> None:
    """The login thread of each portal last ran when its tenant's threads were made; see threads.py."""
    host = machine.host
    portals = [task for task in host.tasks if task.name == "iscsi_np"]
    starts = {task.tid: task.start for task in host.tasks}
    for portal, tenant in zip(portals, [tenant for tenant in host.tenants if tenant.kind == "iscsi"], strict=False):
        made = [starts[tid] for tid in tenant.tasks if tid in starts]
        if made:
            machine.tree.put(f"/proc/{portal.tid}/sched", f"se.exec_start  :  {max(made) * 10}.000000\n")


def _lio(machine: Machine, tenant: Tenant, place: int) -> None:
    tree, base = machine.tree, f"{LIO}/{tenant.identity}/tpgt_1"
    backstore = f"/sys/kernel/config/target/core/iblock_{place}/{tenant.name}"
    host = f"[{tenant.address}]" if ":" in tenant.address else tenant.address
    tree.mkdir(f"{base}/np/{host}:{tenant.port}")
    tree.mkdir(f"{base}/acls")
    tree.put(f"{backstore}/udev_path", f"{tenant.device}\n")
    tree.mkdir(f"{base}/lun/lun_0")
    tree.link(f"{base}/lun/lun_0/{place:010x}", backstore)
    logged_in = "".join(f"iqn.2000-01.org.example:{place}-{number}\n" for number in range(tenant.sessions))
    tree.put(f"{base}/dynamic_sessions", logged_in)


def _nvmet(machine: Machine, tenant: Tenant, place: int) -> None:
    tree, base = machine.tree, f"{NVMET}/ports/{place + 1}"
    subsystem = f"{NVMET}/subsystems/{tenant.identity}"
    tree.put(f"{base}/addr_trtype", tenant.kind.removeprefix("nvmet-") + "\n")
    tree.put(f"{base}/addr_traddr", f"{tenant.address}\n")
    tree.put(f"{base}/addr_trsvcid", f"{tenant.port}\n")
    tree.put(f"{subsystem}/namespaces/1/device_path", f"{tenant.device}\n")
    tree.mkdir(f"{base}/subsystems")
    tree.link(f"{base}/subsystems/{tenant.identity}", subsystem)


def _rflashd(machine: Machine, tenant: Tenant) -> None:
    known = machine.tree.files.get(RFLASHD, "")
    table = (
        f'[[tenant]]\nname = "{tenant.name}"\nnqn = "{tenant.identity}"\naddress = "{tenant.address}"\n'
        f'port = {tenant.port}\ndevice = "{tenant.device}"\n'
    )
    machine.tree.put(RFLASHD, known + table)


def _connections(machine: Machine) -> None:
    """/proc/net/tcp and tcp6, and what they have of the tenants' sessions stays with the connections."""
    lines: dict[str, list[str]] = {"tcp": [], "tcp6": []}
    for connection in machine.host.connections:
        wide = ":" in connection.local
        lines["tcp6" if wide else "tcp"].append(_line(connection))
    for name, ends in lines.items():
        text = "  sl  local_address rem_address   st\n"
        text += "".join(f"{place:4d}: {end} 01\n" for place, end in enumerate(ends))
        machine.tree.put(f"/proc/net/{name}", text)


def _line(connection: Connection) -> str:
    local = f"{_hex(connection.local)}:{connection.local_port:04X}"
    return f"{local} {_hex(connection.remote)}:{connection.remote_port:04X}"


def _hex(address: str) -> str:
    packed = ipaddress.ip_address(address).packed
    return "".join(packed[at : at + 4][::-1].hex().upper() for at in range(0, len(packed), 4))
