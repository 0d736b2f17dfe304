# SPDX-License-Identifier: GPL-2.0
"""Put everything back as it was before the first apply, from the journal alone.

Works after a finished apply, half of one, a crash at any point of either, a
reboot and a renamed NIC. What is in the way is reported and the rest is put
back nevertheless; a second revert goes on where the first one could not.
"""

from __future__ import annotations

import contextlib
import errno
from collections.abc import Callable
from pathlib import Path
from typing import Any

from rflash_tuning import errors
from rflash_tuning.errors import Unchangeable, Unsupported, UsageError
from rflash_tuning.system import System
from rflash_tuning.tune import report
from rflash_tuning.tune.change import Setting, Value
from rflash_tuning.tune.journal import (
    Journal,
    Lock,
    State,
    Target,
    boot_identity,
    existing,
    host_identity,
    load,
    reason,
)
from rflash_tuning.tune.report import Outcome, Progress, Report, count, tell
from rflash_tuning.tune.settings import from_json

Decode = Callable[[dict[str, Any]], Setting]
# The thing itself is no more: unplugged, ended, unloaded.
_GONE = (errno.ENOENT, errno.ENODEV, errno.ESRCH, errno.ENXIO)
_SETTLED = (report.RESTORED, report.RIGHT, report.KEPT, report.GONE)


def revert(
    system: System,
    state_dir: str | Path,
    unconfirmed: bool = False,
    progress: Progress | None = None,
    decode: Decode = from_json,
) -> Report:
    """Put back all that is in the journal, or only an apply that waits for its confirm.

    Raises UsageError (another host's journal, an unknown schema, another
    rflash-tune at work); the host is then untouched. Status FAILED when a
    value could not be put back; the journal keeps it.
    """
    directory = Path(state_dir)
    if not existing(directory):
        return Report("revert", errors.OK, "There is no journal, so nothing to put back.")
    with Lock(directory, create=False):
        state = load(directory, host_identity(system))
        try:
            journal = Journal(directory, state.host_id, boot_identity(system))
        except UsageError as error:
            # A full or read-only disk must not keep anybody from a revert.
            found = revert_state(system, state, None, unconfirmed, progress, decode)
            return _with_note(found, f"{error} The values were put back all the same.")
        try:
            return revert_state(system, journal.state, journal, unconfirmed, progress, decode)
        finally:
            journal.close()


def _with_note(found: Report, note: str) -> Report:
    return Report(found.verb, found.status, found.message, found.outcomes, (*found.notes, note))


def revert_state(
    system: System,
    state: State,
    journal: Journal | None,
    unconfirmed: bool,
    progress: Progress | None = None,
    decode: Decode = from_json,
) -> Report:
    """Revert what a State says; journal None records nothing."""
    boot_id = boot_identity(system)
    pending = state.pending
    if unconfirmed and pending is None:
        return Report("revert", errors.OK, "No apply waits for a confirm.")
    group = pending.number if unconfirmed and pending else None
    rebooted = [entry for entry in state.rebooted(boot_id) if group is None or entry.group == group]
    outcomes = put_back(system, state.targets(boot_id, group), journal, progress, decode)
    stuck = [outcome for outcome in outcomes if outcome.outcome == report.STUCK]
    with contextlib.suppress(OSError):
        for entry in rebooted if journal else ():
            journal.undone(entry.n)
        if journal and not stuck and (pending or (state.last and not state.last.ended)):
            journal.reverted()
    notes = (f"{count(len(rebooted), 'value')} of before the reboot went with it.",) if rebooted else ()
    status = errors.FAILED if stuck else errors.OK
    return Report("revert", status, _message(outcomes, bool(rebooted)), tuple(outcomes), notes)


