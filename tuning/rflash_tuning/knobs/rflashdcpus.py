# SPDX-License-Identifier: GPL-2.0
"""rflashd's CPU set for each tenant.

:What: ``cpus`` of each tenant in /etc/rflash/rflashd.d, the files that
    rflash-target makes: the tenant's cores. rflashd reads them when it starts or
    is told to (SIGHUP).
:Why: rflashd places a tenant's threads itself, so it is told rather than overruled.
:Source: Flash Storage Disaggregation, section 4.
:Disruption: none.
:Undo: The former file.
"""

from __future__ import annotations

import re

from rflash_tuning.cpulist import format_list
from rflash_tuning.knobs.draft import PAPER, Draft
from rflash_tuning.tune.settings import ConfigSetting

NAME = "rflashd-cpus"
TITLE = "rflashd's CPU set for each tenant"
DIRECTORY = "/etc/rflash/"


def draw(draft: Draft) -> None:
    if draft.request.target != "rflashd" or draft.request.role != "server":
        return
    sets = {share.tenant: format_list(share.connection_cpus + share.io_cpus) for share in draft.allocation.shares}
    for path, text in sorted(draft.host.files.items()):
        if path.startswith(DIRECTORY) and path.endswith(".toml"):
            draft.want(
                ConfigSetting(path),
                text,
                with_cpus(text, sets).rstrip() + "\n",
                "each tenant's threads on its own cores, from rflashd's next start or SIGHUP",
                PAPER,
            )


def with_cpus(text: str, sets: dict[str, str]) -> str:
    """A file with the `cpus` of the tenants named in `sets`; all else as it is."""
    parts = re.split(r"(?m)^(?=\[\[tenant\]\])", text)
    return "".join(_tenant(part, sets) for part in parts)


def _tenant(part: str, sets: dict[str, str]) -> str:
    name = re.search(r'(?m)^name = "([^"]*)"', part)
    if not part.startswith("[[tenant]]") or name is None or name[1] not in sets:
        return part
    line = f'cpus = "{sets[name[1]]}"'
    changed, count = re.subn(r"(?m)^cpus = .*$", line, part)
    if count:
        return changed
    return part.replace(name[0], f"{name[0]}\n{line}", 1)
