# SPDX-License-Identifier: GPL-2.0
"""Segmentation and coalescing of packets in the NIC, by role and goal.

:What: TSO and GSO on, for who sends much: a server reads, a tenant writes. GRO on
    for throughput and mixed. LRO (or GRO in hardware) on where what arrives is
    mostly data: on a tenant with a read share of 50 % and more, on a server
    below that; off for latency, otherwise left as it is. GRO is left as it is
    for latency, since it merges only what has already arrived. LRO is not
    touched on ports of a bridge. ntuple filters on where flow rules are used.
:Why: +8 % with one tenant, +22 % with six, TSO on the server and LRO on the
    tenants. For latency ReFlex's clients switch LRO off.
:Source: Flash Storage Disaggregation, section 4; ReFlex's client notes;
    Documentation/networking/segmentation-offloads.rst.
:Disruption: packets; some drivers reset the port for LRO, so that one is rated link.
:Undo: The former setting of each offload.
"""

from __future__ import annotations

from rflash_tuning.host.model import Nic
from rflash_tuning.knobs import steering
from rflash_tuning.knobs.draft import PAPER, SCALING, Draft
from rflash_tuning.tune.settings import EthtoolSetting

NAME = "offloads"
TITLE = "Segmentation and coalescing of packets in the NIC"
SENDING = ("tx-tcp-segmentation", "tx-tcp6-segmentation", "tx-generic-segmentation")
GAIN = "+8 % with one tenant, +22 % with six"
DATA_SHARE = 50  # per cent of requests whose data arrives here, from which LRO pays; a choice


def draw(draft: Draft) -> None:
    arriving = draft.request.read_share if draft.request.role == "tenant" else 100 - draft.request.read_share
    bridged = {lower for nic in draft.host.nics if nic.kind == "bridge" for lower in nic.lowers}
    for port in draft.ports:
        for name in SENDING:
            _feature(
                draft, port, name, True, f"large sends cut by the NIC ({GAIN}, with LRO at the receiver)", "packets"
            )
        if draft.request.goal != "latency":
            _feature(draft, port, "rx-gro", True, "what arrives together goes up together", "packets")
        if port.name not in bridged:
            _large_receive(draft, port, arriving)
        if steering.means(draft, port).means == "rules":
            _feature(draft, port, "rx-ntuple-filter", True, "flow rules need it", "packets", SCALING)


def _large_receive(draft: Draft, port: Nic, arriving: int) -> None:
    """LRO where the NIC has it, else GRO in hardware."""
    lro = port.features.get("rx-lro")
    hardware = port.features.get("rx-gro-hw")
    name = "rx-lro"
    if (lro is None or not (lro.changeable or lro.active)) and hardware is not None and hardware.changeable:
        name = "rx-gro-hw"
    if draft.request.goal == "latency":
        known = port.features.get(name)
        if known is not None and (known.active or known.changeable):
            _feature(draft, port, name, False, "a merged packet waits for others; ReFlex's clients do without", "link")
    elif arriving >= DATA_SHARE:
        reason = f"{arriving} % of the requests' data arrives here ({GAIN}, with TSO at the sender)"
        _feature(draft, port, name, True, reason, "link")


def _feature(
    draft: Draft, port: Nic, name: str, wanted: bool, reason: str, disruption: str, source: str = PAPER
) -> None:
    known = port.features.get(name)
    if known is None:
        return
    fixed = known.active != wanted and not known.changeable
    draft.want(
        EthtoolSetting(port.name, port.bus, "features", (name,)),
        {name: known.active},
        {name: wanted},
        f"{port.driver or port.name} has it fixed" if fixed else reason,
        source,
        disruption=disruption if disruption != "link" else draft.disruption(port),
        cuts_off=disruption == "link" and draft.disruption(port) == "link",
        foreseen="unchangeable" if fixed else "",
    )
