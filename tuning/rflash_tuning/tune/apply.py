# SPDX-License-Identifier: GPL-2.0
"""Carry out a plan: journal first, read back afterwards, all or nothing on failure.

A value that reads right is not written. A change that this host does not
allow is an outcome, not an error. A change that fails puts back everything of
this apply, in reverse order. A change of channels makes interrupts anew, and
another tuner goes on until it is told not to, so the host is probed and planned
again after these (a stage).
"""

from __future__ import annotations

import contextlib
import errno
import re
import signal
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict, replace
from pathlib import Path

from rflash_tuning import errors
from rflash_tuning.errors import Unchangeable, Unsupported, UsageError
from rflash_tuning.host.model import Host
from rflash_tuning.system import System
from rflash_tuning.tune import report
from rflash_tuning.tune.change import DISRUPTIONS, Change, Plan, Value
from rflash_tuning.tune.confirm import DEFAULT_SECONDS, Confirmation
from rflash_tuning.tune.journal import (
    Journal,
    Lock,
    Target,
    boot_identity,
    host_identity,
    reason,
    unwritable,
)
from rflash_tuning.tune.pathprobe import Path as NetworkPath
from rflash_tuning.tune.pathprobe import probe as probe_path
from rflash_tuning.tune.report import Outcome, Progress, Report, count, tell
from rflash_tuning.tune.revert import Decode, put_back
from rflash_tuning.tune.settings import from_json

Planner = Callable[[Host], Plan]
Prober = Callable[[str, int], NetworkPath]
ROUNDS = 3
_MTU = re.compile(r"^/sys/class/net/([^/]+)/mtu$")
# A driver may take its link down for a new MTU, and a switch's port may learn before it forwards.
_LINK_SECONDS = 45.0
_LINK_POLL_SECONDS = 0.5
_SMALL = 576  # every IPv4 host must take a packet of this size (RFC 1122, 3.3.2)


class _Failed(Exception):
    """A change failed, or somebody wants to stop: put everything back."""


def apply(
    system: System,
    plan: Plan | Planner,
    state_dir: str | Path,
    max_disruption: str = "target",
    confirm_within: float | None = None,
    progress: Progress | None = None,
    *,
    probe: Callable[[System], Host] | None = None,
    prober: Prober | None = None,
    decode: Decode = from_json,
) -> Report:
    """Carry out a plan, or what a planner makes of the host, in stages.

    max_disruption: worse changes are listed and left alone. confirm_within:
    seconds until all is put back without a `confirm`; None is 60 where a
    change could cut the operator off, 0 is never. progress hears every
    outcome. prober replaces the path probe, which only runs on live systems.

    Raises UsageError before anything is changed. Status: OK, PARTIAL (some
    changes are not possible here or were refused), UNCONFIRMED, or FAILED (the
    host is as it was).
    """
    if max_disruption not in DISRUPTIONS:
        raise UsageError(f"'{max_disruption}' is no disruption; there are {', '.join(DISRUPTIONS)}.")
    if confirm_within is not None and confirm_within < 0:
        raise UsageError(f"A confirm within {confirm_within:g} seconds is not possible; give 1 or more, or 0 for none.")
    directory = Path(state_dir)
    with Lock(directory) as lock:
        journal = Journal(directory, host_identity(system), boot_identity(system))
        try:
            _check_pending(journal)
            _compact(journal)
            _check_plan(plan, journal)
            run = _Run(system, journal, max_disruption, confirm_within, progress, decode, lock.fd)
            run.prober = prober or (probe_path if system.live else None)
            with _held_signals() as stop:
                run.stop = stop
                return run.carry_out(plan, probe)
        finally:
            journal.close()


def _check_pending(journal: Journal) -> None:
    if journal.state.pending is not None:
        raise UsageError(
            "The last apply still waits for its confirm; run `rflash-tune confirm` to keep it or "
            "`rflash-tune revert` to put it back, then apply again. Nothing was changed."
        )


