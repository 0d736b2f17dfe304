# SPDX-License-Identifier: GPL-2.0
"""This machine, below a directory of the test's own."""

from __future__ import annotations

import os

import pytest

from rflash_tuning.live import LiveSystem


@pytest.fixture
def system(tmp_path) -> LiveSystem:
    (tmp_path / "etc").mkdir()
    return LiveSystem(str(tmp_path))


def test_a_file_is_replaced_whole_with_its_mode(system: LiveSystem, tmp_path) -> None:
    path = tmp_path / "etc/irqbalance"
    path.write_text("old\n")
    path.chmod(0o600)
    system.replace("/etc/irqbalance", "new\n")
    assert (path.read_text(), path.stat().st_mode & 0o777) == ("new\n", 0o600)
    assert os.listdir(tmp_path / "etc") == ["irqbalance"]


def test_a_new_file_is_readable_and_none_removes_it(system: LiveSystem, tmp_path) -> None:
    system.replace("/etc/new", "x\n")
    assert (tmp_path / "etc/new").stat().st_mode & 0o777 == 0o644
    system.replace("/etc/new", None)
    system.replace("/etc/new", None)
    assert not (tmp_path / "etc/new").exists()


def test_what_a_link_leads_to_is_replaced_and_the_link_stays(system: LiveSystem, tmp_path) -> None:
    (tmp_path / "etc/real").write_text("old\n")
    (tmp_path / "etc/link").symlink_to("real")
    system.replace("/etc/link", "new\n")
    assert (tmp_path / "etc/link").is_symlink()
    assert (tmp_path / "etc/real").read_text() == "new\n"


def test_a_replacement_that_fails_leaves_nothing_behind(system: LiveSystem, tmp_path) -> None:
    (tmp_path / "etc/directory").mkdir()
    with pytest.raises(OSError, match="directory"):
        system.replace("/etc/directory", "x\n")
    assert os.listdir(tmp_path / "etc") == ["directory"]
    with pytest.raises(FileNotFoundError):
        system.replace("/none/file", "x\n")


def test_a_write_makes_no_file_and_cuts_none(system: LiveSystem, tmp_path) -> None:
    with pytest.raises(FileNotFoundError):
        system.write("/etc/none", "1")
    (tmp_path / "etc/attribute").write_text("12345")
    system.write("/etc/attribute", "99")
    assert (tmp_path / "etc/attribute").read_text() == "99345"  # sysfs takes the value as it is


def test_names_links_and_bytes_are_as_they_are(system: LiveSystem, tmp_path) -> None:
    for name in ("rx-10", "rx-2"):
        (tmp_path / "etc" / name).write_bytes(b"\xff\0")
    (tmp_path / "link").symlink_to(tmp_path / "etc")
    assert system.listdir("/link") == ["rx-2", "rx-10"]
    assert system.resolve("/link/rx-2") == "/etc/rx-2"
    assert system.read("/etc/rx-2") == "\udcff\0"
    with pytest.raises(FileNotFoundError):
        system.resolve("/etc/none")


def test_threads_and_commands_of_this_machine() -> None:
    system = LiveSystem()
    cpus = system.affinity(os.getpid())
    system.set_affinity(os.getpid(), cpus)
    assert system.affinity(os.getpid()) == cpus
    with pytest.raises(ProcessLookupError):
        system.affinity(2**22 + 1)
    assert system.run(["sh", "-c", "echo out; echo err >&2; exit 3"]).status == 3
    assert system.run(["sleep", "9"], timeout=0.1).status == 124
    with pytest.raises(FileNotFoundError):
        system.run(["no-such-command"])
