# SPDX-License-Identifier: GPL-2.0
"""Create, delete and restore over a simulated machine, with a crash at every step."""

from __future__ import annotations

import errno
import hashlib
import json
import shutil
import tempfile
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from rflash_tuning.errors import TuneError, UsageError
from rflash_tuning.targets import lio, maker
from rflash_tuning.targets.machine import Machine
from rflash_tuning.targets.model import Allowed, Order
from rflash_tuning.targets.record import Store
from rflash_tuning.targets.testbed import DEVICE, MEMORY, Crash, Library, machine

MIB = 1 << 20
IQN = "iqn.1993-08.org.debian:01:abc"
NQN = "nqn.2014-08.org.nvmexpress:uuid:1b4e28ba-2fa1-11d2-883f-0016d3cca427"

needs_sfdisk = pytest.mark.skipif(not (shutil.which("sfdisk") and shutil.which("wipefs")),
                                  reason="needs the commands sfdisk (fdisk) and wipefs (util-linux)")  # fmt: skip
pytestmark = needs_sfdisk


@pytest.fixture
def box(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Machine]:
    with tempfile.TemporaryDirectory(dir=MEMORY) as directory:
        found = machine(Path(directory) / "disk.img")
        monkeypatch.setattr(lio, "library", lambda: Library(found.configfs))
        yield found


@pytest.fixture
def store(box: Machine, tmp_path: Path) -> Store:
    return Store(box.system, str(tmp_path / "state"))


def order(kind: str = "nvmet-tcp", tenants: int = 3, **others) -> Order:
    return Order(kind, DEVICE, tenants, **others)


def digest(box: Machine) -> str:
    return hashlib.sha256(box.system.image.read_bytes()).hexdigest()


def state(box: Machine) -> tuple:
    """Everything that create may change."""
    return box.configfs.state(), digest(box), dict(box.system.files)


@pytest.mark.parametrize("kind", ["iscsi", "nvmet-tcp", "nvmet-rdma", "rflashd"])
@pytest.mark.parametrize("allowed", [False, True])
def test_delete_leaves_all_as_it_was(box: Machine, store: Store, kind: str, allowed: bool) -> None:
    before = state(box)
    hosts = (Allowed(IQN if kind == "iscsi" else NQN),) if allowed else ()
    record = maker.create(box, store, order(kind, allowed=hosts))
    assert record.state == "ready"
    assert state(box) != before
    assert [tenant.name for tenant in record.tenants] == ["t1", "t2", "t3"]
    maker.delete(box, store, "")
    assert state(box) == before


def test_shares_are_equal_and_on_whole_mib(box: Machine, store: Store) -> None:
    record = maker.create(box, store, order(tenants=6))
    # 8 MiB without the first and the last.
    assert {tenant.size for tenant in record.tenants} == {1 * MIB}
    table = record.steps[0]
    assert [start * 512 % MIB for start, *_ in table.parts] == [0] * 6
    assert [tenant.device for tenant in record.tenants] == [f"{DEVICE}p{number}" for number in range(1, 7)]
    assert len({tenant.uuid for tenant in record.tenants}) == 6


def test_data_of_tenants_outlives_delete(box: Machine, store: Store) -> None:
    first = maker.create(box, store, order())
    start = first.steps[0].parts[1][0] * 512
    with open(box.system.image, "r+b") as file:
        file.seek(start)
        file.write(b"precious")
    maker.delete(box, store, "nvmet-tcp-t1")
    again = maker.create(box, store, order("iscsi"))
    assert again.steps[0].parts[1][0] * 512 == start
    assert box.system.image.read_bytes()[start : start + 8] == b"precious"


def test_what_was_in_the_tables_place_comes_back(box: Machine, store: Store) -> None:
    with open(box.system.image, "r+b") as file:
        file.write(b"\x11" * 8192)
        file.seek(-4096, 2)
        file.write(b"\x22" * 4096)
    before = digest(box)
    maker.create(box, store, order())
    maker.delete(box, store, "")
    assert digest(box) == before


def crash_points(box: Machine, store: Store, kind: str) -> int:
    maker.create(box, store, order(kind, 2, allowed=(Allowed(IQN if kind == "iscsi" else NQN),)))
    count = box.configfs.bomb.count
    maker.delete(box, store, "")
    return count


