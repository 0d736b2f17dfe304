# SPDX-License-Identifier: GPL-2.0
"""Commit-confirm with a real guard process: it outlives everything and puts back in time."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from rflash_tuning import errors
from rflash_tuning.errors import UsageError
from rflash_tuning.tune import confirm as confirming
from rflash_tuning.tune.apply import apply
from rflash_tuning.tune.change import Allocation, Change, Plan, Request
from rflash_tuning.tune.confirm import confirm, now, seconds_left
from rflash_tuning.tune.journal import Lock, load
from rflash_tuning.tune.revert import revert
from rflash_tuning.tune.settings import ConfigSetting, FileSetting
from rflash_tuning.tune.treesystem import TreeSystem
from rflash_tuning.tune.verify import status

BOOT = "boot-one"
REQUEST = Request(role="server", target="iscsi", nics=("eth0",), tenants=3)
COMM = Path("/proc/self/comm")
VALUE, CONFIG = "/proc/sys/net/v0", "/etc/some.conf"


def plan(*more: Change, cuts_off: bool = True) -> Plan:
    changes = (
        Change(FileSetting(VALUE), None, "1", "k", "", "", cuts_off=cuts_off),
        Change(ConfigSetting(CONFIG), None, "ours\n", "k", "", ""),
    )
    return Plan(REQUEST, Allocation("one-core", "", "", (), (0,)), changes + more)


@pytest.fixture
def machine(tmp_path: Path) -> TreeSystem:
    return TreeSystem.make(tmp_path / "root", {VALUE: "0\n", CONFIG: "theirs\n"})


@pytest.fixture
def state(tmp_path: Path) -> Iterator[Path]:
    directory = tmp_path / "state"
    # A guard inherits it: other test processes, which have the same command line, have guards too.
    COMM.write_text(f"t{os.getpid()}")
    yield directory
    until(lambda: not guards(), 20)


def guards() -> list[int]:
    """Guards of this test run that still live: our name in a session of its own."""
    found = []
    for name in os.listdir("/proc"):
        if not name.isdigit() or int(name) == os.getpid():
            continue
        try:
            same = Path(f"/proc/{name}/comm").read_text() == COMM.read_text()
            fields = Path(f"/proc/{name}/stat").read_text().rpartition(")")[2].split()
        except OSError:
            continue
        if same and fields[0] != "Z" and int(fields[3]) != os.getsid(0):
            found.append(int(name))
    return found


def until(condition: Callable[[], Any], seconds: float) -> None:
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, "it did not come in time"
        time.sleep(0.05)


def test_unconfirmed_it_is_put_back(machine: TreeSystem, state: Path) -> None:
    before = machine.contents()
    report = apply(machine, plan(), state, confirm_within=3)
    assert report.status == errors.UNCONFIRMED and report.confirm_within == 3
    assert "Run `rflash-tune confirm` within 3 s" in report.message
    assert machine.text(VALUE) == "1"
    assert status(machine, state).status == errors.UNCONFIRMED
    until(lambda: machine.contents() == before, 15)
    until(lambda: load(state).pending is None, 5)
    with pytest.raises(UsageError, match="too late"):
        confirm(state, BOOT)
    until(lambda: "2 values put back" in (state / "confirm.log").read_text(), 5)


def test_confirmed_it_stays_and_the_guard_ends(machine: TreeSystem, state: Path) -> None:
    apply(machine, plan(), state, confirm_within=4)
    assert len(guards()) == 1
    assert confirm(state, BOOT).status == errors.OK
    until(lambda: not guards(), 5)
    time.sleep(4)
    assert machine.text(VALUE) == "1" and machine.read(CONFIG) == "ours\n"
    revert(machine, state)
    assert machine.text(VALUE) == "0"


def test_only_the_unconfirmed_apply_is_put_back(machine: TreeSystem, state: Path) -> None:
    apply(machine, plan(cuts_off=False), state)
    more = Change(FileSetting("/proc/sys/net/v0"), None, "5", "k", "", "", cuts_off=True)
    apply(machine, Plan(REQUEST, plan().allocation, (more,)), state, confirm_within=3)
    assert machine.text(VALUE) == "5"
    until(lambda: machine.text(VALUE) == "1", 15)
    assert machine.read(CONFIG) == "ours\n"
    until(lambda: load(state).pending is None, 5)
    revert(machine, state)
    assert machine.text(VALUE) == "0" and machine.read(CONFIG) == "theirs\n"


def test_what_can_cut_off_runs_under_confirm_by_itself(machine: TreeSystem, state: Path) -> None:
    report = apply(machine, plan(), state)
    assert report.status == errors.UNCONFIRMED and report.confirm_within == 60
    assert "could cut you off" in report.notes[0]
    assert confirm(state, BOOT).status == errors.OK


@pytest.mark.parametrize("within, cuts_off", [(None, False), (0, True)])
def test_otherwise_it_does_not(machine: TreeSystem, state: Path, within: float | None, cuts_off: bool) -> None:
    assert apply(machine, plan(cuts_off=cuts_off), state, confirm_within=within).status == errors.OK
    assert not guards()
    with pytest.raises(UsageError, match="No apply waits"):
        confirm(state, BOOT)


def test_nothing_to_do_starts_no_guard(machine: TreeSystem, state: Path) -> None:
    apply(machine, plan(), state, confirm_within=0)
    assert apply(machine, plan(), state, confirm_within=5).status == errors.OK
    assert not guards()


def test_a_failed_apply_leaves_no_guard(machine: TreeSystem, state: Path) -> None:
    before = machine.contents()
    machine.refuse["/etc/some.conf"] = OSError(5, "Input/output error")
    assert apply(machine, plan(), state, confirm_within=30).status == errors.FAILED
    assert machine.contents() == before
    until(lambda: not guards(), 5)


def test_no_second_apply_before_the_confirm(machine: TreeSystem, state: Path) -> None:
    apply(machine, plan(), state, confirm_within=30)
    with pytest.raises(UsageError, match="still waits for its confirm"):
        apply(machine, plan(), state)
    revert(machine, state)
    assert apply(machine, plan(cuts_off=False), state).status == errors.OK


PACKAGE = Path(confirming.__file__).parents[1]
PROGRAM = """
import sys, os, signal, time
from pathlib import Path
signal.signal(signal.SIGHUP, signal.SIG_DFL)  # ignored where the tests run under nohup
sys.path.insert(0, {path!r})
from rflash_tuning.tune.apply import apply
from rflash_tuning.tune.treesystem import TreeSystem
from rflash_tuning.tune.test_confirm import plan
os.chdir({root!r})
def progress(outcome):
    print(outcome.key, flush=True)
    if {hang}:
        time.sleep(1000)
