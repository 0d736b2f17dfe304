# SPDX-License-Identifier: GPL-2.0
"""What a machine is, as far as tuning cares: plain immutable data, no I/O.

probe.py makes a Host from a System; the planner is a pure function of it.
Everything goes to JSON and back by codec.py without loss.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

SCHEMA = 1

Cpus = frozenset[int]


@dataclass(frozen=True)
class Cpu:
    """A logical CPU. Source: /sys/devices/system/cpu/cpuN, .../topology, .../nodeN."""

    id: int
    online: bool
    node: int  # NUMA node; 0 where there is none
    package: int
    core: int
    siblings: Cpus  # hardware threads of its core, itself included; only itself while offline


@dataclass(frozen=True)
class Irq:
    """An interrupt. Source: /proc/irq/N, /proc/interrupts, .../device/msi_irqs."""

    number: int
    name: str  # its action in /proc/interrupts; a hint only
    affinity: Cpus  # smp_affinity_list
    effective: Cpus  # effective_affinity_list; lags behind until the next interrupt
    managed: bool  # the kernel places it and refuses writes (EIO on 6.1, EPERM since)


@dataclass(frozen=True)
class NicQueue:
    """A receive, transmit or combined queue with its interrupt, if it has one of its own."""

    index: int
    irq: int | None
    tx_irq: int | None = None  # where transmit has an interrupt of its own (virtio-net)


@dataclass(frozen=True)
class Feature:
    """An offload. Names are the kernel's (netdev_features_strings), e.g. rx-lro."""

    active: bool
    changeable: bool


@dataclass(frozen=True)
class Rss:
    """Receive-side scaling of the default context."""

    table: tuple[int, ...]  # indirection: hash -> queue; () where it can't be read
    key: str  # hexadecimal; "" where it can't be read
    function: str  # toeplitz, xor, crc32 or ""
    table_settable: bool = True
    key_settable: bool = True


@dataclass(frozen=True)
class Rule:
    """A flow rule (ntuple): TCP to or from a port goes to a queue."""

    location: int
    flow: str  # tcp4, tcp6
    dst_port: int | None
    queue: int
    src_port: int | None = None
    dst_ip: str | None = None
    other: str = ""  # what we did not understand of it, for people


@dataclass(frozen=True)
class Nic:
    """A network interface, virtual ones included.

    `lowers` are the interfaces directly below (bond slaves, a VLAN's parent,
    a bridge's ports); physical ports have none. Dictionaries hold ethtool's
    numbers; None means that driver or kernel has no such thing.
    """

    name: str
    kind: str  # physical, bond, vlan, bridge, loopback, other
    lowers: tuple[str, ...] = ()
    driver: str = ""
    bus: str = ""  # PCI address, or the device's name on another bus; the identity that survives a rename
    mac: str = ""
    node: int = 0
    mtu: int = 1500
    max_mtu: int | None = None
    up: bool = True
    speed: int | None = None  # Mb/s
    queues: tuple[NicQueue, ...] = ()  # receive or combined queues in use, by index
    tx_queues: int = 1
    irqs: tuple[Irq, ...] = ()  # all of the device's, those of queues included
    features: dict[str, Feature] = field(default_factory=dict)
    channels: dict[str, int] | None = None  # rx tx other combined and rx-max tx-max other-max combined-max
    rings: dict[str, int] | None = None  # rx tx rx-max tx-max
    coalesce: dict[str, int] | None = None  # rx-usecs rx-frames tx-usecs tx-frames adaptive-rx adaptive-tx (0, 1)
    pause: dict[str, int] | None = None  # autoneg rx tx
    rss: Rss | None = None
    rules: tuple[Rule, ...] | None = None  # None: no ntuple filters; () when it has them and none is set
    rps: tuple[Cpus, ...] = ()  # per rx queue, /sys/class/net/NIC/queues/rx-N/rps_cpus
    rps_flows: tuple[int, ...] = ()  # per rx queue, rps_flow_cnt
    xps: tuple[Cpus | None, ...] = ()  # per tx queue; None where it can't be set (one queue)