@pytest.mark.parametrize("kind", ["iscsi", "nvmet-tcp", "rflashd"])
def test_kill_anywhere_then_delete(box: Machine, store: Store, kind: str) -> None:
    before = state(box)
    bomb = box.configfs.bomb
    total = crash_points(box, store, kind)
    assert state(box) == before
    assert total >= 5
    for at in range(1, total + 1):
        bomb.count, bomb.at = 0, at
        with pytest.raises(Crash):
            maker.create(box, store, order(kind, 2, allowed=(Allowed(IQN if kind == "iscsi" else NQN),)))
        bomb.at = -1
        if store.all():
            maker.delete(box, store, "")
        assert state(box) == before, f"killed at {at} of {total}"


@pytest.mark.parametrize("kind", ["iscsi", "nvmet-tcp"])
def test_kill_during_delete_then_delete(box: Machine, store: Store, kind: str) -> None:
    before = state(box)
    bomb = box.configfs.bomb
    at = 0
    while True:
        at += 1
        bomb.at = -1
        maker.create(box, store, order(kind, 2))
        bomb.count, bomb.at = 0, at
        try:
            maker.delete(box, store, "")
            break
        except Crash:
            bomb.at = -1
        if store.all():
            maker.delete(box, store, "")
        assert state(box) == before, f"killed at {at}"
    assert at > 5


def test_a_failure_undoes_everything(box: Machine, store: Store) -> None:
    before = state(box)
    iqn = maker.plan(box, store, order("iscsi")).tenants[1].identity
    box.configfs.refuse[f"target/iscsi/{iqn}/tpgt_1/np/10.0.0.1:3261"] = errno.EADDRINUSE
    with pytest.raises(TuneError, match=r"t2 on 10\.0\.0\.1:3261: 10.0.0.1:3261 is taken"):
        maker.create(box, store, order("iscsi"))
    box.configfs.refuse.clear()
    assert state(box) == before


def test_a_failure_of_nvmet_names_the_port(box: Machine, store: Store) -> None:
    before = state(box)
    nqn = maker.plan(box, store, order()).tenants[2].identity
    box.configfs.refuse[f"nvmet/ports/4422/subsystems/{nqn}"] = errno.EADDRINUSE
    with pytest.raises(TuneError, match=r"t3 on 10\.0\.0\.1:4422: 10.0.0.1:4422 is taken"):
        maker.create(box, store, order())
    box.configfs.refuse.clear()
    assert state(box) == before


def test_ctrl_c_undoes_everything(box: Machine, store: Store) -> None:
    before = state(box)

    def interrupt(_what: str, number: int, _total: int) -> None:
        if number == 7:
            raise KeyboardInterrupt

    with pytest.raises(TuneError, match="interrupted; everything is as it was"):
        maker.create(box, store, order(), interrupt)
    assert state(box) == before


def test_a_failing_undo_keeps_the_record(box: Machine, store: Store) -> None:
    before = state(box)

    def occupy(_what: str, number: int, _total: int) -> None:
        if number == 4:
            box.sectors.busy = True
            raise OSError(errno.EIO, "Input/output error")

    with pytest.raises(TuneError, match=r"undoing it failed, too .*delete nvmet-tcp-t1` tries again"):
        maker.create(box, store, order(), occupy)
    with pytest.raises(UsageError, match="cut short: `rflash-target delete nvmet-tcp-t1` cleans up"):
        maker.create(box, store, order())
    box.sectors.busy = False
    maker.delete(box, store, "nvmet-tcp-t1")
    assert state(box) == before


def test_the_names_of_others_are_left_alone(box: Machine, store: Store) -> None:
    nqn = maker.plan(box, store, order()).tenants[1].identity
    box.configfs.mkdir(f"nvmet/subsystems/{nqn}")
    before = state(box)
    with pytest.raises(UsageError, match="is there already, and rflash-target did not make it"):
        maker.create(box, store, order())
    assert state(box) == before


