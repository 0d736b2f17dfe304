# SPDX-License-Identifier: GPL-2.0
"""A machine in memory answers to writes as the kernel does."""

from __future__ import annotations

import errno

import pytest

from rflash_tuning import samples
from rflash_tuning.errors import Unchangeable, Unsupported
from rflash_tuning.host.model import Cpu, Nic
from rflash_tuning.host.probe import probe
from rflash_tuning.snapshot import SnapshotSystem, from_host

_FILES = {
    "/proc/sys/net/ipv4/tcp_rmem": "4096\t131072\t6291456",
    "/proc/sys/net/core/rps_sock_flow_entries": "0",
    "/proc/sys/net/core/default_qdisc": "fq_codel",
    "/proc/sys/net/ipv4/tcp_congestion_control": "cubic",
    "/proc/sys/net/ipv4/tcp_available_congestion_control": "reno cubic",
    "/sys/block/nvme0n1/queue/nomerges": "0",
    "/sys/block/nvme0n1/queue/write_cache": "write back",
    "/sys/kernel/config/target/iscsi/cpus_allowed_list": "0-3",
    "/sys/block/nvme0n1/queue/io_poll": "1",
    "/sys/module/nvmet_tcp/parameters/idle_poll_period_usecs": "0",
    "/sys/module/nvme_tcp/parameters/wq_unbound": "N",
}
_NET = "/sys/class/net/eth0"


def machine(**more: object) -> SnapshotSystem:
    return SnapshotSystem(from_host(samples.host(files=_FILES, **more)))  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("path", "written", "reads"),
    [
        (f"{_NET}/mtu", "9000", "9000\n"),
        (f"{_NET}/queues/rx-0/rps_cpus", "0000000a", "a\n"),
        (f"{_NET}/queues/rx-0/rps_flow_cnt", "1000", "1024\n"),
        (f"{_NET}/queues/rx-0/rps_flow_cnt", "0", "0\n"),
        ("/proc/sys/net/core/rps_sock_flow_entries", "4097", "8192\n"),
        ("/proc/sys/net/ipv4/tcp_rmem", "4096 87380 16777216\n", "4096\t87380\t16777216\n"),
        ("/proc/sys/net/core/default_qdisc", "fq", "fq\n"),
        ("/proc/sys/net/ipv4/tcp_congestion_control", "reno", "reno\n"),
        ("/sys/block/nvme0n1/queue/scheduler", "mq-deadline", "none [mq-deadline]\n"),
        ("/sys/block/nvme0n1/queue/nomerges", "2", "2\n"),
        ("/sys/block/nvme0n1/queue/write_cache", "write through", "write through\n"),
        ("/sys/kernel/config/target/iscsi/cpus_allowed_list", "0,1,2", "0-2\n"),
        ("/proc/irq/default_smp_affinity", "3", "3\n"),
        ("/sys/block/nvme0n1/queue/io_poll", "0", "1\n"),
        ("/sys/module/nvmet_tcp/parameters/idle_poll_period_usecs", "50\n", "50\n"),
        ("/sys/module/nvme_tcp/parameters/wq_unbound", "1", "Y\n"),
    ],
)
def test_what_is_taken_reads_back_as_the_kernel_prints_it(path: str, written: str, reads: str) -> None:
    system = machine()
    system.write(path, written)
    assert system.read(path) == reads


@pytest.mark.parametrize(
    ("path", "written", "error"),
    [
        (f"{_NET}/mtu", "9711", errno.EINVAL),
        (f"{_NET}/mtu", "67", errno.EINVAL),
        (f"{_NET}/mtu", "big", errno.EINVAL),
        ("/sys/class/net/eth0.7/mtu", "1501", errno.ERANGE),
        (f"{_NET}/queues/rx-0/rps_cpus", "1f", errno.EOVERFLOW),
        (f"{_NET}/queues/rx-0/rps_cpus", "x", errno.EINVAL),
        (f"{_NET}/queues/rx-0/rps_flow_cnt", "-1", errno.EINVAL),
        ("/proc/sys/net/ipv4/tcp_rmem", "4096", errno.EINVAL),
        ("/proc/sys/net/ipv4/tcp_congestion_control", "bbr", errno.ENOENT),
        ("/sys/block/nvme0n1/queue/scheduler", "bfq", errno.EINVAL),
        ("/sys/block/nvme0n1/queue/nomerges", "3", errno.EINVAL),
        ("/sys/block/nvme0n1/queue/write_cache", "on", errno.EINVAL),
        ("/sys/module/nvme_tcp/parameters/wq_unbound", "maybe", errno.EINVAL),
        ("/sys/module/nvmet_tcp/parameters/idle_poll_period_usecs", "x", errno.EINVAL),
        ("/proc/irq/41/smp_affinity_list", "9", errno.EINVAL),
        ("/proc/irq/41/smp_affinity_list", "x", errno.EINVAL),
        ("/sys/kernel/config/target/iscsi/cpus_allowed_list", "x", errno.EINVAL),
    ],
)
def test_what_is_refused_gets_the_kernels_errno_and_changes_nothing(path: str, written: str, error: int) -> None:
    system = machine()
    before = system.snapshot()
    with pytest.raises(OSError, match=r".") as raised:
        system.write(path, written)
    assert raised.value.errno == error
    assert system.snapshot() == before
    assert system.mutations == []


