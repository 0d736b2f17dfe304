# SPDX-License-Identifier: GPL-2.0
"""What came of an apply, a revert or a verify: one outcome per value, one sentence for all, one exit status."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from typing import Any

from rflash_tuning import errors

SCHEMA = 1

# apply
CHANGED = "changed"
RIGHT = "right"
UNCHANGEABLE = "unchangeable"
UNSUPPORTED = "unsupported"
FAILED = "failed"
REFUSED = "refused"  # more disruptive than --max-disruption allows, or it could cut the operator off
UNDONE = "undone"  # was changed, and put back because something else failed
# verify
OK = "ok"
DIFFERS = "differs"
# revert
RESTORED = "restored"
KEPT = "kept"  # somebody has edited the file since: theirs stays
GONE = "gone"  # the device or thread is no more, and its value with it
STUCK = "stuck"  # could not be put back

APPLY_OUTCOMES = (CHANGED, RIGHT, UNCHANGEABLE, UNSUPPORTED, FAILED, REFUSED, UNDONE, STUCK)
VERIFY_OUTCOMES = (OK, DIFFERS, UNCHANGEABLE, UNSUPPORTED)
REVERT_OUTCOMES = (RESTORED, RIGHT, KEPT, GONE, STUCK)


@dataclass(frozen=True)
class Outcome:
    """What became of one value. `old`, `new` and `now` are as a person reads them; "" where unknown."""

    key: str
    label: str
    outcome: str
    old: str = ""  # before
    new: str = ""  # wanted
    now: str = ""  # read back, where it is neither
    message: str = ""  # one sentence, where the outcome alone does not say enough
    knob: str = ""
    disruption: str = ""
    tenant: str = ""


Progress = Callable[[Outcome], None]


@dataclass(frozen=True)
class Report:
    """The end of a command. `status` is its exit status (errors.py)."""

    verb: str  # apply, revert, verify, status, confirm, watch
    status: int
    message: str  # one sentence
    outcomes: tuple[Outcome, ...] = ()
    notes: tuple[str, ...] = ()  # more sentences: what else a person should know
    right: int = 0  # values the planner looked at that were right already
    confirm_within: float | None = None  # seconds left until all is put back
    interrupted: bool = False
    applied: dict[str, Any] = field(default_factory=dict)  # status: when, in which boot, for which request

    @property
    def changed(self) -> bool:
        """Did this command change the host? (A change that was put back did not.)"""
        return any(outcome.outcome in (CHANGED, RESTORED, STUCK) for outcome in self.outcomes)

    def counts(self) -> dict[str, int]:
        """How many values came to which outcome."""
        return dict(Counter(outcome.outcome for outcome in self.outcomes))

    def to_json(self) -> dict[str, Any]:
        return {
            "schema": SCHEMA,
            "verb": self.verb,
            "status": self.status,
            "message": self.message,
            "changed": self.changed,
            "counts": self.counts(),
            "right": self.right,
            "confirm_within": self.confirm_within,
            "interrupted": self.interrupted,
            "applied": self.applied,
            "notes": list(self.notes),
            "outcomes": [asdict(outcome) for outcome in self.outcomes],
        }


def tell(progress: Progress | None, outcome: Outcome) -> None:
    """Show an outcome to whoever watches. A terminal that is gone must not stop half a change."""
    if progress is None:
        return
    try:
        progress(outcome)
    except OSError:
        return


def count(number: int, noun: str) -> str:
    """ "1 value", "3 values"."""
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"


def apply_status(outcomes: list[Outcome], unconfirmed: bool) -> int:
    """The exit status of an apply in which nothing failed."""
    if unconfirmed:
        return errors.UNCONFIRMED
    partial = (UNCHANGEABLE, UNSUPPORTED, REFUSED)
    return errors.PARTIAL if any(outcome.outcome in partial for outcome in outcomes) else errors.OK


def apply_message(outcomes: list[Outcome]) -> str:
    """ "4 values changed, 2 are unchangeable on this host and 1 was refused."."""
    tally = Counter(outcome.outcome for outcome in outcomes)
    if not tally[CHANGED] and not any(tally[name] for name in (UNCHANGEABLE, UNSUPPORTED, REFUSED)):
        return "Everything is right already; nothing was changed."
    parts = [f"{count(tally[CHANGED], 'value')} changed"]
    if tally[RIGHT]:
        parts.append(f"{tally[RIGHT]} right already")
    if tally[UNCHANGEABLE]:
        parts.append(f"{tally[UNCHANGEABLE]} not changeable on this host")
    if tally[UNSUPPORTED]:
        parts.append(f"{tally[UNSUPPORTED]} not supported by this host")
    if tally[REFUSED]:
        parts.append(f"{tally[REFUSED]} left alone as too disruptive")
    return (", ".join(parts[:-1]) + " and " + parts[-1] if len(parts) > 1 else parts[0]) + "."
