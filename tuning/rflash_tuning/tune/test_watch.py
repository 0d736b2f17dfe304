# SPDX-License-Identifier: GPL-2.0
"""verify, status and watch: what drifted, who may have done it, and what is not done about it."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import threading
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from rflash_tuning import errors, samples
from rflash_tuning.errors import Unchangeable, UsageError
from rflash_tuning.host.model import Host, Tenant, Tuner
from rflash_tuning.tune import watch as watching
from rflash_tuning.tune.apply import apply
from rflash_tuning.tune.change import Allocation, Change, Plan, Request
from rflash_tuning.tune.journal import load
from rflash_tuning.tune.report import Report
from rflash_tuning.tune.revert import revert
from rflash_tuning.tune.settings import FileSetting
from rflash_tuning.tune.treesystem import TreeSystem
from rflash_tuning.tune.verify import status, suspects, verify
from rflash_tuning.tune.watch import Watcher, concerns_us, watch

REQUEST = Request(role="server", target="iscsi", nics=("eth0",), tenants=3)
IRQ, SYSCTL = "/proc/irq/40/smp_affinity_list", "/proc/sys/net/core/rmem_max"
WANTED = {IRQ: "2", SYSCTL: "4096"}
IRQBALANCE = (Tuner("irqbalance", True), Tuner("tuned", False))


def change(path: str, **more: Any) -> Change:
    return Change(FileSetting(path), None, WANTED[path], "k", "a reason", "", **more)


def whole(**more: Any) -> Plan:
    return Plan(REQUEST, Allocation("one-core", "", "", (), (0,)), tuple(change(path, **more) for path in WANTED))


class Ground:
    """A machine, and a planner that asks for what is not right on it."""

    def __init__(self, root: Path, **more: Any) -> None:
        self.system = TreeSystem.make(root / "root", {IRQ: "0-3\n", SYSCTL: "1024\n"})
        self.state = root / "state"
        self.more = more
        self.tuners: tuple[Tuner, ...] = IRQBALANCE
        self.tenants: tuple[Tenant, ...] = ()
        self.probes = 0

    def probe(self, _: Any) -> Host:
        self.probes += 1
        return replace(samples.host(), tuners=self.tuners, tenants=self.tenants)

    def planner(self, _: Host) -> Plan:
        plan = whole(**self.more)
        return replace(plan, changes=tuple(c for c in plan.changes if self.system.text(c.setting.path) != c.new))

    def watcher(self, limit: str = "packets") -> Watcher:
        return Watcher(self.system, self.planner, self.state, limit, self.probe)


@pytest.fixture
def ground(tmp_path: Path) -> Ground:
    return Ground(tmp_path)


def names(report: Report | None) -> list[str]:
    assert report is not None
    return [outcome.outcome for outcome in report.outcomes]


# verify and status


def test_verify_says_what_differs_and_who_may_have_done_it(ground: Ground) -> None:
    apply(ground.system, whole(), ground.state)
    assert verify(ground.system, ground.state, IRQBALANCE).status == errors.OK
    ground.system.write(IRQ, "1")
    written = len(ground.system.mutations)
    report = verify(ground.system, ground.state, IRQBALANCE)
    assert report.status == errors.FAILED and names(report) == ["differs", "ok"]
    assert (report.outcomes[0].new, report.outcomes[0].now) == ("2", "1")
    assert report.outcomes[0].message == "irqbalance is active here and may have set it."
    assert report.message == "1 value as applied and 1 not."
    assert len(ground.system.mutations) == written


def test_verify_never_writes(ground: Ground) -> None:
    """Not even a state directory."""
    before = ground.system.contents()
    assert verify(ground.system, ground.state, ()).message == "Nothing is applied."
    assert status(ground.system, ground.state).status == errors.OK
    verify(ground.system, whole(), ())
    assert ground.system.contents() == before and not ground.state.exists()


def test_verify_against_a_plan(ground: Ground) -> None:
    plan = whole()
    foreseen = replace(plan.changes[0], foreseen="unchangeable")
    assert names(verify(ground.system, replace(plan, changes=(foreseen,), right=4), ())) == ["unchangeable"]
    report = verify(ground.system, plan, IRQBALANCE)
    assert report.status == errors.FAILED and names(report) == ["differs", "differs"]
    apply(ground.system, plan, ground.state)
    assert verify(ground.system, plan, IRQBALANCE).status == errors.OK


def test_what_is_gone_is_excused(ground: Ground) -> None:
    apply(ground.system, whole(), ground.state)
    ground.system.at(IRQ).unlink()
    report = verify(ground.system, ground.state, ())
    assert report.status == errors.OK and names(report) == ["unsupported", "ok"]


def test_suspects_fit_the_kind() -> None:
    tuners = (Tuner("irqbalance", True), Tuner("NetworkManager", True), Tuner("tuned", True), Tuner("bpftune", False))
    assert suspects(FileSetting(IRQ), tuners) == ["irqbalance", "tuned"]
    assert suspects(FileSetting("/sys/class/net/eth0/mtu"), tuners) == ["NetworkManager", "tuned"]
    assert suspects(FileSetting("/proc/sys/net/core/rmem_max"), tuners) == ["tuned"]
    assert suspects(FileSetting("/sys/kernel/config/x"), tuners) == []


def test_status_tells_what_is_applied(ground: Ground) -> None:
    apply(ground.system, whole(), ground.state)
    report = status(ground.system, ground.state)
    assert report.status == errors.OK and report.applied["values"] == 2 and report.applied["this_boot"]
    assert report.applied["request"]["tenants"] == 3 and report.message.startswith("2 values applied.")
    assert report.to_json()["applied"]["values"] == 2
    revert(ground.system, ground.state)
    assert status(ground.system, ground.state).applied == {}


def test_status_of_an_apply_that_was_cut_short(ground: Ground) -> None:
    apply(ground.system, whole(), ground.state)
    path = ground.state / "journal"
    path.write_bytes(path.read_bytes().replace(b'{"op":"end"}\n', b""))
    report = status(ground.system, ground.state)
    assert report.status == errors.FAILED and "cut short" in report.message


# watch


def test_a_round_puts_right_and_the_next_one_writes_nothing(ground: Ground) -> None:
    watcher = ground.watcher()
    assert names(watcher.round().report) == ["changed", "changed"]
    journal = (ground.state / "journal").read_bytes()
    written = len(ground.system.mutations)
    assert watcher.round().report is None
    assert len(ground.system.mutations) == written and (ground.state / "journal").read_bytes() == journal
    revert(ground.system, ground.state)
    assert ground.system.text(IRQ) == "0-3"


def test_drift_is_told_with_the_suspect(ground: Ground) -> None:
    watcher = ground.watcher()
    watcher.round()
    ground.system.write(IRQ, "1")
    report = watcher.round().report
    assert names(report) == ["changed"] and report is not None
    assert report.notes[0].startswith("Drifted: ")
    assert report.notes[0].endswith("irqbalance is active here and may have set it.")
    assert ground.system.text(IRQ) == "2"
    revert(ground.system, ground.state)
    assert ground.system.text(IRQ) == "0-3"


def test_a_login_is_told(ground: Ground) -> None:
    watcher = ground.watcher()
    ground.tenants = (Tenant("t1", "iscsi", "iqn", "10.0.0.1", 3260),)
    watcher.round()
    ground.tenants = (replace(ground.tenants[0], sessions=1),)
    report = watcher.round().report
    assert report is not None and report.message == "Tenant t1 has logged in (1 session)."
    assert watcher.round().report is None


def test_it_does_not_fight_for_ever(ground: Ground) -> None:
    watcher = ground.watcher()
    watcher.round()
    said = []
    for _ in range(10):
        ground.system.write(IRQ, "1")
        report = watcher.round().report
        said += [note for note in (report.notes if report else ()) + ((report.message,) if report else ())]
    fights = [note for note in said if "left alone for as long" in note]
    assert len(fights) == 1 and "irqbalance is active here" in fights[0]
    assert ground.system.text(IRQ) == "1"
    assert watcher.round().report is None


def test_what_could_cut_off_is_left_to_the_operator(tmp_path: Path) -> None:
    ground = Ground(tmp_path, cuts_off=True)
    watcher = ground.watcher()
    report = watcher.round().report
    assert report is not None and "could cut the operator off" in report.message
    assert not ground.system.mutations and watcher.round().report is None
    # What was applied and kept before is put right again.
    apply(ground.system, whole(cuts_off=True), ground.state, confirm_within=0)
    ground.system.write(IRQ, "1")
    assert names(watcher.round().report) == ["changed"] and ground.system.text(IRQ) == "2"


def test_what_is_too_disruptive_is_told_once(tmp_path: Path) -> None:
    ground = Ground(tmp_path, disruption="link")
    watcher = ground.watcher("packets")
    report = watcher.round().report
    assert report is not None and "it would disrupt: link" in report.message
    assert watcher.round().report is None and not ground.system.mutations


def test_what_the_host_refuses_is_not_tried_every_round(ground: Ground) -> None:
    ground.system.refuse[IRQ] = Unchangeable("the kernel manages it")
    watcher = ground.watcher()
    assert sorted(names(watcher.round().report)) == ["changed", "unchangeable"]
    lines = load(ground.state).lines
    assert watcher.round().report is None and watcher.round().report is None
    assert load(ground.state).lines == lines


def test_after_a_failure_it_waits(ground: Ground) -> None:
    ground.system.refuse[SYSCTL] = OSError(22, "Invalid argument")
    watcher = ground.watcher()
    report = watcher.round().report
    assert report is not None and report.status == errors.FAILED and "The next attempt is in" in report.notes[-1]
    assert ground.system.text(IRQ) == "0-3"
    probes = ground.probes
    assert watcher.round().report is None and ground.probes == probes


def test_an_apply_that_waits_for_its_confirm_is_not_disturbed(tmp_path: Path) -> None:
    ground = Ground(tmp_path)
    apply(ground.system, whole(), ground.state, confirm_within=30)
    ground.system.write(IRQ, "1")
    watcher = ground.watcher()
    report = watcher.round().report
    assert report is not None and "still waits for its confirm" in report.message
    assert watcher.round().report is None and ground.system.text(IRQ) == "1"
    revert(ground.system, ground.state)


def test_once(ground: Ground) -> None:
    told: list[Report] = []

    def go() -> int:
        return watch(ground.system, ground.planner, ground.state, once=True, tell=told.append, probe=ground.probe)

    assert go() == errors.OK and names(told[0]) == ["changed", "changed"]
    assert go() == errors.OK and len(told) == 1


def in_child(ground: Ground, tell: Callable[[Report], None], interval: float = 60) -> int:
    child = os.fork()
    if child == 0:
        status = 99
        try:
            status = watch(
                ground.system,
                ground.planner,
                ground.state,
                tell=tell,
                interval=interval,
                probe=ground.probe,
            )
        finally:
            os._exit(status)
    return child


def test_it_tells_systemd_and_ends_on_sigterm(ground: Ground, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    path = str(tmp_path / "n")
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
    listener.bind(path)
    listener.settimeout(10)
    monkeypatch.setenv("NOTIFY_SOCKET", path)
    monkeypatch.setenv("WATCHDOG_USEC", "1000000")
    child = in_child(ground, lambda _: None)
    assert [listener.recv(64), listener.recv(64)] == [b"READY=1", b"WATCHDOG=1"]
    assert ground.system.text(IRQ) == "2"
    os.kill(child, signal.SIGTERM)
    start = time.monotonic()
    _, ended = os.waitpid(child, 0)
    assert os.waitstatus_to_exitcode(ended) == errors.OK and time.monotonic() - start < 2
    assert listener.recv(64) == b"STOPPING=1"
    listener.close()


def test_a_first_round_that_makes_no_sense_ends_it(ground: Ground) -> None:
    def planner(_: Host) -> Plan:
        raise UsageError("There is no NIC eth0.")

    with pytest.raises(UsageError):
        watch(ground.system, planner, ground.state, probe=ground.probe)


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root to make a device")
def test_a_new_device_wakes_it(ground: Ground) -> None:
    """A real uevent: a veth pair is made. The interval alone would take a minute."""
    reader, writer = os.pipe()
    child = in_child(ground, lambda report: os.write(writer, f"{len(report.outcomes)}\n".encode()) and None)
    name = f"rfw{os.getpid()}"[:15]
    try:
        assert os.read(reader, 16) == b"2\n"
        ground.system.write(IRQ, "1")
        time.sleep(0.3)  # it sleeps by now
        try:
            subprocess.run(["ip", "link", "add", name, "type", "veth"], check=True, capture_output=True)
        except (OSError, subprocess.CalledProcessError):
            pytest.skip("no device can be made here")
        timer = threading.Timer(20, os.kill, (child, signal.SIGKILL))
        timer.start()
        assert os.read(reader, 16) == b"1\n"
        timer.cancel()
        assert ground.system.text(IRQ) == "2"
    finally:
        subprocess.run(["ip", "link", "del", name], check=False, capture_output=True)
        os.kill(child, signal.SIGTERM)
        os.waitpid(child, 0)
        os.close(reader)
        os.close(writer)


def test_a_costly_round_makes_the_next_one_later(ground: Ground, monkeypatch: pytest.MonkeyPatch) -> None:
    waits = []

    def wait(waker: Any, seconds: float) -> None:
        waits.append(seconds)
        waker.stopped = len(waits) == 2

    costs = iter([0.01, 0.5])
    monkeypatch.setattr(watching._Waker, "wait", wait)
    monkeypatch.setattr(Watcher, "round", lambda _: watching.Round(None, next(costs)))
    watch(ground.system, ground.planner, ground.state, probe=ground.probe)
    assert waits == [5.0, 25.0]


def test_which_uevents_concern_us() -> None:
    assert concerns_us(b"add@/devices/virtual/net/eth9\0ACTION=add\0SUBSYSTEM=net\0SEQNUM=1\0")
    assert not concerns_us(b"change@/devices/x\0ACTION=change\0SUBSYSTEM=power_supply\0")
    assert not concerns_us(b"")


def test_without_uevents_the_time_has_to_do(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: Any) -> Any:
        raise PermissionError(1, "Operation not permitted")

    monkeypatch.setattr(watching.socket, "socket", refuse)
    assert watching._uevent_socket() is None
