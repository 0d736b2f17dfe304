# SPDX-License-Identifier: GPL-2.0
"""By what means a NIC can bring a tenant's packets to the tenant's queue.

The ladder, best first: flow rules; the indirection table by the computed hash
of connections that are established; RFS, which follows pinned threads; none.
"""

from __future__ import annotations

from dataclasses import dataclass

from rflash_tuning.host.model import Connection, Nic
from rflash_tuning.knobs.draft import Draft
from rflash_tuning.tune.allocation import STEERED
from rflash_tuning.tune.toeplitz import EXACT, Flow

# Drivers whose flow rules know Ethernet types and VLANs but no TCP ports
# (igb_add_ethtool_nfc_entry, igc_ethtool_add_nfc_rule).
NO_PORT_RULES = ("igb", "igc")
# Drivers that do not show the hash key and use the kernel's own (netdev_rss_key_fill).
KERNEL_KEY = ("igb", "igc")
# Drivers whose emulation takes a table and ignores it; a hypervisor's may not.
TABLE_UNSURE = ("vmxnet3",)
# By how many bytes a key may reach the device late. virtio_net of some kernels
# (measured with 6.12.107) puts a byte of padding before it, by a flexible array
# that is not where its structure ends; the device then hashes with that byte
# and the key without its last one. What is shown is the key as it was given.
LATE_KEYS = {"virtio_net": (0, 1)}
KERNEL_KEY_FILE = "/proc/sys/net/core/netdev_rss_key"
MOST_RULES = 128  # connections that get a rule each; a choice below the smallest table known (ixgbe's 2 K)


@dataclass(frozen=True)
class Steering:
    """What a port can do for this request."""

    means: str  # spread, rules, table, rfs, none
    reason: str


def means(draft: Draft, port: Nic) -> Steering:
    """The best means of a port."""
    if len(draft.allocation.shares) == 1:
        return Steering("spread", "one tenant: all queues are its own")
    if draft.request.target == "nvmet-rdma":
        return Steering("none", "RDMA queue pairs bring completion vectors of their own; NIC queues do not place them")
    if len(port.queues) > 1 and has_rules(port) and not _too_many(draft):
        return Steering("rules", f"{port.name} has flow rules")
    if has_table(draft, port):
        return Steering("table", f"{port.name} has no flow rules for TCP ports, but its table can be set")
    if draft.request.target not in STEERED and draft.request.role == "server":
        return Steering("rfs", f"{port.name} has neither flow rules nor a table to rely on; RFS follows pinned threads")
    return Steering("none", f"{port.name} has no means to tell tenants apart")


def _too_many(draft: Draft) -> bool:
    return by_connection(draft) and len(established(draft)) > MOST_RULES


def has_rules(port: Nic) -> bool:
    feature = port.features.get("rx-ntuple-filter")
    usable = feature is None or feature.active or feature.changeable
    return port.rules is not None and usable and port.driver not in NO_PORT_RULES


def has_table(draft: Draft, port: Nic) -> bool:
    return (
        len(port.queues) > 1
        and port.rss is not None
        and bool(port.rss.table)
        and port.rss.table_settable
        and port.rss.function in ("", "toeplitz")
        and port.driver not in TABLE_UNSURE
        and any(hash_key(draft, port))
    )


def hash_key(draft: Draft, port: Nic) -> bytes:
    """The key that the port hashes with; b"" when nobody says."""
    text = port.rss.key if port.rss else ""
    if not text and port.driver in KERNEL_KEY:
        text = draft.host.files.get(KERNEL_KEY_FILE, "")
    try:
        return bytes.fromhex(text.replace(":", ""))
    except ValueError:
        return b""


def key_shifts(port: Nic) -> tuple[int, ...]:
    """By how many bytes the key may come late; tables are made for all of them."""
    return LATE_KEYS.get(port.driver, EXACT)


def by_connection(draft: Draft) -> bool:
    """Does every connection need a rule of its own? Yes when one tenant has several, and several queues for them."""
    places = [flow.owner for flow in established(draft)]
    return any(len(share.queues) > 1 and places.count(place) > 1 for place, share in enumerate(draft.allocation.shares))


def established(draft: Draft) -> list[Flow]:
    """The tenants' connections, in a stable order; owner is the place of the share."""
    server = draft.request.role == "server"
    ports = [share.port for share in draft.allocation.shares]
    places = {port: place for place, port in enumerate(ports) if port and ports.count(port) == 1}

    def port_of(connection: Connection) -> int:
        return connection.local_port if server else connection.remote_port

    found = [
        Flow(
            connection.local,
            connection.local_port,
            connection.remote,
            connection.remote_port,
            places[port_of(connection)],
        )
        for connection in draft.host.connections
        if port_of(connection) in places and not _loops(connection)
    ]
    return sorted(found, key=lambda flow: (flow.owner, flow.remote, flow.remote_port, flow.local, flow.local_port))


def has_ipv6(draft: Draft) -> bool:
    """Is a tenant connected by IPv6? An address that only listens on both is no sign of it."""
    return any(is_ipv6(flow.local) for flow in established(draft)) or any(
        is_ipv6(tenant.address) and tenant.address != "::"
        for tenant in draft.host.tenants
        if tenant.kind == draft.request.target
    )


def is_ipv6(address: str) -> bool:
    return ":" in address and not address.startswith("::ffff:")


def _loops(connection: Connection) -> bool:
    """A connection of the host with itself never meets a NIC."""
    return connection.local == connection.remote
