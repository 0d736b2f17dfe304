# SPDX-License-Identifier: GPL-2.0
"""CPUs, NICs, disks, threads, tuners, connections and files of machines that are written down here."""

from __future__ import annotations

import pytest

from rflash_tuning.errors import Unsupported
from rflash_tuning.host import connections, cpus, disks, files, nics, probe, tasks, tuners
from rflash_tuning.host.model import Connection, Host
from rflash_tuning.live import LiveSystem
from rflash_tuning.samples import machine

_CPU = "/sys/devices/system/cpu"
KTHREAD, BOUND = 0x00200000, 0x04000000


def stat(pid: int, name: str, flags: int = 0, start: int = 7) -> str:
    return f"{pid} ({name}) S 2 0 0 0 -1 {flags} 0 0 0 0 3 4 0 0 20 0 1 0 {start} 0 0 0\n"


# CPUs


def test_cpus_of_two_sockets_with_smt_and_one_offline() -> None:
    texts = {f"{_CPU}/present": "0-3\n", f"{_CPU}/online": "0-2\n", f"{_CPU}/smt/control": "on\n"}
    for number in range(3):
        base = f"{_CPU}/cpu{number}/topology"
        texts[f"{base}/physical_package_id"] = f"{number % 2}\n"
        texts[f"{base}/core_id"] = "4\n"
        texts[f"{base}/thread_siblings_list"] = "0,2\n" if number != 1 else "1\n"
    for number in range(4):
        texts[f"/sys/devices/system/node/node{number % 2}/cpu{number}"] = ""
    system = machine(texts)
    found = cpus.read(system)
    assert [(cpu.id, cpu.online, cpu.node, cpu.package, cpu.core) for cpu in found] == [
        (0, True, 0, 0, 4),
        (1, True, 1, 1, 4),
        (2, True, 0, 0, 4),
        (3, False, 1, 0, 3),
    ]
    assert [cpu.siblings for cpu in found] == [{0, 2}, {1}, {0, 2}, {3}]
    assert cpus.smt(system) == "on"


def test_a_machine_without_topology_has_a_cpu_all_the_same() -> None:
    assert [cpu.id for cpu in cpus.read(machine({}))] == [0]
    assert cpus.smt(machine({})) == "notimplemented"


# NICs


def test_a_vlan_on_a_bond_is_followed_down_to_its_ports() -> None:
    links, texts = {}, {}
    for place, name in enumerate(("eth0", "eth1")):
        device = f"/sys/devices/pci0000:80/0000:81:00.{place}"
        links[f"/sys/class/net/{name}"] = f"{device}/net/{name}"
        links[f"{device}/net/{name}/device"] = device
        links[f"{device}/driver"] = "/sys/bus/pci/drivers/mlx5_core"
        texts |= {f"{device}/numa_node": "1\n", f"{device}/net/{name}/mtu": "9000\n"}
    texts["/sys/bus/pci/drivers/mlx5_core/bind"] = ""
    for name in ("bond0", "bond0.7"):
        links[f"/sys/class/net/{name}"] = f"/sys/devices/virtual/net/{name}"
        texts[f"/sys/devices/virtual/net/{name}/mtu"] = "9000\n"
    texts["/sys/devices/virtual/net/bond0/bonding/mode"] = "802.3ad 4\n"
    texts["/sys/devices/virtual/net/bond0.7/uevent"] = "DEVTYPE=vlan\nINTERFACE=bond0.7\n"
    for port in ("eth0", "eth1"):
        links[f"/sys/devices/virtual/net/bond0/lower_{port}"] = f"/sys/class/net/{port}"
    links["/sys/devices/virtual/net/bond0.7/lower_bond0"] = "/sys/devices/virtual/net/bond0"
    host = probe.probe(machine(texts, links))
    assert [(nic.name, nic.kind) for nic in host.nics] == [
        ("bond0", "bond"),
        ("bond0.7", "vlan"),
        ("eth0", "physical"),
        ("eth1", "physical"),
    ]
    assert [nic.name for nic in host.ports("bond0.7")] == ["eth0", "eth1"]
    port = host.ports("bond0.7")[1]
    assert (port.bus, port.node, port.driver, port.mtu) == ("0000:81:00.1", 1, "mlx5_core", 9000)


