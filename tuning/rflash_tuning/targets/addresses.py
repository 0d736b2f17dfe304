# SPDX-License-Identifier: GPL-2.0
"""Addresses and ports of this host, from procfs.

Source: Documentation/networking/proc_net_tcp.rst; net/ipv4/fib_trie.c;
net/ipv6/addrconf.c (if_inet6).
"""

from __future__ import annotations

import ipaddress
import re
import sys

from rflash_tuning.errors import UsageError
from rflash_tuning.system import System

LISTEN, ESTABLISHED = "0A", "01"


def local(system: System) -> list[str]:
    """This host's addresses, without link-local ones; loopback last."""
    found = []
    leaf = ""
    for line in (system.text("/proc/net/fib_trie") or "").splitlines():
        match = re.match(r"\s+\|-- (\S+)$", line)
        if match:
            leaf = match[1]
        elif re.match(r"\s+/32 host LOCAL", line) and leaf not in found:
            found.append(leaf)
    for line in (system.text("/proc/net/if_inet6") or "").splitlines():
        address = ipaddress.IPv6Address(bytes.fromhex(line.split()[0]))
        if not address.is_link_local and str(address) not in found:
            found.append(str(address))
    return sorted(found, key=lambda text: ipaddress.ip_address(text).is_loopback)


def choose(system: System, wanted: str) -> str:
    """The address to listen on, in its usual form. Raises UsageError when it is none of this host's."""
    have = local(system)
    if not wanted:
        outer = [one for one in have if not ipaddress.ip_address(one).is_loopback]
        if len(outer) == 1:
            return outer[0]
        listing = f": {', '.join(outer)}" if outer else f"; there is only {', '.join(have)}" if have else ""
        count = "several addresses" if outer else "no address but loopback"
        raise UsageError(f"this host has {count}, choose with --addr{listing}")
    try:
        address = ipaddress.ip_address(wanted.strip("[]"))
    except ValueError as error:
        raise UsageError(f"--addr {wanted} is not an IP address; this host has {', '.join(have)}") from error
    # 127.0.0.2 is on every host, too.
    if address.is_unspecified or str(address) in have or (address.version == 4 and address.is_loopback):
        return str(address)
    raise UsageError(f"--addr {address} is not on this host, which has {', '.join(have) or 'none'}")


def join(address: str, port: int) -> str:
    """ "10.0.0.1:3260", "[2001:db8::1]:3260"."""
    return f"[{address}]:{port}" if ":" in address else f"{address}:{port}"


def taken(system: System, address: str, port: int) -> bool:
    """Does anybody listen on a TCP port so that listening on this address would fail?"""
    for local_address, local_port, _, state in _sockets(system):
        if local_port == port and state == LISTEN:
            both = {local_address, address}
            if len(both) == 1 or both & {"0.0.0.0", "::"}:
                return True
    return False


def peers(system: System, port: int) -> set[str]:
    """Remote addresses of the established connections to a TCP port of this host."""
    return {remote for _, local_port, remote, state in _sockets(system)
            if local_port == port and state == ESTABLISHED}  # fmt: skip


def _sockets(system: System) -> list[tuple[str, int, str, str]]:
    """Local address and port, remote address, state."""
    found = []
    for path in ("/proc/net/tcp", "/proc/net/tcp6"):
        for line in (system.text(path) or "").splitlines()[1:]:
            fields = line.split()
            if len(fields) > 3:
                address, port = fields[1].split(":")
                found.append((_address(address), int(port, 16), _address(fields[2].split(":")[0]), fields[3]))
    return found


def _address(digits: str) -> str:
    """0100007F is 127.0.0.1: words of 32 bits, printed as this machine has them in memory."""
    raw = bytes.fromhex(digits)
    if sys.byteorder == "little":
        raw = b"".join(raw[index : index + 4][::-1] for index in range(0, len(raw), 4))
    address = ipaddress.ip_address(raw)
    mapped = getattr(address, "ipv4_mapped", None)
    return str(mapped or address)
