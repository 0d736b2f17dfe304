# SPDX-License-Identifier: GPL-2.0
"""kill -9 between any two system calls of an apply or a revert, then revert: byte for byte as before.

The program under test runs in a child over a tree of real files and a real
journal, traced, and is killed at its n-th stop at a system call. A call has two stops,
before and after it; to stop before one is to stop after the one before, so
every second stop is every place there is.
"""

from __future__ import annotations

import ctypes
import os
import shutil
import signal
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from rflash_tuning import errors
from rflash_tuning.system import Completed
from rflash_tuning.tune import report as reports
from rflash_tuning.tune.apply import apply
from rflash_tuning.tune.change import Allocation, Change, Plan, Request
from rflash_tuning.tune.journal import load
from rflash_tuning.tune.revert import revert
from rflash_tuning.tune.settings import ConfigSetting, FileSetting
from rflash_tuning.tune.treesystem import TreeSystem

_TRACEME, _SYSCALL, _SETOPTIONS, _EXITKILL = 0, 24, 0x4200, 0x100000
_LIBC = ctypes.CDLL(None, use_errno=True)
_LIBC.ptrace.argtypes = [ctypes.c_long, ctypes.c_long, ctypes.c_void_p, ctypes.c_void_p]
_LIBC.ptrace.restype = ctypes.c_long

PLACE = 2

REQUEST = Request(role="server", target="iscsi", nics=("eth0",), tenants=3)
CONFIG = "/etc/default/irqbalance"
FILES = {
    "/proc/irq/40/smp_affinity_list": "0-3\n",
    "/proc/sys/net/core/rmem_max": "212992\n",
    "/sys/class/net/eth0/mtu": "1500\n",
    CONFIG: "# nothing\n",
    "/run/systemd/system/here": "",
}


def ptrace(request: int, pid: int = 0, data: int = 0) -> None:
    if _LIBC.ptrace(request, pid, None, data) != 0:
        raise OSError(ctypes.get_errno(), "ptrace")


def killed_at(stop: int, program: Callable[[], object]) -> bool:
    """Run a program in a child and SIGKILL it at its stop-th system call stop; False when it had ended before."""
    child = os.fork()
    if child == 0:
        try:
            ptrace(_TRACEME)
            os.kill(os.getpid(), signal.SIGSTOP)
            program()
            os._exit(0)
        except BaseException:  # noqa: BLE001  a child of the test's must not run on as a second test run
            os._exit(1)
    _, status = os.waitpid(child, 0)
    if not os.WIFSTOPPED(status):
        pytest.skip("a process cannot be traced here (ptrace)")
    ptrace(_SETOPTIONS, child, _EXITKILL)
    passed = 0
    while passed < stop:
        ptrace(_SYSCALL, child, passed_on(status))
        _, status = os.waitpid(child, 0)
        if os.WIFEXITED(status):
            assert os.WEXITSTATUS(status) == 0, "the program failed by itself"
            return False
        passed += 1
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
    return True


def passed_on(status: int) -> int:
    """A signal that is not ours to keep."""
    number = os.WSTOPSIG(status)
    return 0 if number in (signal.SIGTRAP, signal.SIGSTOP) else number


def plan(*values: str) -> Plan:
    affinity, buffers, mtu, config = values
    changes = (
        Change(ConfigSetting(CONFIG, "irqbalance"), None, config, "tuners", "", ""),
        Change(FileSetting("/sys/class/net/eth0/mtu", "number", "eth0"), None, int(mtu), "mtu", "", ""),
        Change(FileSetting("/proc/irq/40/smp_affinity_list", "cpulist"), None, affinity, "irqs", "", ""),
        Change(FileSetting("/proc/sys/net/core/rmem_max", "number"), None, int(buffers), "sysctls", "", ""),
        Change(ConfigSetting("/etc/new.conf"), None, config, "new", "", ""),
    )
    return Plan(REQUEST, Allocation("one-core", "", "", (), (0,)), changes)


ONE = plan("2", "4194304", "9000", "one\n")
TWO = plan("3", "8388608", "4000", "two\n")


class Served(TreeSystem):
    """With an irqbalance, which reads its configuration when it is restarted."""

    def run(self, argv: list[str], timeout: float = 60) -> Completed:
        assert argv == ["systemctl", "try-restart", "irqbalance.service"]
        self.root.with_name("loaded").write_text(self.read(CONFIG))
        return Completed(0, "")


