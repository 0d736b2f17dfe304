# SPDX-License-Identifier: GPL-2.0
"""Keep a host tuned: after a login, a hotplug, or somebody else's change.

A round probes, plans, and applies what is missing, journalled and within the
allowed disruption. Rounds come every few seconds, and at once when the kernel
announces a device (its uevents). A round on a host that is right reads and
writes nothing. It costs 40 ms of CPU time on a guest with 2 CPUs and 160
processes and 70 ms where 64 cores and two NVMe devices are described; rounds
are spaced so that watching never takes more than 2 % of one core.

What it will not do: make a change that could cut the operator off, unless it
was applied and kept before in this boot, since nobody is here to confirm it;
fight with another tuner over a value for ever; repeat a failed apply at once.
"""

from __future__ import annotations

import contextlib
import os
import select
import signal
import socket
import threading
import time
from collections import defaultdict, deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path

from rflash_tuning import errors
from rflash_tuning.errors import TuneError, UsageError
from rflash_tuning.host.model import Host
from rflash_tuning.host.probe import probe as probe_host
from rflash_tuning.system import System
from rflash_tuning.tune import report as reports
from rflash_tuning.tune.apply import Planner, apply
from rflash_tuning.tune.change import DISRUPTIONS, Change, Plan
from rflash_tuning.tune.journal import boot_identity, host_identity, load
from rflash_tuning.tune.report import Report
from rflash_tuning.tune.verify import blame

INTERVAL = 5.0  # seconds between rounds
_LARGEST_SHARE = 0.02  # of one core's time
_NETLINK_KOBJECT_UEVENT = 15
_KERNEL_GROUP = 1
# Uevents of these make a round at once; others (of disks' partitions, of power supplies) can wait.
_SUBSYSTEMS = (b"net", b"queues", b"block", b"nvme", b"cpu", b"pci", b"virtio")
_SETTLE = 0.3  # a new device announces itself many times
# So many re-applies of a value within so many seconds are a fight: it is then left alone as long.
_FIGHT_COUNT, _FIGHT_SECONDS = 4, 300.0
_SLOWEST_RETRY = 300.0
# What this host does not allow is tried again after so long, not every round.
_REFUSAL_SECONDS = 3600.0

Tell = Callable[[Report], None]


@dataclass
class Round:
    """One round: what it found, what it did, and what it cost."""

    report: Report | None  # None when there was nothing to say
    cpu_seconds: float