def _check_plan(plan: Plan | Planner, journal: Journal) -> None:
    """A plan has interrupts' and threads' numbers: it is of one host in one boot."""
    if not isinstance(plan, Plan):
        return
    for what, mine in (("host_id", journal.state.host_id), ("boot_id", journal.boot_id)):
        if plan.host.get(what, mine) != mine:
            raise UsageError("That plan was made on another host or before a reboot; plan again. Nothing was changed.")


def _compact(journal: Journal) -> None:
    try:
        journal.compact()
    except OSError as error:
        raise UsageError(unwritable(journal.directory, error)) from error


class _Stop:
    """Has somebody asked us to stop?"""

    signal = 0


@contextlib.contextmanager
def _held_signals() -> Iterator[_Stop]:
    """No signal stops us inside a change: SIGINT and SIGTERM after it, a terminal that is gone not at all."""
    stop = _Stop()
    if threading.current_thread() is not threading.main_thread():
        yield stop
        return

    def remember(number: int, _: object) -> None:
        stop.signal = number

    former = {number: signal.signal(number, remember) for number in (signal.SIGINT, signal.SIGTERM)}
    former[signal.SIGHUP] = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        yield stop
    finally:
        for number, handler in former.items():
            if handler is not None:  # None: one that is not Python's, and can't be put back from here
                signal.signal(number, handler)


