# SPDX-License-Identifier: GPL-2.0
"""Machines for tests, written by hand: small ones, with what each driver calls its interrupts."""

from __future__ import annotations

from rflash_tuning.host.model import (
    Connection,
    Cpu,
    Disk,
    DiskQueue,
    Feature,
    Host,
    Irq,
    Nic,
    NicQueue,
    Rss,
    Rule,
    Task,
    Tenant,
    Tuner,
)
from rflash_tuning.snapshot import Snapshot, SnapshotSystem

# Driver -> what it calls its vectors, control vectors included, for queues 0 and 1 of eth0 at 0000:03:00.0.
VECTORS = {
    "virtio_net": (
        "virtio0-config",
        "virtio0-input.0",
        "virtio0-output.0",
        "virtio0-input.1",
        "virtio0-output.1",
        "virtio0-control",
    ),
    "mlx5_core": (
        "mlx5_async0@pci:0000:03:00.0",
        "mlx5_comp0@pci:0000:03:00.0",
        "mlx5_comp1@pci:0000:03:00.0",
    ),
    "mlx4_en": ("mlx4-async@pci:0000:03:00.0", "mlx4-1@0000:03:00.0", "mlx4-2@0000:03:00.0"),
    "ice": ("ice-0000:03:00.0:misc", "ice-eth0-TxRx-0", "ice-eth0-TxRx-1", "ice-ll_ts"),
    "i40e": (
        "i40e-0000:03:00.0:misc",
        "i40e-eth0-TxRx-0",
        "i40e-eth0-TxRx-1",
        "i40e-0000:03:00.0:fdir-TxRx-0",
    ),
    "ixgbe": ("eth0-TxRx-0", "eth0-TxRx-1", "eth0"),
    "igb": ("eth0", "eth0-TxRx-0", "eth0-TxRx-1"),
    "e1000e": ("eth0-rx-0", "eth0-tx-0", "eth0"),
    "ena": ("ena-mgmnt@pci:0000:03:00.0", "eth0-Tx-Rx-0", "eth0-Tx-Rx-1"),
    "sfc": ("eth0-0", "eth0-1", "eth0-ptp"),
    "bnxt_en": ("bnxt_en-eth0-TxRx-0", "bnxt_en-eth0-TxRx-1"),
    "vmxnet3": ("eth0-rxtx-0", "eth0-rxtx-1", "eth0-event-2"),
    "mana": ("mana_hwc@pci:7870:00:00.0", "mana_q0@pci:7870:00:00.0", "mana_q1@pci:7870:00:00.0"),
    "bnx2x": ("eth0-sp", "eth0-fp-0", "eth0-fp-1"),
    "tg3": ("eth0", "eth0-txrx-1", "eth0-txrx-2"),
    "hns3": ("hns3-0000:7d:00.0-misc", "hns3-0000:7d:00.0-TxRx-0", "hns3-0000:7d:00.0-TxRx-1"),
}
# The place in VECTORS of the receive (or combined) vectors of queues 0 and 1.
RECEIVE = {
    "virtio_net": (1, 3),
    "mlx5_core": (1, 2),
    "mlx4_en": (1, 2),
    "ice": (1, 2),
    "i40e": (1, 2),
    "ixgbe": (0, 1),
    "igb": (1, 2),
    "e1000e": (0,),
    "ena": (1, 2),
    "sfc": (0, 1),
    "bnxt_en": (0, 1),
    "vmxnet3": (0, 1),
    "mana": (1, 2),
    "bnx2x": (1, 2),
    "tg3": (1, 2),
    "hns3": (1, 2),
}
FIRST_IRQ = 40
BUS = "0000:03:00.0"
ALL = frozenset(range(4))