class Watcher:
    """What is known from one round to the next."""

    def __init__(
        self,
        system: System,
        planner: Planner,
        state_dir: str | Path,
        max_disruption: str,
        probe: Callable[[System], Host] = probe_host,
    ) -> None:
        self._system = system
        self._planner = planner
        self._directory = Path(state_dir)
        self._limit = max_disruption
        self._probe = probe
        self._sessions: dict[str, int] | None = None
        self._applied: dict[str, deque[float]] = defaultdict(deque)  # key -> when it was applied
        self._left_alone: dict[str, float] = {}  # key -> until when
        self._said: set[str] = set()  # sentences about what cannot be changed are told once
        self._failures = 0
        self._retry_at = 0.0

    def round(self) -> Round:
        """Look once, and put right what is not. Raises UsageError for a request that makes no sense here."""
        start = time.process_time()
        if time.monotonic() < self._retry_at:
            return Round(None, 0.0)
        host = self._probe(self._system)
        plan = self._planner(host)
        notes = self._logins(host)
        kept = self._kept()
        wanted = [change for change in plan.changes if self._is_wanted(change, kept, host, notes)]
        notes.extend(self._drifted(wanted, kept, host))
        left_out = {change.key for change in plan.changes} - {change.key for change in wanted}
        found = self._apply(left_out, kept) if wanted else None
        return Round(self._told(found, notes), time.process_time() - start)

    # What to do

    def _is_wanted(self, change: Change, kept: set[str], host: Host, notes: list[str]) -> bool:
        """False for what this round must leave alone."""
        if change.foreseen or self._left_alone.get(change.key, 0.0) > time.monotonic():
            return False
        if DISRUPTIONS.index(change.disruption) > DISRUPTIONS.index(self._limit):
            self._once(notes, f"{change.setting.label()} is not right; it would disrupt: {change.disruption}.")
            return False
        if change.cuts_off and change.key not in kept:
            self._once(notes, f"{change.setting.label()} could cut the operator off: `rflash-tune apply` sets it.")
            return False
        return not self._is_fought_over(change, host, notes)

    def _kept(self) -> set[str]:
        """What is applied, and is not waiting for a confirm."""
        state = load(self._directory, host_identity(self._system))
        boot_id = boot_identity(self._system)
        pending = state.pending.number if state.pending else None
        return {entry.key for entry in state.active(boot_id) if entry.group != pending}

    def _is_fought_over(self, change: Change, host: Host, notes: list[str]) -> bool:
        now = time.monotonic()
        times = self._applied[change.key]
        while times and now - times[0] > _FIGHT_SECONDS:
            times.popleft()
        if len(times) < _FIGHT_COUNT:
            return False
        self._left_alone[change.key] = now + _FIGHT_SECONDS
        times.clear()
        who = blame(change.setting, host.tuners) or "Somebody keeps setting it."
        notes.append(
            f"{change.setting.label()} was put right {_FIGHT_COUNT} times in {_FIGHT_SECONDS / 60:g} minutes "
            f"and is left alone for as long. {who}"
        )
        return True

    def _drifted(self, changes: list[Change], kept: set[str], host: Host) -> Iterator[str]:
        """What was applied and is different now, one sentence for all that one tuner may have done."""
        by_tuner: dict[str, list[str]] = {}
        for change in changes:
            if change.key in kept:
                by_tuner.setdefault(blame(change.setting, host.tuners), []).append(change.setting.label())
        for who, labels in by_tuner.items():
            more = f" and {len(labels) - 3} more" if len(labels) > 3 else ""
            yield f"Drifted: {', '.join(labels[:3])}{more}. {who or 'No other tuner is known to be active here.'}"

    def _logins(self, host: Host) -> list[str]:
        """Which tenants have logged in since the last round."""
        before, self._sessions = self._sessions, {tenant.name: tenant.sessions for tenant in host.tenants}
        if before is None:
            return []
        return [
            f"Tenant {name} has logged in ({sessions} {'session' if sessions == 1 else 'sessions'})."
            for name, sessions in self._sessions.items()
            if sessions > before.get(name, 0)
        ]

    # Doing it

    def _apply(self, left_out: set[str], kept: set[str]) -> Report:
        """Apply with the journal; another rflash-tune's work is waited for by the next round."""

        def planner(host: Host) -> Plan:
            plan = self._planner(host)
            changes = [
                change
                for change in plan.changes
                if change.key not in left_out and not change.foreseen and (not change.cuts_off or change.key in kept)
            ]
            return replace(plan, changes=tuple(changes))

        try:
            found = apply(self._system, planner, self._directory, self._limit, 0, probe=self._probe)
        except UsageError as error:
            return Report("watch", errors.USAGE, str(error))
        now = time.monotonic()
        for outcome in found.outcomes:
            if outcome.outcome == reports.CHANGED:
                self._applied[outcome.key].append(now)
            elif outcome.outcome in (reports.UNCHANGEABLE, reports.UNSUPPORTED, reports.REFUSED):
                self._left_alone[outcome.key] = now + _REFUSAL_SECONDS
        self._failures = self._failures + 1 if found.status == errors.FAILED else 0
        if self._failures:
            self._retry_at = now + min(INTERVAL * 2**self._failures, _SLOWEST_RETRY)
        return found

    def _told(self, found: Report | None, notes: list[str]) -> Report | None:
        """What is worth telling: what was done, failed or drifted; what can't be done only once."""
        if found is None:
            return Report("watch", errors.OK, notes[0], notes=tuple(notes[1:])) if notes else None
        if found.status == errors.USAGE:
            return self._unless_said(found)
        outcomes = []
        for outcome in found.outcomes:
            if outcome.outcome in (reports.UNCHANGEABLE, reports.UNSUPPORTED, reports.REFUSED):
                if outcome.key in self._said:
                    continue
                self._said.add(outcome.key)
            if outcome.outcome != reports.RIGHT:
                outcomes.append(outcome)
        if not outcomes and not notes and found.status != errors.FAILED:
            return None
        if self._failures:
            notes.append(f"The next attempt is in {self._retry_at - time.monotonic():.0f} s.")
        return replace(found, verb="watch", outcomes=tuple(outcomes), notes=(*notes, *found.notes))

    def _unless_said(self, found: Report) -> Report | None:
        if found.message in self._said:
            return None
        self._said.add(found.message)
        return found

    def _once(self, notes: list[str], sentence: str) -> None:
        if sentence not in self._said:
            self._said.add(sentence)
            notes.append(sentence)


def watch(
    system: System,
    planner: Planner,
    state_dir: str | Path,
    max_disruption: str = "packets",
    once: bool = False,
    tell: Tell | None = None,
    *,
    interval: float = INTERVAL,
    probe: Callable[[System], Host] = probe_host,
) -> int:
    """Rounds until SIGTERM or SIGINT, or one. Returns an exit status.

    tell hears every report that is worth one. Raises UsageError when the first
    round finds that the request makes no sense here; later ones are told and
    tried again, as a NIC may come back.
    """
    watcher = Watcher(system, planner, state_dir, max_disruption, probe)
    if once:
        found = watcher.round().report
        _tell(tell, found)
        return errors.OK if found is None else found.status
    first = True
    cost = 0.0
    with _Waker() as waker, _Manager() as manager:
        while not waker.stopped:
            try:
                done = watcher.round()
                cost = done.cpu_seconds
                _tell(tell, done.report)
            except TuneError as error:
                if first:
                    raise
                _tell(tell, watcher._unless_said(Report("watch", error.status, str(error))))
            if first:
                manager.ready()
            first = False
            manager.alive()
            waker.wait(max(interval, cost / _LARGEST_SHARE))
        manager.stopping()
    return errors.OK


