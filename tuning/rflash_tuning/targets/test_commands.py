# SPDX-License-Identifier: GPL-2.0
"""The command line: its output in three forms, its exit statuses, its sentences."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
import tempfile
import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest

from rflash_tuning.system import Completed
from rflash_tuning.targets import addresses, commands, lio
from rflash_tuning.targets.machine import Machine
from rflash_tuning.targets.model import Tenant
from rflash_tuning.targets.nvmet import Nvmet
from rflash_tuning.targets.testbed import DEVICE, MEMORY, Library, machine

needs_sfdisk = pytest.mark.skipif(
    not (shutil.which("sfdisk") and shutil.which("wipefs")),
    reason="needs the commands sfdisk (fdisk) and wipefs (util-linux)",
)
LAUNCHER = Path(__file__).resolve().parents[2] / "rflash-target"


@pytest.fixture
def box(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Machine]:
    with tempfile.TemporaryDirectory(dir=MEMORY) as directory:
        found = machine(Path(directory) / "disk.img")
        monkeypatch.setattr(lio, "library", lambda: Library(found.configfs))
        monkeypatch.setenv("RFLASH_TARGET_STATE", str(tmp_path / "state"))
        yield found


def create(box: Machine, kind: str, *options: str, tenants: str = "3") -> int:
    return commands.main(["create", "--kind", kind, "--device", DEVICE, "--tenants", tenants, *options], box)


@needs_sfdisk
def test_create_show_delete(box: Machine, capsys: pytest.CaptureFixture[str]) -> None:
    assert create(box, "nvmet-tcp") == 0
    output = capsys.readouterr().out
    assert "t3      nvmet-tcp  up     0         /dev/nvme0n1p3  2 MiB  10.0.0.1  4422  any" in output
    host = "21872a0b8e03"
    line = f"connect -t tcp -a 10.0.0.1 -s 4421 -n nqn.2026-11.org.rflash:{host}:t2"
    assert f"rflash {line}" in output
    assert f"nvme {line}" in output
    assert "Any host that reaches 10.0.0.1 may connect to every tenant" in output
    assert "`rflash-target delete nvmet-tcp-t1` undoes it." in output
    assert commands.main(["show", "-o", "json"], box) == 0
    shown = json.loads(capsys.readouterr().out)
    assert shown["schema"] == 1
    assert [tenant["port"] for tenant in shown["tenants"]] == [4420, 4421, 4422]
    assert commands.main(["delete", "--device", DEVICE], box) == 0
    assert capsys.readouterr().out == "Removed nvmet-tcp-t1, 3 tenants; /dev/nvme0n1 is as it was before.\n"
    assert commands.main(["show"], box) == 0
    assert "No targets" in capsys.readouterr().out


@needs_sfdisk
def test_allowed_hosts_and_open_iscsi(box: Machine, capsys: pytest.CaptureFixture[str]) -> None:
    iqns = [f"t{number}=iqn.1993-08.org.debian:01:host{number}" for number in (1, 2, 3)]
    assert create(box, "iscsi", *(word for iqn in iqns for word in ("--allow-host", iqn)), "-o", "json") == 0
    made = json.loads(capsys.readouterr().out)
    assert made["tenants"][1]["allowed_hosts"] == ["iqn.1993-08.org.debian:01:host2"]
    assert made["tenants"][1]["connect"]["open-iscsi"][1] == (
        "iscsiadm -m node -T iqn.2026-11.org.rflash:21872a0b8e03.t2 -p 10.0.0.1:3261 --login"
    )
    assert not any("Any host" in remark for remark in made["remarks"])


@needs_sfdisk
def test_rflashds_file_is_toml_and_the_same_disk_for_ever(box: Machine) -> None:
    assert create(box, "rflashd", "--allow-host", "nqn.2014-08.org.nvmexpress:uuid:x") == 0
    [path] = [path for path in box.system.files if path.startswith("/etc/rflash/")]
    assert path == "/etc/rflash/rflashd.d/t1.toml"
    tenants = tomllib.loads(box.system.files[path])["tenant"]
    assert [tenant["port"] for tenant in tenants] == [4420, 4421, 4422]
    assert all(tenant["device"].startswith("/dev/disk/by-partuuid/") for tenant in tenants)
    assert tenants[0]["allowed-hosts"] == ["nqn.2014-08.org.nvmexpress:uuid:x"]


@needs_sfdisk
@pytest.mark.parametrize("kind", ["iscsi", "nvmet-tcp", "nvmet-rdma", "rflashd"])
def test_script_is_shell_and_changes_nothing(box: Machine, capsys: pytest.CaptureFixture[str], kind: str) -> None:
    before = dict(box.system.files), box.configfs.state(), box.system.image.read_bytes()
    assert create(box, kind, "-o", "script") == 0
    text = capsys.readouterr().out
    assert (dict(box.system.files), box.configfs.state(), box.system.image.read_bytes()) == before
    assert "sfdisk" in text
    subprocess.run(["sh", "-n"], input=text, text=True, check=True)
    if kind == "nvmet-tcp":
        assert text.count("ln -s") == 3
        assert "printf %s 4422 > nvmet/ports/4422/addr_trsvcid" in text
    if kind == "iscsi":
        assert text.count("/np/10.0.0.1:326") == 3


@pytest.mark.parametrize(
    "words,sentence",
    [
        (["delete"], "there is nothing to delete"),
        (["delete", "iscsi-t1"], "there is no iscsi-t1; there is nothing"),
        (["delete", "../../etc/passwd"], "there is no ../../etc/passwd"),
        (["delete", "x", "--all"], "say it in one way"),
        (["delete", "--device", "/dev/sdz"], "nothing was made on /dev/sdz"),
        (["create", "--kind", "iscsi", "--device", "/dev/none", "--tenants", "2"], "there is no device /dev/none"),
        (["create", "--kind", "iscsi", "--device", DEVICE, "--tenants", "0"], "0 tenants make no target"),
    ],
)
def test_a_refusal_is_one_sentence_and_status_2(
    box: Machine, capsys: pytest.CaptureFixture[str], words: list[str], sentence: str
) -> None:
    assert commands.main(words, box) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err.startswith(f"rflash-target: {sentence}")
    assert captured.err.count("\n") == 1


def test_help_teaches(tmp_path: Path) -> None:
    for words in ([], ["create"], ["delete"], ["show"], ["restore"]):
        done = subprocess.run([sys.executable, str(LAUNCHER), *words, "--help"], capture_output=True, text=True)
        assert done.returncode == 0, done.stderr
        assert "usage: rflash-target" in done.stdout
        assert max(map(len, done.stdout.splitlines())) <= 100


def test_progress_is_silent_for_two_seconds(capsys: pytest.CaptureFixture[str]) -> None:
    times = iter([0.0, 1.9, 2.0])
    ticker = commands.Ticker(sys.stderr, lambda: next(times))
    ticker("early", 1, 3)
    ticker("late", 2, 3)
    assert capsys.readouterr().err == "rflash-target: 2 of 3: late\n"


def test_addresses_of_both_families(box: Machine) -> None:
    files = box.system.files
    files["/proc/net/if_inet6"] = (
        "20010db8000000000000000000000007 02 40 00 80     eth0\n"
        "fe8000000000000050540000fe000001 02 40 20 80     eth0\n"
        "00000000000000000000000000000001 01 80 10 80       lo\n"
    )
    assert addresses.local(box.system) == ["10.0.0.1", "2001:db8::7", "127.0.0.1", "::1"]
    assert addresses.choose(box.system, "[2001:DB8::7]") == "2001:db8::7"
    assert addresses.choose(box.system, "0.0.0.0") == "0.0.0.0"
    with pytest.raises(commands.UsageError, match=r"several addresses, choose with --addr: 10\.0\.0\.1, 2001:db8::7"):
        addresses.choose(box.system, "")
    files["/proc/net/tcp6"] = (
        "  sl  local_address                         remote_address                        st\n"
        "   0: 00000000000000000000000000000000:1144 00000000000000000000000000000000:0000 0A\n"
        "   1: 0000000000000000FFFF00000100000A:1145 0000000000000000FFFF00000200000A:9C40 01\n"
    )
    assert addresses.taken(box.system, "10.0.0.1", 4420)
    assert not addresses.taken(box.system, "10.0.0.1", 4421)
    assert addresses.peers(box.system, 4421) == {"10.0.0.2"}


def test_sessions_over_rdma(box: Machine, monkeypatch: pytest.MonkeyPatch) -> None:
    """As rdma(8) of iproute2 6.15 prints them."""
    queue = {"ifindex": 0, "ifname": "rxe0", "qp-type": "RC", "state": "CONNECT", "ps": "TCP", "comm": "nvmet_rdma"}
    listed = [
        {"ifname": "rxe0", "state": "LISTEN", "ps": "TCP", "comm": "nvmet_rdma", "src-addr": "10.0.0.1:4421"},
        {**queue, "src-addr": "10.0.0.1:4421", "dst-addr": "10.0.0.2:54777"},
        {**queue, "src-addr": "10.0.0.1:4421", "dst-addr": "10.0.0.2:54778"},
        {**queue, "src-addr": "10.0.0.1:4421", "dst-addr": "10.0.0.3:1111"},
        {**queue, "src-addr": "10.0.0.1:4422", "dst-addr": "10.0.0.3:1112"},
    ]
    found = Nvmet("rdma")
    tenant = Tenant("t2", "nvmet-rdma", "nqn", "10.0.0.1", 4421, "/dev/x", 1, "", "")
    for output, count in ((json.dumps(listed), 2), ("[]", 0), ("nonsense", None), ("{}", None)):
        monkeypatch.setattr(box.system, "run", lambda argv, output=output: Completed(0, output))
        assert found.sessions(box, tenant) == count
    monkeypatch.setattr(box.system, "run", lambda argv: Completed(1, ""))
    assert found.sessions(box, tenant) is None
