# SPDX-License-Identifier: GPL-2.0
"""The manual pages, from the commands' own help: python3 -m rflash_tuning.manpage rflash-tune|rflash-target."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterable

from rflash_tuning import __version__
from rflash_tuning.targets import commands as target
from rflash_tuning.tune import commands as tune
from rflash_tuning.tune import texts

TITLES = {"rflash-tune": texts.SUMMARY, "rflash-target": "Share flash out among tenants, and take it back"}
PARSERS = {"rflash-tune": tune.parser, "rflash-target": target.parser}
SEE = {
    "rflash-tune": ("rflash-target(8)", "rflash(8)", "ethtool(8)", "irqbalance(1)"),
    "rflash-target": ("rflash-tune(8)", "rflash(8)", "targetcli(8)", "nvme(1)"),
}
FILES = {
    "rflash-tune": (
        ("/etc/rflash/tune/*.toml", "profiles; host.toml is what rflash-tune.service applies"),
        ("/var/lib/rflash/tune", "the journal: what revert puts back"),
    ),
    "rflash-target": (("/var/lib/rflash/target", "what was made"),),
}


def page(name: str) -> str:
    """A command's page, as troff."""
    parser = PARSERS[name]()
    lines = [
        '.\\" SPDX-License-Identifier: GPL-2.0',
        f'.\\" Generated: python3 -m rflash_tuning.manpage {name}',
        f'.TH {name} 8 "" "rflash {__version__}" "System Administration"',
        ".SH NAME",
        f"{_escaped(name)} \\- {_escaped(TITLES[name])}",
        ".SH SYNOPSIS",
        f"\\fB{_escaped(name)}\\fR [\\fIOPTIONS\\fR] \\fIVERB\\fR [\\fIOPTIONS\\fR]",
        ".SH DESCRIPTION",
        *_text(parser.description or ""),
        *_options(parser),
    ]
    for verb, sub in _verbs(parser):
        lines += [f'.SH "{name.upper()} {verb.upper()}"', *_synopsis(sub), *_text(sub.description or "")]
        lines += [*_options(sub), *_epilog(sub.epilog or "", skip_status=True)]
    lines += _epilog(parser.epilog or "", skip_status=False)
    lines.append(".SH FILES")
    for path, what in FILES[name]:
        lines += [".TP", f"\\fI{_escaped(path)}\\fR", _escaped(what)]
    lines += [".SH SEE ALSO", ", ".join(f"\\fB{_escaped(see[:-3])}\\fR{see[-3:]}" for see in SEE[name])]
    return "\n".join(lines) + "\n"


def _verbs(parser: argparse.ArgumentParser) -> Iterable[tuple[str, argparse.ArgumentParser]]:
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            yield from action.choices.items()


def _synopsis(parser: argparse.ArgumentParser) -> list[str]:
    words = [f"\\fB{_escaped(parser.prog)}\\fR"]
    optional = any(action.option_strings for action in parser._actions)
    words += ["[\\fIOPTIONS\\fR]"] if optional else []
    for action in parser._actions:
        if not action.option_strings:
            word = f"\\fI{_escaped(str(action.metavar or action.dest))}\\fR"
            words.append(f"[{word}]" if action.nargs == "?" else word)
    return [" ".join(words), ".PP"]


def _options(parser: argparse.ArgumentParser) -> list[str]:
    lines: list[str] = []
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction | argparse._HelpAction) or action.help == argparse.SUPPRESS:
            continue
        lines += [".TP", _flags(action), _escaped((action.help or "") % _values(action))]
    return lines


def _flags(action: argparse.Action) -> str:
    metavar = action.metavar or ("|".join(map(str, action.choices)) if action.choices else action.dest.upper())
    value = "" if action.nargs == 0 else f" \\fI{_escaped(str(metavar))}\\fR"
    if not action.option_strings:
        return value.strip()
    return ", ".join(f"\\fB{_escaped(flag)}\\fR" for flag in action.option_strings) + value


def _values(action: argparse.Action) -> dict[str, object]:
    return {"default": action.default, "prog": ""}


def _epilog(text: str, skip_status: bool) -> list[str]:
    """Sections of an epilog: a line without an indent that ends with a colon is a heading of what follows."""
    lines: list[str] = []
    for block in text.strip().split("\n\n"):
        head, _, rest = block.partition("\n")
        if skip_status and head.lower().startswith("exit status"):
            continue
        title, colon, after = head.partition(":")
        body = [after.strip(), *rest.splitlines()] if after.strip() else rest.splitlines()
        if not colon or not body:
            lines += _text(block)
            continue
        lines += [".PP", f"{_escaped(title)}:"] if skip_status else [f".SH {_escaped(title).upper()}"]
        lines += [".nf", *(_escaped(line) for line in body), ".fi"]
    return lines


def _text(text: str) -> list[str]:
    """Paragraphs; indented lines stay as they are."""
    lines: list[str] = []
    for block in text.strip("\n").split("\n\n"):
        rows = block.splitlines()
        if rows and all(row.startswith("  ") for row in rows):
            lines += [".PP", ".nf", *(_escaped(row) for row in rows), ".fi"]
        else:
            lines += [".PP", *(_escaped(row.strip()) for row in rows)]
    return lines


def _escaped(text: str) -> str:
    text = text.replace("\\", "\\e").replace("-", "\\-").replace("'", "\\(aq")
    return f"\\&{text}" if text.startswith((".", "'")) else text


def main() -> int:
    if sys.argv[1:] not in ([name] for name in PARSERS):
        print(f"usage: python3 -m rflash_tuning.manpage {'|'.join(PARSERS)}", file=sys.stderr)
        return 2
    sys.stdout.write(page(sys.argv[1]))
    return 0


if __name__ == "__main__":
    sys.exit(main())
