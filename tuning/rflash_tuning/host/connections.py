# SPDX-License-Identifier: GPL-2.0
"""Established TCP connections of targets and initiators.

Source: /proc/net/tcp and tcp6 (Documentation/networking/proc_net_tcp.rst).
"""

from __future__ import annotations

import ipaddress
from collections.abc import Iterable

from rflash_tuning.host.model import Connection
from rflash_tuning.system import System

_ESTABLISHED = "01"
# rflash-target's ports: one per tenant, from iSCSI's and NVMe's own on.
CONVENTIONAL = frozenset(range(3260, 3260 + 128)) | frozenset(range(4420, 4420 + 128))


def read(system: System, ports: Iterable[int]) -> tuple[Connection, ...]:
    """The connections with one of these ports, or a conventional one, at either end; sorted."""
    wanted = CONVENTIONAL | frozenset(ports)
    found = {
        connection
        for path in ("/proc/net/tcp", "/proc/net/tcp6")
        for line in (system.text(path, "") or "").splitlines()[1:]
        if (connection := parse(line)) is not None
        and (connection.local_port in wanted or connection.remote_port in wanted)
    }
    return tuple(sorted(found, key=lambda c: (c.local_port, c.local, c.remote, c.remote_port)))


def parse(line: str) -> Connection | None:
    """A line of /proc/net/tcp; None unless it is established.

    `  1: 0100000A:0CBC 0200000A:D431 01 00000000:00000000 ...`
    """
    fields = line.split()
    if len(fields) < 4 or fields[3] != _ESTABLISHED:
        return None
    local, remote = _end(fields[1]), _end(fields[2])
    return Connection(local[0], local[1], remote[0], remote[1])


def _end(text: str) -> tuple[str, int]:
    """Address and port. Each 32 bits of an address are printed as a number of a little-endian machine."""
    digits, _, port = text.partition(":")
    raw = b"".join(bytes.fromhex(digits[at : at + 8])[::-1] for at in range(0, len(digits), 8))
    address = ipaddress.ip_address(raw)
    if isinstance(address, ipaddress.IPv6Address) and address.ipv4_mapped:
        address = address.ipv4_mapped
    return str(address), int(port, 16)
