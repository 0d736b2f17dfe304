# SPDX-License-Identifier: GPL-2.0
"""A small host and a plan for it, made by hand, for the tests of what prints plans."""

from __future__ import annotations

from rflash_tuning.host.model import Cpu, Host, Irq, Nic, NicQueue
from rflash_tuning.tune.change import Allocation, Change, Plan, Request, Share
from rflash_tuning.tune.settings import (
    ChannelsSetting,
    ConfigSetting,
    EthtoolSetting,
    FileSetting,
    IrqSetting,
    RssSetting,
    TaskSetting,
)

BUS = "0000:01:00.0"


def cpus(count: int, threads: int = 1, nodes: int = 1, offline: tuple[int, ...] = ()) -> tuple[Cpu, ...]:
    """CPUs numbered as Linux does: first threads of all cores, then the second ones."""
    cores = count // threads
    made = []
    for number in range(count):
        core = number % cores
        siblings = frozenset(core + cores * thread for thread in range(threads))
        node = core * nodes // cores
        online = number not in offline
        made.append(Cpu(number, online, node, node, core, siblings if online else frozenset({number})))
    return tuple(made)


def host(count: int = 6, **topology: int) -> Host:
    """A server with one NIC of as many queues as there are CPUs."""
    irqs = tuple(Irq(40 + n, f"eth0-{n}", frozenset(range(count)), frozenset({0}), False) for n in range(count))
    nic = Nic("eth0", "physical", driver="ixgbe", bus=BUS, speed=10000, irqs=irqs,
              queues=tuple(NicQueue(n, 40 + n) for n in range(count)))  # fmt: skip
    return Host("6.12.0", "x86_64", "b", "h" * 32, cpus(count, **topology), "off", (nic,), (), (), (), (), ())


def request(**more: object) -> Request:
    return Request(**({"role": "server", "target": "iscsi", "nics": ("eth0",), "tenants": 3} | more))  # type: ignore[arg-type]


def allocation(tenants: int = 3) -> Allocation:
    """Two cores for each tenant."""
    shares = tuple(Share(f"t{n + 1}", 3260 + n, (2 * n,), (2 * n + 1,), (n,)) for n in range(tenants))
    return Allocation("two-cores", "6 cores for 3 tenants", "EuroSys'16 section 4.3", shares, tuple(range(2 * tenants)))


def changes() -> tuple[Change, ...]:
    """One of each kind that looks different."""
    reason = "the queue's interrupt arrives where the tenant's connection is served"
    paper = "EuroSys'16 section 4.3"
    return (
        Change(ConfigSetting("/etc/default/irqbalance", "irqbalance"), "A=1\n", "A=1\nB=2\n", "irqbalance",
               "irqbalance would move them back", "irqbalance(1)"),
        Change(FileSetting("/sys/class/net/eth0/mtu", "number", "eth0", BUS), 1500, 9000, "mtu",
               "fewer packets for the same data", "EuroSys'16 figure 3", "link", True),
        Change(EthtoolSetting("eth0", BUS, "features", ("rx-lro",)), {"rx-lro": True}, {"rx-lro": False}, "lro",
               "reads leave; nothing large arrives", "EuroSys'16 section 4.2", "packets"),
        Change(RssSetting("eth0", BUS), {"table": [0, 1, 2, 3]}, {"table": [0, 0, 1, 2]}, "rss", "by tenant", ""),
        Change(IrqSetting(40, "eth0", "rx-0"), "0-5", "0", "irq-affinity", reason, paper, tenant="t1"),
        Change(IrqSetting(41, "eth0", "rx-1"), "0-5", "2", "irq-affinity", reason, paper, tenant="t2"),
        Change(TaskSetting(811, "iscsi_trx", 99), "0-5", "0", "task-affinity", "with its queue", "paper", tenant="t1"),
        Change(FileSetting("/proc/sys/net/core/busy_read", "number"), 0, 50, "busy-poll", "saves an interrupt", "x"),
        Change(IrqSetting(60, "nvme0n1", "queue 1"), "0", "1", "disk-irq", "the kernel manages it", "blk-mq",
               foreseen="unchangeable"),
    )  # fmt: skip


def plan(*more: Change, without_channels: bool = True) -> Plan:
    made = changes()
    if not without_channels:
        made = (channels(), *made)
    return Plan(request(), allocation(), (*made, *more), right=7, warnings=("two tenants share a link",),
                host={"host_id": "h" * 32, "boot_id": "b", "release": "6.12.0"})  # fmt: skip


def channels() -> Change:
    return Change(ChannelsSetting("eth0", BUS), {"channels": {"combined": 2}, "dependents": {}},
                  {"channels": {"combined": 6}}, "channels", "a queue for each core", "a manual", "link")  # fmt: skip