def _message(outcomes: list[Outcome], rebooted: bool) -> str:
    def number(name: str) -> int:
        return sum(outcome.outcome == name for outcome in outcomes)

    if not outcomes:
        return "The reboot has put everything back." if rebooted else "Nothing was changed, so nothing to put back."
    if number(report.STUCK):
        return (
            f"{count(number(report.STUCK), 'value')} could not be put back, {number(report.RESTORED)} were; "
            "see to it and run `rflash-tune revert` again."
        )
    parts = [f"{count(number(report.RESTORED), 'value')} put back"]
    if number(report.RIGHT):
        parts.append(f"{number(report.RIGHT)} as before already")
    if number(report.GONE):
        parts.append(f"{number(report.GONE)} gone with their device or thread")
    if number(report.KEPT):
        parts.append(f"{count(number(report.KEPT), 'file')} edited since and left so")
    return ", ".join(parts) + ("." if number(report.KEPT) else "; the host is as it was.")


def put_back(
    system: System,
    targets: list[Target],
    journal: Journal | None,
    progress: Progress | None = None,
    decode: Decode = from_json,
) -> list[Outcome]:
    """Give every target its former value, last changed first. Never raises for what is in the way."""
    outcomes = []
    for target in reversed(targets):
        outcome = _restore(system, target, decode)
        if journal and outcome.outcome in _SETTLED:
            # Unrecorded it is done again by the next revert, which does no harm.
            with contextlib.suppress(OSError):
                for entry in target.entries:
                    journal.undone(entry.n)
        tell(progress, outcome)
        outcomes.append(outcome)
    return outcomes


def _restore(system: System, target: Target, decode: Decode) -> Outcome:
    try:
        setting = decode(target.last.setting)
    except UsageError as error:
        return Outcome(target.first.key, target.first.label, report.STUCK, message=str(error))
    try:
        present = setting.read(system)
    except Unsupported as error:
        return _outcome(setting, target, report.GONE, message=str(error))
    except Unchangeable as error:
        return _outcome(setting, target, report.STUCK, message=str(error))
    except OSError as error:
        gone = error.errno in _GONE
        return _outcome(setting, target, report.GONE if gone else report.STUCK, message=reason(error))
    if _equal(setting, present, target.former):
        _settle(setting, system, target)
        return _outcome(setting, target, report.RIGHT)
    return _write_back(system, setting, target, present)


def _equal(setting: Setting, one: Value, other: Value) -> bool:
    """Kernel state is what it means; a file on disk is every byte of it."""
    return setting.same(one, other) if setting.volatile else one == other


def _settle(setting: Setting, system: System, target: Target) -> None:
    """A crash may have come between a configuration file and its service's restart: complete it."""
    with contextlib.suppress(OSError):
        setting.settle(system, target.former)


def _write_back(system: System, setting: Setting, target: Target, present: Value) -> Outcome:
    ours = target.ours(present) or (setting.volatile and any(setting.same(present, e.new) for e in target.entries))
    shown = setting.show(present)
    if not setting.volatile and not ours:
        message = f"{setting.label()} was edited after rflash-tune had changed it; the edit stays."
        return _outcome(setting, target, report.KEPT, now=shown, message=message)
    trouble = ""
    try:
        setting.write(system, target.former)
    except (Unsupported, Unchangeable) as error:
        trouble = str(error)
    except OSError as error:
        trouble = reason(error)
    try:
        back = setting.read(system)
    except (Unsupported, Unchangeable, OSError) as error:
        return _outcome(setting, target, report.STUCK, message=trouble or str(error))
    if not _equal(setting, back, target.former):
        message = trouble or f"it was written and reads back as {setting.show(back)}"
        return _outcome(setting, target, report.STUCK, now=setting.show(back), message=message)
    drifted = "" if ours else f"It had drifted to {shown} since."
    return _outcome(setting, target, report.RESTORED, now="" if ours else shown, message=trouble or drifted)


def _outcome(setting: Setting, target: Target, outcome: str, now: str = "", message: str = "") -> Outcome:
    return Outcome(
        key=setting.key,
        label=setting.label(),
        outcome=outcome,
        old=setting.show(target.former),
        new=setting.show(target.last.new),
        now=now,
        message=message,
    )