@pytest.mark.parametrize(("release", "error"), [("6.1.0-28", errno.EIO), ("6.12.1", errno.EPERM), ("7.2", errno.EPERM)])
def test_a_managed_interrupt_is_refused_as_that_kernel_does(release: str, error: int) -> None:
    system = machine(release=release)
    with pytest.raises(OSError, match="irq/61") as raised:
        system.write("/proc/irq/61/smp_affinity_list", "3")
    assert raised.value.errno == error
    system.write("/proc/irq/60/smp_affinity_list", "3")  # the admin queue's


def test_the_forms_of_an_affinity_agree() -> None:
    system = machine()
    system.write("/proc/irq/41/smp_affinity_list", "2-3")
    names = ("smp_affinity", "smp_affinity_list", "effective_affinity", "effective_affinity_list")
    assert [system.text(f"/proc/irq/41/{name}") for name in names] == ["c", "2-3", "4", "2"]
    system.write("/proc/irq/41/smp_affinity", "1")
    assert system.text("/proc/irq/41/smp_affinity_list") == "0"


def test_a_bond_takes_its_ports_along_and_a_vlan_follows_its_parent_down() -> None:
    bond = Nic("bond0", "bond", ("eth0",), mtu=1500)
    vlan = Nic("bond0.7", "vlan", ("bond0",), mtu=1500)
    system = SnapshotSystem(from_host(samples.host(nics=(samples.nic(), bond, vlan))))
    system.write("/sys/class/net/bond0/mtu", "9000")
    assert system.text(f"{_NET}/mtu") == "9000"
    system.write("/sys/class/net/bond0.7/mtu", "9000")
    system.write("/sys/class/net/bond0/mtu", "4000")
    assert system.text("/sys/class/net/bond0.7/mtu") == "4000"


def test_rings_coalescing_and_pause_are_set_within_what_the_driver_has() -> None:
    system = machine()
    system.ethtool_set("eth0", "rings", {"rx": 4096})
    system.ethtool_set("eth0", "coalesce", {"rx-usecs": 0, "adaptive-rx": 0})
    system.ethtool_set("eth0", "pause", {"rx": 0})
    assert system.ethtool("eth0", "rings") == {"rx": 4096, "tx": 512, "rx-max": 4096, "tx-max": 4096}
    assert system.ethtool("eth0", "coalesce")["adaptive-rx"] == 0
    with pytest.raises(OSError, match="exceeds the maximum"):
        system.ethtool_set("eth0", "rings", {"rx": 8192})
    with pytest.raises(Unsupported):
        system.ethtool_set("eth0", "coalesce", {"rx-frames": 1})
    with pytest.raises(Unsupported):
        system.ethtool_set("eth0", "driver", {"version": "1"})


def test_a_fixed_feature_stays_and_an_unknown_one_is_unsupported() -> None:
    system = machine()
    system.ethtool_set("eth0", "features", {"rx-lro": True, "tx-lockless": False})
    with pytest.raises(Unchangeable):
        system.ethtool_set("eth0", "features", {"rx-lro": False, "tx-lockless": True})
    with pytest.raises(Unsupported):
        system.ethtool_set("eth0", "features", {"rx-magic": True})
    assert system.ethtool("eth0", "features")["rx-lro"]["active"] is True


def test_an_rss_table_must_fit_and_can_go_back_to_the_default() -> None:
    system = machine()
    system.ethtool_set("eth0", "rss", {"table": [1] * 128, "key": "ab" * 52})
    assert system.ethtool("eth0", "rss")["key"] == "ab" * 52
    system.ethtool_set("eth0", "rss", {"table": []})
    assert system.ethtool("eth0", "rss")["table"][:4] == [0, 1, 0, 1]
    for values in ({"table": [2] * 128}, {"table": [0]}, {"key": "ab"}):
        with pytest.raises(OSError, match="eth0: an RSS"):
            system.ethtool_set("eth0", "rss", values)


def test_flow_rules_come_and_go() -> None:
    system = machine()
    rule = {"location": 3, "flow": "tcp4", "dst_port": 3261, "queue": 1, "src_port": None, "dst_ip": None, "other": ""}
    system.ethtool_set("eth0", "rules", {"3": rule, "0": None})
    assert sorted(system.ethtool("eth0", "rules")) == ["3", "7"]
    with pytest.raises(FileNotFoundError):
        system.ethtool_set("eth0", "rules", {"0": None})
    with pytest.raises(OSError, match="queue 9"):
        system.ethtool_set("eth0", "rules", {"4": {**rule, "queue": 9}})


def test_smt_off_takes_the_second_threads_offline_and_on_brings_them_back() -> None:
    threads = tuple(Cpu(number, True, 0, 0, number % 2, frozenset({number % 2, number % 2 + 2})) for number in range(4))
    system = machine(cpus=threads, smt="on")
    before = system.snapshot()
    system.write("/sys/devices/system/cpu/smt/control", "off")
    assert [(cpu.id, cpu.siblings) for cpu in probe(system).online] == [(0, {0}), (1, {1})]
    system.write("/sys/devices/system/cpu/smt/control", "on")
    assert system.snapshot() == before
    with pytest.raises(OSError, match="control"):
        system.write("/sys/devices/system/cpu/smt/control", "maybe")
    with pytest.raises(OSError, match="No such device"):
        machine(smt="notsupported").write("/sys/devices/system/cpu/smt/control", "off")
