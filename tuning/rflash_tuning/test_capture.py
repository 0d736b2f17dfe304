# SPDX-License-Identifier: GPL-2.0
"""A capture replays as the same host, and tells nobody whose it was."""

from __future__ import annotations

import dataclasses
import json

import pytest

from rflash_tuning import recorder, samples
from rflash_tuning.anonymiser import Anonymiser
from rflash_tuning.host.model import Connection
from rflash_tuning.host.probe import probe
from rflash_tuning.live import LiveSystem
from rflash_tuning.snapshot import SnapshotSystem, anonymise, from_host, record

SECRETS = (
    "00:1b:21:aa:bb:cc",
    "001b21aabbcc",
    "10.1.2.3",
    "10.1.2.99",
    "0302010A",
    "fd12:3456::7",
    "0123456789ab",
    "fedcba9876543210",
    "iqn.1993-08.org.debian:01:secret",
    "SERIAL",
    "b7c1",
    "secrethost",
)


def system() -> SnapshotSystem:
    tenant = dataclasses.replace(samples.host().tenants[0], address="10.1.2.3", device="/dev/disk/by-id/nvme-SERIAL-p1")
    made = SnapshotSystem(
        from_host(
            samples.host(
                host_id="fedcba9876543210",
                tenants=(tenant,),
                connections=(Connection("10.1.2.3", 3260, "10.1.2.99", 40000),
                             Connection("fd12:3456::7", 3260, "fd12:3456::8", 1)),
                files={"/proc/cmdline": "root=UUID=b7c1 ip=10.1.2.3 isolcpus=2-3 nohz_full=2",
                       "/etc/default/irqbalance": "# on secrethost\nOPTIONS=--banirq=41",
                       "/proc/sys/net/core/netdev_rss_key": "aa:bb:cc:dd:ee:ff:00:11"},
            )
        )
    )  # fmt: skip
    acls = "/sys/kernel/config/target/iscsi/iqn.2026-11.org.rflash:0123456789ab.t1/tpgt_1/acls"
    made.tree.put(f"{acls}/iqn.1993-08.org.debian:01:secret/info", "InitiatorName: iqn.1993-08.org.debian:01:secret\n")
    made.tree.put("/dev/nvme0n1p1", "")
    made.tree.link("/dev/disk/by-id/nvme-SERIAL-p1", "/dev/nvme0n1p1")
    made.tree.put("/proc/500/stat", "500 (secrethost) S 1 1 1 0 -1 0 0 0 0 0 0 0 0 0 20 0 1 0 9 0 0\n")
    return made


def test_a_record_replays_as_the_same_host() -> None:
    live = system()
    assert probe(SnapshotSystem(record(live))) == probe(live)


def test_this_machines_record_replays_too() -> None:
    # Interrupts may move between two looks; all else must be equal.
    host = probe(LiveSystem())
    replayed = probe(SnapshotSystem(record(LiveSystem())))
    for name in ("release", "boot_id", "host_id", "cpus", "smt", "tenants", "tuners", "files"):
        assert getattr(replayed, name) == getattr(host, name)
    assert [nic.name for nic in replayed.nics] == [nic.name for nic in host.nics]
    assert [nic.features for nic in replayed.nics] == [nic.features for nic in host.nics]


def test_two_records_of_one_state_are_equal_whatever_counts_went_on() -> None:
    live = system()
    first = record(live)
    text = live.read("/proc/interrupts")
    live.tree.put("/proc/interrupts", text.replace(": 0 0 0 0 ", ": 9 0 7 0 ", 1))
    live.tree.put("/proc/101/stat", live.read("/proc/101/stat").replace("S 0 0", "R 5 5"))
    live.tree.put("/proc/999/stat", "999 (bash) S 1 1 1 0 -1 0 0 0 0 0 0 0 0 0 20 0 1 0 9 0 0\n")
    live.tree.put("/proc/net/tcp", live.read("/proc/net/tcp") + "   9: 0100007F:0016 0100007F:9000 01 0 0\n")
    assert record(live) == first
    live.write("/proc/irq/41/smp_affinity_list", "2")
    assert record(live) != first


def test_a_recording_changes_nothing() -> None:
    recording = recorder.RecordingSystem(system())
    for change in (
        lambda: recording.write("/sys/class/net/eth0/mtu", "9000"),
        lambda: recording.replace("/etc/x", "x"),
        lambda: recording.ethtool_set("eth0", "rings", {"rx": 1}),
        lambda: recording.set_affinity(101, [0]),
    ):
        with pytest.raises(PermissionError):
            change()


def test_errors_are_recorded_as_they_were() -> None:
    live = system()
    live.tree.refuse("/proc/irq/41/smp_affinity_list", "EACCES")
    replayed = SnapshotSystem(record(live))
    with pytest.raises(PermissionError):
        replayed.read("/proc/irq/41/smp_affinity_list")


def test_nothing_of_the_machines_identity_is_left() -> None:
    text = json.dumps(anonymise(record(system())).to_json())
    assert [secret for secret in SECRETS if secret in text] == []


def test_what_was_equal_stays_equal_and_the_rest_stays() -> None:
    before, after = probe(system()), probe(SnapshotSystem(anonymise(record(system()))))
    tenant, connection = after.tenants[0], after.connections[0]
    assert (tenant.name, tenant.port, tenant.sessions, tenant.tasks) == ("t1", 3260, 1, (101, 102))
    assert tenant.device == "/dev/nvme0n1p1"
    assert tenant.address == connection.local
    assert connection.local.startswith("192.0.2.")
    assert after.nics[0].mac == after.nics[1].mac == "02:00:00:00:00:01"
    assert after.files["/proc/cmdline"] == "isolcpus=2-3 nohz_full=2"
    assert after.files["/proc/sys/net/core/netdev_rss_key"] == "aa:bb:cc:dd:ee:ff:00:11"
    for name in ("cpus", "disks", "tasks", "tuners"):
        assert getattr(after, name) == getattr(before, name)
    for nic, other in zip(after.nics, before.nics, strict=True):
        assert dataclasses.replace(nic, mac="") == dataclasses.replace(other, mac="")


def test_it_can_be_done_twice() -> None:
    once = anonymise(record(system()))
    assert probe(SnapshotSystem(anonymise(once))).nics == probe(SnapshotSystem(once)).nics


@pytest.mark.parametrize(
    ("text", "result"),
    [
        ("from 127.0.0.1 to 0.0.0.0", "from 127.0.0.1 to 0.0.0.0"),
        ("10.9.8.7 10.9.8.7 10.9.8.6", "192.0.2.1 192.0.2.1 192.0.2.2"),
        ("np/[fe80::1]:3260", "np/[2001:db8::1]:3260"),
        ("traddr=fe80::1,trsvcid=4420", "traddr=2001:db8::1,trsvcid=4420"),
        ("0000:03:00.0 mlx5_comp0@pci:0000:03:00.0", "0000:03:00.0 mlx5_comp0@pci:0000:03:00.0"),
        ("00:00:00:00:00:00", "00:00:00:00:00:00"),
        ("enx001B 6.12.107+deb13-amd64", "enx001B 6.12.107+deb13-amd64"),
        ("nqn.2014-08.org.nvmexpress:uuid:1 x", "nqn.2000-01.org.example:1 x"),
        ("iqn.2026-11.org.rflash:abc.t1 nqn.2026-11.org.rflash:abc:t22",
         "iqn.2026-11.org.rflash:000000000001.t1 nqn.2026-11.org.rflash:000000000001:t22"),
    ],
)  # fmt: skip
def test_texts(text: str, result: str) -> None:
    assert Anonymiser().text(text) == result