def nic(driver: str = "ice", **more: object) -> Nic:
    """eth0 with as many queues as VECTORS has for the driver, which is at BUS."""
    names = VECTORS[driver]
    irqs = tuple(Irq(FIRST_IRQ + place, name, ALL, frozenset({0}), False) for place, name in enumerate(names))
    receive = [FIRST_IRQ + place for place in RECEIVE[driver]]
    sends = driver in ("virtio_net", "e1000e")
    queues = tuple(NicQueue(place, irq, irq + 1 if sends else None) for place, irq in enumerate(receive))
    count = len(queues)
    known: dict[str, object] = {
        "name": "eth0",
        "kind": "physical",
        "driver": driver,
        "bus": BUS,
        "mac": "00:1b:21:aa:bb:cc",
        "mtu": 1500,
        "max_mtu": 9710,
        "speed": 25000,
        "queues": queues,
        "tx_queues": count,
        "irqs": irqs,
        "features": {"rx-lro": Feature(False, True), "tx-lockless": Feature(False, False)},
        "channels": {
            "rx": 0,
            "tx": 0,
            "other": 1,
            "combined": count,
            "rx-max": 0,
            "tx-max": 0,
            "other-max": 1,
            "combined-max": 4,
        },
        "rings": {"rx": 512, "tx": 512, "rx-max": 4096, "tx-max": 4096},
        "coalesce": {"rx-usecs": 50, "tx-usecs": 50, "adaptive-rx": 1, "adaptive-tx": 1},
        "pause": {"autoneg": 1, "rx": 1, "tx": 1},
        "rss": Rss(tuple(place % count for place in range(128)), "6d" * 52, "toeplitz"),
        "rules": None if driver == "igb" else (Rule(0, "tcp4", 3260, 0), Rule(7, "tcp6", None, count - 1, 4420)),
        "rps": (frozenset(),) * count,
        "rps_flows": (0,) * count,
        "xps": tuple(frozenset({place}) for place in range(count)),
    }
    return Nic(**(known | more))  # type: ignore[arg-type]


def disk() -> Disk:
    """An NVMe device of two queues: nvme0q0 can be moved, the others the kernel manages."""
    irqs = tuple(
        Irq(60 + place, f"nvme0q{place}", ALL if place == 0 else frozenset({2 * place - 2, 2 * place - 1}),
            frozenset({max(2 * place - 2, 0)}), place > 0)
        for place in range(3)
    )  # fmt: skip
    queues = (DiskQueue(0, frozenset({0, 1}), 61), DiskQueue(1, frozenset({2, 3}), 62))
    return Disk("nvme0n1", "nvme", 0, "0000:04:00.0", 1 << 40, 512, False, "", ("none", "mq-deadline"), "none",
                queues, irqs)  # fmt: skip


def host(driver: str = "ice", **more: object) -> Host:
    """A server of four cores with that NIC, an NVMe device, and an iSCSI tenant that is logged in."""
    port = nic(driver)
    vlan = Nic("eth0.7", "vlan", ("eth0",), mac=port.mac, queues=(NicQueue(0, None),), rps=(frozenset(),),
               rps_flows=(0,), tx_queues=1, xps=(None,))  # fmt: skip
    tasks = (
        Task(100, 100, "iscsi_np", 5000, ALL, True, False),
        Task(101, 101, "iscsi_ttx", 6000, ALL, True, False),
        Task(102, 102, "iscsi_trx", 6000, ALL, True, False),
        Task(300, 300, "irqbalance", 900, ALL, False, False),
    )
    tenant = Tenant("t1", "iscsi", "iqn.2026-11.org.rflash:0123456789ab.t1", "10.0.0.1", 3260, "/dev/nvme0n1p1", 1,
                    (101, 102))  # fmt: skip
    known: dict[str, object] = {
        "release": "6.12.1",
        "machine": "x86_64",
        "boot_id": "00000000-0000-4000-8000-000000000001",
        "host_id": "0123456789abcdef0123456789abcdef",
        "cpus": tuple(Cpu(number, True, 0, 0, number, frozenset({number})) for number in range(4)),
        "smt": "notsupported",
        "nics": (port, vlan),
        "disks": (disk(),),
        "tasks": tasks,
        "connections": (Connection("10.0.0.1", 3260, "10.0.0.9", 50000),),
        "tenants": (tenant,),
        "tuners": (Tuner("irqbalance", True, "/etc/default/irqbalance"),),
        "files": {"/etc/default/irqbalance": "OPTIONS="},
    }
    return Host(**(known | more))  # type: ignore[arg-type]


def machine(texts: dict[str, str], links: dict[str, str] | None = None) -> SnapshotSystem:
    """A machine with these files and symbolic links, and nothing else."""
    snapshot = Snapshot()
    for path, target in (links or {}).items():
        snapshot.tree.link(path, target)
    for path, text in texts.items():
        snapshot.tree.put(path, text)
    return SnapshotSystem(snapshot)
