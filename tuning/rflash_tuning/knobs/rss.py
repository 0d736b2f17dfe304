# SPDX-License-Identifier: GPL-2.0
"""Receive hashing that brings a tenant's packets to the tenant's queue.

:What: The indirection table (``ethtool -X``) of each port. With flow rules, or
    for one tenant, it is equal over the queues in use. Without flow rules the
    hash of every established connection of a tenant's is computed, and its
    entry is given to a queue of that tenant's; where two tenants meet at an
    entry another key is searched, if the port lets it be set. RSS contexts are
    not used: they need flow rules as well, and with those a queue per tenant is
    enough.
:Why: nvmet-tcp works where packets arrive; for LIO and rflashd it saves a
    wake-up on another core. A connection that is made later has a hash of its
    own, so ``rflash-tune watch`` looks again after a login.
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
from rflash_tuning.tune.toeplitz import collisions, search_key, steer_table

NAME = "rss"
TITLE = "Receive hashing that brings a tenant's packets to the tenant's queue"


def draw(draft: Draft) -> None:
    for port in draft.ports:
        if port.rss is not None and port.rss.table and len(port.queues) > 1:
            _draw_port(draft, port)


def _draw_port(draft: Draft, port: Nic) -> None:
    how = steering.means(draft, port).means
    flows = steering.established(draft) if how == "table" else []
    size, total = len(port.rss.table), draft.used_queues(port)
    if how == "table" and not flows:
        draft.warn(
            f"{port.name} tells tenants apart by the hash of their connections, and there is none yet:"
            " `rflash-tune watch` steers after each login"
        )
    old: dict[str, object] = {"table": list(port.rss.table)}
    if not flows:
        new: dict[str, object] = {"table": [at % total for at in range(size)]}
        reason = f"all hashes equally over the {total} queues in use"
        _want(draft, port, old, new, reason, SCALING)
        return
    key = steering.hash_key(draft, port)
    old_key = key
    if port.rss.key_settable and port.rss.key:
        key = search_key(flows, size, len(key), key)
        old["key"] = port.rss.key
    queues = dict(enumerate(draft.queues(port)))
    new = {"table": steer_table(key, flows, queues, size, total)}
    if key != old_key:
        new["key"] = key.hex()
    elif "key" in old:
        del old["key"]
    reason = f"by hash, each of the {len(flows)} connections to its tenant's queue (+6 to +11 % with several tenants)"
    left = collisions(key, flows, size)
    if left:
        draft.warn(f"{port.name}: {left} of {len(flows)} connections share a table entry with another tenant's")
    _want(draft, port, old, new, reason, PAPER)


def _want(draft: Draft, port: Nic, old: dict, new: dict, reason: str, source: str) -> None:
    foreseen = ""
    if not port.rss.table_settable:
        foreseen = "unchangeable"
        reason = f"{port.driver} does not let its table be set"
    draft.want(RssSetting(port.name, port.bus), old, new, reason, source, foreseen=foreseen)
