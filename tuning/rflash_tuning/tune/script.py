# SPDX-License-Identifier: GPL-2.0
"""A plan as a shell script that a person can read, change and run; and its inverse."""

from __future__ import annotations

import re
import textwrap
from collections.abc import Iterable

from rflash_tuning.tune import options
from rflash_tuning.tune.change import Change, Plan

WIDTH = 96
# A driver makes these anew with its queues: what was planned for the old ones is void then.
OF_QUEUES = ("irq", "rss", "rule")
COMMANDS = ("ethtool", "taskset", "systemctl")


def apply_script(plan: Plan) -> str:
    """Shell (POSIX) that makes the plan's changes in its order."""
    changes, later = stages(plan)
    lines = _head(plan, "Makes these changes", "-o script --undo, printed before, takes them back.")
    lines += _needs(changes, "new")
    for change in changes:
        lines += ["", *comment(change), *change.setting.script(change.new)]
    for change in (change for change in plan.changes if change.foreseen):
        text = f"Not done: {change.setting.label()} ({change.foreseen}). {change.reason}"
        lines += ["", *_wrapped(text)]
    if later:
        text = (
            f"{len(later)} more changes belong to queues that exist only after these. "
            "Print a new script when this one has run."
        )
        lines += ["", f"echo {_quoted(text)} >&2"]
    return "\n".join(lines) + "\n"


def undo_script(plan: Plan) -> str:
    """Shell that sets what apply_script changes to what it was when the plan was made, last first."""
    changes, _ = stages(plan)
    lines = _head(plan, "Takes back what the plan's script changes", "What has drifted since is overwritten, too.")
    lines += _needs(changes, "old")
    for change in reversed(changes):
        text = f"{change.setting.label()}: {_one_line(change.setting.show(change.new))} -> "
        lines += ["", *_wrapped(text + _one_line(change.setting.show(change.old))), *change.setting.script(change.old)]
    return "\n".join(lines) + "\n"


def stages(plan: Plan) -> tuple[list[Change], list[Change]]:
    """What can be done now, and what has to be planned again when queues were made or removed."""
    doable = [change for change in plan.changes if not change.foreseen]
    remade = {getattr(change.setting, "nic", "") for change in doable if change.setting.kind == "channels"}
    later = [change for change in doable if remade and _of_queue(change, remade)]
    return [change for change in doable if change not in later], later


def _of_queue(change: Change, nics: set[str]) -> bool:
    setting = change.setting
    nic = getattr(setting, "nic", "") or getattr(setting, "device", "")
    if nic not in nics:
        return False
    return setting.kind in OF_QUEUES or "/queues/" in getattr(setting, "path", "")


def _head(plan: Plan, what: str, note: str) -> list[str]:
    host = plan.host
    of = f" for host {host['host_id'][:12]}" if host.get("host_id") else ""
    kernel = f" under Linux {host['release']}" if host.get("release") else ""
    return [
        "#!/bin/sh",
        *_wrapped(f"{what}{of}{kernel}: rflash-tune plan {options.command(plan.request)}"),
        *_wrapped(f"{plan.allocation.rule}: {plan.allocation.reason}"),
        *_wrapped(note),
        "set -eu",
        "",
        "[ \"$(id -u)\" = 0 ] || { echo 'run this as root' >&2; exit 1; }",
    ]


def _needs(changes: Iterable[Change], which: str) -> list[str]:
    """Look for the commands before the first change, so that none is missed half way."""
    text = "\n".join(line for change in changes for line in change.setting.script(getattr(change, which)))
    found = [command for command in COMMANDS if re.search(rf"^{command} ", text, re.MULTILINE)]
    if not found:
        return []
    return [
        f"for command in {' '.join(found)}; do",
        '\tcommand -v "$command" >/dev/null || { echo "$command is missing" >&2; exit 1; }',
        "done",
    ]


def comment(change: Change) -> list[str]:
    """What a change is, why, and at what risk, as lines of comment."""
    lines = _wrapped(
        f"{change.setting.label()}: {_one_line(change.setting.show(change.old))} -> "
        f"{_one_line(change.setting.show(change.new))}"
    )
    lines += _wrapped(f"{change.reason} ({change.source})" if change.source else change.reason)
    if change.disruption != "none" or change.cuts_off:
        cut = "; it could cut you off" if change.cuts_off else ""
        lines += _wrapped(f"Disruption: {change.disruption}{cut}")
    return lines


def _one_line(text: str) -> str:
    line = " ".join(text.split())
    return line if len(line) <= 200 else line[:197] + "..."


def _wrapped(text: str) -> list[str]:
    return textwrap.wrap(
        " ".join(text.split()), WIDTH, initial_indent="# ", subsequent_indent="# ", break_long_words=False,
        break_on_hyphens=False,
    )  # fmt: skip


def _quoted(text: str) -> str:
    return "'" + text.replace("'", "'\\''") + "'"
