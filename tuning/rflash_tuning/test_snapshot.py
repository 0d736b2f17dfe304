# SPDX-License-Identifier: GPL-2.0
"""Snapshots on disk, and what a machine in memory offers to tests."""

from __future__ import annotations

import subprocess

import pytest

from rflash_tuning import samples
from rflash_tuning.errors import TuneError, Unchangeable, Unsupported, UsageError
from rflash_tuning.snapshot import Crash, Snapshot, SnapshotSystem, capture, from_host, record


@pytest.fixture
def system() -> SnapshotSystem:
    return SnapshotSystem(from_host(samples.host()))


@pytest.mark.parametrize("name", ["host.json", "host.tar.zst", "host.tar.gz", "host"])
def test_each_form_reads_back_equal(system: SnapshotSystem, tmp_path, name: str) -> None:
    snapshot = system.snapshot()
    snapshot.tree.put("/sys/odd", "\udcff not UTF-8, no end of line")
    snapshot.save(str(tmp_path / name))
    assert Snapshot.load(str(tmp_path / name)) == snapshot


def test_without_zstd_one_sentence_says_what_works(system: SnapshotSystem, tmp_path, monkeypatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(TuneError, match=r"needs the command zstd, which is not installed; \.tar\.gz works without it"):
        system.snapshot().save(str(tmp_path / "host.tar.zst"))


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("[]", "holds no JSON object"),
        ("{", "is not a snapshot"),
        ('{"schema": 1}', 'its "kind" is not'),
        ('{"kind": "rflash-tune snapshot", "schema": 2}', "schema 2"),
        ('{"kind": "rflash-tune snapshot", "schema": 1, "fils": {}}', "unknown key 'fils'"),
        ('{"kind": "rflash-tune snapshot", "schema": 1, "files": []}', "'files' is not an object"),
        ('{"kind": "rflash-tune snapshot", "schema": 1, "affinities": {"1": "x"}}', "is damaged"),
        ('{"kind": "rflash-tune snapshot", "schema": 1, "links": {"/a": "/b", "/b": "/a"}, "files": {"/a/c": ""}}',
         "is damaged"),
    ],
)  # fmt: skip
def test_what_is_no_snapshot_gets_one_sentence(tmp_path, text: str, sentence: str) -> None:
    (tmp_path / "x.json").write_text(text)
    with pytest.raises(UsageError, match=sentence):
        Snapshot.load(str(tmp_path / "x.json"))


def test_a_missing_or_broken_archive_gets_one_sentence(tmp_path) -> None:
    with pytest.raises(UsageError, match="cannot read the snapshot"):
        Snapshot.load(str(tmp_path / "none.tar.zst"))
    (tmp_path / "x.tar.gz").write_text("no archive")
    with pytest.raises(UsageError, match="cannot read the snapshot"):
        Snapshot.load(str(tmp_path / "x.tar.gz"))
    (tmp_path / "x.tar.zst").write_text("no archive")
    with pytest.raises(TuneError, match="zstd failed"):
        Snapshot.load(str(tmp_path / "x.tar.zst"))
    with pytest.raises(UsageError, match=r"it has no snapshot\.json"):
        (tmp_path / "d").mkdir()
        Snapshot.load(str(tmp_path / "d"))


def test_an_archive_made_by_tar_reads_too(system: SnapshotSystem, tmp_path) -> None:
    system.snapshot().save(str(tmp_path / "d"))
    subprocess.run(["tar", "-C", str(tmp_path / "d"), "-czf", str(tmp_path / "x.tar.gz"), "."], check=True)
    assert Snapshot.load(str(tmp_path / "x.tar.gz")) == system.snapshot()


def test_a_path_through_links_and_the_devices_own_are_one_file(system: SnapshotSystem) -> None:
    system.write("/sys/class/net/eth0/mtu", "9000")
    assert system.read("/sys/devices/pci0000:00/0000:03:00.0/net/eth0/mtu") == "9000\n"


def test_errors_are_the_kernels(system: SnapshotSystem) -> None:
    with pytest.raises(FileNotFoundError):
        system.read("/sys/none")
    with pytest.raises(FileNotFoundError):
        system.write("/sys/class/net/eth0/none", "1")
    with pytest.raises(IsADirectoryError):
        system.read("/sys/class/net/eth0")
    with pytest.raises(NotADirectoryError):
        system.listdir("/proc/interrupts")
    with pytest.raises(ProcessLookupError):
        system.affinity(99)
    with pytest.raises(Unsupported):
        system.ethtool("eth0.7", "rss")
    with pytest.raises(OSError, match="No such device"):
        system.ethtool("eth9", "rss")


