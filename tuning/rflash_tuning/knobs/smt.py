# SPDX-License-Identifier: GPL-2.0
"""Hardware threads: reported, and switched off only when asked for.

:What: With ``--only smt`` (or it among others) /sys/devices/system/cpu/smt/control is
    set to off. Otherwise the plan says that hardware threads are on.
:Why: The paper had them off and saw no gain from them. A tenant's core is dealt
    with all its threads, so they do no harm either.
:Source: Flash Storage Disaggregation, section 4; Documentation/admin-guide/cputopology.rst.
:Disruption: packets; interrupts move from CPUs that go.
:Undo: The former state.
"""

from __future__ import annotations

from rflash_tuning.knobs.draft import PAPER, Draft
from rflash_tuning.tune.settings import FileSetting

NAME = "smt"
TITLE = "Hardware threads: reported, and switched off only when asked for"
CONTROL = "/sys/devices/system/cpu/smt/control"


def draw(draft: Draft) -> None:
    if draft.host.smt != "on":
        return
    if NAME not in draft.request.knobs:
        draft.warn("hardware threads are on; the paper saw no gain from them, and they are left on (--only smt)")
        return
    draft.want(
        FileSetting(CONTROL),
        "on",
        "off",
        "the paper saw no gain from hardware threads",
        PAPER,
        disruption="packets",
    )
