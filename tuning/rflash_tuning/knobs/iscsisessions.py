# SPDX-License-Identifier: GPL-2.0
"""Several iSCSI sessions per tenant, in place of the paper's worker processes: said, never changed.

:What: On a tenant's host, for throughput and mixed, a sentence on
    ``node.session.nr_sessions`` of open-iscsi when a target has fewer than 6
    sessions. It is not set: each session is a disk of its own, which needs
    multipath, and iscsid.conf holds passwords that no tuner should read.
:Why: The paper ran 6 worker processes per tenant on 6 cores instead of the default 8,
    10 % better than 8 and 4.5 times as much as one. LIO has no workers to
    count: it has one thread pair per connection, and open-iscsi one connection
    per session, so sessions are the nearest lever. The paper's figures are for
    workers, not for sessions.
:Source: Flash Storage Disaggregation, section 4.
:Disruption: none.
:Undo: nothing to undo.
"""

from __future__ import annotations

from rflash_tuning.knobs.draft import Draft

NAME = "iscsi-sessions"
TITLE = "Several iSCSI sessions per tenant, in place of the paper's worker processes"
WORKERS = 6  # the paper's best of 1 to 8


def draw(draft: Draft) -> None:
    request = draft.request
    if request.target != "iscsi" or request.role != "tenant" or request.goal == "latency":
        return
    sessions = [tenant.sessions for tenant in draft.host.tenants if tenant.kind == "iscsi"]
    if sessions and min(sessions) >= WORKERS:
        return
    draft.warn(
        f"{WORKERS} sessions per target, with multipath over them, come nearest to the paper's {WORKERS} workers:"
        f" `iscsiadm -m node -T IQN -o update -n node.session.nr_sessions -v {WORKERS}` before the next login"
    )