def test_names_are_in_natural_order(system: SnapshotSystem) -> None:
    system.tree.mkdir("/d", ["rx-10", "rx-2", "rx-1"])
    assert system.listdir("/d") == ["rx-1", "rx-2", "rx-10"]


def test_mutations_are_listed_and_equal_states_are_equal(system: SnapshotSystem) -> None:
    before = system.snapshot()
    system.write("/proc/irq/41/smp_affinity_list", "1")
    assert system.snapshot() != before
    system.write("/proc/irq/41/smp_affinity_list", "0-3")
    assert system.snapshot() == before
    assert [mutation[0] for mutation in system.mutations] == ["write", "write"]


def test_a_crash_before_a_mutation_leaves_it_undone_and_a_late_one_done(system: SnapshotSystem) -> None:
    system.fail_after(2)
    system.write("/sys/class/net/eth0/mtu", "2000")
    with pytest.raises(Crash):
        system.write("/sys/class/net/eth0/mtu", "3000")
    assert system.text("/sys/class/net/eth0/mtu") == "2000"
    system.fail_after(1, OSError(5, "injected"), late=True)
    with pytest.raises(OSError, match="injected"):
        system.write("/sys/class/net/eth0/mtu", "4000")
    assert system.text("/sys/class/net/eth0/mtu") == "4000"
    system.write("/sys/class/net/eth0/mtu", "5000")  # once only


def test_a_reboot_brings_back_all_but_files_on_disk(system: SnapshotSystem) -> None:
    system.write("/sys/class/net/eth0/mtu", "9000")
    system.replace("/etc/default/irqbalance", "OPTIONS=x\n")
    system.replace("/etc/new", "new\n")
    system.ethtool_set("eth0", "rings", {"rx": 1024})
    system.reboot("00000000-0000-4000-8000-00000000000f")
    assert system.text("/sys/class/net/eth0/mtu") == "1500"
    assert system.text("/etc/default/irqbalance") == "OPTIONS=x"
    assert system.text("/etc/new") == "new"
    assert system.ethtool("eth0", "rings")["rx"] == 512
    assert system.text("/proc/sys/kernel/random/boot_id", "").endswith("0f")
    system.replace("/etc/new", None)
    system.replace("/etc/new", None)  # nothing to remove is no error
    system.reboot()
    assert not system.exists("/etc/new")


def test_a_renamed_nic_is_found_under_its_new_name_only(system: SnapshotSystem) -> None:
    system.rename_nic("eth0", "lan0")
    assert system.names("/sys/class/net") == ["eth0.7", "lan0"]
    assert system.text("/sys/class/net/lan0/queues/rx-0/rps_flow_cnt") == "0"
    assert system.ethtool("lan0", "rings")["rx"] == 512
    assert "lower_lan0" in system.names("/sys/class/net/eth0.7")


def test_threads_can_be_moved_unless_the_kernel_binds_them(system: SnapshotSystem) -> None:
    system.set_affinity(101, [2, 9])
    assert system.affinity(101) == {2}
    with pytest.raises(OSError, match="Invalid argument"):
        system.set_affinity(101, [9])
    system.tree.put("/proc/101/stat", system.read("/proc/101/stat").replace(str(0x00200000), str(0x04200000)))
    with pytest.raises(Unchangeable):
        system.set_affinity(101, [1])
    system.end_task(101)
    with pytest.raises(ProcessLookupError):
        system.set_affinity(101, [1])


def test_commands_are_kept_and_only_systemctl_is_there(system: SnapshotSystem) -> None:
    assert system.run(["systemctl", "try-restart", "irqbalance"]).status == 0
    with pytest.raises(FileNotFoundError):
        system.run(["zstd"])
    assert system.ran[0] == ["systemctl", "try-restart", "irqbalance"]


def test_a_snapshot_is_not_changed_by_what_is_done_to_its_machine() -> None:
    snapshot = from_host(samples.host())
    system = SnapshotSystem(snapshot)
    system.ethtool_set("eth0", "coalesce", {"rx-usecs": 3})
    system.write("/sys/class/net/eth0/mtu", "9000")
    assert snapshot == from_host(samples.host())


def test_capture_writes_what_replays(system: SnapshotSystem, tmp_path) -> None:
    captured = capture(system, str(tmp_path / "c.tar.gz"), anonymous=False)
    assert captured == Snapshot.load(str(tmp_path / "c.tar.gz")) == record(system)
