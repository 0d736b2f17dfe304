# SPDX-License-Identifier: GPL-2.0
"""Ring sizes, by goal.

:What: The receive and transmit rings' sizes (``ethtool -G``), where they can be
    set: at least 4096 for throughput and 512 for latency, or the driver's
    maximum. Never lowered, and left alone for mixed. The figures are a choice.
:Why: Several tenants' bursts meet in one ring; a ring that overflows costs a
    retransmission. A ring that is too large falls out of the cache, so latency
    gets a moderate one. Without a figure of any paper's, mixed is not worth a
    link that goes down.
:Source: Documentation/networking/scaling.rst names queues, not sizes; no paper has a figure.
:Disruption: packets, or link with drivers that reset the port.
:Undo: The former sizes.
"""

from __future__ import annotations

from rflash_tuning.knobs.draft import Draft
from rflash_tuning.tune.settings import EthtoolSetting

NAME = "rings"
TITLE = "Ring sizes, by goal"
LEAST = {"throughput": 4096, "latency": 512}
SOURCE = "a choice; the driver's maximum by ethtool -g"


def draw(draft: Draft) -> None:
    least = LEAST.get(draft.request.goal, 0)
    for port in draft.ports:
        rings = port.rings or {}
        names = tuple(name for name in ("rx", "tx") if rings.get(name) and rings.get(f"{name}-max"))
        if not names or not least:
            continue
        draft.want(
            EthtoolSetting(port.name, port.bus, "rings", names),
            {name: rings[name] for name in names},
            {name: max(rings[name], min(least, rings[f"{name}-max"])) for name in names},
            f"room for bursts of several tenants; at least {least} for {draft.request.goal}",
            SOURCE,
            disruption=draft.disruption(port),
            cuts_off=draft.disruption(port) == "link",
        )
