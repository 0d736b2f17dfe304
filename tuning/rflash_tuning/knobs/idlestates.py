# SPDX-License-Identifier: GPL-2.0
"""No deep sleep on the tenants' cores, for latency.

:What: With the goal latency, ``disable`` of each idle state of the cores in use that
    takes more than 10 us to leave. The limit is a choice: half of the 21 us that
    ReFlex adds to a request in all. Other goals leave the states alone.
:Why: A core that sleeps deeply answers late, and an unloaded tenant's requests
    always find it asleep.
:Source: Documentation/admin-guide/pm/cpuidle.rst; ReFlex (ASPLOS'17), figure of +21 us.
:Disruption: none; it costs power.
:Undo: The former value of each state.
"""

from __future__ import annotations

import re

from rflash_tuning.knobs.draft import Draft

NAME = "idle-states"
TITLE = "No deep sleep on the tenants' cores, for latency"
SOURCE = "Documentation/admin-guide/pm/cpuidle.rst"
LONGEST = 10  # microseconds to leave a state
_LATENCY = re.compile(r"/sys/devices/system/cpu/cpu(\d+)/cpuidle/state(\d+)/latency")


def draw(draft: Draft) -> None:
    if draft.request.goal != "latency":
        return
    cpus = set(draft.allocation.cpus)
    for path, text in draft.host.files.items():
        match = _LATENCY.fullmatch(path)
        if match and int(match[1]) in cpus and text.isdigit() and int(text) > LONGEST:
            reason = f"this idle state takes {text} us to leave"
            draft.want_file(path.removesuffix("latency") + "disable", "number", 1, reason, SOURCE)
