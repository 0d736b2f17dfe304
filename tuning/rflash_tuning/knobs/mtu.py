# SPDX-License-Identifier: GPL-2.0
"""Jumbo frames, where the path passes them.

:What: The MTU of the NIC and of all below it (bond, VLAN, ports), from the bottom
    up: 9000 with ``--peer``, or what ``--mtu`` says. The path to each peer is
    probed with don't-fragment when it is applied; without a peer and without
    ``--mtu`` nothing is changed. Interfaces below that have more keep it.
:Why: +3 to +12 % over the paper's three cases.
:Source: Flash Storage Disaggregation, section 4.
:Disruption: link; packets with drivers that keep the link. It can cut off who is
    logged in over it, so it runs under confirm.
:Undo: The former MTUs, from the top down.
"""

from __future__ import annotations

from rflash_tuning.errors import UsageError
from rflash_tuning.host.model import Host, Nic
from rflash_tuning.knobs.draft import PAPER, Draft
from rflash_tuning.tune.settings import NET, FileSetting

NAME = "mtu"
TITLE = "Jumbo frames, where the path passes them"
JUMBO = 9000  # the paper's


def draw(draft: Draft) -> None:
    wanted = draft.request.mtu
    for name in draft.request.nics:
        chain = _chain(draft.host, name)
        if wanted is None and not draft.request.peers:
            if min(nic.mtu for nic in chain) < JUMBO:
                draft.warn("jumbo frames (+3 to +12 %) are left out: --peer ADDRESS lets the path be probed for them")
            continue
        limit = min((nic.max_mtu for nic in chain if nic.max_mtu), default=None)
        mtu = _mtu(name, wanted, limit)
        for nic in chain if mtu >= chain[-1].mtu else reversed(chain):
            _want(draft, nic, mtu if nic is chain[-1] else max(nic.mtu, mtu))


def _mtu(name: str, wanted: int | None, limit: int | None) -> int:
    if wanted is None:
        return JUMBO if limit is None else min(JUMBO, limit)
    if limit is not None and wanted > limit:
        raise UsageError(f"{name} takes an MTU of {limit} at most")
    return wanted


def _want(draft: Draft, nic: Nic, mtu: int) -> None:
    physical = nic.kind == "physical"
    if draft.request.mtu is None:
        mtu = max(mtu, nic.mtu)
    draft.want(
        FileSetting(f"{NET}/{nic.name}/mtu", "number", nic.name, nic.bus),
        nic.mtu,
        mtu,
        "fewer packets for the same data: +3 to +12 %",
        PAPER,
        disruption=draft.disruption(nic) if physical else "packets",
        cuts_off=True,
    )


def _chain(host: Host, name: str) -> list[Nic]:
    """An interface and all below it, lowest first, itself last."""
    found: list[Nic] = []

    def visit(one: str) -> None:
        nic = host.nic(one)
        if nic is None or nic in found:
            return
        for lower in nic.lowers:
            visit(lower)
        found.append(nic)

    visit(name)
    return found
