# SPDX-License-Identifier: GPL-2.0
"""A Host as JSON and back, without loss.

Works from the dataclasses' own type hints, so a new field of model.py needs
nothing here. A set of CPUs is a list in the kernel's notation ("0-3,8").
"""

from __future__ import annotations

import dataclasses
import types
import typing
from functools import cache
from typing import Any

from rflash_tuning.cpulist import format_list, parse_list
from rflash_tuning.errors import UsageError
from rflash_tuning.host.model import SCHEMA, Cpus, Host


def to_json(host: Host) -> dict[str, Any]:
    """Plain dictionaries, lists, strings and numbers."""
    return encode(host)


def from_json(data: Any) -> Host:
    """The inverse of to_json. Fields with a default may be left out. Raises UsageError (schema, key, type)."""
    if not isinstance(data, dict):
        raise UsageError("this is no description of a host: it is not a JSON object")
    schema = data.get("schema", SCHEMA)
    if schema != SCHEMA:
        raise UsageError(f"this description of a host has schema {schema}; this program reads schema {SCHEMA}")
    return decode(Host, data, "host")


def encode(value: Any) -> Any:
    """JSON of a dataclass of the model's, or of what one holds."""
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {field.name: encode(getattr(value, field.name)) for field in dataclasses.fields(value)}
    if isinstance(value, frozenset):
        return format_list(value)
    if isinstance(value, tuple | list):
        return [encode(item) for item in value]
    if isinstance(value, dict):
        return {key: encode(item) for key, item in value.items()}
    return value


def decode(kind: Any, data: Any, where: str) -> Any:
    """What `kind`, a type hint, says of JSON. `where` names the place in messages. Raises UsageError."""
    origin, arguments = typing.get_origin(kind), typing.get_args(kind)
    if origin in (types.UnionType, typing.Union):
        if data is None and type(None) in arguments:
            return None
        return decode(next(a for a in arguments if a is not type(None)), data, where)
    if kind == Cpus:
        return _cpus(data, where)
    if origin is tuple:
        _expect(data, list, where, "a list")
        return tuple(decode(arguments[0], item, f"{where}[{place}]") for place, item in enumerate(data))
    if origin is dict:
        _expect(data, dict, where, "an object")
        return {key: decode(arguments[1], item, f"{where}.{key}") for key, item in data.items()}
    if dataclasses.is_dataclass(kind):
        return _dataclass(kind, data, where)
    if kind is Any:
        return data
    _expect(data, kind, where, f"of type {kind.__name__}")
    if isinstance(data, bool) and kind is int:
        raise UsageError(f"{where} is a truth value where a number belongs")
    return data


def _dataclass(kind: Any, data: Any, where: str) -> Any:
    _expect(data, dict, where, "an object")
    fields = _fields(kind)
    for key in data:
        if key not in fields:
            raise UsageError(f"{where} has an unknown key '{key}'; known are {', '.join(fields)}")
    values = {key: decode(fields[key][0], item, f"{where}.{key}") for key, item in data.items()}
    missing = [key for key, (_, required) in fields.items() if required and key not in data]
    if missing:
        raise UsageError(f"{where} lacks the key '{missing[0]}'")
    return kind(**values)


@cache
def _fields(kind: Any) -> dict[str, tuple[Any, bool]]:
    """Name -> type hint, and whether it must be given."""
    hints = typing.get_type_hints(kind)
    empty = dataclasses.MISSING
    return {
        field.name: (hints[field.name], field.default is empty and field.default_factory is empty)
        for field in dataclasses.fields(kind)
    }


def _cpus(data: Any, where: str) -> Cpus:
    _expect(data, str, where, "a list of CPUs such as '0-3,8'")
    try:
        return parse_list(data)
    except ValueError as error:
        raise UsageError(f"{where} is not a list of CPUs such as '0-3,8': '{data}'") from error


def _expect(data: Any, kind: type, where: str, what: str) -> None:
    if not isinstance(data, kind):
        raise UsageError(f"{where} is not {what}")