def test_what_somebody_makes_meanwhile_is_left_alone(box: Machine, store: Store) -> None:
    nqn = maker.plan(box, store, order()).tenants[1].identity
    name = f"nvmet/subsystems/{nqn}"

    def meddle(_what: str, number: int, _total: int) -> None:
        if number == 3:
            box.configfs.mkdir(name)

    with pytest.raises(TuneError, match="somebody else has made it meanwhile"):
        maker.create(box, store, order(), meddle)
    assert box.configfs.exists(name)
    box.configfs.rmdir(name)
    assert not box.configfs.directories("nvmet/subsystems")


def test_a_host_of_another_subsystem_stays(box: Machine, store: Store) -> None:
    maker.create(box, store, order(allowed=(Allowed(NQN),)))
    box.configfs.mkdir("nvmet/subsystems/other")
    box.configfs.link(f"nvmet/subsystems/other/allowed_hosts/{NQN}", f"nvmet/hosts/{NQN}")
    maker.delete(box, store, "")
    assert box.configfs.directories("nvmet/hosts") == [NQN]


def reboot(box: Machine) -> None:
    configfs = box.configfs
    configfs.__init__(configfs.bomb)
    box.system.files["/proc/sys/kernel/random/boot_id"] = "boot-2"


@pytest.mark.parametrize("kind", ["iscsi", "nvmet-tcp"])
def test_restore_after_a_reboot_with_another_name(box: Machine, store: Store, kind: str) -> None:
    blank = digest(box)
    first = maker.create(box, store, order(kind))
    made = box.configfs.state()
    table = digest(box)
    reboot(box)
    box.system.name = "nvme7n1"
    box.system.partitions()
    if kind == "iscsi":
        box.configfs.mkdir("target/core/fileio_0")
    [result] = maker.restore(box, store)
    assert result.did == "restored", result
    again = store.load(first.name)
    assert [tenant.device for tenant in again.tenants] == [f"/dev/nvme7n1p{number}" for number in (1, 2, 3)]
    assert [tenant.identity for tenant in again.tenants] == [tenant.identity for tenant in first.tenants]
    assert [tenant.uuid for tenant in again.tenants] == [tenant.uuid for tenant in first.tenants]
    assert digest(box) == table
    assert len(made[3]) == len(box.configfs.links)
    assert [one.did for one in maker.restore(box, store)] == ["there already"]
    maker.delete(box, store, "")
    assert digest(box) == blank
    assert store.all() == []


def test_restore_repairs_what_is_missing_only(box: Machine, store: Store) -> None:
    record = maker.create(box, store, order())
    nqn = record.tenants[1].identity
    whole = box.configfs.state()
    box.configfs.unlink(f"nvmet/ports/4421/subsystems/{nqn}")
    seen = []
    maker.restore(box, store, lambda what, number, total: seen.append(what))
    assert seen == ["t2 on 10.0.0.1:4421"]
    assert box.configfs.state() == whole


def test_restore_never_partitions(box: Machine, store: Store) -> None:
    maker.create(box, store, order())
    reboot(box)
    with open(box.system.image, "r+b") as file:
        file.write(bytes(1 << 16))
    box.system.partitions()
    before = digest(box)
    [result] = maker.restore(box, store)
    assert result.did == "failed"
    assert "no device here has the partitions" in result.why
    assert digest(box) == before


def test_restore_clears_away_half_a_create(box: Machine, store: Store) -> None:
    before = state(box)
    box.configfs.bomb.at = 20
    with pytest.raises(Crash):
        maker.create(box, store, order())
    box.configfs.bomb.at = -1
    assert [one.did for one in maker.restore(box, store)] == ["removed"]
    assert state(box) == before


def test_existing_partitions_stay(box: Machine, store: Store) -> None:
    maker.create(box, store, order())
    table = digest(box)
    maker.delete(box, store, "", keep_partitions=True)
    assert digest(box) == table
    with pytest.raises(UsageError, match=r"has partitions .*--use-partitions"):
        maker.create(box, store, order("iscsi"))
    with pytest.raises(UsageError, match="has 3 partitions, and 2 tenants want one each"):
        maker.create(box, store, order("iscsi", 2, use_partitions=True))
    record = maker.create(box, store, order("iscsi", use_partitions=True))
    assert all(tenant.part for tenant in record.tenants)
    reboot(box)
    assert [one.did for one in maker.restore(box, store)] == ["restored"]
    maker.delete(box, store, "")
    assert digest(box) == table


