# SPDX-License-Identifier: GPL-2.0
"""The list of all knobs, for `rflash-tune knobs` and for the manual.

python3 -m rflash_tuning.knobs.table prints Documentation/knobs.rst. A knob is a
module of this package with a NAME, a TITLE and a docstring; the docstring's
text is its row, so that the manual says what the code's author says.
"""

from __future__ import annotations

import importlib
import inspect
import pkgutil
import re
import sys
from dataclasses import asdict, dataclass

from rflash_tuning import knobs as package

HEAD = """\
.. SPDX-License-Identifier: GPL-2.0
.. Generated from the knobs' docstrings: python3 -m rflash_tuning.knobs.table

=========
The knobs
=========

What ``rflash-tune`` can turn. Each plan says which of them it turns on this host,
why, and what that does to traffic; ``--only`` and ``--skip`` choose among them by
name.
"""


@dataclass(frozen=True)
class Knob:
    """A knob as people see it."""

    name: str
    title: str
    text: str  # the docstring without its first line, which is the title's

    def to_json(self) -> dict[str, str]:
        return asdict(self)


def knobs() -> list[Knob]:
    """All knobs, by name."""
    found = []
    for info in pkgutil.iter_modules(package.__path__):
        if info.name.startswith("test_") or info.name == "table":
            continue
        module = importlib.import_module(f"{package.__name__}.{info.name}")
        if hasattr(module, "NAME"):
            found.append(Knob(module.NAME, module.TITLE, inspect.cleandoc(module.__doc__ or "")))
    return sorted(found, key=lambda knob: knob.name)


def rst() -> str:
    """The page of the manual."""
    parts = [HEAD]
    for knob in knobs():
        text = re.sub(r"(?<!`)`([^`]+)`(?!`)", r"``\1``", knob.text)
        parts.append(f".. _knob-{knob.name}:\n\n{knob.name}\n{'-' * len(knob.name)}\n\n{text}\n")
    return "\n".join(parts)


if __name__ == "__main__":
    sys.stdout.write(rst())