@dataclass(frozen=True)
class DiskQueue:
    index: int
    cpus: Cpus  # those that submit to it
    irq: int | None


@dataclass(frozen=True)
class Disk:
    """A block device that is flash, or may be. Source: /sys/block/NAME."""

    name: str
    kind: str  # nvme, virtio, scsi, null, ram, other
    node: int
    bus: str
    size: int  # bytes
    block_size: int  # bytes, logical
    rotational: bool
    model: str
    schedulers: tuple[str, ...]  # the first is... any; `scheduler` is the one in use
    scheduler: str
    queues: tuple[DiskQueue, ...] = ()
    irqs: tuple[Irq, ...] = ()


@dataclass(frozen=True)
class Task:
    """A thread of a target, an initiator or of another tuner."""

    tid: int
    pid: int
    name: str  # comm
    start: int  # clock ticks since boot: tells a reused id from the same thread
    cpus: Cpus
    kernel: bool
    bound: bool  # PF_NO_SETAFFINITY: the kernel will not let it be moved


@dataclass(frozen=True)
class Connection:
    """An established TCP connection of a target or an initiator. Source: /proc/net/tcp, tcp6."""

    local: str
    local_port: int
    remote: str
    remote_port: int


@dataclass(frozen=True)
class Tenant:
    """One tenant's target as it is configured on this host, or its session where this host is the tenant."""

    name: str  # t1, t2, ... for what rflash-target made; the NQN or IQN otherwise
    kind: str  # iscsi, nvmet-tcp, nvmet-rdma, rflashd
    identity: str  # IQN or NQN
    address: str
    port: int
    device: str = ""  # block device behind it
    sessions: int = 0  # logged in now
    tasks: tuple[int, ...] = ()  # tids of the threads that are known to be this tenant's


@dataclass(frozen=True)
class Tuner:
    """Somebody else who sets what we set: irqbalance, tuned, NetworkManager, systemd-networkd."""

    name: str
    active: bool
    config: str = ""  # its configuration file, "" where we know none
    version: str = ""


@dataclass(frozen=True)
class Host:
    """A machine at one moment."""

    release: str  # uname -r
    machine: str  # x86_64, aarch64
    boot_id: str
    host_id: str  # a hash of /etc/machine-id
    cpus: tuple[Cpu, ...]
    smt: str  # on, off, forceoff, notsupported, notimplemented
    nics: tuple[Nic, ...]
    disks: tuple[Disk, ...]
    tasks: tuple[Task, ...]
    connections: tuple[Connection, ...]
    tenants: tuple[Tenant, ...]
    tuners: tuple[Tuner, ...]
    # Raw text (stripped) of every settable file that a knob may want: sysctls,
    # queue attributes, cpufreq, cpuidle, configfs. A path that is not here does
    # not exist on this host or can't be read.
    files: dict[str, str] = field(default_factory=dict)
    schema: int = SCHEMA
    synthetic: str = ""  # what a fixture was written from; "" for a real host

    @property
    def online(self) -> tuple[Cpu, ...]:
        return tuple(cpu for cpu in self.cpus if cpu.online)

    def cpu(self, number: int) -> Cpu:
        return next(cpu for cpu in self.cpus if cpu.id == number)

    def nic(self, name: str) -> Nic | None:
        return next((nic for nic in self.nics if nic.name == name), None)

    def disk(self, name: str) -> Disk | None:
        return next((disk for disk in self.disks if disk.name == name), None)

    def ports(self, name: str) -> tuple[Nic, ...]:
        """The physical ports below an interface (itself when it is one), each once."""
        found: dict[str, Nic] = {}
        waiting = [name]
        seen = set()
        while waiting:
            nic = self.nic(waiting.pop(0))
            if nic is None or nic.name in seen:
                continue
            seen.add(nic.name)
            if nic.lowers:
                waiting += nic.lowers
            else:
                found[nic.name] = nic
        return tuple(found.values())


Json = dict[str, Any]
