# SPDX-License-Identifier: GPL-2.0
"""The hash by which a NIC chooses a packet's queue, and tables that keep tenants apart by it.

Source: Microsoft, "RSS Hashing Functions" and "Verifying the RSS Hash
Calculation"; the table index is the hash modulo the table's size (a power of
two on all NICs known here, so its low bits).

The hash is linear: each of its bits is the parity of those bits of a packet
that the key selects. So a key can be made that copies the low bits of the
tenant's port into the index (port_key), and every connection of a tenant's,
also one that is still to come, meets the tenant's own entries. Where the key
can't be set, the entries of established connections are computed.
"""

from __future__ import annotations

import hashlib
import ipaddress
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

# Hashes computed in the search of a key before the best so far is taken: some
# 50 ms, or 256 keys for the connections that a host usually has. A choice.
HASHES = 24_000
EXACT = (0,)  # a device hashes with the key that it was given


@dataclass(frozen=True)
class Flow:
    """A connection whose packets are to arrive on certain queues. Addresses as this host sees them."""

    local: str
    local_port: int
    remote: str
    remote_port: int
    owner: int  # whose: flows of one owner may share a table entry


def toeplitz(key: bytes, data: bytes, bits: int = 32) -> int:
    """The low `bits` bits of the Toeplitz hash. Raises ValueError when the key is not 4 bytes longer than the data."""
    return _hash(_windows(key, len(data), bits), int.from_bytes(data, "big"))


def _windows(key: bytes, length: int, bits: int) -> list[int]:
    """For each of the hash's low bits, the key bits that meet the data's; lowest bit first.

    Bit i of the hash, from its top, is the parity of the data and as many key
    bits from the i-th on.
    """
    if len(key) < length + 4:
        raise ValueError(f"a key of {len(key)} bytes cannot hash {length} bytes")
    window = int.from_bytes(key[: length + 4], "big")
    mask = (1 << length * 8) - 1
    return [window >> bit + 1 & mask for bit in range(bits)]


def _hash(windows: list[int], number: int) -> int:
    result = 0
    for bit, window in enumerate(windows):
        result |= ((window & number).bit_count() & 1) << bit
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
    return toeplitz(key, flow_bytes(flow), _bits(size)) % size


def _bits(size: int) -> int:
    return size.bit_length() - 1 if size & (size - 1) == 0 else 32


def effective(key: bytes, shifts: Sequence[int]) -> list[bytes]:
    """The keys that a device may hash with when it was given this one, by how many bytes it may come late."""
    return [bytes(shift) + key[: len(key) - shift] for shift in shifts]


def collisions(key: bytes, flows: Iterable[Flow], size: int, shifts: Sequence[int] = EXACT) -> int:
    """How many flows meet an entry that another owner's flow came to first."""
    return _collisions(key, _packets(flows), size, shifts)


def _packets(flows: Iterable[Flow]) -> list[tuple[int, int, int]]:
    """Owner, length and number of what is hashed, made once for many keys."""
    packed = [(flow.owner, flow_bytes(flow)) for flow in flows]
    return [(owner, len(data), int.from_bytes(data, "big")) for owner, data in packed]


def _collisions(key: bytes, packets: list[tuple[int, int, int]], size: int, shifts: Sequence[int]) -> int:
    lengths = {length for _, length, _ in packets}
    owners: dict[int, int] = {}
    found = 0
    for one in effective(key, shifts):
        windows = {length: _windows(one, length, _bits(size)) for length in lengths}
        for owner, length, number in packets:
            if owners.setdefault(_hash(windows[length], number) % size, owner) != owner:
                found += 1
    return found