class _Run:
    """One apply."""

    def __init__(
        self,
        system: System,
        journal: Journal,
        max_disruption: str,
        confirm_within: float | None,
        progress: Progress | None,
        decode: Decode,
        lock_fd: int,
    ) -> None:
        self.system = system
        self.journal = journal
        self.limit = DISRUPTIONS.index(max_disruption)
        self.confirm_within = confirm_within
        self.progress = progress
        self.decode = decode
        self.prober: Prober | None = None
        self.stop = _Stop()
        seconds = DEFAULT_SECONDS if confirm_within is None else confirm_within
        self.confirmation = Confirmation(system, journal, seconds, decode, (lock_fd,))
        self.outcomes: dict[str, Outcome] = {}
        self.notes: list[str] = []
        self.trouble = ""  # the sentence of what failed
        self.right = 0
        self.request: dict[str, object] = {}

    def carry_out(self, plan: Plan | Planner, probe: Callable[[System], Host] | None) -> Report:
        if self.journal.state.unfinished(self.journal.boot_id):
            self.notes.append("The last apply was cut short; this one goes on from there, and a revert undoes both.")
        try:
            if isinstance(plan, Plan):
                self._execute(plan, list(plan.changes))
            else:
                self._stages(plan, probe or _probe())
            self._finish()
        except _Failed:
            return self._put_back()
        except Exception:
            # A planner's refusal in a later stage, or a bug: the host must not stay half changed for it.
            self._put_back()
            raise
        return self._report()

    # Stages

    def _stages(self, planner: Planner, probe: Callable[[System], Host]) -> None:
        for number in range(ROUNDS):
            plan = planner(probe(self.system))
            changes = [change for change in plan.changes if not self._settled(change)]
            last = self._last_upheaval(changes) if number < ROUNDS - 1 else None
            self._execute(plan, changes if last is None else changes[: last + 1])
            if last is None:
                return

    def _settled(self, change: Change) -> bool:
        """Was it tried in an earlier stage, in vain? A planner that does not know would ask again."""
        before = self.outcomes.get(change.key)
        return before is not None and before.outcome in (report.UNCHANGEABLE, report.UNSUPPORTED, report.REFUSED)

    def _last_upheaval(self, changes: list[Change]) -> int | None:
        """The place of the last change after which the host has to be looked at again.

        New queues have new interrupts. And before a tuner lets go of an
        interrupt it may move one that was right when the plan was made.
        """
        places = [
            place
            for place, change in enumerate(changes)
            if change.setting.kind in ("channels", "config")
            and not change.foreseen
            and not self._too_disruptive(change)
        ]
        return places[-1] if places else None

    def _execute(self, plan: Plan, changes: list[Change]) -> None:
        self.request = asdict(plan.request)
        self.right = max(self.right, plan.right)
        changes = order_mtus(self.system, changes)
        raises = [change for change in changes if _raises_mtu(change)]
        for change in changes:
            if raises and change is raises[0]:
                self._check_peers(plan, raises)
            self._one(change)
            if raises and change is raises[-1]:
                self._check_path(plan, raises)

    # One change

    def _one(self, change: Change) -> None:
        if self.stop.signal:
            self._fail(change, f"It was stopped by {signal.Signals(self.stop.signal).name}.")
        if change.foreseen:
            self._note(change, change.foreseen, message=change.reason)
            return
        present = self._read(change)
        if present is _NOTHING:
            return
        if self._is_right(change, present):
            self._note(change, report.RIGHT, old=present)
            return
        if self._too_disruptive(change):
            allowed = DISRUPTIONS[self.limit]
            message = f"It would disrupt: {change.disruption}; at most '{allowed}' is allowed."
            self._note(change, report.REFUSED, old=present, message=message)
            return
        self._write(change, present)

    def _too_disruptive(self, change: Change) -> bool:
        return DISRUPTIONS.index(change.disruption) > self.limit

    def _read(self, change: Change) -> Value:
        """The value that the machine has now. _NOTHING when that has settled the change."""
        try:
            return change.setting.read(self.system)
        except Unsupported as error:
            self._note(change, report.UNSUPPORTED, message=str(error))
        except Unchangeable as error:
            self._note(change, report.UNCHANGEABLE, message=str(error))
        except OSError as error:
            if error.errno in (errno.ENOENT, errno.ESRCH, errno.ENODEV):
                self._note(change, report.UNSUPPORTED, message=reason(error))
            else:
                self._fail(change, f"It cannot be read: {reason(error)}.")
        return _NOTHING

    def _is_right(self, change: Change, present: Value) -> bool:
        """Wanted, or what the device made of it when it was last asked for just that."""
        same = change.setting.same
        if same(present, change.new):
            return True
        return any(
            entry.key == change.key
            and entry.reads is not None
            and entry.boot_id == self.journal.boot_id
            and same(entry.new, change.new)
            and same(present, entry.reads)
            for entry in self.journal.state.entries
            if not entry.undone
        )

    def _write(self, change: Change, present: Value) -> None:
        n = self._intend(change, present)
        try:
            change.setting.write(self.system, change.new)
        except Unsupported as error:
            self._declined(change, n, present, report.UNSUPPORTED, str(error))
            return
        except Unchangeable as error:
            self._declined(change, n, present, report.UNCHANGEABLE, str(error))
            return
        except OSError as error:
            self._fail(change, f"{reason(error)}.", present)
        self._read_back(change, n, present)

    def _intend(self, change: Change, present: Value) -> int:
        """The journal's line, before anything else."""
        try:
            if not self.journal.begun:
                self.journal.begin(self.request)
            if self._wants_guard(change):
                self.confirmation.arm()
                self._say_guard()
            self.confirmation.keep()
            n = self.journal.intent(change.setting, present, change.new)
        except OSError as error:
            self._fail(change, f"The journal could not be written ({reason(error)}), so the change was not made.")
        return n

    def _wants_guard(self, change: Change) -> bool:
        if self.confirmation.armed or self.confirm_within == 0:
            return False
        return self.confirm_within is not None or (change.cuts_off and self.system.live)

    def _say_guard(self) -> None:
        if self.confirm_within is None:
            self.notes.append(
                f"A change here could cut you off, so all is put back after {self.confirmation.seconds:g} s "
                "without `rflash-tune confirm`."
            )

    def _read_back(self, change: Change, n: int, present: Value) -> None:
        setting = change.setting
        try:
            back = setting.read(self.system)
        except (Unsupported, Unchangeable) as error:
            self._fail(change, f"It was written and cannot be read back: {error}.", present)
        except OSError as error:
            self._fail(change, f"It was written and cannot be read back: {reason(error)}.", present)
        if setting.same(back, change.new):
            self._record_done(n)
            self._note(change, report.CHANGED, old=present)
        elif setting.same(back, present):
            self._declined(change, n, present, report.UNCHANGEABLE, "It takes the new value and keeps the old one.")
        else:
            self._record_done(n, back)
            message = f"The device made {setting.show(back)} of it."
            self._note(change, report.CHANGED, old=present, now=back, message=message)

    def _record_done(self, n: int, reads: Value = None) -> None:
        # An intent that is not known to be done counts as done, so the disk may be full now.
        with contextlib.suppress(OSError):
            self.journal.done(n, reads)

    def _declined(self, change: Change, n: int, present: Value, outcome: str, message: str) -> None:
        """The kernel refused. Did it leave the value alone?"""
        entry = self.journal.state.entries[n - 1]
        restored = put_back(self.system, [Target([entry], entry.old)], self.journal, None, self.decode)
        if restored[0].outcome == report.STUCK:
            self._fail(change, message, present)
        self._note(change, outcome, old=present, message=message)

    # MTU and path

    def _check_peers(self, plan: Plan, raises: list[Change]) -> None:
        """Before the first raise: a peer that answers nothing can't prove a path."""
        if not self.prober or not plan.request.peers or not self._will_raise(raises):
            return
        for peer in plan.request.peers:
            found = self.prober(peer, _SMALL)
            if not found.answers:
                self._fail(raises[0], f"{found.sentence} The MTU stays as it is.")

    def _will_raise(self, raises: list[Change]) -> bool:
        for change in raises:
            if self._too_disruptive(change):
                continue
            with contextlib.suppress(Unsupported, Unchangeable, OSError):
                if not change.setting.same(change.setting.read(self.system), change.new):
                    return True
        return False

    def _check_path(self, plan: Plan, raises: list[Change]) -> None:
        """After the last raise: do packets of that size really get to the peers and back?"""
        raised = [change for change in raises if self.outcomes[change.key].outcome == report.CHANGED]
        if not raised:
            return
        if not plan.request.peers:
            self.notes.append("The MTU was raised and no --peer given, so the path was not probed.")
            return
        if not self.prober:
            return
        size = min(int(change.new) for change in raised)
        for peer in plan.request.peers:
            found = self._once_linked(peer, size)
            if not found.passes:
                self._fail(raised[-1], found.sentence)
            self.notes.append(found.sentence)

    def _once_linked(self, peer: str, size: int) -> NetworkPath:
        """Probe; a peer that answered before gets time to answer again."""
        until = time.monotonic() + _LINK_SECONDS
        while True:
            self._keep_confirmation()
            found = self.prober(peer, size) if self.prober else NetworkPath(peer, size, False)
            if found.answers or time.monotonic() > until or self.stop.signal:
                return found
            time.sleep(_LINK_POLL_SECONDS)

    def _keep_confirmation(self) -> None:
        # Without room for a later deadline the guard keeps to the one it knows.
        with contextlib.suppress(OSError):
            self.confirmation.keep()

    # The end

    def _fail(self, change: Change, sentence: str, old: Value = None) -> None:
        self.trouble = f"{change.setting.label()}: {sentence}"
        self._note(change, report.FAILED, old=change.old if old is None else old, message=sentence)
        raise _Failed

    def _note(self, change: Change, outcome: str, old: Value = None, now: Value = None, message: str = "") -> None:
        show = change.setting.show
        before = self.outcomes.get(change.key)
        if outcome == report.RIGHT and before is not None:
            return  # a later stage sees what an earlier one did
        noted = Outcome(
            key=change.key,
            label=change.setting.label(),
            outcome=outcome,
            # What two stages changed one after the other was before as the first one found it.
            old=before.old if before and before.outcome == report.CHANGED else show(change.old if old is None else old),
            new=show(change.new),
            now="" if now is None else show(now),
            message=message,
            knob=change.knob,
            disruption=change.disruption,
            tenant=change.tenant,
        )
        self.outcomes[change.key] = noted
        tell(self.progress, noted)

    def _finish(self) -> None:
        if not self.journal.begun:
            return
        try:
            if self.confirmation.armed and not self._changed():
                self.journal.confirmed()
                self.confirmation.armed = False
            if self.confirmation.armed:
                self.confirmation.finish()
            self.journal.end()
        except OSError as error:
            self.trouble = f"The journal could not be written ({reason(error)})."
            raise _Failed from error

    def _changed(self) -> bool:
        return any(outcome.outcome == report.CHANGED for outcome in self.outcomes.values())

    def _put_back(self) -> Report:
        """Undo this apply, last change first."""
        group = self.journal.state.last.number if self.journal.begun and self.journal.state.last else None
        targets = [] if group is None else self.journal.state.targets(self.journal.boot_id, group)
        restored = put_back(self.system, targets, self.journal, None, self.decode)
        for back in restored:
            self._mark(back)
        stuck = sum(back.outcome == report.STUCK for back in restored)
        if group is not None and not stuck:
            with contextlib.suppress(OSError):
                self.journal.reverted()
        end = (
            f"{count(stuck, 'value')} could not be put back: run `rflash-tune revert`."
            if stuck
            else "The host is as it was."
        )
        return Report(
            "apply",
            errors.FAILED,
            f"{self.trouble} {end}",
            tuple(self.outcomes.values()),
            tuple(self.notes),
            self.right,
            interrupted=bool(self.stop.signal),
        )

    def _mark(self, back: Outcome) -> None:
        before = self.outcomes.get(back.key)
        if before is None or (before.outcome == report.FAILED and back.outcome != report.STUCK):
            return
        outcome = report.STUCK if back.outcome == report.STUCK else report.UNDONE
        self.outcomes[back.key] = replace(before, outcome=outcome, message=back.message or before.message)

    def _report(self) -> Report:
        outcomes = list(self.outcomes.values())
        armed = self.confirmation.armed
        message = report.apply_message(outcomes)
        if armed:
            message += f" Run `rflash-tune confirm` within {self.confirmation.seconds:g} s, or all is put back."
        return Report(
            "apply",
            report.apply_status(outcomes, armed),
            message,
            tuple(outcomes),
            tuple(self.notes),
            self.right,
            self.confirmation.seconds if armed else None,
        )


