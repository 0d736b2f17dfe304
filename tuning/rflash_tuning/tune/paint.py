# SPDX-License-Identifier: GPL-2.0
"""How text looks where it is printed: width, colour, and whether it can be more than ASCII."""

from __future__ import annotations

import os
import re
import shutil
import textwrap
from collections.abc import Iterable
from dataclasses import dataclass
from typing import TextIO

COLOURS = {"bold": "1", "dim": "2", "red": "31", "green": "32", "yellow": "33", "blue": "34", "magenta": "35",
           "cyan": "36"}  # fmt: skip
# What plain ASCII has for the signs that we use.
ASCII = {"→": "->", "●": "*", "○": "o", "◉": "@", "·": ".", "│": "|", "✓": "ok", "…": "...", "█": "#",
 "⚠": "!"}  # fmt: skip


@dataclass(frozen=True)
class Paint:
    """What the place where we print can do."""

    colour: bool = False
    unicode: bool = True
    width: int = 100

    @classmethod
    def of(cls, stream: TextIO) -> Paint:
        """Colours on a terminal only, and not when NO_COLOR is set or it is a dumb one."""
        tty = stream.isatty()
        colour = tty and "NO_COLOR" not in os.environ and os.environ.get("TERM", "dumb") != "dumb"
        encoding = (getattr(stream, "encoding", None) or "ascii").lower()
        width = shutil.get_terminal_size((100, 24)).columns if tty else 100
        return cls(colour, encoding.startswith("utf"), max(60, min(width, 160)))

    def __call__(self, text: str, *styles: str) -> str:
        if not self.colour or not styles or not text:
            return text
        return f"\x1b[{';'.join(COLOURS[style] for style in styles)}m{text}\x1b[0m"

    def finish(self, lines: Iterable[str]) -> str:
        """One text of lines, without anything that the place can't show."""
        text = "".join(f"{line.rstrip()}\n" for line in lines)
        if self.unicode:
            return text
        for sign, plain in ASCII.items():
            text = text.replace(sign, plain)
        return text.encode("ascii", "replace").decode()

    def wrap(self, text: str, indent: str, first: str | None = None) -> list[str]:
        return textwrap.wrap(
            text, self.width, initial_indent=indent if first is None else first, subsequent_indent=indent,
            break_long_words=False, break_on_hyphens=False,
        )  # fmt: skip


def columns(rows: list[list[str]], indent: str = "", gap: str = "  ") -> list[str]:
    """Rows with their cells below each other; colours do not count as width."""
    if not rows:
        return []
    widths = [max(visible(row[index]) for row in rows if index < len(row)) for index in range(max(map(len, rows)))]
    lines = []
    for row in rows:
        cells = [cell + " " * (width - visible(cell)) for cell, width in zip(row, widths, strict=False)]
        lines.append((indent + gap.join(cells)).rstrip())
    return lines


def visible(text: str) -> int:
    """How wide a text is where it is shown."""
    return len(re.sub(r"\x1b\[[0-9;]*m", "", text))


def bar(share: float, width: int) -> str:
    """A bar of `width` signs, filled to `share` (0 to 1)."""
    filled = round(max(0.0, min(1.0, share)) * width)
    return "█" * filled + "·" * (width - filled)
