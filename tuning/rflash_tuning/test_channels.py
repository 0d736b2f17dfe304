# SPDX-License-Identifier: GPL-2.0
"""A change of channels does to a machine in memory what drivers do."""

from __future__ import annotations

import pytest

from rflash_tuning import samples
from rflash_tuning.host.probe import probe
from rflash_tuning.snapshot import SnapshotSystem, from_host


def machine(driver: str) -> SnapshotSystem:
    system = SnapshotSystem(from_host(samples.host(driver, tenants=(), connections=())))
    system.state.ethtool["eth0"].setdefault("rules", {"7": {"queue": 1}})
    return system


@pytest.mark.parametrize("driver", [name for name in samples.VECTORS if name not in ("e1000e", "virtio_net")])
def test_more_channels_bring_queues_with_vectors_of_the_drivers_names(driver: str) -> None:
    system = machine(driver)
    system.ethtool_set("eth0", "rules", {"7": None})
    system.ethtool_set("eth0", "channels", {"combined": 4})
    nic = probe(system).nics[0]
    assert [queue.index for queue in nic.queues] == [0, 1, 2, 3]
    assert len({queue.irq for queue in nic.queues}) == 4
    assert None not in {queue.irq for queue in nic.queues}
    assert nic.rss is not None
    assert set(nic.rss.table) == {0, 1, 2, 3}
    assert len(nic.rps) == len(nic.xps) == 4
    system.ethtool_set("eth0", "channels", {"combined": 1})
    nic = probe(system).nics[0]
    assert len(nic.queues) == 1
    assert len(nic.irqs) == len(samples.VECTORS[driver]) - 1


def test_placement_is_lost_as_with_a_driver() -> None:
    system = machine("ice")
    system.write("/proc/irq/41/smp_affinity_list", "3")
    system.write("/sys/class/net/eth0/queues/rx-1/rps_cpus", "f")
    system.ethtool_set("eth0", "rules", {"7": None})
    system.ethtool_set("eth0", "channels", {"combined": 1})
    system.ethtool_set("eth0", "channels", {"combined": 2})
    assert system.text("/proc/irq/41/smp_affinity_list") == "0-3"
    assert system.text("/sys/class/net/eth0/queues/rx-1/rps_cpus") == "0"


def test_virtio_keeps_its_vectors_and_places_them() -> None:
    system = machine("virtio_net")
    system.ethtool_set("eth0", "rules", {"7": None})
    before = [irq.number for irq in probe(system).nics[0].irqs]
    system.ethtool_set("eth0", "channels", {"combined": 1})
    nic = probe(system).nics[0]
    assert [irq.number for irq in nic.irqs] == before
    assert nic.irqs[1].affinity == {0}


def test_a_table_or_a_rule_that_uses_a_queue_keeps_it() -> None:
    system = machine("ice")
    with pytest.raises(OSError, match="a flow rule uses"):
        system.ethtool_set("eth0", "channels", {"combined": 1})
    system.ethtool_set("eth0", "rules", {"7": None})
    system.ethtool_set("eth0", "rss", {"table": [0, 1] * 64})
    with pytest.raises(OSError, match="the RSS table uses"):
        system.ethtool_set("eth0", "channels", {"combined": 1})
    system.ethtool_set("eth0", "rss", {"table": []})
    system.ethtool_set("eth0", "channels", {"combined": 1})


def test_too_many_or_none_are_refused_and_the_same_number_does_nothing() -> None:
    system = machine("ice")
    system.write("/proc/irq/41/smp_affinity_list", "3")
    for count in (5, 0):
        with pytest.raises(OSError, match="eth0"):
            system.ethtool_set("eth0", "channels", {"combined": count})
    system.ethtool_set("eth0", "channels", {"combined": 2})
    assert system.text("/proc/irq/41/smp_affinity_list") == "3"