_NOTHING = object()


def _probe() -> Callable[[System], Host]:
    # Not needed for a ready plan, nor by the guard of commit-confirm.
    from rflash_tuning.host.probe import probe

    return probe


# The order of MTUs


def _mtu_of(change: Change) -> str | None:
    """The interface whose MTU a change sets."""
    match = _MTU.match(getattr(change.setting, "path", ""))
    return match[1] if match else None


def _raises_mtu(change: Change) -> bool:
    if _mtu_of(change) is None or change.foreseen:
        return False
    return change.old is None or int(change.new) > int(change.old)


def order_mtus(system: System, changes: list[Change]) -> list[Change]:
    """MTUs are raised from the bottom of bonds and VLANs up, and lowered from the top down.

    The kernel refuses a VLAN's MTU above its parent's (vlan_dev_change_mtu),
    and cuts it when the parent's is lowered. Other changes keep their places.
    """
    places = [place for place, change in enumerate(changes) if _mtu_of(change) is not None]
    mtus = [changes[place] for place in places]
    lowered = [change for change in mtus if not _raises_mtu(change)]
    raised = [change for change in mtus if _raises_mtu(change)]
    lowered.sort(key=lambda change: -_height(system, _mtu_of(change) or ""))
    raised.sort(key=lambda change: _height(system, _mtu_of(change) or ""))
    ordered = list(changes)
    for place, change in zip(places, [*lowered, *raised], strict=True):
        ordered[place] = change
    return ordered


def _height(system: System, nic: str, depth: int = 0) -> int:
    """How many interfaces are stacked below: 0 for a port."""
    lowers = [name[len("lower_") :] for name in system.names(f"/sys/class/net/{nic}") if name.startswith("lower_")]
    if not lowers or depth > 8:
        return 0
    return 1 + max(_height(system, lower, depth + 1) for lower in lowers)
