# SPDX-License-Identifier: GPL-2.0
"""The tenants' cores at full clock.

:What: ``scaling_governor`` performance for the cores in use; where the driver has no
    such governor, ``energy_performance_preference`` performance. Nothing on a
    host without frequency scaling, such as most guests.
:Why: A request is shorter than the time a governor takes to see a load.
:Source: Documentation/admin-guide/pm/cpufreq.rst; intel_pstate.rst.
:Disruption: none.
:Undo: The former governor or preference.
"""

from __future__ import annotations

import re

from rflash_tuning.knobs.draft import Draft

NAME = "governor"
TITLE = "The tenants' cores at full clock"
SOURCE = "Documentation/admin-guide/pm/cpufreq.rst"
REASON = "a request is over before a governor sees the load"
_POLICY = re.compile(r"(/sys/devices/system/cpu/cpufreq/policy(\d+))/scaling_governor")


def draw(draft: Draft) -> None:
    files = draft.host.files
    used = set(draft.allocation.cpus)
    for path in list(files):
        match = _POLICY.fullmatch(path)
        if match is None:
            continue
        base = match[1]
        # Without the list of its CPUs a policy has the number of its only one.
        cpus = {int(word) for word in files.get(f"{base}/affected_cpus", match[2]).split()}
        if not cpus & used:
            continue
        if "performance" in files.get(f"{base}/scaling_available_governors", "").split():
            draft.want_file(path, "text", "performance", REASON, SOURCE)
        elif "performance" in files.get(f"{base}/energy_performance_available_preferences", "").split():
            draft.want_file(f"{base}/energy_performance_preference", "text", "performance", REASON, SOURCE)
