# SPDX-License-Identifier: GPL-2.0
"""The hash against the vectors that Microsoft publishes, and tables built on it."""

from __future__ import annotations

import random

import pytest

from rflash_tuning.tune.toeplitz import (
    Flow,
    collisions,
    entry,
    flow_bytes,
    port_key,
    port_table,
    search_key,
    steer_table,
    toeplitz,
)

KEY = bytes.fromhex(
    "6d5a56da255b0ec24167253d43a38fb0d0ca2bcbae7b30b477cb2da38030f20c6a42b73bbeac01fa",
)

# Destination, port, source, port, hash of the addresses alone, hash with the ports.
VECTORS = [
    ("161.142.100.80", 1766, "66.9.149.187", 2794, 0x323E8FC2, 0x51CCC178),
    ("65.69.140.83", 4739, "199.92.111.2", 14230, 0xD718262A, 0xC626B0EA),
    ("12.22.207.184", 38024, "24.19.198.95", 12898, 0xD2D0A5DE, 0x5C2B394A),
    ("209.142.163.6", 2217, "38.27.205.30", 48228, 0x82989176, 0xAFC7327F),
    ("202.188.127.2", 1303, "153.39.163.191", 44251, 0x5D1809C5, 0x10E828A2),
    ("3ffe:2501:200:3::1", 1766, "3ffe:2501:200:1fff::7", 2794, 0x2CC18CD5, 0x40207D3D),
    ("ff02::1", 4739, "3ffe:501:8::260:97ff:fe40:efab", 14230, 0x0F0C461C, 0xDDE51BBF),
    ("fe80::200:f8ff:fe21:67cf", 38024, "3ffe:1900:4545:3:200:f8ff:fe21:67cf", 44251, 0x4B61E985, 0x02D1FEEF),
]


@pytest.mark.parametrize(("local", "local_port", "remote", "remote_port", "addresses", "ports"), VECTORS)
def test_the_published_vectors(local, local_port, remote, remote_port, addresses, ports):
    data = flow_bytes(Flow(local, local_port, remote, remote_port, 0))
    assert toeplitz(KEY, data) == ports
    assert toeplitz(KEY, data[:-4]) == addresses


def test_a_longer_key_hashes_the_same_and_a_short_one_is_refused():
    data = flow_bytes(Flow("10.0.0.1", 3260, "10.0.0.2", 40000, 0))
    assert toeplitz(KEY + b"\1\2\3\4", data) == toeplitz(KEY, data)
    with pytest.raises(ValueError, match="cannot hash"):
        toeplitz(KEY[:12], data)


def test_mapped_addresses_travel_as_ipv4():
    plain = Flow("10.0.0.1", 3260, "10.0.0.2", 40000, 0)
    mapped = Flow("::ffff:10.0.0.1", 3260, "::ffff:10.0.0.2", 40000, 0)
    assert flow_bytes(plain) == flow_bytes(mapped)


def flows(tenants, each=2):
    return [
        Flow("10.0.0.1", 3260 + tenant, "10.0.0.2", 40000 + 16 * tenant + number, tenant)
        for tenant in range(tenants)
        for number in range(each)
    ]


@pytest.mark.parametrize("tenants", [1, 3, 6, 12])
@pytest.mark.parametrize("size", [64, 128])
def test_a_key_and_a_table_keep_tenants_apart(tenants, size):
    some = flows(tenants)
    key = search_key(some, size, 40, KEY)
    assert collisions(key, some, size) == 0
    queues = {tenant: (tenant,) for tenant in range(tenants)}
    table = steer_table(key, some, queues, size, tenants)
    assert len(table) == size and set(table) <= set(range(tenants))
    for flow in some:
        assert table[entry(key, flow, size)] == flow.owner


def test_the_present_key_is_kept_when_it_will_do_and_the_search_is_repeatable():
    assert search_key(flows(1), 128, 40, KEY) == KEY
    many = flows(12, each=4)
    assert search_key(many, 128, 40, KEY) == search_key(many, 128, 40, KEY)
    assert collisions(search_key(many, 128, 40, KEY), many, 128) <= collisions(KEY, many, 128)


def test_a_tenants_flows_take_its_queues_in_turn():
    some = flows(1, each=4)
    table = steer_table(KEY, some, {0: (2, 3)}, 1 << 20, 4)
    assert [table[entry(KEY, flow, 1 << 20)] for flow in some] == [2, 3, 2, 3]