def test_a_table_that_was_changed_is_not_overwritten(box: Machine, store: Store) -> None:
    maker.create(box, store, order())
    done = box.system.run(["sh", "-c", 'sfdisk --quiet --delete "$1" 2', "sh", DEVICE])
    assert done.status == 0
    changed = digest(box)
    with pytest.raises(TuneError, match="was changed since"):
        maker.delete(box, store, "")
    assert digest(box) == changed
    maker.delete(box, store, "", keep_partitions=True)
    assert not store.all()


def test_sessions_and_mounts_keep_a_target(box: Machine, store: Store) -> None:
    maker.create(box, store, order())
    whole = state(box)
    box.system.files["/proc/net/tcp"] += "   0: 0100000A:1145 0200000A:C350 01\n"
    with pytest.raises(UsageError, match="t2 has 1 session: log out there first, or --force"):
        maker.delete(box, store, "")
    box.system.files["/proc/self/mountinfo"] = "30 1 259:3 / /mnt rw - ext4 /dev/nvme0n1p3 rw\n"
    with pytest.raises(UsageError, match="/dev/nvme0n1p3 is mounted at /mnt"):
        maker.delete(box, store, "", force=True)
    assert box.configfs.state() == whole[0]
    box.system.files["/proc/self/mountinfo"] = ""
    maker.delete(box, store, "", force=True)


def test_an_open_partition_keeps_the_table(box: Machine, store: Store) -> None:
    before = state(box)
    maker.create(box, store, order())
    table = digest(box)
    box.sectors.opened = True
    with pytest.raises(TuneError, match="/dev/nvme0n1 is in use, so its partitions stay"):
        maker.delete(box, store, "")
    assert digest(box) == table
    box.sectors.opened = False
    maker.delete(box, store, "")
    assert state(box) == before


def test_two_creates_side_by_side(box: Machine, store: Store) -> None:
    record = maker.create(box, store, order(tenants=2))
    with pytest.raises(UsageError, match=r"t2 is there already, of nvmet-tcp-t1 .* --first 3"):
        maker.create(box, store, order(tenants=1, first=2))
    reloaded = store.load("nvmet-tcp-t1")
    assert reloaded == record
    with pytest.raises(UsageError, match="there is no x; there is nvmet-tcp-t1"):
        maker.delete(box, store, "x")


def test_a_record_of_another_host_or_of_nonsense(box: Machine, store: Store) -> None:
    record = maker.create(box, store, order())
    box.system.files["/etc/machine-id"] = "f" * 32
    with pytest.raises(UsageError, match="another host's"):
        maker.delete(box, store, "")
    path = f"{store.directory}/{record.name}.json"
    for text in ("", "{", json.dumps({"schema": 9}), json.dumps({**record.to_json(), "begun": 99}),
                 json.dumps({**record.to_json(), "steps": [{"step": "unknown"}]})):  # fmt: skip
        box.system.files[path] = text
        with pytest.raises(UsageError, match="no record of rflash-target's"):
            store.all()


def test_dry_run_changes_nothing(box: Machine, store: Store) -> None:
    before = state(box)
    bomb = box.configfs.bomb
    bomb.count, bomb.at = 0, 1
    for kind in ("iscsi", "nvmet-tcp", "nvmet-rdma", "rflashd"):
        assert maker.plan(box, store, order(kind)).steps
    assert state(box) == before


REFUSED = [
    (dict(tenants=0), "0 tenants make no target"),
    (dict(tenants=-3), "-3 tenants make no target"),
    (dict(tenants=129), "more than a partition table has room for, which is 128"),
    (dict(tenants=7), "7 tenants are more than shares of 1 MiB on this device, of which there are 6"),
    (dict(device="/dev/none"), "there is no device /dev/none; NVMe devices here are /dev/nvme0n1"),
    (dict(address="10.0.0.9"), "--addr 10.0.0.9 is not on this host, which has 10.0.0.1, 127.0.0.1"),
    (dict(address="nonsense"), "--addr nonsense is not an IP address; this host has 10.0.0.1, 127.0.0.1"),
    (dict(allowed=(Allowed(IQN),)), "this is not a host's NQN"),
    (dict(allowed=(Allowed(NQN, "t9"),)), "--allow-host for t9: the tenants are t1 to t3"),
    (dict(allowed=(Allowed(NQN, "t2"),)), "says nobody for t1, which would leave it open"),
    (dict(first=0), "--first 0 is not a tenant's number"),
    (dict(first=65000), "ports end at 65535"),
    (dict(persist=True), "--persist writes targetcli's configuration"),
]