apply(TreeSystem(Path({root!r})), plan(), {state!r}, confirm_within=3, progress=progress)
print("applied", flush=True)
time.sleep(1000)
"""


def started(machine: TreeSystem, state: Path, hang: bool = False, package: Path = PACKAGE) -> subprocess.Popen[str]:
    """An apply in a process and a session of its own, as of a login, until it says something."""
    text = PROGRAM.format(path=str(package.parent), root=str(machine.root), state=str(state), hang=hang)
    process = subprocess.Popen(
        [sys.executable, "-c", text], stdout=subprocess.PIPE, text=True, start_new_session=True, bufsize=1
    )
    assert process.stdout is not None
    wanted = "file" if hang else "applied"
    while not process.stdout.readline().startswith(wanted):
        assert process.poll() is None
    return process


@pytest.mark.parametrize("number", [signal.SIGHUP, signal.SIGTERM, signal.SIGKILL])
def test_it_survives_its_session(machine: TreeSystem, state: Path, number: int) -> None:
    """As when a connection breaks: every process of the session is signalled, its pipe closed."""
    before = machine.contents()
    process = started(machine, state)
    assert machine.contents() != before
    assert process.stdout is not None
    process.stdout.close()
    os.killpg(process.pid, number)
    process.wait(20)
    until(lambda: machine.contents() == before, 15)
    until(lambda: load(state).pending is None, 5)


def test_it_survives_its_program_and_its_directory(machine: TreeSystem, state: Path, tmp_path: Path) -> None:
    """As when they are on a file system that the change has cut off."""
    package = tmp_path / "copy" / "rflash_tuning"
    shutil.copytree(PACKAGE, package)
    before = machine.contents()
    process = started(machine, state, package=package)
    shutil.rmtree(package.parent)
    os.killpg(process.pid, signal.SIGKILL)
    process.wait(20)
    until(lambda: machine.contents() == before, 15)
    until(lambda: load(state).pending is None, 5)


def test_it_survives_its_journal(machine: TreeSystem, state: Path) -> None:
    """The file system with the state directory is gone: what the guard has read has to do."""
    before = machine.contents()
    apply(machine, plan(), state, confirm_within=3)
    time.sleep(1.2)  # it reads the journal twice a second
    shutil.rmtree(state)
    until(lambda: machine.contents() == before, 20)
    until(lambda: not guards(), 30)


def test_an_apply_killed_half_way_is_put_back(machine: TreeSystem, state: Path) -> None:
    before = machine.contents()
    process = started(machine, state, hang=True)
    assert machine.text(VALUE) == "1" and machine.read(CONFIG) == "theirs\n"
    os.killpg(process.pid, signal.SIGKILL)
    process.wait(20)
    until(lambda: machine.contents() == before, 15)
    until(lambda: load(state).pending is None, 5)


def test_an_apply_that_hangs_is_ended(machine: TreeSystem, state: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Stuck in a write to a terminal that nobody reads: it holds the lock, and the operator is cut off."""
    before = machine.contents()
    monkeypatch.setattr(confirming, "GRACE_SECONDS", 1.0)
    child = os.fork()
    if child == 0:
        try:
            apply(machine, plan(), state, confirm_within=1, progress=lambda _: time.sleep(1000))
        finally:
            os._exit(1)
    _, ended = os.waitpid(child, 0)
    assert os.WIFSIGNALED(ended) and os.WTERMSIG(ended) == signal.SIGKILL
    until(lambda: machine.contents() == before, 15)
    until(lambda: load(state).pending is None, 5)