def test_a_nic_is_found_by_its_bus_address_whatever_it_is_called() -> None:
    device = "/sys/devices/pci0000:00/0000:00:03.0/virtio0"
    links = {"/sys/class/net/lan0": f"{device}/net/lan0", f"{device}/net/lan0/device": device}
    system = machine({f"{device}/net/lan0/mtu": "1500\n"}, links)
    assert nics.bus(system, "lan0") == "0000:00:03.0"
    assert nics.current_name(system, "0000:00:03.0") == "lan0"
    assert nics.current_name(system, "0000:00:04.0") is None
    assert nics.current_name(system, "") is None


def test_queue_attributes_are_in_the_order_of_the_queues() -> None:
    base = "/sys/class/net/eth0"
    texts = {f"{base}/mtu": "1500\n", f"{base}/flags": "0x1002\n", f"{base}/speed": "-1\n"}
    for queue in range(11):
        texts |= {f"{base}/queues/rx-{queue}/rps_cpus": f"{queue:x}\n",
                  f"{base}/queues/rx-{queue}/rps_flow_cnt": f"{queue}\n"}  # fmt: skip
    system = machine(texts)
    system.tree.refuse(f"{base}/queues/tx-0/xps_cpus", "ENOENT")
    nic = nics.read(system, {})[0]
    assert nic.rps_flows == tuple(range(11))
    assert nic.rps[10] == {1, 3}
    assert nic.xps == (None,)
    assert (nic.up, nic.speed, nic.kind, nic.bus) == (False, None, "other", "")


def test_a_nic_that_only_lists_rules_has_none() -> None:
    for features, driver, rules in (
        ({"rx-ntuple-filter": {"active": False, "changeable": True}}, "ice", ()),
        ({"rx-ntuple-filter": {"active": False, "changeable": False}}, "ice", None),
        ({}, "ice", ()),
        ({}, "igb", None),
    ):
        links = {"/sys/class/net/eth0/device/driver": f"/sys/bus/pci/drivers/{driver}"}
        system = machine({"/sys/class/net/eth0/mtu": "1500\n", f"/sys/bus/pci/drivers/{driver}/bind": ""}, links)
        system.state.ethtool["eth0"] = {"features": features, "rules": {}}
        assert nics.read(system, {})[0].rules == rules


# Disks


def test_nvme_local_multipath_and_over_a_network() -> None:
    pci = "/sys/devices/pci0000:00/0000:00:04.0"
    fabrics = "/sys/devices/virtual/nvme-fabrics/ctl/nvme2"
    links = {
        "/sys/block/nvme0n1": f"{pci}/nvme/nvme0/nvme0n1",
        f"{pci}/nvme/nvme0/nvme0n1/device": f"{pci}/nvme/nvme0",
        "/sys/class/nvme/nvme0": f"{pci}/nvme/nvme0",
        "/sys/block/nvme1n1": "/sys/devices/virtual/nvme-subsystem/nvme-subsys1/nvme1n1",
        "/sys/block/nvme1c0n1": f"{pci}/nvme/nvme0/nvme1c0n1",
        f"{pci}/nvme/nvme0/nvme1c0n1/device": f"{pci}/nvme/nvme0",
        "/sys/block/nvme2n1": f"{fabrics}/nvme2n1",
        f"{fabrics}/nvme2n1/device": fabrics,
        "/sys/class/nvme/nvme2": fabrics,
        "/sys/block/loop0": "/sys/devices/virtual/block/loop0",
        "/sys/block/nbd0": "/sys/devices/virtual/block/nbd0",
    }
    texts = {
        f"{pci}/nvme/nvme0/transport": "pcie\n",
        f"{fabrics}/transport": "tcp\n",
        f"{pci}/numa_node": "1\n",
        "/sys/devices/virtual/block/loop0/size": "8\n",
        "/sys/devices/virtual/block/nbd0/size": "0\n",
        "/sys/devices/virtual/nvme-subsystem/nvme-subsys1/nvme1n1/size": "2048\n",
        f"{fabrics}/nvme2n1/size": "16\n",
    }
    for name in ("nvme0n1", "nvme1c0n1"):
        base = f"{pci}/nvme/nvme0/{name}"
        texts |= {f"{base}/size": "2048\n", f"{base}/queue/scheduler": "[none] mq-deadline\n",
                  f"{base}/mq/0/cpu_list": "0, 1\n", f"{base}/mq/1/cpu_list": "2, 3\n"}  # fmt: skip
    for number in range(60, 63):
        texts |= {f"{pci}/msi_irqs/{number}": "msix\n", f"/proc/irq/{number}/smp_affinity_list": "0-3\n"}
    found = disks.read(machine(texts, links), {60: "nvme0q0", 61: "nvme0q1", 62: "nvme0q2"})
    assert [(disk.name, disk.kind, disk.bus, disk.size) for disk in found] == [
        ("nvme0n1", "nvme", "0000:00:04.0", 1048576),
        ("nvme1n1", "nvme", "0000:00:04.0", 1048576),
        ("nvme2n1", "other", "tcp", 8192),
    ]
    for disk in found[:2]:
        assert [(queue.index, queue.cpus, queue.irq) for queue in disk.queues] == [(0, {0, 1}, 61), (1, {2, 3}, 62)]
        assert [irq.managed for irq in disk.irqs] == [False, True, True]
        assert (disk.node, disk.scheduler, disk.schedulers) == (1, "none", ("none", "mq-deadline"))
    assert found[2].queues == ()


