# SPDX-License-Identifier: GPL-2.0
"""What each verb of rflash-tune does.

Each takes the parsed arguments and the options of the request, if the verb has
any, prints to stdout and returns the exit status.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import shlex
import sys
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rflash_tuning import archive
from rflash_tuning.errors import OK, TuneError, UsageError
from rflash_tuning.host import codec, threads
from rflash_tuning.host.model import Host
from rflash_tuning.host.probe import probe
from rflash_tuning.knobs import table as knobtable
from rflash_tuning.live import LiveSystem
from rflash_tuning.snapshot import KIND, Snapshot, SnapshotSystem, anonymise, record
from rflash_tuning.system import System
from rflash_tuning.tune import apply as applying
from rflash_tuning.tune import confirm as confirming
from rflash_tuning.tune import options, planner, profile, render, reporting, script, texts, tunedprofile
from rflash_tuning.tune import revert as reverting
from rflash_tuning.tune import verify as verifying
from rflash_tuning.tune import watch as watching
from rflash_tuning.tune.change import DISRUPTIONS, Change, Plan, Request
from rflash_tuning.tune.journal import state_directory
from rflash_tuning.tune.paint import Paint, columns
from rflash_tuning.tune.report import Outcome, Report

MAX_DISRUPTION = "packets"
Arguments = argparse.Namespace
Values = dict[str, Any]


def overview() -> int:
    """Bare `rflash-tune`: what it is, what this host is, what to type next."""
    host = probe(LiveSystem())
    paint = Paint.of(sys.stdout)
    lines = [paint(texts.SUMMARY, "bold"), "", *texts.OVERVIEW.splitlines(), "", paint("This host", "bold")]
    lines.append(f"  {len(host.online)} of {len(host.cpus)} CPUs online, Linux {host.release}")
    lines += [f"  {options.describe_nic(nic)}" for nic in host.nics if nic.kind not in ("loopback", "other")]
    lines += [f"  {disk.name} ({disk.kind}, {disk.size / 1e9:.0f} GB)" for disk in host.disks if disk.kind == "nvme"]
    lines += [f"  tenant {tenant.name}: {tenant.kind}, port {tenant.port}" for tenant in host.tenants]
    port = next((nic.name for nic in host.nics if nic.kind == "physical" and nic.up), "eth0")
    lines += [
        "",
        *texts.EXAMPLES.replace("eth0", port).splitlines(),
        "",
        "`rflash-tune --help` lists the verbs, `rflash-tune plan --help` the options.",
    ]
    _print(paint.finish(lines))
    return OK


def plan(arguments: Arguments, values: Values) -> int:
    """Print the plan in one of the formats."""
    if arguments.undo and arguments.format != "script":
        raise UsageError("--undo goes with -o script")
    if bool(arguments.out) != (arguments.format == "tuned"):
        raise UsageError("-o tuned and --out DIR go together")
    case = _case(arguments, values)
    host = case.host
    result = planner.plan(host, case.request)
    if arguments.format == "json":
        _json(render.plan_json(result))
    elif arguments.format == "script":
        _print(script.undo_script(result) if arguments.undo else script.apply_script(result))
    elif arguments.format == "tuned":
        for path in tunedprofile.write(result, arguments.out):
            _print(f"{path}\n")
    else:
        _print(render.plan_table(result, host, Paint.of(sys.stdout), _apply_command(result, arguments)))
    return OK


def _apply_command(result: Plan, arguments: Arguments) -> str:
    """The command line that would carry out a plan, for the end of its table."""
    words = ["rflash-tune apply"]
    known = profile.load(arguments.profile) if arguments.profile else {}
    if arguments.profile:
        words.append(f"--profile {shlex.quote(arguments.profile)}")
    words.append(options.command(result.request, known))
    worst = render.worst(result.changes)
    if DISRUPTIONS.index(worst) > DISRUPTIONS.index(known.get("max-disruption", MAX_DISRUPTION)):
        words.append(f"--max-disruption {worst}")
    return " ".join(words)


def apply(arguments: Arguments, values: Values) -> int:
    """Carry the plan out; on a terminal, after asking."""
    case = _case(arguments, values)
    rehearsal = bool(arguments.snapshot)
    if not rehearsal:
        _need_root("apply")
    planned = planner.plan(case.host, case.request)
    doable = [change for change in planned.changes if not change.foreseen]
    paint = Paint.of(sys.stdout)
    talking = arguments.format == "table" and sys.stdin.isatty() and sys.stdout.isatty()
    if doable and talking and not arguments.yes and not rehearsal:
        _print(render.plan_table(planned, case.host, paint, command=""))
        limit = values.get("max-disruption", MAX_DISRUPTION)
        worse = sum(DISRUPTIONS.index(change.disruption) > DISRUPTIONS.index(limit) for change in doable)
        if worse:
            _print(f"{worse} of them are worse than --max-disruption {limit} and will be left alone.\n")
        _ask("Apply it?")
    with _state(arguments, rehearsal) as directory:
        report = applying.apply(
            case.system,
            lambda now: planner.plan(now, case.request),
            directory,
            values.get("max-disruption", MAX_DISRUPTION),
            0 if rehearsal else values.get("confirm-within"),
            _progress(paint) if talking else None,
            probe=_look,
        )
    return _report(report, arguments, told=talking)


def confirm(arguments: Arguments, values: Values) -> int:
    """Keep what was applied."""
    _need_root("confirm")
    return _report(confirming.confirm(state_directory(arguments.state_dir)), arguments)


def verify(arguments: Arguments, values: Values) -> int:
    """Compare what is with what was applied, or with a plan."""
    if values or arguments.profile or arguments.snapshot:
        case = _case(arguments, values)
        against: Any = planner.plan(case.host, case.request)
        return _report(verifying.verify(case.system, against), arguments)
    return _report(verifying.verify(LiveSystem(), state_directory(arguments.state_dir)), arguments)


def status(arguments: Arguments, values: Values) -> int:
    """What is applied."""
    return _report(verifying.status(LiveSystem(), state_directory(arguments.state_dir)), arguments)


def revert(arguments: Arguments, values: Values) -> int:
    """Put everything back, or only what nobody confirmed."""
    _need_root("revert")
    talking = arguments.format == "table" and sys.stdout.isatty()
    progress = _progress(Paint.of(sys.stdout)) if talking else None
    report = reverting.revert(LiveSystem(), state_directory(arguments.state_dir), arguments.unconfirmed, progress)
    return _report(report, arguments, told=talking)


def explain(arguments: Arguments, values: Values) -> int:
    """A knob, a change or the allocation, in full."""
    planned = None
    if values or arguments.profile or arguments.snapshot:
        case = _case(arguments, values)
        planned = planner.plan(case.host, case.request)
    subject = arguments.subject
    knob = next((knob for knob in knobtable.knobs() if knob.name == subject), None)
    changes = [change for change in planned.changes if _about(change, subject)] if planned and subject else []
    if subject and not knob and not changes:
        hint = "" if planned else "; for a change of a plan, give the plan's options as well"
        raise UsageError(f"'{subject}' is neither a knob (`rflash-tune knobs`) nor a change of this plan{hint}")
    if not subject and not planned:
        raise UsageError("explain what? Give a knob (`rflash-tune knobs` lists them), or the options of a plan")
    if arguments.format == "json":
        body = {
            "knob": knob.to_json() if knob else None,
            "allocation": render.plan_json(planned)["plan"]["allocation"] if planned else None,
            "changes": [render.change_json(change) for change in changes],
        }
        _json({"schema": render.SCHEMA, "explain": body})
        return OK
    paint = Paint.of(sys.stdout)
    lines: list[str] = []
    if knob:
        lines.append(paint(f"{knob.name}: {knob.title}", "bold"))
        for name, text in knob.fields.items():
            lines += paint.wrap(text, "    ", f"  {name}: ")
    for change in changes:
        lines += ["", *render.change_in_full(change, paint)]
    if not subject and planned:
        lines += [*render.allocation(planned, case.host, paint), "", *texts.RULES.splitlines()]
    _print(paint.finish(lines))
    return OK


def _about(change: Change, subject: str) -> bool:
    return subject in (change.knob, change.key) or subject in change.key or subject in change.setting.label()


def watch(arguments: Arguments, values: Values) -> int:
    """Apply again whenever something drifts, until interrupted."""
    _need_root("watch")
    case = _case(arguments, values)
    paint = Paint.of(sys.stdout)

    def tell(report: Report) -> None:
        if arguments.format == "json":
            print(json.dumps(reporting.report_json(report)), flush=True)
        else:
            _print(reporting.report_table(report, paint))

    return watching.watch(
        case.system,
        lambda now: planner.plan(now, case.request),
        state_directory(arguments.state_dir),
        values.get("max-disruption", MAX_DISRUPTION),
        once=arguments.once,
        tell=tell,
        probe=_look,
    )


def capture(arguments: Arguments, values: Values) -> int:
    """Pack what probe reads."""
    snapshot = record(LiveSystem())
    if not arguments.raw:
        snapshot = anonymise(snapshot)
    snapshot.save(arguments.out)
    if arguments.format == "json":
        _json({"schema": render.SCHEMA, "capture": {"path": arguments.out, "files": len(snapshot.tree.files),
                                                    "anonymised": not arguments.raw}})  # fmt: skip
        return OK
    what = "as they are" if arguments.raw else "with addresses, serial numbers and names replaced"
    _print(f"{arguments.out}: {len(snapshot.tree.files)} files, {what}; it is text, look at it before you send it\n")
    if os.geteuid() != 0:
        print("rflash-tune: not run as root, so that what only root may read is missing", file=sys.stderr)
    return OK


def knobs(arguments: Arguments, values: Values) -> int:
    """List what can be turned."""
    found = knobtable.knobs()
    if arguments.format == "json":
        _json({"schema": render.SCHEMA, "knobs": [knob.to_json() for knob in found]})
    else:
        paint = Paint.of(sys.stdout)
        _print(paint.finish(columns([[paint(knob.name, "cyan"), knob.title] for knob in found])))
    return OK


@dataclass(frozen=True)
class _Case:
    """What a verb is about: a machine, what it is, and what is wanted of it."""

    system: System
    host: Host
    request: Request


def _case(arguments: Arguments, values: Values) -> _Case:
    """Of the command line and the profile. `values` gets what the profile adds."""
    if arguments.profile:
        for name, value in profile.load(arguments.profile).items():
            values.setdefault(name, value)
    if getattr(arguments, "snapshot", None):
        system, host = _captured(arguments.snapshot, arguments.verb)
    else:
        system = LiveSystem()
        host = _look(system)
    return _Case(system, host, options.request(host, values))


def _look(system: System) -> Host:
    """The host; of a live one also which threads serve whom, for two seconds where only their load tells."""
    host = probe(system)
    return threads.resolve(system, host) if system.live else host


def _captured(path: str, verb: str) -> tuple[System, Host]:
    """A captured host: a snapshot, or (to plan with only) a host as codec.py writes it."""
    data = archive.load(path)
    if data.get("kind") == KIND:
        system = SnapshotSystem(Snapshot.from_json(data, path))
        return system, probe(system)
    if verb not in ("plan", "explain"):
        raise UsageError(
            f"{path} is not a snapshot, so that `{verb}` cannot read it back; `rflash-tune capture` makes one"
        )
    return SnapshotSystem(Snapshot()), codec.from_json(data)


@contextlib.contextmanager
def _state(arguments: Arguments, rehearsal: bool) -> Iterator[Path]:
    """The state directory. A rehearsal has one of its own, unless told otherwise."""
    if rehearsal and not arguments.state_dir:
        with tempfile.TemporaryDirectory(prefix="rflash-tune-") as scratch:
            yield Path(scratch)
    else:
        yield state_directory(arguments.state_dir)


def _need_root(verb: str) -> None:
    if os.geteuid() != 0:
        raise UsageError(f"{verb} needs root: try sudo")


def _ask(question: str) -> None:
    """Raises TuneError unless the answer is yes."""
    try:
        answer = input(f"{question} [y/N] ")
    except EOFError:
        answer = ""
    if answer.strip().lower() not in ("y", "yes"):
        raise TuneError("nothing was changed")


def _progress(paint: Paint) -> Callable[[Outcome], None]:
    def show(outcome: Outcome) -> None:
        if outcome.outcome not in reporting.COUNTED:
            print(reporting.progress_line(outcome, paint), flush=True)

    return show


def _report(report: Report, arguments: Arguments, told: bool = False) -> int:
    """Print a report. `told`: each outcome was printed as it happened."""
    if arguments.format == "json":
        _json(reporting.report_json(report))
    else:
        _print(reporting.report_table(report, Paint.of(sys.stdout), told))
    return report.status


def _print(text: str) -> None:
    sys.stdout.write(text)
    sys.stdout.flush()


def _json(document: dict[str, Any]) -> None:
    _print(json.dumps(document, indent=2) + "\n")