def _tell(tell: Tell | None, found: Report | None) -> None:
    if tell is not None and found is not None:
        with contextlib.suppress(OSError):  # a terminal or a pipe that is gone
            tell(found)


class _Waker:
    """Waits for the time, a uevent or a signal."""

    def __init__(self) -> None:
        self.stopped = False
        self._poll = select.poll()
        self._events = _uevent_socket()
        self._reader, self._writer = socket.socketpair()
        self._former: dict[int, object] = {}
        self._former_fd = -1

    def __enter__(self) -> _Waker:
        for one in (self._reader, self._writer):
            one.setblocking(False)
        self._poll.register(self._reader, select.POLLIN)
        if self._events is not None:
            self._poll.register(self._events, select.POLLIN)
        if threading.current_thread() is threading.main_thread():
            self._former_fd = signal.set_wakeup_fd(self._writer.fileno(), warn_on_full_buffer=False)
            for number in (signal.SIGTERM, signal.SIGINT):
                self._former[number] = signal.signal(number, self._stop)
        return self

    def __exit__(self, *_: object) -> None:
        for number, handler in self._former.items():
            signal.signal(number, handler)  # type: ignore[arg-type]
        if self._former:
            signal.set_wakeup_fd(self._former_fd)
        for one in (self._reader, self._writer, self._events):
            if one is not None:
                one.close()

    def _stop(self, *_: object) -> None:
        self.stopped = True

    def wait(self, seconds: float) -> None:
        """Until something happened, or so long."""
        until = time.monotonic() + seconds
        while not self.stopped and (left := until - time.monotonic()) > 0:
            ready = self._poll.poll(max(1, int(left * 1000)))
            self._drain_signals()
            if self._events is not None and any(fd == self._events.fileno() for fd, _ in ready) and self._is_ours():
                until = min(until, time.monotonic() + _SETTLE)

    def _drain_signals(self) -> None:
        """A signal during an apply stops that first, by its own handlers; the byte it left here stops us."""
        with contextlib.suppress(BlockingIOError):
            for number in self._reader.recv(64):
                if number in (signal.SIGTERM, signal.SIGINT):
                    self.stopped = True

    def _is_ours(self) -> bool:
        """Was one of the waiting uevents of a device that we tune? Too many to be kept count as one."""
        found = False
        while self._events is not None:
            try:
                data = self._events.recv(1 << 16)
            except BlockingIOError:
                return found
            except OSError:
                return True
            found = found or concerns_us(data)
        return found


def concerns_us(message: bytes) -> bool:
    r"""A uevent: b"add@/devices/...\0ACTION=add\0...\0SUBSYSTEM=net\0"."""
    fields = message.split(b"\0")
    return any(field == b"SUBSYSTEM=" + name for field in fields for name in _SUBSYSTEMS)


def _uevent_socket() -> socket.socket | None:
    """None where the kernel lets us have none (a container): the time alone has to do."""
    try:
        opened = socket.socket(
            socket.AF_NETLINK, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC | socket.SOCK_NONBLOCK, _NETLINK_KOBJECT_UEVENT
        )
    except OSError:
        return None
    try:
        opened.bind((0, _KERNEL_GROUP))
    except OSError:
        opened.close()
        return None
    return opened


class _Manager:
    """systemd, if it started us: sd_notify(3) without its library."""

    def __init__(self) -> None:
        self._socket: socket.socket | None = None

    def __enter__(self) -> _Manager:
        address = os.environ.get("NOTIFY_SOCKET", "")
        if address[:1] in ("/", "@"):
            self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC)
            try:
                self._socket.connect("\0" + address[1:] if address[0] == "@" else address)
            except OSError:
                self.__exit__()
        return self

    def __exit__(self, *_: object) -> None:
        if self._socket is not None:
            self._socket.close()
            self._socket = None

    def _send(self, text: str) -> None:
        if self._socket is not None:
            with contextlib.suppress(OSError):
                self._socket.send(text.encode())

    def ready(self) -> None:
        self._send("READY=1")

    def alive(self) -> None:
        if "WATCHDOG_USEC" in os.environ:
            self._send("WATCHDOG=1")

    def stopping(self) -> None:
        self._send("STOPPING=1")
