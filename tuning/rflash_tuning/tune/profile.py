# SPDX-License-Identifier: GPL-2.0
"""Profiles: requests with a name, in TOML. Keys are the long options of `rflash-tune apply`."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path
from typing import Any

from rflash_tuning.errors import UsageError
from rflash_tuning.tune.options import BY_NAME, parse

_PACKAGE = Path(__file__).resolve().parents[1]
# Beside the package in the tree and where scripts/install puts it; inside of it where pip does.
SHIPPED = _PACKAGE / "profiles" if (_PACKAGE / "profiles").is_dir() else _PACKAGE.parent / "profiles"
LOCAL = Path("/etc/rflash/tune")
MAX_BYTES = 1 << 20


def find(name: str) -> Path:
    """The file of a profile: a path as it is, a name in /etc/rflash/tune, then among those shipped.

    Raises UsageError.
    """
    if "/" in name or name.endswith(".toml"):
        return Path(name)
    for directory in (LOCAL, SHIPPED):
        path = directory / f"{name}.toml"
        if path.is_file():
            return path
    known = ", ".join(names()) or "there are none"
    raise UsageError(f"no profile '{name}' in {LOCAL} or {SHIPPED}; known: {known}")


def names() -> list[str]:
    """All profiles that can be had by name."""
    found = {path.stem for directory in (LOCAL, SHIPPED) if directory.is_dir() for path in directory.glob("*.toml")}
    return sorted(found)


def load(name: str) -> dict[str, Any]:
    """Options of a profile by name or file, in their proper types. `-` and `_` in keys are the same.

    Raises UsageError with file and line: unreadable, not TOML, an unknown key, a wrong value.
    """
    path = find(name)
    try:
        with open(path, "rb") as stream:
            data = stream.read(MAX_BYTES + 1)
        if len(data) > MAX_BYTES:
            raise UsageError(f"{path} is larger than a profile can be ({MAX_BYTES} bytes)")
        text = data.decode()
    except OSError as error:
        raise UsageError(f"{path}: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise UsageError(f"{path} is not text in UTF-8") from error
    try:
        table = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise UsageError(f"{path}: {_place(str(error))}") from error
    values: dict[str, Any] = {}
    for key, value in table.items():
        where = f"{path}:{_line(text, key)}"
        option = BY_NAME.get(key.replace("_", "-"))
        if option is None:
            raise UsageError(f"{where}: unknown key '{key}'; known: {', '.join(BY_NAME)}")
        if option.name in values:
            raise UsageError(f"{where}: {option.name} is given twice")
        try:
            values[option.name] = parse(option, value)
        except ValueError as error:
            raise UsageError(f"{where}: {error}") from error
    return values


def _line(text: str, key: str) -> int:
    """Where a top-level key or table stands; tomllib does not say. 1 when it is written in some odd way."""
    pattern = re.compile(rf"""\s*(\[\[?\s*)?["']?{re.escape(key)}["']?\s*[].=]""")
    return next((number for number, line in enumerate(text.splitlines(), 1) if pattern.match(line)), 1)


def _place(message: str) -> str:
    """tomllib's "Invalid value (at line 3, column 7)" as "line 3: invalid value"."""
    match = re.fullmatch(r"(.*) \(at line (\d+), column \d+\)", message)
    if not match:
        return message[:1].lower() + message[1:]
    return f"line {match[2]}: {match[1][:1].lower()}{match[1][1:]}"