@pytest.mark.parametrize(
    ("name", "kind"),
    [("vda", "virtio"), ("sdab", "scsi"), ("nullb0", "null"), ("rft-1", "null"), ("ram0", "ram"), ("dm-0", "other")],
)
def test_kinds_of_disks(name: str, kind: str) -> None:
    texts = {f"/sys/block/{name}/size": "8\n", "/sys/kernel/config/nullb/rft-1/power": "1\n"}
    assert disks.read(machine(texts), {})[0].kind == kind


def test_the_disk_of_a_device_file() -> None:
    names = ["nvme0n1", "nvme0n11", "sda", "nullb0"]
    given = ("/dev/nvme0n1p3", "/dev/nvme0n11", "/dev/nvme0n1", "/dev/sda2", "/dev/nullb0p1", "/dev/sdb", "/srv/sda")
    assert [disks.whole(device, names) for device in given] == [
        "nvme0n1",
        "nvme0n11",
        "nvme0n1",
        "sda",
        "nullb0",
        None,
        None,
    ]


# Threads


def test_threads_of_targets_and_tuners_are_read_and_others_are_not() -> None:
    texts = {
        "/proc/40/stat": stat(40, "iscsi_trx", KTHREAD | BOUND, 123),
        "/proc/41/stat": stat(41, "kworker/3:1H-nvmet_tcp_wq", KTHREAD | BOUND),
        "/proc/50/stat": stat(50, "rflashd"),
        "/proc/50/task/50/stat": stat(50, "rflashd"),
        "/proc/50/task/51/stat": stat(51, "io) 1 (x", 0, 9),
        "/proc/60/stat": stat(60, "iscsi_trx"),  # a user's program of that name
        "/proc/70/stat": "broken",
        "/proc/80/stat": stat(80, "irqbalance"),  # ends before its affinity is asked for
        "/proc/net/tcp": "",
    }
    system = machine(texts)
    system.state.affinities.update({40: frozenset({1}), 50: frozenset({0}), 51: frozenset({2}), 60: frozenset({0})})
    found = tasks.read(system, tasks.processes(system))
    assert [(t.tid, t.pid, t.name, t.start, t.cpus, t.kernel, t.bound) for t in found] == [
        (40, 40, "iscsi_trx", 123, {1}, True, True),
        (50, 50, "rflashd", 7, {0}, False, False),
        (51, 50, "io) 1 (x", 9, {2}, False, False),
    ]


# Tuners


@pytest.mark.parametrize(
    ("texts", "config"),
    [
        ({"/etc/default/irqbalance": ""}, "/etc/default/irqbalance"),
        ({"/etc/sysconfig/irqbalance": ""}, "/etc/sysconfig/irqbalance"),
        ({"/etc/irqbalance.env": ""}, "/etc/irqbalance.env"),
        ({"/etc/os-release": 'ID=ubuntu\nID_LIKE="debian"\n'}, "/etc/default/irqbalance"),
        ({"/etc/os-release": 'ID="rocky"\nID_LIKE="rhel centos fedora"\n'}, "/etc/sysconfig/irqbalance"),
        ({"/etc/os-release": "ID=nixos\n"}, ""),
    ],
)
def test_irqbalances_configuration_by_distribution(texts: dict[str, str], config: str) -> None:
    system = machine({**texts, "/proc/9/stat": stat(9, "irqbalance")})
    found = tuners.read(system, tasks.processes(system))
    assert [(tuner.name, tuner.active, tuner.config) for tuner in found] == [("irqbalance", True, config)]


