# SPDX-License-Identifier: GPL-2.0
"""Several iSCSI sessions per tenant, in place of the paper's worker processes.

:What: On a tenant's host, ``node.session.nr_sessions`` of /etc/iscsi/iscsid.conf of at
    least 6, for throughput and mixed, where multipath is configured (each
    session is a disk of its own, so without multipath the plan only says so).
    For targets discovered afterwards.
:Why: The paper ran 6 worker processes per tenant on 6 cores instead of the default 8,
    10 % better than 8 and 4.5 times as much as one. LIO has no workers to
    count: it has one thread pair per connection, and open-iscsi one connection
    per session, so sessions are the nearest lever. The paper's figures are for
    workers, not for sessions.
:Source: Flash Storage Disaggregation, section 4.
:Disruption: none.
:Undo: The former file.
"""

from __future__ import annotations

import re

from rflash_tuning.knobs.draft import PAPER, Draft
from rflash_tuning.tune.settings import ConfigSetting

NAME = "iscsi-sessions"
TITLE = "Several iSCSI sessions per tenant, in place of the paper's worker processes"
PATH = "/etc/iscsi/iscsid.conf"
MULTIPATH = "/etc/multipath.conf"
WORKERS = 6  # the paper's best of 1 to 8
_LINE = re.compile(r"(?m)^[ \t]*node\.session\.nr_sessions[ \t]*=[ \t]*(\d+)[ \t]*$")


def draw(draft: Draft) -> None:
    request = draft.request
    text = draft.host.files.get(PATH)
    if request.target != "iscsi" or request.role != "tenant" or request.goal == "latency" or text is None:
        return
    wanted = with_sessions(text, WORKERS)
    if wanted.rstrip() == text.rstrip():
        draft.right += 1
        return
    if MULTIPATH not in draft.host.files:
        draft.warn(
            f"{WORKERS} sessions per target would be the nearest to the paper's {WORKERS} workers"
            f" (node.session.nr_sessions in {PATH}), but each is a disk of its own and multipath is not configured here"
        )
        return
    reason = f"{WORKERS} connections, so {WORKERS} thread pairs in the target (6 workers: +10 % over 8, 4.5 times one)"
    draft.want(ConfigSetting(PATH), text, wanted, reason, PAPER)


def with_sessions(text: str, least: int) -> str:
    """The configuration with at least so many sessions; the last line of a kind counts."""
    found = list(_LINE.finditer(text))
    if not found:
        return text.rstrip() + f"\nnode.session.nr_sessions = {least}\n"
    last = found[-1]
    if int(last[1]) >= least:
        return text
    return text[: last.start()] + f"node.session.nr_sessions = {least}" + text[last.end() :].rstrip() + "\n"
