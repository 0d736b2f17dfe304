# SPDX-License-Identifier: GPL-2.0
"""The command line of rflash-tune: what may be said, and how a failure is told. verbs.py does the work."""

from __future__ import annotations

import argparse
import io
import os
import re
import sys
import traceback
from typing import Any, NoReturn

from rflash_tuning import __version__
from rflash_tuning.errors import FAILED, OK, TuneError, UsageError
from rflash_tuning.tune import options, texts, verbs

PROGRAM = "rflash-tune"
OPERANDS = {"capture": " OUT", "explain": " [KNOB|KEY]"}
FORMATS = {"plan": ("table", "json", "script", "tuned")}
# Which verbs take what a plan is made of, and which of these also how to apply it.
OF_REQUEST = ("plan", "apply", "verify", "explain", "watch")
OF_APPLY = ("apply", "watch")
OF_STATE = ("apply", "confirm", "verify", "status", "revert", "watch")
OF_SNAPSHOT = ("plan", "apply", "verify", "explain")


class Parser(argparse.ArgumentParser):
    """A mistake becomes a UsageError, which main() prints as one sentence."""

    def error(self, message: str) -> NoReturn:
        wrong = re.fullmatch(r"argument (\S+): invalid choice: ('.*') \(choose from (.*)\)", message)
        if wrong:
            flag, choices = wrong[1].rpartition("/")[2], wrong[3].replace("'", "")
            message = f"{flag} is {wrong[2]}; it should be {choices}"
        raise UsageError(f"{message}; see `{self.prog} --help`")


def main(argv: list[str] | None = None) -> int:
    """Run a command line; returns the exit status. Errors are one sentence on stderr."""
    _make_streams_safe()
    try:
        return _run(sys.argv[1:] if argv is None else argv)
    except TuneError as error:
        return _say(str(error), error.status)
    except BrokenPipeError:
        # Whoever read our output has left; that is no failure of ours, and Python must not complain at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return OK
    except KeyboardInterrupt:
        return _say("interrupted", 130)
    except OSError as error:
        where = f"{error.filename}: " if error.filename else ""
        return _say(f"{where}{error.strerror or error}", FAILED)
    except Exception as error:
        if os.environ.get("RFLASH_DEBUG") == "1":
            traceback.print_exc()
        return _say(f"a bug of ours: {type(error).__name__}: {error}; RFLASH_DEBUG=1 shows where", FAILED)


def _make_streams_safe() -> None:
    """Have somewhere to print to, whatever the caller closed, and whatever the terminal's encoding lacks."""
    if sys.stdout is None:
        sys.stdout = open(os.devnull, "w", encoding="utf-8")  # noqa: SIM115
    if sys.stderr is None:
        sys.stderr = open(os.devnull, "w", encoding="utf-8")  # noqa: SIM115
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="backslashreplace")


def _say(text: str, status: int) -> int:
    text = " ".join(text.split())
    if text[1:2].islower():
        text = text[:1].lower() + text[1:]
    print(f"{PROGRAM}: {text.rstrip('.')}", file=sys.stderr)
    return status


def _run(argv: list[str]) -> int:
    arguments = parser().parse_args(argv)
    if arguments.verb is None:
        return verbs.overview()
    given = {option.name: _value(option, arguments) for option in _options(arguments.verb)}
    values = {name: value for name, value in given.items() if value is not None}
    return getattr(verbs, arguments.verb)(arguments, values)


def _options(verb: str) -> tuple[options.Option, ...]:
    return (options.REQUEST if verb in OF_REQUEST else ()) + (options.APPLY if verb in OF_APPLY else ())


def _value(option: options.Option, arguments: argparse.Namespace) -> Any:
    text = getattr(arguments, option.name.replace("-", "_"))
    if text is None:
        return None
    try:
        return options.parse(option, text)
    except ValueError as error:
        raise UsageError(f"--{error}") from error


def parser() -> argparse.ArgumentParser:
    """All verbs with their options and help."""
    top = Parser(
        prog=PROGRAM, usage=f"{PROGRAM} VERB [OPTIONS]",
        description=f"{texts.SUMMARY}\n\n{texts.OVERVIEW}",
        epilog=f"{texts.EXAMPLES}\n{texts.STATUS}",
        formatter_class=argparse.RawDescriptionHelpFormatter, allow_abbrev=False,
    )  # fmt: skip
    top.add_argument("-V", "--version", action="version", version=f"{PROGRAM} {__version__}")
    found = top.add_subparsers(dest="verb", metavar="VERB", title="verbs", parser_class=Parser)
    for name, verb in texts.VERBS.items():
        sub = found.add_parser(
            name, prog=f"{PROGRAM} {name}", help=verb.summary, description=f"{verb.summary}\n\n{verb.text}",
            epilog=f"Examples:\n{verb.examples}\n{texts.STATUS}", formatter_class=argparse.RawDescriptionHelpFormatter,
            usage=f"{PROGRAM} {name} [OPTIONS]{OPERANDS.get(name, '')}", allow_abbrev=False,
        )  # fmt: skip
        _arguments(name, sub)
    return top


def _arguments(verb: str, sub: argparse.ArgumentParser) -> None:
    if verb == "capture":
        sub.add_argument("out", metavar="OUT", help="file or directory to make")
        sub.add_argument("--raw", action="store_true", help="leave addresses, serial numbers and names as they are")
    if verb == "explain":
        sub.add_argument("subject", nargs="?", metavar="KNOB|KEY", help="a knob, or a change of the plan")
    if verb in OF_REQUEST:
        group = sub.add_argument_group("what is wanted")
        group.add_argument("--profile", metavar="FILE|NAME",
                           help="take options from this TOML file or named profile; those given here win")  # fmt: skip
        for option in options.REQUEST:
            _option(group, option)
    if verb in OF_APPLY:
        group = sub.add_argument_group("how it is applied")
        for option in options.APPLY:
            _option(group, option)
    group = sub.add_argument_group("other")
    if verb in OF_SNAPSHOT:
        group.add_argument("--from", dest="snapshot", metavar="SNAPSHOT", help="a captured host instead of this one")
    if verb in OF_STATE:
        group.add_argument("--state-dir", metavar="DIR",
                           help="the journal (default: $RFLASH_TUNE_STATE, else /var/lib/rflash/tune)")  # fmt: skip
    if verb == "apply":
        group.add_argument("--yes", action="store_true", help="don't ask")
    if verb == "revert":
        group.add_argument("--unconfirmed", action="store_true", help="only an apply that waits for its confirm")
    if verb == "plan":
        group.add_argument("--undo", action="store_true", help="with -o script, the inverse")
        group.add_argument("--out", metavar="DIR", help="with -o tuned, the profile's directory")
    if verb == "watch":
        group.add_argument("--once", action="store_true", help="look once, mend what is amiss, and end")
    formats = FORMATS.get(verb, ("table", "json"))
    group.add_argument("-o", "--output-format", dest="format", choices=formats, default="table",
                       help="table for people, json for programs (default: table)")  # fmt: skip


def _option(group: argparse._ArgumentGroup, option: options.Option) -> None:
    many = option.kind in ("names", "numbers")
    metavar = option.metavar or "|".join(option.choices)
    action = "append" if many else "store"
    group.add_argument(f"--{option.name}", action=action, metavar=metavar, help=option.help.replace("%", "%%"))
