# SPDX-License-Identifier: GPL-2.0
"""Is the host still as it was made, and what is applied at all? Reads only.

Where a value is another than was applied, the sentence names who is active
here and sets values of that kind: a suspicion, and it says so.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

from rflash_tuning import errors
from rflash_tuning.errors import Unchangeable, Unsupported, UsageError
from rflash_tuning.host import tasks
from rflash_tuning.host import tuners as hosttuners
from rflash_tuning.host.model import Tuner
from rflash_tuning.system import System
from rflash_tuning.tune import report
from rflash_tuning.tune.change import Plan, Setting, Value
from rflash_tuning.tune.confirm import seconds_left
from rflash_tuning.tune.journal import State, Target, boot_identity, host_identity, load, reason
from rflash_tuning.tune.report import Outcome, Report, count
from rflash_tuning.tune.revert import Decode
from rflash_tuning.tune.settings import from_json

# Who is known to set what: the kinds of settings, and the beginnings of paths for files.
_NET = ("NetworkManager", "systemd-networkd", "tuned")
_BY_KIND = {
    "irq": ("irqbalance", "tuned"),
    "channels": _NET,
    "ethtool": _NET,
    "rss": ("tuned",),
    "task": ("tuned", "numad"),
}
_BY_PATH = (
    ("/sys/class/net/", _NET),
    ("/proc/sys/net/", ("tuned", "bpftune")),
    ("/proc/sys/", ("tuned",)),
    ("/sys/block/", ("tuned",)),
    ("/sys/devices/system/cpu/", ("tuned", "power-profiles-daemon")),
    ("/proc/irq/", ("irqbalance", "tuned")),
)


def suspects(setting: Setting, tuners: Iterable[Tuner]) -> list[str]:
    """The active tuners that set values of this kind."""
    path = getattr(setting, "path", "")
    known = _BY_KIND.get(setting.kind) or next((names for start, names in _BY_PATH if path.startswith(start)), ())
    return [tuner.name for tuner in tuners if tuner.active and tuner.name in known]


def blame(setting: Setting, tuners: Iterable[Tuner]) -> str:
    """ "irqbalance is active and may have set it.", "" where nobody is known to."""
    names = suspects(setting, tuners)
    if not names:
        return ""
    return f"{' and '.join(names)} {'is' if len(names) == 1 else 'are'} active here and may have set it."


def active_tuners(system: System) -> tuple[Tuner, ...]:
    return hosttuners.read(system, tasks.processes(system))


def verify(
    system: System,
    against: str | Path | Plan,
    tuners: tuple[Tuner, ...] | None = None,
    decode: Decode = from_json,
) -> Report:
    """Compare the host with what was applied (a state directory), or with a plan. Never writes.

    Status OK when everything is as it should be or can't be changed here,
    FAILED when something differs. Raises UsageError.
    """
    tuners = active_tuners(system) if tuners is None else tuners
    if isinstance(against, Plan):
        return _against_plan(system, against, tuners)
    state = load(Path(against), host_identity(system))
    boot_id = boot_identity(system)
    outcomes = [_applied(system, target, tuners, decode) for target in state.targets(boot_id)]
    gone = state.rebooted(boot_id)
    if gone and state.last and state.last.boot_id != boot_id:
        said = f"The reboot has undone {count(len(gone), 'value')} of what was applied; apply it again."
        return Report("verify", errors.FAILED, said, tuple(outcomes))
    return _report(outcomes) if outcomes else Report("verify", errors.OK, "Nothing is applied.")


def _against_plan(system: System, plan: Plan, tuners: tuple[Tuner, ...]) -> Report:
    outcomes = []
    for change in plan.changes:
        if change.foreseen:
            shown = (change.setting.show(change.old), change.setting.show(change.new))
            outcomes.append(Outcome(change.key, change.setting.label(), change.foreseen, *shown, message=change.reason))
        else:
            same = _wanted(change.setting, change.new)
            outcomes.append(_compare(system, change.setting, change.old, change.new, same, tuners))
    return _report(outcomes, plan.right)


def _wanted(setting: Setting, new: Value) -> Callable[[Value], bool]:
    return lambda value: setting.same(value, new)


def _applied(system: System, target: Target, tuners: tuple[Tuner, ...], decode: Decode) -> Outcome:
    last = target.last
    try:
        setting = decode(last.setting)
    except UsageError as error:
        return Outcome(last.key, last.label, report.DIFFERS, message=str(error))

    def is_ours(value: Value) -> bool:
        return setting.same(value, last.new) or (last.reads is not None and setting.same(value, last.reads))

    return _compare(system, setting, target.former, last.new, is_ours, tuners)


def _compare(
    system: System,
    setting: Setting,
    old: Value,
    new: Value,
    is_right: Callable[[Value], bool],
    tuners: tuple[Tuner, ...],
) -> Outcome:
    def outcome(name: str, now: str = "", message: str = "") -> Outcome:
        shown = (setting.show(old), setting.show(new))
        return Outcome(setting.key, setting.label(), name, *shown, now=now, message=message)

    try:
        present = setting.read(system)
    except Unsupported as error:
        return outcome(report.UNSUPPORTED, message=str(error))
    except Unchangeable as error:
        return outcome(report.UNCHANGEABLE, message=str(error))
    except OSError as error:
        return outcome(report.DIFFERS, message=f"It cannot be read: {reason(error)}.")
    if is_right(present):
        return outcome(report.OK)
    return outcome(report.DIFFERS, setting.show(present), blame(setting, tuners))


def _report(outcomes: list[Outcome], right: int = 0) -> Report:
    differing = sum(outcome.outcome == report.DIFFERS for outcome in outcomes)
    excused = sum(outcome.outcome in (report.UNCHANGEABLE, report.UNSUPPORTED) for outcome in outcomes)
    good = len(outcomes) - differing - excused + right
    parts = [f"{count(good, 'value')} as applied"]
    if differing:
        parts.append(f"{differing} not")
    if excused:
        parts.append(f"{excused} not possible on this host")
    message = (", ".join(parts[:-1]) + " and " + parts[-1] if len(parts) > 1 else parts[0]) + "."
    return Report("verify", errors.FAILED if differing else errors.OK, message, tuple(outcomes), right=right)


def status(system: System, state_dir: str | Path, decode: Decode = from_json) -> Report:
    """What is applied here, since when, and whether it still is so. Never writes.

    Status OK, UNCONFIRMED while an apply waits for its confirm, FAILED when
    the last one was cut short or values have drifted. Raises UsageError.
    """
    state = load(Path(state_dir), host_identity(system))
    boot_id = boot_identity(system)
    checked = verify(system, state_dir, decode=decode)
    left = seconds_left(state, boot_id)
    return Report(
        "status",
        _status(state, boot_id, left, checked),
        _sentence(state, boot_id, left, checked),
        tuple(outcome for outcome in checked.outcomes if outcome.outcome != report.OK),
        confirm_within=left,
        applied=_applied_when(state, boot_id),
    )


def _status(state: State, boot_id: str, left: float | None, checked: Report) -> int:
    if left is not None:
        return errors.UNCONFIRMED
    return errors.FAILED if state.unfinished(boot_id) else checked.status


def _sentence(state: State, boot_id: str, left: float | None, checked: Report) -> str:
    targets = state.targets(boot_id)
    if left is not None:
        if state.pending and state.pending.boot_id != boot_id:
            return (
                "An apply of before the reboot was never confirmed: run `rflash-tune revert --unconfirmed` "
                "to put its files back."
            )
        if left > 0:
            return f"An apply of {count(len(targets), 'value')} waits for `rflash-tune confirm`."
        return (
            "An apply was not confirmed in time and is about to be put back; "
            "where that does not happen, run `rflash-tune revert --unconfirmed`."
        )
    if not targets:
        return checked.message
    if state.unfinished(boot_id):
        return "The last apply was cut short: apply again to finish it, or revert."
    return f"{count(len(targets), 'value')} applied. {checked.message}"


def _applied_when(state: State, boot_id: str) -> dict[str, Any]:
    last = state.last
    if last is None or not state.active(boot_id):
        return {}
    return {
        "time": last.time,
        "this_boot": last.boot_id == boot_id,
        "request": last.request,
        "values": len(state.targets(boot_id)),
    }
