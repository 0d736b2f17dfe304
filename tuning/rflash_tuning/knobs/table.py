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
from dataclasses import dataclass
from typing import Any

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
    text: str  # a field list of reStructuredText: What, Why, Source, Disruption, Undo

    @property
    def fields(self) -> dict[str, str]:
        """The text's fields, each on one line and without markup."""
        found = re.findall(r"^:(\w[\w ]*):(.*(?:\n[ \t]+.*|\n(?=\n[ \t]))*)", self.text, re.MULTILINE)
        return {name: " ".join(text.replace("``", "").split()) for name, text in found}

    def to_json(self) -> dict[str, Any]:
        return {"name": self.name, "title": self.title, "fields": self.fields}


def knobs() -> list[Knob]:
    """All knobs, by name."""
    found = []
    for info in pkgutil.iter_modules(package.__path__):
        if info.name.startswith("test_") or info.name == "table":
            continue
        module = importlib.import_module(f"{package.__name__}.{info.name}")
        if hasattr(module, "NAME"):
            # The docstring's first line says what the title says.
            text = inspect.cleandoc(module.__doc__ or "").partition("\n\n")[2]
            found.append(Knob(module.NAME, module.TITLE, text))
    return sorted(found, key=lambda knob: knob.name)


def rst() -> str:
    """The page of the manual."""
    parts = [HEAD]
    for knob in knobs():
        parts.append(f"{knob.name}\n{'=' * len(knob.name)}\n\n{knob.title}.\n\n{knob.text}\n")
    return "\n".join(parts)


if __name__ == "__main__":
    sys.stdout.write(rst())
