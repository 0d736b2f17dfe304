# SPDX-License-Identifier: GPL-2.0
"""Receive hashing that brings a tenant's packets to the tenant's queue.

:What: The indirection table (``ethtool -X``) of each port. With flow rules, or
    for one tenant, it is equal over the queues in use. Without flow rules the
    key is set to one that copies the low bits of the tenant's TCP port into
    the table's index, and each tenant's entries are given to its queues, those
    of connections to come as well. Where the key can't be set (igb), with IPv6,
    and on a tenant's host with virtio-net, the hash of every established
    connection is computed and its entry given to a queue of its tenant's;
    ``rflash-tune watch`` looks again after a login. virtio-net of some kernels
    gives its device a key that is one byte late, so its tables are right with
    either. RSS contexts are not used: they need flow rules as well, and with
    those a queue per tenant is enough.
:Why: nvmet-tcp works where packets arrive; for LIO and rflashd it saves a
    wake-up on another core. A key that is not random lets who may open
    connections choose among a tenant's queues; on a network of strangers,
    ``--skip rss``.
:Source: Flash Storage Disaggregation, section 4; Microsoft, RSS Hashing Functions;
    Documentation/networking/scaling.rst.
:Disruption: none; packets of a connection that moves may be reordered once.
:Undo: The former table and key.
"""

from __future__ import annotations

from rflash_tuning.host.model import Nic
from rflash_tuning.knobs import steering
from rflash_tuning.knobs.draft import PAPER, SCALING, Draft
from rflash_tuning.tune.settings import RssSetting
from rflash_tuning.tune.toeplitz import collisions, port_key, port_table, search_key, steer_table

NAME = "rss"
TITLE = "Receive hashing that brings a tenant's packets to the tenant's queue"


def draw(draft: Draft) -> None:
    for port in draft.ports:
        if port.rss is not None and port.rss.table and len(port.queues) > 1:
            _draw_port(draft, port)


def _draw_port(draft: Draft, port: Nic) -> None:
    if steering.means(draft, port).means != "table":
        _equal(draft, port)
    elif not _by_port(draft, port):
        _by_connection(draft, port)


def _equal(draft: Draft, port: Nic) -> None:
    total = draft.used_queues(port)
    new = {"table": [at % total for at in range(len(port.rss.table))]}
    _want(draft, port, new, f"all hashes equally over the {total} queues in use", SCALING)


def _by_port(draft: Draft, port: Nic) -> bool:
    """By a key that shows the tenants' ports. False where the port, the table or IPv6 does not allow it."""
    ports = [share.port for share in draft.allocation.shares]
    if not (port.rss.key_settable and port.rss.key) or None in ports or steering.has_ipv6(draft):
        return False
    size = len(port.rss.table)
    server, shifts = draft.request.role == "server", steering.key_shifts(port)
    found = port_key(ports, size, len(port.rss.key) // 2, server=server, shifts=shifts)
    if found is None:
        return False
    table = port_table(found, draft.queues(port), size, draft.used_queues(port))
    reason = "a key that shows the tenants' ports, and a table from port to queue (+6 to +11 % with several tenants)"
    _want(draft, port, {"table": table, "key": found.key.hex()}, reason, PAPER)
    return True


def _by_connection(draft: Draft, port: Nic) -> None:
    flows = steering.established(draft)
    if not flows:
        draft.warn(
            f"{port.name} tells tenants apart by the hash of their connections, and there is none yet:"
            " `rflash-tune watch` steers after each login"
        )
        _equal(draft, port)
        return
    size, total, shifts = len(port.rss.table), draft.used_queues(port), steering.key_shifts(port)
    key = present = steering.hash_key(draft, port)
    if port.rss.key_settable and port.rss.key:
        key = search_key(flows, size, len(key), key, shifts)
    queues = dict(enumerate(draft.queues(port)))
    new: dict[str, object] = {"table": steer_table(key, flows, queues, size, total, shifts)}
    if key != present:
        new["key"] = key.hex()
    left = collisions(key, flows, size, shifts)
    if left:
        draft.warn(f"{port.name}: {left} of {len(flows)} connections share a table entry with another tenant's")
    reason = f"by hash, each of the {len(flows)} connections to its tenant's queue (+6 to +11 % with several tenants)"
    _want(draft, port, new, reason, PAPER)


def _want(draft: Draft, port: Nic, new: dict[str, object], reason: str, source: str) -> None:
    old: dict[str, object] = {"table": list(port.rss.table)}
    if "key" in new:
        old["key"] = port.rss.key
    settable = port.rss.table_settable
    draft.want(
        RssSetting(port.name, port.bus),
        old,
        new,
        reason if settable else f"{port.driver} does not let its table be set",
        source,
        foreseen="" if settable else "unchangeable",
    )