@pytest.mark.parametrize("change,sentence", REFUSED, ids=[sentence[:30] for _, sentence in REFUSED])
def test_refused_orders(box: Machine, store: Store, change: dict, sentence: str) -> None:
    before = state(box)
    with pytest.raises(UsageError, match=sentence):
        maker.create(box, store, replace(order(), **change))
    assert state(box) == before
    assert not [argv for argv in box.system.commands if argv[0] == "modprobe"]


def test_refused_devices(box: Machine, store: Store) -> None:
    files = box.system.files

    def refused(sentence: str) -> None:
        before = state(box)
        with pytest.raises(UsageError, match=sentence):
            maker.create(box, store, order())
        assert state(box) == before

    for path, text, sentence in (
        ("/proc/self/mountinfo", "30 1 259:0 / /data rw - ext4 /dev/nvme0n1 rw", "in use: .* is mounted at /data"),
        ("/proc/self/mountinfo", "30 1 0:40 / /data rw - btrfs /dev/nvme0n1 rw", "is mounted at /data"),
        ("/proc/swaps", "Filename Type\n/dev/nvme0n1 partition 1 0 -2", "/dev/nvme0n1 is swap space"),
        ("/sys/class/block/nvme0n1/holders/dm-0", "", "/dev/nvme0n1 is held by dm-0"),
        ("/sys/block/nvme0n1/ro", "1", "is read-only"),
        ("/sys/block/nvme0n1/queue/zoned", "host-managed", "is zoned"),
        ("/sys/block/nvme0n1/ext_range", "1", "can't have partitions"),
        ("/sys/block/nvme0n1/loop/partscan", "0", "losetup -P"),
        ("/sys/class/block/nvme0n1/partition", "1", "is a partition: give the whole device"),
        ("/sys/block/nvme0n1/size", "0", "has no medium"),
        ("/proc/net/tcp", "head\n   0: 0100000A:1145 00000000:0000 0A", "port 4421 of 10.* t2's, is taken"),
        ("/proc/net/tcp", "head\n   0: 00000000:1146 00000000:0000 0A", "port 4422 .* t3's, is taken"),
    ):  # fmt: skip
        kept = dict(files)
        files[path] = text
        refused(sentence)
        files.clear()
        files.update(kept)
    box.sectors.busy = True
    refused("can't be had exclusively")
    box.sectors.busy = False
    box.configfs.mkdir("nvmet/subsystems/other")
    box.configfs.mkdir("nvmet/subsystems/other/namespaces/1")
    box.configfs.write("nvmet/subsystems/other/namespaces/1/device_path", DEVICE)
    refused("is behind the target other")


def test_a_file_system_is_not_overwritten(box: Machine, store: Store) -> None:
    # ext4's magic number; wipefs wants a superblock around it that makes sense.
    mkfs = shutil.which("mkfs.ext4", path="/usr/sbin:/sbin:/usr/bin:/bin")
    if not mkfs:
        pytest.skip("needs mkfs.ext4 (e2fsprogs)")
    import subprocess

    subprocess.run([mkfs, "-q", "-F", str(box.system.image)], check=True)
    before = state(box)
    with pytest.raises(UsageError, match=r"not empty, it has a signature \(ext4\): `wipefs -a /dev/nvme0n1`"):
        maker.create(box, store, order())
    assert state(box) == before


def test_missing_module(box: Machine, store: Store) -> None:
    before = state(box)
    box.system.missing_modules.add("nvmet-tcp")
    with pytest.raises(TuneError, match="kernel module nvmet-tcp is needed and `modprobe nvmet-tcp` fails"):
        maker.create(box, store, order())
    assert state(box) == before


def test_one_at_a_time(box: Machine, store: Store) -> None:
    with store.lock(), pytest.raises(UsageError, match="another rflash-target is at work"):
        maker.create(box, store, order())
