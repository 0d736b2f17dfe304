# SPDX-License-Identifier: GPL-2.0
"""apply: outcomes, order, stages, failure, and what stands in its way."""

from __future__ import annotations

import errno
import os
import signal
import subprocess
import threading
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import pytest

from rflash_tuning import errors
from rflash_tuning.errors import Unchangeable, Unsupported, UsageError
from rflash_tuning.tune import apply as applying
from rflash_tuning.tune import journal as journals
from rflash_tuning.tune.apply import apply, order_mtus
from rflash_tuning.tune.change import Allocation, Change, Plan, Request, Setting
from rflash_tuning.tune.journal import Lock, load
from rflash_tuning.tune.pathprobe import Path as NetworkPath
from rflash_tuning.tune.report import Outcome
from rflash_tuning.tune.revert import revert
from rflash_tuning.tune.settings import ConfigSetting, FileSetting
from rflash_tuning.tune.treesystem import TreeSystem

REQUEST = Request(role="server", target="iscsi", nics=("eth0",), tenants=3)
ALLOCATION = Allocation("one-core", "", "", (), (0,))


def plan(*changes: Change, request: Request = REQUEST) -> Plan:
    return Plan(request, ALLOCATION, changes)


def change(path: str, new: Any, old: Any = None, **more: Any) -> Change:
    return Change(FileSetting(path, "text"), old, new, "knob", "a reason", "a source", **more)


@pytest.fixture
def machine(tmp_path: Path) -> TreeSystem:
    return TreeSystem.make(tmp_path / "root", {f"/proc/sys/net/v{n}": "0\n" for n in range(5)})


@pytest.fixture
def state(tmp_path: Path) -> Path:
    return tmp_path / "state"


def outcomes(report: Any) -> list[str]:
    return [outcome.outcome for outcome in report.outcomes]


def test_a_plan_is_applied_and_reverted_byte_for_byte(machine: TreeSystem, state: Path) -> None:
    before = machine.contents()
    report = apply(machine, plan(change("/proc/sys/net/v0", "1"), change("/proc/sys/net/v1", "2")), state)
    assert (report.status, outcomes(report)) == (errors.OK, ["changed", "changed"])
    assert machine.text("/proc/sys/net/v1") == "2"
    report = revert(machine, state)
    assert (report.status, outcomes(report)) == (errors.OK, ["restored", "restored"])
    assert machine.contents() == before
    assert "the host is as it was" in report.message


def test_applying_again_writes_nothing_at_all(machine: TreeSystem, state: Path) -> None:
    wanted = plan(change("/proc/sys/net/v0", "1"))
    apply(machine, wanted, state)
    written = len(machine.mutations)
    journal = (state / "journal").read_bytes()
    report = apply(machine, wanted, state)
    assert (report.status, outcomes(report)) == (errors.OK, ["right"])
    assert len(machine.mutations) == written and (state / "journal").read_bytes() == journal
    assert not report.changed and report.message == "Everything is right already; nothing was changed."


def test_the_journal_takes_the_value_of_the_moment_not_the_plans(machine: TreeSystem, state: Path) -> None:
    wanted = plan(change("/proc/sys/net/v0", "1", old="0"))
    machine.write("/proc/sys/net/v0", "7\n")
    apply(machine, wanted, state)
    revert(machine, state)
    assert machine.text("/proc/sys/net/v0") == "7"


def test_the_former_state_is_that_before_the_first_apply(machine: TreeSystem, state: Path) -> None:
    before = machine.contents()
    for value in ("1", "2", "3"):
        apply(machine, plan(change("/proc/sys/net/v0", value)), state)
    revert(machine, state)
    assert machine.contents() == before


def test_what_is_too_disruptive_is_listed_and_left_alone(machine: TreeSystem, state: Path) -> None:
    wanted = plan(
        change("/proc/sys/net/v0", "1", disruption="none"),
        change("/proc/sys/net/v1", "1", disruption="packets"),
        change("/proc/sys/net/v2", "1", disruption="link"),
        change("/proc/sys/net/v3", "0", disruption="target"),
    )
    report = apply(machine, wanted, state, max_disruption="packets")
    assert report.status == errors.PARTIAL
    assert outcomes(report) == ["changed", "changed", "refused", "right"]
    assert machine.text("/proc/sys/net/v2") == "0"
    assert "at most 'packets' is allowed" in report.outcomes[2].message


def test_what_is_foreseen_is_never_tried(machine: TreeSystem, state: Path) -> None:
    report = apply(machine, plan(change("/proc/sys/net/v0", "1", foreseen="unchangeable")), state)
    assert (report.status, outcomes(report)) == (errors.PARTIAL, ["unchangeable"])
    assert report.outcomes[0].message == "a reason" and not machine.mutations


