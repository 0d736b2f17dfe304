# SPDX-License-Identifier: GPL-2.0
"""What came of a verb, for people and for programs."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from rflash_tuning.tune import report as reports
from rflash_tuning.tune.paint import Paint, columns
from rflash_tuning.tune.report import Outcome, Report

SCHEMA = 1
STYLES = {
    reports.CHANGED: "green", reports.RESTORED: "green", reports.OK: "green",
    reports.DIFFERS: "red", reports.FAILED: "red", reports.STUCK: "red",
    reports.REFUSED: "yellow", reports.UNDONE: "yellow", reports.KEPT: "yellow",
}  # fmt: skip
# Only counted: there is nothing to do about them.
COUNTED = (reports.RIGHT, reports.OK)
# What many values share is told once, with so many of their names.
SHARED = (reports.UNCHANGEABLE, reports.UNSUPPORTED, reports.GONE)
NAMES = 2


def report_json(report: Report) -> dict[str, Any]:
    """The report as Documentation/tuning.rst describes it."""
    body = {name: value for name, value in report.to_json().items() if name != "schema"}
    return {"schema": SCHEMA, "report": body}


def report_table(report: Report, paint: Paint, told: bool = False) -> str:
    """One sentence, then what is worth a line, unless each was `told` as it happened."""
    lines = [paint(report.message, "bold")] if report.message else []
    single = [outcome for outcome in report.outcomes if outcome.outcome not in COUNTED + SHARED]
    if not told:
        lines += columns([_row(outcome, paint) for outcome in single], "  ")
    for outcome in single:
        if outcome.message:
            lines += paint.wrap(f"{outcome.label}: {outcome.message}", "    ", "  ")
    lines += _shared([outcome for outcome in report.outcomes if outcome.outcome in SHARED], paint)
    for note in report.notes:
        lines += paint.wrap(note, "    ", "  ⚠ ")
    if report.confirm_within is not None and "confirm" not in report.message:
        text = f"Everything is put back in {report.confirm_within:.0f} s, unless you run: rflash-tune confirm"
        lines.append(paint(text, "bold", "yellow"))
    return paint.finish(lines)


def _row(outcome: Outcome, paint: Paint) -> list[str]:
    word = paint(outcome.outcome, STYLES.get(outcome.outcome, "dim"))
    if outcome.outcome == reports.DIFFERS:
        values = f"{outcome.now or '?'} (should be {outcome.new})"
    elif outcome.outcome == reports.RESTORED:
        values = f"{_short(outcome.new)} → {_short(outcome.old)}"
    elif outcome.old or outcome.new:
        values = f"{_short(outcome.old)} → {_short(outcome.new)}"
        if outcome.now:
            values += f" (is {_short(outcome.now)})"
    else:
        values = outcome.now
    return [word, outcome.label, values, outcome.tenant]


def _short(text: str) -> str:
    """A value on one line; a configuration file's text is longer than a line is worth."""
    text = " ".join(text.split())
    return text if len(text) <= 60 else text[:57] + "..."


def _shared(outcomes: Iterable[Outcome], paint: Paint) -> list[str]:
    groups: dict[tuple[str, str, str], list[Outcome]] = {}
    for outcome in outcomes:
        groups.setdefault((outcome.outcome, outcome.knob, outcome.message), []).append(outcome)
    lines: list[str] = []
    for (word, _, message), members in groups.items():
        what = ", ".join(member.label for member in members[:NAMES])
        if len(members) > NAMES:
            what += f" and {len(members) - NAMES} more"
        lines.append(f"  {paint(word, 'dim')}  {what}")
        lines += [paint(line, "dim") for line in paint.wrap(message, "      ")]
    return lines


def progress_line(outcome: Outcome, paint: Paint) -> str:
    """One outcome as it happens."""
    return " ".join(cell for cell in _row(outcome, paint) if cell)
