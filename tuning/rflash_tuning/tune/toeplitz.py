# SPDX-License-Identifier: GPL-2.0
"""The hash by which a NIC chooses a packet's queue, and tables that keep tenants apart by it.

Source: Microsoft, "RSS Hashing Functions" and "Verifying the RSS Hash
Calculation"; the table index is the hash modulo the table's size (a power of
two on all NICs known here, so its low bits).
"""

from __future__ import annotations

import hashlib
import ipaddress
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

KEY_TRIES = 256  # keys looked at before the best so far is taken; a choice


@dataclass(frozen=True)
class Flow:
    """A connection whose packets are to arrive on certain queues. Addresses as this host sees them."""

    local: str
    local_port: int
    remote: str
    remote_port: int
    owner: int  # whose: flows of one owner may share a table entry


def toeplitz(key: bytes, data: bytes, bits: int = 32) -> int:
    """The low `bits` bits of the Toeplitz hash. Raises ValueError when the key is shorter than the data plus 4 bytes.

    Bit i of the hash, from its top, is the parity of the data and as many key
    bits from the i-th on.
    """
    if len(key) < len(data) + 4:
        raise ValueError(f"a key of {len(key)} bytes cannot hash {len(data)} bytes")
    window = int.from_bytes(key[: len(data) + 4], "big")
    number = int.from_bytes(data, "big")
    result = 0
    for bit in range(bits):
        result |= ((window >> bit + 1 & number).bit_count() & 1) << bit
    return result


def flow_bytes(flow: Flow) -> bytes:
    """What a NIC hashes of an arriving TCP packet: source and destination address, source and destination port."""
    return (
        _packed(flow.remote)
        + _packed(flow.local)
        + flow.remote_port.to_bytes(2, "big")
        + flow.local_port.to_bytes(2, "big")
    )


def _packed(address: str) -> bytes:
    """A mapped address ("::ffff:10.0.0.1") travels as IPv4."""
    parsed = ipaddress.ip_address(address.partition("%")[0])
    if isinstance(parsed, ipaddress.IPv6Address) and parsed.ipv4_mapped:
        parsed = parsed.ipv4_mapped
    return parsed.packed


def entry(key: bytes, flow: Flow, size: int) -> int:
    """The table entry that a flow's packets meet."""
    bits = size.bit_length() - 1 if size & (size - 1) == 0 else 32
    return toeplitz(key, flow_bytes(flow), bits) % size


def collisions(key: bytes, flows: Iterable[Flow], size: int) -> int:
    """How many flows meet an entry that another owner's flow came to first."""
    owners: dict[int, int] = {}
    found = 0
    for flow in flows:
        if owners.setdefault(entry(key, flow, size), flow.owner) != flow.owner:
            found += 1
    return found


def search_key(flows: Sequence[Flow], size: int, length: int, present: bytes) -> bytes:
    """A key that keeps owners apart, or the one of KEY_TRIES with fewest collisions.

    The present key when it is as good as any. Deterministic: the same flows
    give the same key.
    """
    best, fewest = present, collisions(present, flows, size)
    seed = hashlib.sha256(b"".join(flow_bytes(flow) for flow in flows)).digest()
    for number in range(KEY_TRIES):
        if fewest == 0:
            break
        candidate = hashlib.shake_128(seed + number.to_bytes(4, "big")).digest(length)
        found = collisions(candidate, flows, size)
        if found < fewest:
            best, fewest = candidate, found
    return best


def steer_table(
    key: bytes, flows: Iterable[Flow], queues: dict[int, Sequence[int]], size: int, total: int
) -> list[int]:
    """A table in which each flow meets a queue of its owner's.

    `queues` are the owners' queues; an owner's flows take its queues in turn.
    Entries that no flow meets go over all `total` queues. Where two owners
    meet at an entry, the first keeps it.
    """
    table = [at % total for at in range(size)]
    taken: set[int] = set()
    turns: dict[int, int] = {}
    for flow in flows:
        at = entry(key, flow, size)
        if at in taken or not queues[flow.owner]:
            continue
        taken.add(at)
        mine = queues[flow.owner]
        turn = turns.get(flow.owner, 0)
        table[at] = mine[turn % len(mine)]
        turns[flow.owner] = turn + 1
    return table