def search_key(flows: Sequence[Flow], size: int, length: int, present: bytes, shifts: Sequence[int] = EXACT) -> bytes:
    """A key that keeps owners apart, or the best of as many as HASHES allows.

    The present key when it is as good as any. Deterministic: the same flows
    give the same key.
    """
    packets = _packets(flows)
    best, fewest = present, _collisions(present, packets, size, shifts)
    seed = hashlib.sha256(repr(packets).encode()).digest()
    for number in range(HASHES // max(1, len(packets) * len(shifts))):
        if fewest == 0:
            break
        candidate = hashlib.shake_128(seed + number.to_bytes(4, "big")).digest(length)
        found = _collisions(candidate, packets, size, shifts)
        if found < fewest:
            best, fewest = candidate, found
    return best


@dataclass(frozen=True)
class PortKey:
    """A key that shows the tenants' ports in the table's index, and each tenant's own entries."""

    key: bytes
    entries: tuple[tuple[int, ...], ...]  # by tenant; consecutive ones are met by neighbouring ports of the other side


def port_key(
    ports: Sequence[int], size: int, length: int, *, server: bool, shifts: Sequence[int] = EXACT
) -> PortKey | None:
    """A key for IPv4 by which tenants are told apart by their ports; None where that can't be had.

    `ports` are the tenants', which are this host's on a server and the other
    side's on a tenant's host. As many of their low bits as tell them apart
    become the index's high bits; its other bits are the low bits of the other
    port, so that a tenant's connections are spread over the tenant's entries.

    Bit b of the index is the parity of the packet's bits p - b - 1 for each
    bit p of the key (counted from the end of what is hashed, where this host's
    port has bits 0 to 15 and the other side's 16 to 31). One bit of the key
    selects the tenant's port, another one the port that spreads; what else
    they select is the same for all connections of a tenant's. For a key that
    may come late the first bit is there twice, so that one of the two is in
    place; on a tenant's host the other one would select what must not be.
    """
    bits = size.bit_length() - 1
    apart = next((n for n in range(17) if len({port % (1 << n) for port in ports}) == len(ports)), 17)
    if size != 1 << bits or length < 16 or (len(shifts) > 1 and not server):
        return None
    # With more bits for the tenants there are fewer entries, which are easier to keep apart.
    for spread in range(bits - apart, -1, -1):
        key = _port_bits(bits, spread, server, shifts).to_bytes(16, "big") + bytes(length - 16)
        entries = _port_entries(key, ports, bits, spread, server, shifts)
        every = [at for mine in entries for at in mine]
        if len(set(every)) == len(every):
            return PortKey(key, entries)
    return None


def _port_bits(bits: int, spread: int, server: bool, shifts: Sequence[int]) -> int:
    selected = 0
    for shift in shifts:
        selected |= 1 << bits + 8 * shift if server else 1 << 16 + bits
    if spread:
        selected |= 1 << 16 + spread if server else 1 << spread
    return selected


def _port_entries(
    key: bytes, ports: Sequence[int], bits: int, spread: int, server: bool, shifts: Sequence[int]
) -> tuple[tuple[int, ...], ...]:
    """Every entry that a tenant's connections can meet, whatever the other port is and whenever the key comes."""
    windows = [_windows(one, 12, bits) for one in effective(key, shifts)]
    others = [_rotated(number, spread) for number in range(1 << spread)]
    entries = []
    for port in ports:
        packets = [other << 16 | port if server else port << 16 | other for other in others]
        entries.append(tuple(dict.fromkeys(_hash(one, packet) for one in windows for packet in packets)))
    return tuple(entries)


def _rotated(number: int, bits: int) -> int:
    """Count in bit 1 first and in bit 0 last: Linux connects from even ports as long as there are any."""
    return (number << 1 | number >> bits - 1) & (1 << bits) - 1 if bits else 0


def port_table(found: PortKey, queues: Sequence[Sequence[int]], size: int, total: int) -> list[int]:
    """The table for a PortKey: each tenant's entries over its queues in turn, all others over all `total` queues."""
    table = [at % total for at in range(size)]
    for entries, mine in zip(found.entries, queues, strict=True):
        for turn, at in enumerate(entries):
            table[at] = mine[turn % len(mine)]
    return table


def steer_table(
    key: bytes,
    flows: Iterable[Flow],
    queues: dict[int, Sequence[int]],
    size: int,
    total: int,
    shifts: Sequence[int] = EXACT,
) -> list[int]:
    """A table in which each flow meets a queue of its owner's.

    `queues` are the owners' queues; an owner's flows take its queues in turn.
    Entries that no flow meets go over all `total` queues. Where two owners
    meet at an entry, the first keeps it.
    """
    table = [at % total for at in range(size)]
    keys = effective(key, shifts)
    taken: set[int] = set()
    turns: dict[int, int] = {}
    for flow in flows:
        free = [at for at in (entry(one, flow, size) for one in keys) if at not in taken]
        if not free or not queues[flow.owner]:
            continue
        taken.update(free)
        turn = turns[flow.owner] = turns.get(flow.owner, -1) + 1
        for at in free:
            table[at] = queues[flow.owner][turn % len(queues[flow.owner])]
    return table
