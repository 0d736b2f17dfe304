# SPDX-License-Identifier: GPL-2.0
"""Who runs where, over hosts that are only CPUs and a NIC."""

from __future__ import annotations

import pytest

from rflash_tuning.errors import UsageError
from rflash_tuning.host.model import Cpu, Host, Nic, NicQueue, Tenant
from rflash_tuning.tune.allocation import allocate, deal_queues, split
from rflash_tuning.tune.change import Request


def cpus(cores, threads=1, nodes=1, offline=()):
    """Cores in blocks per node; the second hardware threads are numbered after all first ones."""
    made = []
    for thread in range(threads):
        for core in range(cores):
            number = thread * cores + core
            all_threads = frozenset(core + other * cores for other in range(threads))
            siblings = frozenset({number}) if number in offline else all_threads - set(offline)
            node = core * nodes // cores
            made.append(Cpu(number, number not in offline, node, node, core, siblings))
    return tuple(made)


def host(some_cpus, queues=64, node=0, tenants=()):
    nic = Nic(
        "eth0",
        "physical",
        node=node,
        queues=tuple(NicQueue(index, 40 + index) for index in range(queues)),
    )
    return Host("6.12.1", "x86_64", "b", "h", some_cpus, "off", (nic,), (), (), (), tuple(tenants), ())


def request(tenants, target="iscsi", **more):
    return Request("server", target, ("eth0",), tenants, **more)


def halves(allocation):
    return [(share.connection_cpus, share.io_cpus) for share in allocation.shares]


def test_the_papers_three_cases_on_six_cores():
    one = allocate(host(cpus(6)), request(1))
    assert one.rule == "spread"
    assert halves(one) == [(tuple(range(6)), tuple(range(6)))]
    assert one.shares[0].queues == tuple(range(6))
    three = allocate(host(cpus(6)), request(3))
    assert three.rule == "two-cores"
    assert halves(three) == [((0,), (1,)), ((2,), (3,)), ((4,), (5,))]
    assert [share.queues for share in three.shares] == [(0,), (1,), (2,)]
    six = allocate(host(cpus(6)), request(6))
    assert six.rule == "one-core"
    assert halves(six) == [((cpu,), (cpu,)) for cpu in range(6)]


def test_more_tenants_than_cores_share_them_evenly_and_beyond_three_are_warned_of():
    twelve = allocate(host(cpus(6)), request(12))
    assert twelve.rule == "shared"
    assert [share.connection_cpus[0] for share in twelve.shares] == [0, 0, 1, 1, 2, 2, 3, 3, 4, 4, 5, 5]
    assert [share.queues for share in twelve.shares][:4] == [(0,), (0,), (1,), (1,)]
    assert not twelve.warnings
    eighteen = allocate(host(cpus(6)), request(18))
    assert not eighteen.warnings
    nineteen = allocate(host(cpus(6)), request(19))
    assert "more than 3 per core" in nineteen.warnings[0]


def test_a_remainder_goes_to_the_first_tenants():
    seven = allocate(host(cpus(7)), request(3))
    assert halves(seven) == [((0,), (1, 2)), ((3,), (4,)), ((5,), (6,))]
    assert "the first tenant has one core more" in seven.reason
    eight = allocate(host(cpus(8)), request(6))
    assert halves(eight)[:3] == [((0,), (1,)), ((2,), (3,)), ((4,), (4,))]
    assert eight.rule == "one-core"


def test_the_nics_node_comes_first_and_others_only_when_it_does_not_reach():
    enough = allocate(host(cpus(16, nodes=2), node=1), request(3))
    assert set(enough.cpus) == set(range(8, 16))
    assert "left alone" in enough.warnings[0]
    more = allocate(host(cpus(16, nodes=2), node=1), request(6))
    assert more.rule == "two-cores"
    assert all(share.connection_cpus[0] >= 8 for share in more.shares)
    assert len(more.cpus) == 16
    named = allocate(host(cpus(16, nodes=2), node=1), request(1, cpus=(0, 1, 8)))
    assert named.cpus == (8, 0, 1)


def test_hardware_threads_stay_with_one_tenant():
    three = allocate(host(cpus(6, threads=2)), request(3))
    assert halves(three) == [((0,), (1,)), ((2,), (3,)), ((4,), (5,))]
    six = allocate(host(cpus(6, threads=2)), request(6))
    assert six.rule == "two-cores"
    assert halves(six)[0] == ((0,), (6,))
    assert "hardware threads" in six.reason and "saw no gain" in six.warnings[0]
    eight = allocate(host(cpus(6, threads=2)), request(8))
    assert eight.rule == "shared"
    assert halves(eight)[:3] == [((0,), (0,)), ((6,), (6,)), ((1,), (1,))]
    assert "fewer cores than tenants" in eight.warnings[0]


def test_offline_cpus_are_never_used():
    allocation = allocate(host(cpus(6, offline=(2, 5))), request(4))
    assert allocation.cpus == (0, 1, 3, 4)
    with pytest.raises(UsageError, match="CPU 2 is offline"):
        allocate(host(cpus(6, offline=(2,))), request(1, cpus=(2,)))
    with pytest.raises(UsageError, match="no CPU 9"):
        allocate(host(cpus(6)), request(1, cpus=(9,)))


def test_a_steered_target_works_on_all_of_its_cores():
    allocation = allocate(host(cpus(6)), request(3, "nvmet-tcp"))
    assert halves(allocation)[0] == ((0, 1), (0, 1))
    assert [share.queues for share in allocation.shares] == [(0, 1), (2, 3), (4, 5)]
    assert "arrive" in allocation.reason


def test_tenants_are_those_configured_then_by_convention():
    configured = [
        Tenant("t2", "iscsi", "iqn.b", "::", 3261),
        Tenant("t1", "iscsi", "iqn.a", "::", 3260),
        Tenant("n", "nvmet-tcp", "nqn", "::", 4420),
    ]
    allocation = allocate(host(cpus(6), tenants=configured), request(3))
    assert [(share.tenant, share.port) for share in allocation.shares] == [("t1", 3260), ("t2", 3261), ("t3", 3262)]
    named = allocate(host(cpus(6)), request(2, ports=(5000,)))
    assert [share.port for share in named.shares] == [5000, 3261]


def test_queues_run_out():
    assert deal_queues([(0, 1), (2, 3), (4, 5)], 6) == [(0, 1), (2, 3), (4, 5)]
    assert deal_queues([(0, 1), (2, 3), (4, 5)], 4) == [(0, 1), (2,), (3,)]
    assert deal_queues([(0,), (1,), (2,)], 2) == [(0,), (1,), (0,)]
    assert deal_queues([(0,), (0,), (1,)], 8) == [(0,), (0,), (1,)]
    allocation = allocate(host(cpus(6), queues=4), request(6))
    assert [share.queues[0] for share in allocation.shares] == [0, 1, 2, 3, 0, 1]
    assert "4 queues for 6 tenants" in allocation.warnings[-1]


def test_split_differs_by_one_at_most():
    for total in range(1, 40):
        for parts in range(1, total + 1):
            sizes = split(total, parts)
            assert sum(sizes) == total and max(sizes) - min(sizes) <= 1
