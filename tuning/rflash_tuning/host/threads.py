# SPDX-License-Identifier: GPL-2.0
"""Which of LIO's threads serve which tenant.

The kernel does not say. Each connection has a thread iscsi_ttx and, made next,
a thread iscsi_trx (iscsi_target_login.c: iscsit_start_kthreads); their names
hold no number. What can be had, surest first:

1. One tenant is logged in: all pairs are its own. Certain.
2. A portal's login thread (iscsi_np) sleeps except to log somebody in, and it
   makes the pair. So the time at which it last ran (/proc/TID/sched) is that
   of its tenant's newest login, and the pair made at that time is the
   tenant's. Login threads are made in the order of the portals, which is that
   of rflash-target's tenants. Right as long as every tenant has one session,
   its portal was made by rflash-target, and logins were more than 30 ms apart;
   a discovery in between, or several sessions of one tenant, make it unsure.
3. `resolve` (by_load) compares what each tenant's LUN did with what each thread ran in
   the same time. Right when the tenants' loads differ.

Where 1 and 2 do not hold, the tenants are left without threads: no guess is
handed on as knowledge.
"""

from __future__ import annotations

import itertools
import re
import time
from dataclasses import replace

from rflash_tuning.host.model import Host, Task, Tenant
from rflash_tuning.host.targets import LIO, served_by_lio
from rflash_tuning.system import System

_APART = 30.0  # milliseconds between two logins that are to be told apart; threads' start times have 10 ms
_DRIFT = 1000.0  # milliseconds by which a login thread's last run may differ from the pair's start
_TICK = 10.0  # milliseconds of a clock tick of /proc (USER_HZ is 100 on all architectures we run on)


def pairs(tasks: tuple[Task, ...]) -> list[tuple[Task, Task]]:
    """LIO's (iscsi_ttx, iscsi_trx), by time of login. A thread that is alone (it is just ending) is left out."""
    found = []
    waiting: Task | None = None
    for task in sorted(tasks, key=lambda task: (task.start, task.tid)):
        if task.name == "iscsi_ttx":
            waiting = task
        elif task.name == "iscsi_trx" and waiting is not None:
            found.append((waiting, task))
            waiting = None
    return found


def attribute(system: System, tenants: tuple[Tenant, ...], tasks: tuple[Task, ...]) -> tuple[Tenant, ...]:
    """The tenants with the threads that are known to be theirs; see above for how sure that is."""
    known = pairs(tasks)
    targets = served_by_lio(system, tenants)
    served = [tenant for tenant in targets if tenant.sessions]
    if not known or sum(tenant.sessions for tenant in served) != len(known):
        return tenants
    owned = {served[0].identity: known} if len(served) == 1 else _by_login(system, targets, served, tasks, known)
    return tuple(
        replace(tenant, tasks=_tids(owned[tenant.identity])) if tenant.identity in owned else tenant
        for tenant in tenants
    )


def _tids(owned: list[tuple[Task, Task]]) -> tuple[int, ...]:
    return tuple(task.tid for pair in owned for task in pair)


def _by_login(
    system: System,
    targets: list[Tenant],
    served: list[Tenant],
    tasks: tuple[Task, ...],
    known: list[tuple[Task, Task]],
) -> dict[str, list[tuple[Task, Task]]]:
    """IQN -> its pair, by the time at which each portal's login thread last ran; {} when unsure."""
    logins = sorted((task for task in tasks if task.name == "iscsi_np"), key=lambda task: (task.start, task.tid))
    ours = all(re.fullmatch(r"t\d+", tenant.name) for tenant in targets)
    if not ours or len(logins) != len(targets) or any(tenant.sessions != 1 for tenant in served):
        return {}
    ran = {
        tenant.identity: _last_run(system, login.tid)
        for tenant, login in zip(targets, logins, strict=True)
        if tenant.sessions
    }
    if any(moment is None for moment in ran.values()):
        return {}
    ordered = sorted((moment, identity) for identity, moment in ran.items() if moment is not None)
    starts = [pair[0].start * _TICK for pair in known]
    moments = [moment for moment, _ in ordered]
    gaps = [later - earlier for times in (starts, moments) for earlier, later in itertools.pairwise(times)]
    offsets = [moment - start for moment, start in zip(moments, starts, strict=True)]
    if min(gaps) < _APART or max(offsets) - min(offsets) > _DRIFT:
        return {}
    return {identity: [pair] for (_, identity), pair in zip(ordered, known, strict=True)}


