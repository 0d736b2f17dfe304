# SPDX-License-Identifier: GPL-2.0
"""A plan for people (a diff, by subject) and for programs (JSON)."""

from __future__ import annotations

import dataclasses
import difflib
import re
from collections import Counter
from dataclasses import dataclass, replace
from typing import Any

from rflash_tuning.cpulist import format_list
from rflash_tuning.host.model import Host, Nic
from rflash_tuning.tune import options
from rflash_tuning.tune.change import DISRUPTIONS, Change, Plan, Request, Setting
from rflash_tuning.tune.coremap import core_map
from rflash_tuning.tune.paint import Paint, columns
from rflash_tuning.tune.script import stages

SCHEMA = 1
DISRUPTION_STYLE = {"none": "dim", "packets": "yellow", "link": "magenta", "target": "red"}
# So many lines that differ by one number only become one.
MANY = 4
# How many lines of one kind that can't be changed are listed before they are counted.
FORESEEN_LINES = 2


def change_json(change: Change) -> dict[str, Any]:
    """One line of a plan; `old` and `new` as the machine has them, `shown` as people read them, `undo` as shell."""
    return {
        "key": change.key,
        "label": change.setting.label(),
        "setting": change.setting.to_json(),
        "old": change.old,
        "new": change.new,
        "shown": [change.setting.show(change.old), change.setting.show(change.new)],
        "knob": change.knob,
        "reason": change.reason,
        "source": change.source,
        "disruption": change.disruption,
        "cuts_off": change.cuts_off,
        "tenant": change.tenant,
        "foreseen": change.foreseen,
        "undo": [] if change.foreseen else change.setting.script(change.old),
    }


def plan_json(plan: Plan) -> dict[str, Any]:
    """The plan as Documentation/tuning.rst describes it."""
    return {
        "schema": SCHEMA,
        "plan": {
            "request": dataclasses.asdict(plan.request),
            "allocation": dataclasses.asdict(plan.allocation),
            "changes": [change_json(change) for change in plan.changes],
            "counts": counts(plan),
            "disruption": worst(plan.changes),
            "right": plan.right,
            "warnings": list(plan.warnings),
            "host": dict(plan.host),
        },
    }


def worst(changes: tuple[Change, ...]) -> str:
    """The worst disruption of those that can be made; "none" when there is nothing to do."""
    ranks = [DISRUPTIONS.index(change.disruption) for change in changes if not change.foreseen]
    return DISRUPTIONS[max(ranks, default=0)]


def counts(plan: Plan) -> dict[str, int]:
    """How many changes of each disruption, and how many that are foreseen not to work."""
    found = Counter(change.disruption for change in plan.changes if not change.foreseen)
    return {name: found[name] for name in DISRUPTIONS} | {
        "foreseen": sum(bool(change.foreseen) for change in plan.changes)
    }


def plan_table(plan: Plan, host: Host, paint: Paint, command: str = "rflash-tune apply") -> str:
    """The plan as a diff. `command` is what would apply it, for the last line; "" for none."""
    lines = heading(plan.request, host, paint)
    lines += ["", *allocation(plan, host, paint), "", *core_map(host, plan.allocation, paint)]
    for title, changes in subjects(plan, host):
        lines += ["", paint(title, "bold"), *_blocks(changes, paint)]
    foreseen = [change for change in plan.changes if change.foreseen]
    if foreseen:
        lines += ["", paint("Cannot be changed here", "bold"), *_foreseen(foreseen, paint)]
    notes = list(dict.fromkeys([*plan.allocation.warnings, *plan.warnings]))
    if stages(plan)[1]:
        notes.append("the driver makes its queues anew: what belongs to them is planned again once they are there")
    if notes:
        lines += ["", paint("Warnings", "bold")]
        for note in notes:
            lines += paint.wrap(note, "    ", "  ⚠ ")
    return paint.finish([*lines, "", *_summary(plan, paint, command)])


def heading(request: Request, host: Host, paint: Paint) -> list[str]:
    many = f"{request.tenants} tenant{'s' * (request.tenants != 1)}"
    what = f"{request.role}, {request.target}, {many} on {', '.join(request.nics)}, for {request.goal}"
    share = f"{request.read_share} % reads, QD {request.queue_depth}"
    where = f"Linux {host.release}, {len(host.online)} of {len(host.cpus)} CPUs online"
    if host.synthetic:
        where += f"; a described host: {host.synthetic}"
    return [paint(f"Plan: {what} ({share})", "bold"), *paint.wrap(where, "  ")]