def test_a_missing_file_is_unsupported(machine: TreeSystem, state: Path) -> None:
    report = apply(machine, plan(change("/proc/sys/net/none", "1")), state)
    assert (report.status, outcomes(report)) == (errors.PARTIAL, ["unsupported"])


@pytest.mark.parametrize("number", [errno.EINVAL, errno.EBUSY, errno.ENOSPC, errno.EIO])
def test_a_failed_change_puts_everything_back_in_reverse(machine: TreeSystem, state: Path, number: int) -> None:
    before = machine.contents()
    machine.refuse["/proc/sys/net/v2"] = OSError(number, os.strerror(number))
    wanted = plan(*(change(f"/proc/sys/net/v{n}", "1") for n in range(4)))
    report = apply(machine, wanted, state)
    assert report.status == errors.FAILED
    assert outcomes(report) == ["undone", "undone", "failed"]
    assert machine.contents() == before
    assert [path for path, _ in machine.mutations] == [f"/proc/sys/net/v{n}" for n in (0, 1, 1, 0)]
    assert report.message == f"net.v2: {os.strerror(number)}. The host is as it was."
    assert not report.changed and not load(state).active("boot-one")


def test_only_this_apply_is_put_back(machine: TreeSystem, state: Path) -> None:
    apply(machine, plan(change("/proc/sys/net/v0", "1")), state)
    machine.refuse["/proc/sys/net/v1"] = OSError(errno.EINVAL, "Invalid argument")
    report = apply(machine, plan(change("/proc/sys/net/v0", "2"), change("/proc/sys/net/v1", "1")), state)
    assert report.status == errors.FAILED
    assert machine.text("/proc/sys/net/v0") == "1"
    revert(machine, state)
    assert machine.text("/proc/sys/net/v0") == "0"


def test_refused_for_good_is_an_outcome(machine: TreeSystem, state: Path) -> None:
    machine.refuse["/proc/sys/net/v0"] = Unchangeable("the kernel manages it")
    machine.refuse["/proc/sys/net/v1"] = Unsupported("there is none")
    machine.ignore.add("/proc/sys/net/v2")
    report = apply(machine, plan(*(change(f"/proc/sys/net/v{n}", "1") for n in range(4))), state)
    assert report.status == errors.PARTIAL
    assert outcomes(report) == ["unchangeable", "unsupported", "unchangeable", "changed"]
    assert report.outcomes[2].message == "It takes the new value and keeps the old one."
    assert [target.first.key for target in load(state).targets("boot-one")] == ["file /proc/sys/net/v3"]


def test_a_device_that_rounds_is_not_asked_again(machine: TreeSystem, state: Path) -> None:
    machine.round["/proc/sys/net/v0"] = "1024"
    wanted = plan(change("/proc/sys/net/v0", "1000"))
    report = apply(machine, wanted, state)
    assert outcomes(report) == ["changed"] and report.outcomes[0].now == "1024"
    assert report.outcomes[0].message == "The device made 1024 of it."
    written = len(machine.mutations)
    assert outcomes(apply(machine, wanted, state)) == ["right"] and len(machine.mutations) == written
    revert(machine, state)
    assert machine.text("/proc/sys/net/v0") == "1024"  # this device answers 1024 to everything


def test_a_planners_refusal_after_a_stage_puts_the_stage_back(machine: TreeSystem, state: Path) -> None:
    before = machine.contents()
    rounds = {"n": 0}

    def planner(_: Any) -> Plan:
        rounds["n"] += 1
        if rounds["n"] > 1:
            raise UsageError("no.")
        return plan(Change(Channels("/proc/sys/net/v0"), None, "4", "channels", "", ""))

    with pytest.raises(UsageError):
        apply(machine, planner, state, probe=lambda _: None, decode=decode)
    assert machine.contents() == before


@dataclass(frozen=True)
class Channels(FileSetting):
    kind: ClassVar[str] = "channels"


@dataclass(frozen=True)
class Tuner(FileSetting):
    kind: ClassVar[str] = "config"


def decode(data: dict[str, Any]) -> Setting:
    values = {key: value for key, value in data.items() if key != "kind"}
    return (Channels if data["kind"] == "channels" else FileSetting)(**values)