@pytest.mark.parametrize("server", [True, False])
@pytest.mark.parametrize("size", [16, 64, 128, 512])
@pytest.mark.parametrize(("first", "tenants"), [(3260, 2), (3260, 3), (4420, 6), (4420, 12), (3260, 16)])
def test_a_key_shows_the_tenants_port_to_any_connection(server, size, first, tenants):
    ports = [first + tenant for tenant in range(tenants)]
    found = port_key(ports, size, 40, server=server)
    queues = [(2 * tenant, 2 * tenant + 1) for tenant in range(tenants)]
    table = port_table(found, queues, size, 2 * tenants)
    dice = random.Random(size * tenants)
    met = set()
    for _ in range(2000):
        owner = dice.randrange(tenants)
        here, there = ports[owner], dice.randrange(32768, 60999, 2)
        remote = f"10.{dice.randrange(256)}.{dice.randrange(256)}.{dice.randrange(1, 255)}"
        flow = Flow("10.0.0.1", here, remote, there, owner) if server else Flow("10.0.0.1", there, remote, here, owner)
        queue = table[entry(found.key, flow, size)]
        assert queue in queues[owner]
        met.add(queue)
    if size >= 4 << max(1, (tenants - 1).bit_length()):
        assert met == set(range(2 * tenants)), "a tenant's connections from even ports meet all of its queues"


def test_a_table_that_is_too_small_for_the_tenants_has_no_such_key():
    assert port_key([3260 + tenant for tenant in range(17)], 16, 40, server=True) is None
    assert port_key([3260, 3261], 100, 40, server=True) is None
    assert port_key([3260, 3260], 128, 40, server=True) is None


LATE = (0, 1)


@pytest.mark.parametrize(("first", "tenants"), [(3260, 2), (3260, 6), (3260, 12), (4420, 3), (4420, 6), (4420, 12)])
@pytest.mark.parametrize("late", LATE)
def test_a_key_that_may_come_late_works_either_way(first, tenants, late):
    ports = [first + tenant for tenant in range(tenants)]
    found = port_key(ports, 128, 40, server=True, shifts=LATE)
    table = port_table(found, [(tenant,) for tenant in range(tenants)], 128, tenants)
    used = bytes(late) + found.key[: 40 - late]
    dice = random.Random(first)
    for _ in range(1000):
        owner = dice.randrange(tenants)
        flow = Flow("10.0.0.1", ports[owner], f"10.0.{dice.randrange(9)}.7", dice.randrange(32768, 60999), owner)
        assert table[entry(used, flow, 128)] == owner
    assert port_key(ports, 128, 40, server=False, shifts=LATE) is None


@pytest.mark.parametrize("late", LATE)
def test_established_connections_are_found_with_a_late_key_as_well(late):
    some = flows(6)
    key = search_key(some, 128, 40, KEY, LATE)
    assert collisions(key, some, 128, LATE) == 0
    table = steer_table(key, some, {tenant: (tenant,) for tenant in range(6)}, 128, 6, LATE)
    used = bytes(late) + key[: 40 - late]
    assert [table[entry(used, flow, 128)] for flow in some] == [flow.owner for flow in some]


# Tenant's port, other port, queue: what a guest with virtio-net and Linux 6.12.107 received where, with the
# key above and a table that is equal over 6 queues. The host's address was 10.99.0.2, the other's 10.99.0.1.
MEASURED = [
    (3260, 43000, 0), (3260, 43002, 0), (3260, 43004, 0), (3261, 43000, 3), (3261, 43002, 5), (3261, 43004, 3),
    (3262, 43000, 3), (3262, 43002, 5), (3262, 43004, 5), (3263, 43000, 4), (3263, 43002, 4), (3263, 43004, 0),
]  # fmt: skip


def test_what_a_guest_measured_is_a_key_that_is_one_byte_late():
    measured = [(Flow("10.99.0.2", port, "10.99.0.1", other, 0), queue) for port, other, queue in MEASURED]
    late = bytes(1) + KEY[:-1]
    assert all(entry(late, flow, 128) % 6 == queue for flow, queue in measured)
    assert not all(entry(KEY, flow, 128) % 6 == queue for flow, queue in measured)
