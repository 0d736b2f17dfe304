# SPDX-License-Identifier: GPL-2.0
"""Who else sets what we set: said, never changed.

:What: A sentence in the plan for each of tuned, NetworkManager and systemd-networkd
    that is active.
:Why: They write again what they own, at start, at a link change or on a profile's
    switch. ``rflash-tune watch`` puts it right and says who drifted.
:Source: tuned-adm(8), NetworkManager.conf(5), systemd.link(5).
:Disruption: none.
:Undo: nothing to undo.
"""

from __future__ import annotations

from rflash_tuning.knobs.draft import Draft

NAME = "other-tuners"
TITLE = "Who else sets what we set: said, never changed"
CONFLICTS = {
    "tuned": "its profile may set governor, sysctls, disk queues and offloads again:"
    " `rflash-tune plan -o tuned` writes the plan as a profile",
    "NetworkManager": "its connection may set the MTU and offloads again when the link comes up:"
    " give the connection the same MTU",
    "systemd-networkd": "its .link and .network files may set MTU, channels, rings and offloads again",
}


def draw(draft: Draft) -> None:
    for tuner in draft.host.tuners:
        if tuner.active and tuner.name in CONFLICTS:
            draft.warn(f"{tuner.name} is active: {CONFLICTS[tuner.name]}")