def test_stages_plan_again_after_channels(machine: TreeSystem, state: Path) -> None:
    """What depends on the number of queues is planned when the queues are there."""
    before = machine.contents()
    seen = []

    def planner(host: Any) -> Plan:
        seen.append(host)
        changes = [change("/proc/sys/net/v1", "1")]
        if machine.text("/proc/sys/net/v0") != "4":
            changes.append(Change(Channels("/proc/sys/net/v0"), "0", "4", "channels", "", ""))
            changes.append(change("/proc/sys/net/v2", "of two queues"))
        else:
            changes.append(change("/proc/sys/net/v2", "of four queues"))
        return plan(*changes)

    report = apply(machine, planner, state, probe=lambda _: len(seen), decode=decode)
    assert seen == [0, 1]
    assert outcomes(report) == ["changed", "changed", "changed"]
    assert machine.text("/proc/sys/net/v2") == "of four queues"
    revert(machine, state, decode=decode)
    assert machine.contents() == before


def test_what_a_tuner_moves_before_it_lets_go_is_planned_again(machine: TreeSystem, state: Path) -> None:
    """Right when the plan was made, and wrong when the tuner was told to leave it alone."""
    interrupt = "/proc/sys/net/v1"
    config = Change(Tuner("/proc/sys/net/v0"), "0", "ban", "irqbalance", "", "")

    def planner(round_number: int) -> Plan:
        if round_number == 0:
            machine.write(interrupt, "moved")
            return plan(config)
        return plan() if machine.text(interrupt) == "placed" else plan(change(interrupt, "placed"))

    machine.write(interrupt, "placed")
    rounds = iter(range(9))
    apply(machine, planner, state, probe=lambda _: next(rounds), decode=decode)
    assert machine.text(interrupt) == "placed"


def test_stages_end(machine: TreeSystem, state: Path) -> None:
    """Channels that never become right must not make it go on for ever."""
    rounds = {"n": 0}

    def planner(_: Any) -> Plan:
        rounds["n"] += 1
        return plan(
            Change(Channels("/proc/sys/net/v0"), None, str(rounds["n"] + 7), "c", "", ""),
            change("/proc/sys/net/v1", "1"),
        )

    report = apply(machine, planner, state, probe=lambda _: None, decode=decode)
    assert rounds["n"] == 3 and report.status == errors.OK and machine.text("/proc/sys/net/v1") == "1"


def test_refused_channels_make_no_stage(machine: TreeSystem, state: Path) -> None:
    rounds = {"n": 0}

    def planner(_: Any) -> Plan:
        rounds["n"] += 1
        return plan(Change(Channels("/proc/sys/net/v0"), None, "4", "c", "", "", disruption="link"))

    report = apply(machine, planner, state, "packets", probe=lambda _: None, decode=decode)
    assert rounds["n"] == 1 and outcomes(report) == ["refused"]


# What stands in its way


