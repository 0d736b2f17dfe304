# SPDX-License-Identifier: GPL-2.0
"""A plan as a profile of tuned's: tuned.conf for what its plugins can do, script.sh for the rest.

Plugins as in tuned 2.20: net (channels, ring, coalesce, features, pause, mtu),
sysctl, sysfs. tuned has nothing for receive hashing, flow rules, single
interrupts and threads; these go into the script, which tuned calls with
"start" and "stop".
"""

from __future__ import annotations

import os
from pathlib import Path

from rflash_tuning.errors import TuneError, UsageError
from rflash_tuning.tune import options
from rflash_tuning.tune.change import Change, Plan
from rflash_tuning.tune.script import comment, stages

# Our section's name at ethtool, and the net plugin's option.
NET_OPTIONS = {"rings": "ring", "coalesce": "coalesce", "features": "features", "pause": "pause"}
SYSCTL, SYSFS = "/proc/sys/", "/sys/"
MARK = "# Written by rflash-tune"


def files(plan: Plan) -> dict[str, str]:
    """The profile's files, by name."""
    changes, _ = stages(plan)
    sections: dict[str, dict[str, str]] = {}
    rest: list[Change] = []
    for change in changes:
        place = _place(change)
        if place is None:
            rest.append(change)
            continue
        section, key, value = place
        known = sections.setdefault(section, {})
        known[key] = f"{known[key]} {value}" if key in known else value
    return {"tuned.conf": _conf(plan, sections, bool(rest)), **({"script.sh": _script(rest)} if rest else {})}


def write(plan: Plan, directory: str) -> list[Path]:
    """Write the profile into a directory, which is made. Returns the files.

    Raises UsageError rather than overwrite a profile that somebody else wrote,
    TuneError when it can't be written.
    """
    folder = Path(directory)
    try:
        conf = folder / "tuned.conf"
        if conf.exists() and MARK not in conf.read_text(errors="replace"):
            raise UsageError(f"{conf} is not a profile that rflash-tune wrote; it is left alone")
        folder.mkdir(parents=True, exist_ok=True)
        written = []
        for name, text in files(plan).items():
            path = folder / name
            path.write_text(text)
            path.chmod(0o755 if name.endswith(".sh") else 0o644)
            written.append(path)
        if folder / "script.sh" not in written and (folder / "script.sh").exists():
            os.unlink(folder / "script.sh")
    except OSError as error:
        raise TuneError(f"{error.filename or folder}: {error.strerror}") from error
    return written


def _place(change: Change) -> tuple[str, str, str] | None:
    """Section, option and value in tuned.conf; None where no plugin has it."""
    setting, value = change.setting, change.new
    nic = getattr(setting, "nic", "")
    if setting.kind == "channels":
        return f"net_{nic}", "channels", " ".join(f"{name} {number}" for name, number in value["channels"].items())
    if setting.kind == "ethtool" and setting.section in NET_OPTIONS:
        # ethtool's own spelling of the values, without the command in front.
        words = setting.script(value)[0].split()[3:]
        return f"net_{nic}", NET_OPTIONS[setting.section], " ".join(words)
    if setting.kind != "file":
        return None
    path, text = setting.path, setting.text(value)
    if nic and path == f"/sys/class/net/{nic}/mtu":
        return f"net_{nic}", "mtu", text
    if "\n" in text or not text:
        return None  # an option's value is one line of something
    if path.startswith(SYSCTL):
        return "sysctl", path.removeprefix(SYSCTL).replace("/", "."), text
    if path.startswith(SYSFS) and not any(sign in path for sign in "*?[#="):
        return "sysfs", path, text
    return None


def _conf(plan: Plan, sections: dict[str, dict[str, str]], script: bool) -> str:
    request = plan.request
    lines = [
        f"{MARK} plan {options.command(request)}",
        "# tuned keeps what it replaces in memory: stop it, rather than kill it, to have it back.",
        "[main]",
        f"summary=rflash: {request.role}, {request.target}, {request.tenants} tenants, for {request.goal}",
    ]
    order = sorted(sections, key=lambda name: (not name.startswith("net_"), name))
    for name in order:
        lines += ["", f"[{name}]"]
        if name.startswith("net_"):
            lines += ["type=net", f"devices={name.removeprefix('net_')}"]
        lines += [f"{key}={value}" for key, value in sections[name].items()]
    if script:
        # After the others: interrupts and receive hashing depend on the number of queues.
        lines += ["", "[script]", "priority=10", "script=${i:PROFILE_DIR}/script.sh"]
    return "\n".join(lines) + "\n"


def _script(changes: list[Change]) -> str:
    lines = ["#!/bin/bash", f"{MARK}; tuned calls it with start, stop or verify.", "set -u", "", "start() {"]
    for change in changes:
        lines += [f"\t{line}" for line in comment(change)]
        lines += _body(change, change.new)
    lines += ["}", "", "stop() {"]
    for change in reversed(changes):
        lines += _body(change, change.old)
    lines += ["}", "", 'case "${1-}" in', "start) start ;;", "stop) stop ;;", "verify) exit 0 ;;"]
    lines += ['*) echo "usage: $0 start|stop|verify" >&2; exit 2 ;;', "esac"]
    return "\n".join(lines) + "\n"


def _body(change: Change, value: object) -> list[str]:
    """Shell lines; a here-document's must not be indented."""
    lines = change.setting.script(value)
    if all(line.startswith("#") for line in lines):
        lines = [*lines, ":"]  # a function of comments only is a syntax error
    if change.setting.kind == "config":
        return lines
    return [f"\t{line}" for line in lines]
