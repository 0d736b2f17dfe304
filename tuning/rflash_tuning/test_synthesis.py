# SPDX-License-Identifier: GPL-2.0
"""A machine made of a description is read as that description."""

from __future__ import annotations

import dataclasses

import pytest

from rflash_tuning import samples
from rflash_tuning.host.model import Host
from rflash_tuning.host.probe import probe
from rflash_tuning.snapshot import Snapshot, SnapshotSystem, from_host, record


def essence(host: Host) -> Host:
    """Without what probe derives anew: the hash of the machine id, and files that every machine has."""
    return dataclasses.replace(host, host_id="", files={})


@pytest.mark.parametrize("driver", samples.VECTORS)
def test_a_host_of_every_driver_is_read_as_it_was_described(driver: str) -> None:
    described = samples.host(driver)
    found = probe(SnapshotSystem(from_host(described)))
    assert essence(found) == essence(described)
    assert found.files["/etc/default/irqbalance"] == "OPTIONS="


def test_a_made_machine_can_be_captured_again(tmp_path) -> None:
    system = SnapshotSystem(from_host(samples.host()))
    record(system).save(str(tmp_path / "host.json"))
    again = SnapshotSystem(Snapshot.load(str(tmp_path / "host.json")))
    assert probe(again) == probe(system)