def test_two_at_once(machine: TreeSystem, state: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(journals, "PATIENCE", 0.2)
    with Lock(state), pytest.raises(UsageError, match=rf"Another rflash-tune \(process {os.getpid()}\) is at work"):
        apply(machine, plan(change("/proc/sys/net/v0", "1")), state)
    assert not machine.mutations


def test_another_one_for_a_moment_is_waited_for(machine: TreeSystem, state: Path) -> None:
    lock = Lock(state)
    assert lock.take()
    threading.Timer(0.3, lock.free).start()
    assert apply(machine, plan(change("/proc/sys/net/v0", "1")), state).status == errors.OK


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root to mount a file system")
def test_a_read_only_state_directory_is_one_sentence_before_anything(machine: TreeSystem, tmp_path: Path) -> None:
    mount = tmp_path / "mount"
    mount.mkdir()
    try:
        subprocess.run(["mount", "-t", "tmpfs", "-o", "ro", "none", str(mount)], check=True, capture_output=True)
    except (OSError, subprocess.CalledProcessError):
        pytest.skip("tmpfs cannot be mounted here")
    try:
        for directory in (mount, mount / "below" / "it"):
            with pytest.raises(UsageError) as caught:
                apply(machine, plan(change("/proc/sys/net/v0", "1")), directory)
            assert "cannot be written (Read-only file system); nothing was changed." in str(caught.value)
    finally:
        subprocess.run(["umount", str(mount)], check=True)
    assert not machine.mutations


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root to mount a file system")
def test_a_disk_that_becomes_full(machine: TreeSystem, tmp_path: Path) -> None:
    """The change whose intent does not fit is not made, and the ones before it are put back."""
    mount = tmp_path / "mount"
    mount.mkdir()
    try:
        subprocess.run(["mount", "-t", "tmpfs", "-o", "size=16k", "none", str(mount)], check=True, capture_output=True)
    except (OSError, subprocess.CalledProcessError):
        pytest.skip("tmpfs cannot be mounted here")
    before = machine.contents()
    try:
        big = [change(f"/proc/sys/net/v{n}", f"{n}" * 3000) for n in range(1, 5)]
        report = apply(machine, plan(*big), mount)
        assert report.status == errors.FAILED
        assert "No space left on device" in report.message and "the change was not made" in report.message
        assert "undone" in outcomes(report) and machine.contents() == before
        assert revert(machine, mount).status == errors.OK and machine.contents() == before
        # What has failed is whole again once there is room.
        subprocess.run(["mount", "-o", "remount,size=1m", str(mount)], check=True)
        assert apply(machine, plan(*big), mount).status == errors.OK
        assert revert(machine, mount).status == errors.OK and machine.contents() == before
    finally:
        subprocess.run(["umount", str(mount)], check=True)


def test_a_journal_that_cannot_be_synced(machine: TreeSystem, state: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    calls = {"n": 0}

    def fsync(_: int) -> None:
        calls["n"] += 1
        if calls["n"] > 5:
            raise OSError(errno.EIO, "Input/output error")

    monkeypatch.setattr(journals.os, "fsync", fsync)
    before = machine.contents()
    report = apply(machine, plan(*(change(f"/proc/sys/net/v{n}", "1") for n in range(5))), state)
    assert report.status == errors.FAILED and "Input/output error" in report.message
    assert machine.contents() == before


def test_another_hosts_journal(machine: TreeSystem, state: Path, tmp_path: Path) -> None:
    apply(machine, plan(change("/proc/sys/net/v0", "1")), state)
    other = TreeSystem.make(tmp_path / "other", {"/etc/machine-id": "1234\n", "/proc/sys/net/v0": "0\n"})
    for command in (lambda: apply(other, plan(change("/proc/sys/net/v0", "1")), state), lambda: revert(other, state)):
        with pytest.raises(UsageError, match="is of another host"):
            command()
    assert not other.mutations


@pytest.mark.parametrize("made_on", [{"host_id": "another"}, {"boot_id": "earlier"}])
def test_a_plan_of_another_host_or_boot(machine: TreeSystem, state: Path, made_on: dict[str, str]) -> None:
    stale = Plan(REQUEST, ALLOCATION, (change("/proc/sys/net/v0", "1"),), host=made_on)
    with pytest.raises(UsageError, match="plan again"):
        apply(machine, stale, state)
    assert not machine.mutations


def test_bad_words(machine: TreeSystem, state: Path) -> None:
    with pytest.raises(UsageError, match="is no disruption"):
        apply(machine, plan(), state, max_disruption="little")
    with pytest.raises(UsageError, match="is not possible"):
        apply(machine, plan(), state, confirm_within=-1)
    assert not state.exists()


def test_a_terminal_that_is_gone_stops_nothing(machine: TreeSystem, state: Path) -> None:
    def progress(_: Outcome) -> None:
        raise BrokenPipeError(errno.EPIPE, "Broken pipe")

    assert apply(machine, plan(change("/proc/sys/net/v0", "1")), state, progress=progress).status == errors.OK


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_stops_after_the_change_and_puts_back(machine: TreeSystem, state: Path, number: int) -> None:
    before = machine.contents()

    def progress(outcome: Outcome) -> None:
        if outcome.key.endswith("v1"):
            os.kill(os.getpid(), number)

    report = apply(machine, plan(*(change(f"/proc/sys/net/v{n}", "1") for n in range(4))), state, progress=progress)
    assert report.status == errors.FAILED and report.interrupted
    assert f"It was stopped by {signal.Signals(number).name}." in report.message
    assert machine.contents() == before


def test_a_hangup_stops_nothing(machine: TreeSystem, state: Path) -> None:
    def progress(_: Outcome) -> None:
        os.kill(os.getpid(), signal.SIGHUP)

    assert apply(machine, plan(change("/proc/sys/net/v0", "1")), state, progress=progress).status == errors.OK


# Files on disk


def test_a_configuration_file_is_made_and_removed(machine: TreeSystem, state: Path) -> None:
    before = machine.contents()
    wanted = plan(Change(ConfigSetting("/etc/new.conf"), None, "a line\n", "k", "", ""))
    assert outcomes(apply(machine, wanted, state)) == ["changed"]
    assert machine.read("/etc/new.conf") == "a line\n"
    assert outcomes(revert(machine, state)) == ["restored"] and machine.contents() == before


# MTU


def stack(tmp_path: Path, mtu: int) -> TreeSystem:
    """bond0.7 on bond0 on eth0 and eth1."""
    net = "/sys/class/net"
    files = {f"{net}/{nic}/mtu": f"{mtu}\n" for nic in ("bond0.7", "bond0", "eth0", "eth1")}
    files |= {f"{net}/bond0/lower_eth0/x": "", f"{net}/bond0/lower_eth1/x": "", f"{net}/bond0.7/lower_bond0/x": ""}
    return TreeSystem.make(tmp_path / "root", files)


def mtus(old: int, new: int, nics: tuple[str, ...]) -> list[Change]:
    return [
        Change(FileSetting(f"/sys/class/net/{nic}/mtu", "number", nic), old, new, "mtu", "", "", "link", True)
        for nic in nics
    ]


NICS = ("bond0.7", "eth0", "bond0", "eth1")


def test_mtu_goes_up_from_the_bottom_and_down_from_the_top(tmp_path: Path) -> None:
    system = stack(tmp_path, 1500)
    up = order_mtus(system, [change("/a", "1"), *mtus(1500, 9000, NICS), change("/b", "1")])
    assert [c.setting.label().split()[0] for c in up] == ["/a", "eth0", "eth1", "bond0", "bond0.7", "/b"]
    down = order_mtus(system, mtus(9000, 1500, NICS))
    assert [c.setting.label().split()[0] for c in down] == ["bond0.7", "bond0", "eth0", "eth1"]


def peered(tmp_path: Path, state: Path, found: Callable[[int], NetworkPath]) -> tuple[TreeSystem, Any, list[int]]:
    system = stack(tmp_path, 1500)
    asked: list[int] = []

    def prober(_: str, size: int) -> NetworkPath:
        asked.append(size)
        return found(size)

    request = Request("server", "iscsi", ("bond0.7",), 1, peers=("10.0.0.2",))
    wanted = plan(*mtus(1500, 9000, NICS), request=request)
    return system, apply(system, wanted, state, confirm_within=0, prober=prober), asked


def test_the_path_is_probed_right_after_the_raise(tmp_path: Path, state: Path) -> None:
    system, report, asked = peered(tmp_path, state, lambda size: NetworkPath("10.0.0.2", size, True, size))
    assert asked == [576, 9000] and report.status == errors.OK
    assert "Packets of 9000 bytes pass to 10.0.0.2 and back." in report.notes
    assert [path.split("/")[4] for path, _ in system.mutations] == ["eth0", "eth1", "bond0", "bond0.7"]


def test_a_path_that_does_not_pass_undoes_the_raise_top_down(tmp_path: Path, state: Path) -> None:
    system, report, _ = peered(
        tmp_path,
        state,
        lambda size: NetworkPath("10.0.0.2", size, True, min(size, 1500), "10.0.0.1", 1500, "there"),
    )
    assert report.status == errors.FAILED
    assert "10.0.0.1 on the way to 10.0.0.2 takes packets of 1500 bytes at most, not 9000." in report.message
    assert [path.split("/")[4] for path, _ in system.mutations[4:]] == ["bond0.7", "bond0", "eth1", "eth0"]
    assert system.text("/sys/class/net/eth0/mtu") == "1500"


def test_a_peer_that_answers_nothing_is_found_out_before_the_raise(tmp_path: Path, state: Path) -> None:
    system, report, asked = peered(tmp_path, state, lambda size: NetworkPath("10.0.0.2", size, False))
    assert report.status == errors.FAILED and asked == [576] and not system.mutations
    assert "answers no echo" in report.message


@pytest.mark.parametrize("comes_back", [True, False])
def test_a_link_that_bounces_gets_time(
    tmp_path: Path, state: Path, monkeypatch: pytest.MonkeyPatch, comes_back: bool
) -> None:
    """Many drivers take the link down for a new MTU; for some seconds nobody answers."""
    monkeypatch.setattr(applying, "_LINK_SECONDS", 0.5)
    monkeypatch.setattr(applying, "_LINK_POLL_SECONDS", 0.01)
    calls = {"n": 0}

    def found(size: int) -> NetworkPath:
        calls["n"] += 1
        return NetworkPath("10.0.0.2", size, calls["n"] == 1 or (comes_back and calls["n"] > 5), size)

    system, report, _ = peered(tmp_path, state, found)
    assert report.status == (errors.OK if comes_back else errors.FAILED)
    assert system.text("/sys/class/net/bond0.7/mtu") == ("9000" if comes_back else "1500")


def test_without_a_peer_it_says_that_the_path_was_not_probed(tmp_path: Path, state: Path) -> None:
    report = apply(stack(tmp_path, 1500), plan(*mtus(1500, 9000, NICS)), state, confirm_within=0)
    assert report.status == errors.OK and "the path was not probed" in report.notes[0]
