# SPDX-License-Identifier: GPL-2.0
"""As many NIC queues as the allocation needs.

:What: The number of channels (``ethtool -L``) of each physical port: one queue
    for every CPU that owns connections, never more than CPUs that are online.
    Only raised: of more queues the table and the rules use a part, and the
    interrupts of the others go to the same CPUs.
:Why: A tenant needs a queue of its own before its interrupt can be placed.
:Source: Flash Storage Disaggregation, section 4; Documentation/networking/scaling.rst.
:Disruption: packets, or link with drivers that reset the port. Interrupts,
    hashing and steering are planned again afterwards, since drivers forget them.
:Undo: The former number, and all that the driver had forgotten with it.
"""

from __future__ import annotations

from rflash_tuning.host.model import Nic
from rflash_tuning.knobs.draft import PAPER, Draft
from rflash_tuning.tune.settings import ChannelsSetting

NAME = "channels"
TITLE = "As many NIC queues as the allocation needs"


def draw(draft: Draft) -> None:
    wanted = 1 + max(queue for share in draft.allocation.shares for queue in share.queues)
    for port in draft.ports:
        if port.channels is not None:
            _draw_port(draft, port, wanted)


def _draw_port(draft: Draft, port: Nic, wanted: int) -> None:
    present = {key: port.channels.get(key) or 0 for key in ("rx", "tx", "other", "combined")}
    kinds = ["combined"] if port.channels.get("combined-max") else ["rx", "tx"]
    new = {}
    for kind in kinds:
        most = port.channels.get(f"{kind}-max") or present[kind]
        new[kind] = max(present[kind], min(wanted, most))
    if not all(new.values()):
        return
    draft.want(
        ChannelsSetting(port.name, port.bus),
        {"channels": present},
        {"channels": new},
        f"a queue for each of the {wanted} CPUs that own connections",
        PAPER,
        disruption=draft.disruption(port),
        cuts_off=draft.disruption(port) == "link",
    )
