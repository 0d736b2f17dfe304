# SPDX-License-Identifier: GPL-2.0
"""apply, verify and revert over whole hosts: real plans on machines in memory, crashed at every change."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from rflash_tuning import errors
from rflash_tuning.host.model import Host
from rflash_tuning.host.probe import probe
from rflash_tuning.snapshot import Crash, Snapshot, SnapshotSystem
from rflash_tuning.tune import planner
from rflash_tuning.tune.apply import apply
from rflash_tuning.tune.change import Plan, Request
from rflash_tuning.tune.pathprobe import Path as NetworkPath
from rflash_tuning.tune.report import Report
from rflash_tuning.tune.revert import revert
from rflash_tuning.tune.verify import verify
from rflash_tuning.tune.watch import Watcher

HOSTS = Path(__file__).resolve().parents[3] / "tests" / "fixtures" / "hosts"
CASES = {
    "virtio-iscsi": Request("server", "iscsi", ("eth0",), 3),
    "virtio": Request("server", "iscsi", ("eth0",), 3),
    "igb-nvmet": Request("server", "nvmet-tcp", ("eth0",), 3),
    "vmxnet3": Request("server", "iscsi", ("ens192",), 3),
    "paper": Request("server", "iscsi", ("eth0",), 6),
    "few-queues": Request("server", "iscsi", ("eth0",), 12),
    "mlx5-tenant": Request("tenant", "nvmet-tcp", ("eth0",), 3),
    "bond-vlan": Request("server", "iscsi", ("bond0.100",), 3, mtu=9000, peers=("192.0.2.9",)),
}
# Crashed at so many of a plan's changes, early and late each; all of them where there are fewer.
SAMPLES = 14


@pytest.fixture
def state() -> Iterator[Path]:
    """In memory where there is such a place: hundreds of synced journals are not what is tested here."""
    shared = "/dev/shm" if os.access("/dev/shm", os.W_OK) else None
    with tempfile.TemporaryDirectory(prefix="rflash-", dir=shared) as directory:
        yield Path(directory)


def load(name: str) -> tuple[Snapshot, Request]:
    path = HOSTS / f"{name}.json"
    if not path.exists():
        pytest.skip(f"there is no fixture {name}")
    snapshot, request = Snapshot.load(str(path)), CASES[name]
    host = probe(SnapshotSystem(snapshot))
    if host.nic(request.nics[0]) is None:
        # The top of a chain, whatever the fixture calls it.
        below = {lower for nic in host.nics for lower in nic.lowers}
        tops = [nic.name for nic in host.nics if nic.name not in below and nic.kind != "loopback"]
        request = Request(**{**vars(request), "nics": (tops[-1],)})
    return snapshot, request


def state_of(system: SnapshotSystem) -> dict[str, Any]:
    """All but what the kernel itself chooses: on which of the asked CPUs an interrupt arrived last."""
    found = system.snapshot().to_json()
    found["files"] = {path: text for path, text in found["files"].items() if "/effective_affinity" not in path}
    return found


def prober(address: str, size: int) -> NetworkPath:
    return NetworkPath(address, size, True, size)


def tune(system: SnapshotSystem, request: Request, state: Path, limit: str = "target") -> Report:
    def plan(host: Host) -> Plan:
        return planner.plan(host, request)

    return apply(system, plan, state, limit, 0, prober=prober)


@pytest.mark.parametrize("name", CASES)
def test_apply_again_verify_and_revert(name: str, state: Path) -> None:
    snapshot, request = load(name)
    system = SnapshotSystem(snapshot)
    before = state_of(system)
    report = tune(system, request, state)
    assert report.status in (errors.OK, errors.PARTIAL) and report.counts()["changed"] > 5, report
    changed = len(system.mutations)
    again = tune(system, request, state)
    assert len(system.mutations) == changed and "changed" not in again.counts(), again
    assert verify(system, state).status == errors.OK
    assert len(system.mutations) == changed
    report = revert(system, state)
    assert report.status == errors.OK, report
    assert state_of(system) == before


@pytest.mark.parametrize("path", sorted(HOSTS.glob("*.json")), ids=lambda path: path.stem)
def test_there_and_back_on_every_host(path: Path, state: Path) -> None:
    system = SnapshotSystem(Snapshot.load(str(path)))
    before = state_of(system)
    host = probe(system)
    below = {lower for nic in host.nics for lower in nic.lowers}
    tops = [nic for nic in host.nics if nic.name not in below and nic.kind != "loopback"] or list(host.nics)
    nic = max(tops, key=lambda nic: len(nic.queues))
    kind = host.tenants[0].kind if host.tenants else "iscsi"
    request = Request("server", kind, (nic.name,), 6)
    assert tune(system, request, state).status in (errors.OK, errors.PARTIAL)
    assert [change for change in planner.plan(probe(system), request).changes if not change.foreseen] == []
    assert verify(system, state).status == errors.OK
    assert revert(system, state).status == errors.OK
    assert state_of(system) == before


def test_watch_puts_right_what_irqbalance_moved(state: Path) -> None:
    snapshot, request = load("paper")
    system = SnapshotSystem(snapshot)
    before = state_of(system)
    watcher = Watcher(system, lambda host: planner.plan(host, request), state, "target")
    first = watcher.round().report
    assert first is not None and first.counts()["changed"] > 5
    assert watcher.round().report is None
    moved = next(one for one in first.outcomes if one.outcome == "changed" and one.key.startswith("irq "))
    number = moved.key.split()[1]
    wanted = system.text(f"/proc/irq/{number}/smp_affinity_list")
    system.write(f"/proc/irq/{number}/smp_affinity_list", "0-5" if wanted != "0-5" else "1")
    second = watcher.round().report
    assert second is not None and second.counts() == {"changed": 1}
    assert second.notes[0].startswith(f"Drifted: {moved.label}. irqbalance is active here")
    assert system.text(f"/proc/irq/{number}/smp_affinity_list") == wanted
    assert revert(system, state).status == errors.OK and state_of(system) == before


def places(snapshot: Snapshot, request: Request, state: Path) -> list[int]:
    """At which changes to crash: evenly, the first and the last ones for sure."""
    system = SnapshotSystem(snapshot)
    tune(system, request, state)
    total = len(system.mutations)
    step = max(1, total // SAMPLES)
    return sorted({*range(1, total + 1, step), total})


@pytest.mark.parametrize("late", [False, True], ids=["before", "after"])
@pytest.mark.parametrize("name", CASES)
def test_a_crash_at_a_change_then_revert(name: str, late: bool, state: Path) -> None:
    snapshot, request = load(name)
    before = state_of(SnapshotSystem(snapshot))
    for place in places(snapshot, request, state / "dry"):
        system = SnapshotSystem(snapshot)
        system.fail_after(place, late=late)
        with pytest.raises(Crash):
            tune(system, request, state / str(place))
        report = revert(system, state / str(place))
        assert report.status == errors.OK, (place, report)
        assert state_of(system) == before, place


@pytest.mark.parametrize("late", [False, True], ids=["before", "after"])
@pytest.mark.parametrize("name", ["virtio", "virtio-iscsi", "bond-vlan"])
def test_a_crash_in_the_revert_then_another_revert(name: str, late: bool, state: Path) -> None:
    snapshot, request = load(name)
    before = state_of(SnapshotSystem(snapshot))
    for place in places(snapshot, request, state / "dry"):
        system = SnapshotSystem(snapshot)
        tune(system, request, state / str(place))
        system.fail_after(place, late=late)
        try:
            revert(system, state / str(place))
        except Crash:
            assert state_of(system) != before or late
        assert revert(system, state / str(place)).status == errors.OK, place
        assert state_of(system) == before, place


@pytest.mark.parametrize("name", ["virtio", "igb-nvmet", "bond-vlan"])
def test_a_failure_at_a_change_leaves_the_host_as_it_was(name: str, state: Path) -> None:
    snapshot, request = load(name)
    before = state_of(SnapshotSystem(snapshot))
    for place in places(snapshot, request, state / "dry"):
        system = SnapshotSystem(snapshot)
        system.fail_after(place, OSError(16, "Device or resource busy"))
        report = tune(system, request, state / str(place))
        assert report.status == errors.FAILED and report.message.endswith(
            "Device or resource busy. The host is as it was."
        ), (place, report.message)
        assert state_of(system) == before, place


@pytest.mark.parametrize("name", ["virtio", "igb-nvmet"])
def test_a_renamed_nic_is_put_back_under_its_new_name(name: str, state: Path) -> None:
    snapshot, request = load(name)
    twin = SnapshotSystem(snapshot)
    nic = request.nics[0]
    twin.rename_nic(nic, "lan0")
    before = state_of(twin)
    system = SnapshotSystem(snapshot)
    tune(system, request, state)
    system.rename_nic(nic, "lan0")
    report = revert(system, state)
    assert report.status == errors.OK, report
    assert state_of(system) == before


@pytest.mark.parametrize("name", ["paper", "virtio-iscsi"])
def test_after_a_reboot_the_files_on_disk_are_put_back(name: str, state: Path) -> None:
    snapshot, request = load(name)
    system = SnapshotSystem(snapshot)
    before = {path: text for path, text in state_of(system)["files"].items() if path.startswith("/etc/")}
    tune(system, request, state)
    system.reboot()
    assert revert(system, state).status == errors.OK
    after = {path: text for path, text in state_of(system)["files"].items() if path.startswith("/etc/")}
    assert after == before


@pytest.mark.parametrize("limit", ["none", "packets", "link"])
def test_the_limit_is_kept(limit: str, state: Path) -> None:
    snapshot, request = load("bond-vlan")
    system = SnapshotSystem(snapshot)
    report = tune(system, request, state, limit)
    allowed = ("none", "packets", "link", "target")[: ("none", "packets", "link", "target").index(limit) + 1]
    assert {o.disruption for o in report.outcomes if o.outcome == "changed"} <= set(allowed)
    assert all(o.disruption not in allowed for o in report.outcomes if o.outcome == "refused")