def allocation(plan: Plan, host: Host, paint: Paint) -> list[str]:
    """Who gets which cores and queues, by which rule."""
    allocation = plan.allocation
    ports = {port.name: port for name in plan.request.nics for port in host.ports(name)}
    text = f"{allocation.rule}: {allocation.reason}"
    if allocation.source:
        text += f" [{allocation.source}]"
    lines = paint.wrap(text, "  ", "Allocation  ")
    rows = [["tenant", "port", "connection", "I/O", "queues", "interrupts"]]
    for share in allocation.shares:
        rows.append(
            [
                share.tenant,
                str(share.port or "-"),
                _cpus(share.connection_cpus),
                _cpus(share.io_cpus),
                format_list(share.queues) or "-",
                _interrupts(list(ports.values()), share.queues),
            ]
        )
    rows[0] = [paint(cell, "dim") for cell in rows[0]]
    return lines + columns(rows, "  ")


def _cpus(cpus: tuple[int, ...]) -> str:
    return f"CPU {format_list(cpus)}" if cpus else "-"


def _interrupts(ports: list[Nic], queues: tuple[int, ...]) -> str:
    """ "eth0 45-46": the interrupts that these queues have now."""
    words = []
    for nic in ports:
        mine = [queue for queue in nic.queues if queue.index in queues]
        numbers = [number for queue in mine for number in (queue.irq, queue.tx_irq) if number is not None]
        if numbers:
            words.append(f"{nic.name} {format_list(numbers)}")
    return ", ".join(words) or "-"


def subject(setting: Setting, host: Host) -> tuple[int, str]:
    """What a setting belongs to, as a rank for sorting and a title."""
    nic = getattr(setting, "nic", "") or getattr(setting, "device", "")
    path = getattr(setting, "path", "")
    if path.startswith("/sys/class/net/"):
        nic = nic or path.split("/")[4]
    found = host.nic(nic)
    if found:
        return 1, options.describe_nic(found)
    if nic:
        return 2, nic
    if setting.kind == "task":
        return 3, "Threads"
    if setting.kind == "config":
        return 0, "Other tuners"
    if path.startswith("/sys/block/"):
        return 2, path.split("/")[3]
    if path.startswith("/proc/sys/"):
        return 4, "Kernel (sysctl)"
    if path.startswith("/sys/devices/system/cpu"):
        return 5, "Power and CPUs"
    if path.startswith("/sys/kernel/config/"):
        return 3, "Target"
    return 6, "Other"


def subjects(plan: Plan, host: Host) -> list[tuple[str, list[Change]]]:
    """The changes that can be made, by subject; subjects of a rank, and changes of one, in the plan's order."""
    groups: dict[tuple[int, str], list[Change]] = {}
    for change in plan.changes:
        if not change.foreseen:
            groups.setdefault(subject(change.setting, host), []).append(change)
    return [(title, groups[rank, title]) for rank, title in sorted(groups, key=lambda group: group[0])]


def _blocks(changes: list[Change], paint: Paint) -> list[str]:
    """Changes with the same reason share it: the reason, then a line for each."""
    blocks: dict[tuple[str, str, str, str, bool], list[Change]] = {}
    for change in changes:
        key = change.knob, _for_any(change), change.source, change.disruption, change.cuts_off
        blocks.setdefault(key, []).append(change)
    lines = []
    for (knob, reason, source, disruption, cuts_off), members in blocks.items():
        if len(members) == 1:
            reason = members[0].reason
        mark = paint(f"[{disruption}{', could cut you off' * cuts_off}]", DISRUPTION_STYLE[disruption])
        lines.append(f"  {paint(knob, 'cyan')} {mark}")
        lines += [paint(line, "dim") for line in paint.wrap(f"{reason} ({source})" if source else reason, "      ")]
        rows = [_row(change) for change in members if change.setting.kind != "config"]
        lines += columns([_painted(row, paint) for row in collapsed(rows)], "    ")
        for change in members:
            if change.setting.kind == "config":
                lines += _file(change, paint)
    return lines


def _for_any(change: Change) -> str:
    """A reason that names a tenant, as it is for any tenant."""
    if not change.tenant:
        return change.reason
    return re.sub(rf"(?<![\w.-]){re.escape(change.tenant)}(?![\w-])", "the tenant", change.reason)