def test_a_slow_apply_is_not_ended(machine: TreeSystem, state: Path) -> None:
    """Slower than its deadline as a whole, but alive: every change moves the deadline."""
    more = [Change(FileSetting(VALUE), None, str(number), "k", "", "") for number in range(2, 7)]
    report = apply(machine, plan(*more), state, confirm_within=1, progress=lambda _: time.sleep(0.6))
    assert report.status == errors.UNCONFIRMED and machine.text(VALUE) == "6"
    until(lambda: machine.text(VALUE) == "0", 15)


def test_the_guard_does_at_once_what_it_would_do(machine: TreeSystem, state: Path) -> None:
    """A shutdown ends it: files on disk should be right by then."""
    before = machine.contents()
    apply(machine, plan(), state, confirm_within=60)
    (guard,) = guards()
    os.kill(guard, signal.SIGTERM)
    until(lambda: machine.contents() == before, 5)


def test_the_guard_holds_nothing_open(machine: TreeSystem, state: Path) -> None:
    """No terminal, no working directory of the operator's, no lock."""
    apply(machine, plan(), state, confirm_within=20)
    (guard,) = guards()
    opened = {os.readlink(f"/proc/{guard}/fd/{fd}") for fd in os.listdir(f"/proc/{guard}/fd")}
    assert opened == {"/dev/null", str(state / "confirm.log")}
    assert os.readlink(f"/proc/{guard}/cwd") == "/"
    with Lock(state):
        pass
    revert(machine, state)


def test_a_guard_that_cannot_be_started_changes_nothing(
    machine: TreeSystem, state: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = machine.contents()

    def fork() -> int:
        raise OSError(11, "Resource temporarily unavailable")

    monkeypatch.setattr(confirming.os, "fork", fork)
    report = apply(machine, plan(), state, confirm_within=5)
    assert report.status == errors.FAILED and machine.contents() == before
    assert load(state).pending is None


def test_after_a_reboot_the_unit_puts_the_files_back(machine: TreeSystem, state: Path) -> None:
    apply(machine, plan(), state, confirm_within=60)
    (guard,) = guards()
    os.kill(guard, signal.SIGKILL)  # as a power cut does
    machine.write(VALUE, "0")
    machine.reboot()
    found = status(machine, state)
    assert found.status == errors.UNCONFIRMED and "revert --unconfirmed" in found.message
    with pytest.raises(UsageError, match="has been rebooted since"):
        confirm(state, "boot-two")
    with pytest.raises(UsageError, match="still waits"):
        apply(machine, plan(), state)
    report = revert(machine, state, unconfirmed=True)
    assert report.status == errors.OK and machine.read(CONFIG) == "theirs\n"
    assert report.notes == ("1 value of before the reboot went with it.",)
    assert load(state).pending is None and apply(machine, plan(cuts_off=False), state).status == errors.OK


def test_without_anything_unconfirmed_the_unit_does_nothing(machine: TreeSystem, state: Path) -> None:
    assert revert(machine, state, unconfirmed=True).status == errors.OK and not state.exists()
    apply(machine, plan(cuts_off=False), state)
    assert revert(machine, state, unconfirmed=True).message == "No apply waits for a confirm."
    assert machine.text(VALUE) == "1"


def test_the_clock_is_that_of_the_boot(machine: TreeSystem, state: Path) -> None:
    apply(machine, plan(), state, confirm_within=30)
    left = seconds_left(load(state), BOOT)
    assert left is not None and 25 < left <= 30
    assert seconds_left(load(state), "another") == 0
    assert abs(now() - float(Path("/proc/uptime").read_text().split()[0])) < 5
    revert(machine, state)
