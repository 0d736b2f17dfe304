# SPDX-License-Identifier: GPL-2.0
"""Threads that a plan may place, or must know of.

Source: /proc/PID/stat (proc_pid_stat(5)). Workers of kernel work queues
(kworker/3:1H-nvmet_tcp_wq) are left out: they are bound to their CPUs or
serve anybody, so neither can be a tenant's.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from rflash_tuning.host.model import Task
from rflash_tuning.system import System

_KTHREAD = 0x00200000  # PF_KTHREAD of include/linux/sched.h
_BOUND = 0x04000000  # PF_NO_SETAFFINITY
# LIO's threads (iscsi_target_login.c), threaded NAPI (net/core/dev.c), our server,
# the iSCSI initiator's daemon, and who else moves things.
_KERNEL = re.compile(r"iscsi_(trx|ttx|np)|napi/.+")
_USER = re.compile(r"rflashd|iscsid|irqbalance|tuned")


@dataclass(frozen=True)
class Process:
    """A process, as one line of /proc/PID/stat says."""

    pid: int
    name: str
    flags: int
    start: int  # clock ticks since boot

    @property
    def kernel(self) -> bool:
        return bool(self.flags & _KTHREAD)

    @property
    def bound(self) -> bool:
        return bool(self.flags & _BOUND)


def processes(system: System) -> tuple[Process, ...]:
    """All processes, kernel threads included."""
    found = (parse(system.text(f"/proc/{name}/stat")) for name in system.names("/proc") if name.isdecimal())
    return tuple(process for process in found if process is not None)


def parse(stat: str | None) -> Process | None:
    """`45 (iscsi_trx) S 2 0 0 0 -1 2129984 ...`: the name is in brackets and may hold any character."""
    if not stat:
        return None
    head, _, tail = stat.rpartition(")")
    pid, _, name = head.partition(" (")
    fields = tail.split()
    if len(fields) < 20 or not pid.isdecimal():
        return None
    return Process(int(pid), name, int(fields[6]), int(fields[19]))


def wanted(name: str) -> bool:
    """Is a process of this name one of those that are read?"""
    return bool(_KERNEL.fullmatch(name) or _USER.fullmatch(name))


def read(system: System, known: tuple[Process, ...]) -> tuple[Task, ...]:
    """The threads of interest of these processes, by thread id."""
    found = []
    for process in known:
        pattern = _KERNEL if process.kernel else _USER
        if not pattern.fullmatch(process.name):
            continue
        threads = [process]
        if not process.kernel:
            names = [name for name in system.names(f"/proc/{process.pid}/task") if name.isdecimal()]
            stats = [parse(system.text(f"/proc/{process.pid}/task/{name}/stat")) for name in names]
            threads = [thread for thread in stats if thread is not None] or [process]
        found += [_task(system, process.pid, thread) for thread in threads]
    return tuple(sorted((task for task in found if task is not None), key=lambda task: task.tid))


def _task(system: System, pid: int, thread: Process) -> Task | None:
    try:
        cpus = system.affinity(thread.pid)
    except OSError:
        return None  # it ended meanwhile
    return Task(thread.pid, pid, thread.name, thread.start, cpus, thread.kernel, thread.bound)
