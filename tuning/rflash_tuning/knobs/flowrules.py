# SPDX-License-Identifier: GPL-2.0
"""A flow rule per tenant, from its TCP port to its queue.

:What: ntuple rules (``ethtool -N``) on each port that has them: one per tenant
    by the tenant's TCP port, or, when a tenant has several connections and
    several queues for them, one per established connection. Not both, since some
    drivers want all rules to match on the same fields. Rules of others stay; a
    tenant's that are not wanted any more go. Not possible with drivers whose rules know
    no TCP ports (igb, igc); the hash does it there.
:Why: The paper's steering: a tenant's packets arrive on the core that owns its
    connection, whatever the hash is. aRFS would follow threads instead, and
    nvmet-tcp has none.
:Source: Flash Storage Disaggregation, section 4: +6 % for 3 tenants with two cores
    each, +11 % for 6 with one, interrupts and threads placed with it.
:Disruption: none; packets of a connection that moves may be reordered once.
:Undo: The rule goes, or is as it was.
"""

from __future__ import annotations

from typing import Any

from rflash_tuning.host.model import Nic, Rule
from rflash_tuning.knobs import steering
from rflash_tuning.knobs.draft import PAPER, Draft
from rflash_tuning.tune.settings import RuleSetting

NAME = "flow-rules"
TITLE = "A flow rule per tenant, from its TCP port to its queue"


def draw(draft: Draft) -> None:
    for port in draft.ports:
        how = steering.means(draft, port)
        if how.means == "rules":
            _draw_port(draft, port)
        elif how.means in ("rfs", "none"):
            draft.warn(how.reason)


def _draw_port(draft: Draft, port: Nic) -> None:
    wanted = _by_connection(draft, port) if steering.by_connection(draft) else _by_port(draft, port)
    _draw_stale(draft, port, {_wanted_match(rule) for rule, _ in wanted})
    present = {_match(rule): rule for rule in port.rules}
    taken = {rule.location for rule in port.rules}
    for rule, tenant in wanted:
        known = present.get(_wanted_match(rule))
        location = known.location if known else _free(taken)
        taken.add(location)
        draft.want(
            RuleSetting(port.name, port.bus, location, rule["flow"], rule.get("dst_port"), rule.get("src_port")),
            _value(known) if known else None,
            rule,
            f"{tenant}'s packets to {tenant}'s queue (+6 % with two cores per tenant, +11 % with one)",
            PAPER,
            tenant=tenant,
        )


def _by_port(draft: Draft, port: Nic) -> list[tuple[dict[str, Any], str]]:
    end = "dst_port" if draft.request.role == "server" else "src_port"
    ports = [share.port for share in draft.allocation.shares]
    wanted = []
    for share, queues in zip(draft.allocation.shares, draft.queues(port), strict=True):
        if share.port is None or ports.count(share.port) > 1:
            continue
        for flow in _families(draft, share.port):
            wanted.append(({"flow": flow, end: share.port, "queue": queues[0]}, share.tenant))
    return wanted


def _families(draft: Draft, port: int) -> list[str]:
    """IPv4, and IPv6 where a tenant listens or is connected there."""
    addresses = [tenant.address for tenant in draft.host.tenants if tenant.port == port]
    addresses += [flow.local for flow in steering.established(draft) if port in (flow.local_port, flow.remote_port)]
    return ["tcp4", "tcp6"] if any(map(steering.is_ipv6, addresses)) else ["tcp4"]


def _by_connection(draft: Draft, port: Nic) -> list[tuple[dict[str, Any], str]]:
    flows = steering.established(draft)
    queues = draft.queues(port)
    turns: dict[int, int] = {}
    wanted = []
    for flow in flows:
        turn = turns[flow.owner] = turns.get(flow.owner, -1) + 1
        family = "tcp6" if steering.is_ipv6(flow.local) else "tcp4"
        mine = queues[flow.owner]
        rule = {
            "flow": family,
            "dst_port": flow.local_port,
            "src_port": flow.remote_port,
            "queue": mine[turn % len(mine)],
        }
        if _wanted_match(rule) not in {_wanted_match(known) for known, _ in wanted}:
            wanted.append((rule, draft.allocation.shares[flow.owner].tenant))
    return wanted


def _draw_stale(draft: Draft, port: Nic, wanted: set[tuple]) -> None:
    """A tenant's rules that are not wanted any more: its connection has ended, or it has several now."""
    ours = {share.port: share.tenant for share in draft.allocation.shares}
    server = draft.request.role == "server"
    for rule in port.rules:
        tenant = ours.get(rule.dst_port if server else rule.src_port)
        if tenant and not rule.other and not rule.dst_ip and _match(rule) not in wanted:
            single = rule.dst_port is not None and rule.src_port is not None
            draft.want(
                RuleSetting(port.name, port.bus, rule.location, rule.flow, rule.dst_port, rule.src_port),
                _value(rule),
                None,
                "the connection that it was for has ended" if single else "each connection gets a rule of its own",
                PAPER,
                tenant=tenant,
            )


def _match(rule: Rule) -> tuple:
    return (rule.flow, rule.dst_port, rule.src_port, rule.dst_ip, rule.other)


def _wanted_match(rule: dict[str, Any]) -> tuple:
    return (rule["flow"], rule.get("dst_port"), rule.get("src_port"), None, "")


def _value(rule: Rule) -> dict[str, Any]:
    names = ("flow", "dst_port", "src_port", "dst_ip", "queue", "other")
    return {name: getattr(rule, name) for name in names if getattr(rule, name) not in (None, "")}


def _free(taken: set[int]) -> int:
    return next(location for location in range(len(taken) + 1) if location not in taken)
