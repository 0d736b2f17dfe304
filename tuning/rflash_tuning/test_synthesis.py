# SPDX-License-Identifier: GPL-2.0
"""A machine made of a description is read as that description."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import pytest

from rflash_tuning import samples
from rflash_tuning.host.model import Host
from rflash_tuning.host.probe import probe
from rflash_tuning.snapshot import Snapshot, SnapshotSystem, anonymise, from_host, record


def essence(host: Host) -> Host:
    """Without what probe derives anew: the hash of the machine id, and files that every machine has."""
    return dataclasses.replace(host, host_id="", files={})


@pytest.mark.parametrize("driver", samples.VECTORS)
def test_a_host_of_every_driver_is_read_as_it_was_described(driver: str) -> None:
    described = samples.host(driver)
    found = probe(SnapshotSystem(from_host(described)))
    assert essence(found) == essence(described)
    assert found.files["/etc/default/irqbalance"] == "OPTIONS="


FIXTURES = sorted((Path(__file__).resolve().parents[2] / "tests/fixtures/hosts").glob("*.json"))


@pytest.mark.skipif(not FIXTURES, reason="the tree's host fixtures are not here")
@pytest.mark.parametrize("path", FIXTURES, ids=lambda path: path.stem)
def test_the_trees_fixtures_survive_capture_and_description(path: Path) -> None:
    system = SnapshotSystem(Snapshot.load(str(path)))
    host = probe(system)
    assert probe(SnapshotSystem(record(system))) == host
    assert essence(probe(SnapshotSystem(from_host(host)))) == essence(host)
    nameless = probe(SnapshotSystem(anonymise(record(system))))
    assert nameless.cpus == host.cpus
    assert nameless.disks == host.disks
    assert [dataclasses.replace(nic, mac="") for nic in nameless.nics] == [
        dataclasses.replace(nic, mac="") for nic in host.nics
    ]
    assert [(t.port, t.sessions, t.tasks) for t in nameless.tenants] == [
        (t.port, t.sessions, t.tasks) for t in host.tenants
    ]


def test_a_made_machine_can_be_captured_again(tmp_path) -> None:
    system = SnapshotSystem(from_host(samples.host()))
    record(system).save(str(tmp_path / "host.json"))
    again = SnapshotSystem(Snapshot.load(str(tmp_path / "host.json")))
    assert probe(again) == probe(system)