@dataclass(frozen=True)
class Row:
    """One line of a diff, before it is coloured."""

    sign: str  # +, - or ~
    label: str
    old: str
    new: str
    tenant: str


def _row(change: Change) -> Row:
    sign = "+" if change.old is None else "-" if change.new is None else "~"
    show = change.setting.show
    return Row(sign, change.setting.label(), show(change.old), show(change.new), change.tenant)


def _painted(row: Row, paint: Paint) -> list[str]:
    return [paint(row.sign, "yellow"), row.label, f"{paint(row.old, 'red')} → {paint(row.new, 'green')}", row.tenant]


def collapsed(rows: list[Row]) -> list[Row]:
    """Rows of which many differ by one number only ("cpu0 ...", "cpu1 ...") as one ("cpu0-1 ...")."""
    groups: dict[Row, list[Row]] = {}
    for row in rows:
        groups.setdefault(replace(row, label=re.sub(r"\d+", "#", row.label)), []).append(row)
    made = []
    for members in groups.values():
        numbers = list(zip(*(re.findall(r"\d+", row.label) for row in members), strict=True))
        varying = [place for place, found in enumerate(numbers) if len(set(found)) > 1]
        if len(members) < MANY or len(varying) != 1:
            made += members
            continue
        parts = re.split(r"(\d+)", members[0].label)
        parts[2 * varying[0] + 1] = format_list(map(int, numbers[varying[0]]))
        made.append(replace(members[0], label="".join(parts)))
    return made


def _file(change: Change, paint: Paint) -> list[str]:
    """A configuration file, as the lines that go and come."""
    old, new = ((text or "").splitlines() for text in (change.old, change.new))
    lines = [f"    {paint('~', 'yellow')}  {change.setting.label()}"]
    for line in difflib.ndiff(old, new):
        if line[0] in "+-":
            lines.append(f"         {paint(line, 'green' if line[0] == '+' else 'red')}")
    return lines


def change_in_full(change: Change, paint: Paint) -> list[str]:
    """All that is known of one change, with how to undo it by hand."""
    setting = change.setting
    rows = [
        ["key", change.key],
        ["now", setting.show(change.old)],
        ["should be", setting.show(change.new)],
        ["knob", change.knob],
        ["source", change.source or "-"],
        ["disruption", change.disruption + ", could cut you off" * change.cuts_off],
    ]
    if change.tenant:
        rows.append(["tenant", change.tenant])
    if change.foreseen:
        rows.append(["foreseen", change.foreseen])
    lines = [paint(setting.label(), "bold"), *paint.wrap(change.reason, "  ")]
    lines += columns([[paint(name, "dim"), " ".join(text.split())] for name, text in rows], "  ")
    if not change.foreseen:
        lines += ["  " + paint("by hand", "dim"), *(f"    {line}" for line in setting.script(change.new))]
        lines += ["  " + paint("undo by hand", "dim"), *(f"    {line}" for line in setting.script(change.old))]
    return lines


def _foreseen(changes: list[Change], paint: Paint) -> list[str]:
    blocks: dict[tuple[str, str, str], list[Change]] = {}
    for change in changes:
        blocks.setdefault((change.knob, change.foreseen, change.reason), []).append(change)
    lines = []
    for (knob, outcome, reason), members in blocks.items():
        labels = [change.setting.label() for change in members[:FORESEEN_LINES]]
        rest = len(members) - len(labels)
        what = ", ".join(labels) + (f" and {rest} more" if rest else "")
        lines.append(f"  {paint(knob, 'cyan')} {paint(f'[{outcome}]', 'dim')} {what}")
        lines += [paint(line, "dim") for line in paint.wrap(reason, "      ")]
    return lines


def _summary(plan: Plan, paint: Paint, command: str) -> list[str]:
    found = counts(plan)
    total = sum(found[name] for name in DISRUPTIONS)
    if not total:
        words = "Nothing to change"
    else:
        kinds = ", ".join(f"{found[name]} {name}" for name in DISRUPTIONS if found[name])
        words = f"{total} change{'s' * (total != 1)} (disruption: {kinds})"
    words += f"; {plan.right} right already"
    if found["foreseen"]:
        words += f"; {found['foreseen']} cannot be changed"
    lines = [paint(words + ".", "bold")]
    if total and command:
        lines += [f"To do it: {command}", "To undo it: rflash-tune revert"]
    return lines