class Ground:
    """A machine and a journal, made anew for every kill."""

    def __init__(self, base: Path) -> None:
        self.base = base
        self.round = 0

    def fresh(self) -> tuple[TreeSystem, Path]:
        shutil.rmtree(self.base / str(self.round), ignore_errors=True)
        self.round += 1
        place = self.base / str(self.round)
        return Served.make(place / "root", FILES), place / "state"


@pytest.fixture
def base() -> Iterator[Path]:
    """In memory where there is such a place: thousands of syncs of a disk are not what is tested here."""
    shared = "/dev/shm" if os.access("/dev/shm", os.W_OK) else None
    with tempfile.TemporaryDirectory(prefix="rflash-", dir=shared) as directory:
        yield Path(directory)


def relative(system: TreeSystem) -> dict[str, bytes]:
    return {path.removeprefix(str(system.root)): data for path, data in system.contents().items()}


def settled(system: TreeSystem, state: Path, stop: int) -> None:
    """After a revert everything is as in FILES, and a second revert has nothing to do."""
    report = revert(system, state)
    assert report.status == errors.OK, (stop, report)
    wanted = {path: text.encode() for path, text in FILES.items()}
    found = {path: data for path, data in relative(system).items() if path not in ("/etc/machine-id", BOOT)}
    assert found == wanted, stop
    assert not load(state).active("boot-one"), stop
    loaded = system.root.with_name("loaded")
    assert not loaded.exists() or loaded.read_text() == FILES[CONFIG], f"{stop}: irqbalance runs with ours"
    again = revert(system, state)
    assert not [outcome for outcome in again.outcomes if outcome.outcome == reports.RESTORED], stop


BOOT = "/proc/sys/kernel/random/boot_id"


def test_an_apply_killed_anywhere(base: Path) -> None:
    ground = Ground(base)
    stop = 1
    while True:
        system, state = ground.fresh()
        went_on = killed_at(stop, lambda s=system, d=state: apply(s, ONE, d, confirm_within=0))
        settled(system, state, stop)
        if not went_on:
            break
        stop += PLACE
    assert stop > 100, "it was hardly traced at all"
    print(f"killed in {stop // PLACE} places")


def test_a_revert_killed_anywhere(base: Path) -> None:
    ground = Ground(base)
    stop = 1
    while True:
        system, state = ground.fresh()
        assert apply(system, ONE, state, confirm_within=0).status == errors.OK
        went_on = killed_at(stop, lambda s=system, d=state: revert(s, d))
        settled(system, state, stop)
        if not went_on:
            break
        stop += PLACE
    assert stop > 100


def test_a_second_apply_killed_anywhere(base: Path) -> None:
    """Over a first one: a revert goes back to before the first."""
    ground = Ground(base)
    stop = 1
    while True:
        system, state = ground.fresh()
        apply(system, ONE, state, confirm_within=0)
        went_on = killed_at(stop, lambda s=system, d=state: apply(s, TWO, d, confirm_within=0))
        settled(system, state, stop)
        if not went_on:
            break
        stop += 3 * PLACE  # the steps are those of the first test
    assert stop > 100


def test_an_apply_over_one_that_was_killed(base: Path) -> None:
    ground = Ground(base)
    stop = 1
    while True:
        system, state = ground.fresh()
        went_on = killed_at(stop, lambda s=system, d=state: apply(s, ONE, d, confirm_within=0))
        cut_short = went_on and load(state).unfinished("boot-one")
        report = apply(system, TWO, state, confirm_within=0)
        assert report.status == errors.OK, (stop, report)
        assert ("cut short" in " ".join(report.notes)) == cut_short, stop
        settled(system, state, stop)
        if not went_on:
            break
        stop += 3 * PLACE


def test_an_apply_killed_anywhere_that_compacts_its_journal(base: Path) -> None:
    ground = Ground(base)
    stop = 1
    while True:
        system, state = ground.fresh()
        wanted = [TWO, ONE]
        while load(state).lines <= 64:
            wanted.reverse()
            apply(system, wanted[0], state, confirm_within=0)
        lines = load(state).lines
        went_on = killed_at(stop, lambda s=system, d=state, w=wanted[1]: apply(s, w, d, confirm_within=0))
        if not went_on:
            assert load(state).lines < lines
        settled(system, state, stop)
        if not went_on:
            break
        stop += 4 * PLACE