def test_tuners_that_are_only_installed_are_not_active() -> None:
    system = machine({"/etc/tuned/tuned-main.conf": "", "/proc/9/stat": stat(9, "systemd-network")})
    found = tuners.read(system, tasks.processes(system))
    assert [(tuner.name, tuner.active) for tuner in found] == [("tuned", False), ("systemd-networkd", True)]


# Connections

TCP = """  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode
   0: 00000000:0CBC 00000000:0000 0A 00000000:00000000 00:00000000 00000000     0        0 1061 1 0 100 0 0 10 0
   1: 0100000A:0CBC 0900000A:D431 01 00000000:00000000 00:00000000 00000000     0        0 1062 1 0 20 4 30 10 -1
   2: 0100000A:0016 0900000A:D432 01 00000000:00000000 00:00000000 00000000     0        0 1063 1 0 20 4 30 10 -1
   3: 0100000A:2328 0900000A:D433 01 00000000:00000000 00:00000000 00000000     0        0 1063 1 0 20 4 30 10 -1
"""
TCP6 = """  sl  local_address                         remote_address                        st tx_queue rx_queue
   0: 0000000000000000FFFF00000100000A:1144 0000000000000000FFFF00000A00000A:8000 01 00000000:00000000
   1: B80D0120000000000000000001000000:8001 B80D0120000000000000000002000000:1144 01 00000000:00000000
"""


def test_connections_of_tenants_ports_are_read_of_both_families() -> None:
    system = machine({"/proc/net/tcp": TCP, "/proc/net/tcp6": TCP6})
    expected = (
        Connection("10.0.0.1", 3260, "10.0.0.9", 54321),
        Connection("10.0.0.1", 4420, "10.0.0.10", 32768),
        Connection("2001:db8::1", 32769, "2001:db8::2", 4420),
    )
    assert connections.read(system, []) == expected
    assert len(connections.read(system, [9000])) == 4
    assert connections.read(machine({}), []) == ()


# Files


def test_rflashds_files_are_read_for_its_knob() -> None:
    texts = {"/etc/rflash/rflashd.toml": "a", "/etc/rflash/rflashd.d/t1.toml": "b", "/etc/rflash/rflashd.d/t1.old": "c"}
    assert sorted(files.read(machine(texts))) == ["/etc/rflash/rflashd.d/t1.toml", "/etc/rflash/rflashd.toml"]


def test_files_of_the_table_are_read_and_no_others() -> None:
    texts = {
        "/proc/sys/net/core/busy_poll": "0\n",
        "/proc/sys/net/core/message_burst": "10\n",
        "/proc/sys/kernel/sched_cfs_bandwidth_slice_us": "5000\n",
        "/sys/block/nvme0n1/queue/scheduler": "[none]\n",
        "/sys/block/loop0/queue/scheduler": "[none]\n",
        f"{_CPU}/cpu10/cpuidle/state2/disable": "0\n",
        f"{_CPU}/cpufreq/policy0/scaling_governor": "powersave\n",
        "/sys/module/nvmet_tcp/parameters/idle_poll_period_usecs": "0\n",
        "/sys/kernel/config/target/iscsi/cpus_allowed_list": "0-3\n",
        "/sys/class/net/eth0/queues/tx-0/xps_cpus": "1\n",
        "/etc/passwd": "",
    }
    found = files.read(machine(texts))
    assert sorted(set(texts) - set(found)) == [
        "/etc/passwd",
        "/proc/sys/net/core/message_burst",
        "/sys/block/loop0/queue/scheduler",
    ]
    assert found[f"{_CPU}/cpufreq/policy0/scaling_governor"] == "powersave"


# The whole


def test_an_empty_machine_is_a_host_all_the_same() -> None:
    host = probe.probe(machine({}))
    assert isinstance(host, Host)
    assert (host.release, host.machine, host.host_id, host.nics, host.disks) == ("", "", "", (), ())


def test_the_machine_that_runs_this_is_read_and_nothing_is_changed() -> None:
    system = LiveSystem()
    host = probe.probe(system)
    assert host.release
    assert host.machine
    assert host.online
    assert host.nic("lo") is not None
    assert host.files["/proc/sys/net/core/somaxconn"].isdecimal()


def test_sections_that_a_nic_has_not_are_absent() -> None:
    system = LiveSystem()
    assert nics.section(system, "lo", "channels") is None
    assert nics.section(system, "none0", "features") is None
    with pytest.raises(Unsupported):
        system.ethtool("lo", "rings")