def _last_run(system: System, tid: int) -> float | None:
    """Milliseconds since boot at which a thread last ran: `se.exec_start  :  123456.789012` of /proc/TID/sched."""
    match = re.search(r"se\.exec_start\s*:\s*([\d.]+)", system.text(f"/proc/{tid}/sched", "") or "")
    return float(match[1]) if match else None


# By load


def resolve(system: System, host: Host, seconds: float = 0.5) -> Host:
    """The host with threads for tenants that attribute left without, where their load tells them apart.

    Takes two seconds when there is something to find out, and no time
    otherwise. For who has time (watch); probe does without.
    """
    waiting = [tenant for tenant in served_by_lio(system, host.tenants) if tenant.sessions and not tenant.tasks]
    if not waiting or not pairs(host.tasks):
        return host
    found = by_load(system, host.tenants, host.tasks, seconds)
    wanted = {tenant.identity: found[tenant.identity] for tenant in waiting if tenant.identity in found}
    tenants = tuple(replace(tenant, tasks=wanted.get(tenant.identity, tenant.tasks)) for tenant in host.tenants)
    return replace(host, tenants=tenants)


def by_load(
    system: System, tenants: tuple[Tenant, ...], tasks: tuple[Task, ...], seconds: float = 0.5, windows: int = 4
) -> dict[str, tuple[int, ...]]:
    """IQN -> the pair of threads whose activity follows that tenant's; only those that stand out.

    Takes `windows` samples, `seconds` apart. A tenant's activity is the
    commands of its first LUN (configfs: statistics/scsi_tgt_port/in_cmds), a
    pair's the switches of its receiving thread (/proc/TID/status). A pair is a
    tenant's when each is the other's best match and the second best is
    clearly worse.
    """
    known = pairs(tasks)
    served = [tenant for tenant in served_by_lio(system, tenants) if tenant.sessions]
    samples = []
    for window in range(windows + 1):
        if window:
            time.sleep(seconds)
        samples.append(
            (
                [_commands(system, tenant) for tenant in served],
                [_switches(system, pair[1].tid) for pair in known],
            )
        )
    done = [_deltas([sample[0][place] for sample in samples]) for place in range(len(served))]
    ran = [_deltas([sample[1][place] for sample in samples]) for place in range(len(known))]
    return matches([tenant.identity for tenant in served], done, [_tids([pair]) for pair in known], ran)


def matches(
    names: list[str], done: list[list[float]], threads: list[tuple[int, ...]], ran: list[list[float]]
) -> dict[str, tuple[int, ...]]:
    """The mutual best matches of two sets of series, those that are at least twice as near as the next."""
    scale = sum(map(sum, ran)) / max(sum(map(sum, done)), 1)
    distance = [[sum(abs(d * scale - r) for d, r in zip(one, other, strict=True)) for other in ran] for one in done]
    found = {}
    for row, name in enumerate(names):
        if not any(done[row]):
            continue
        order = sorted(range(len(ran)), key=lambda column: distance[row][column])
        best = order[0]
        rival = distance[row][order[1]] if len(order) > 1 else float("inf")
        mutual = min(range(len(names)), key=lambda other: distance[other][best]) == row
        if mutual and rival >= 2 * distance[row][best] and rival > 0:
            found[name] = threads[best]
    return found


def _deltas(values: list[int]) -> list[float]:
    return [float(later - earlier) for earlier, later in itertools.pairwise(values)]


def _commands(system: System, tenant: Tenant) -> int:
    total = 0
    for group in system.names(f"{LIO}/{tenant.identity}"):
        base = f"{LIO}/{tenant.identity}/{group}/lun"
        for lun in system.names(base) if group.startswith("tpgt_") else ():
            total += system.number(f"{base}/{lun}/statistics/scsi_tgt_port/in_cmds", 0) or 0
    return total


def _switches(system: System, tid: int) -> int:
    match = re.search(r"^voluntary_ctxt_switches:\s*(\d+)", system.text(f"/proc/{tid}/status", "") or "", re.MULTILINE)
    return int(match[1]) if match else 0
