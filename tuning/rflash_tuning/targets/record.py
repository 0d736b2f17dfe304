# SPDX-License-Identifier: GPL-2.0
"""What was made, on disk before it is made: /var/lib/rflash/target/NAME.json.

A record says how many of its steps have been begun. It is replaced and synced
before each step, so that after a crash at any moment `delete` knows all that
may be there.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

from rflash_tuning.errors import UsageError
from rflash_tuning.system import System
from rflash_tuning.targets import lio, partitions, steps
from rflash_tuning.targets.model import Order, Tenant
from rflash_tuning.targets.steps import Step

SCHEMA = 1
DIRECTORY = "/var/lib/rflash/target"
CREATING, READY, DELETING = "creating", "ready", "deleting"

# Their steps must be known before a record is read.
STEPS = (lio.Backstore, lio.Target, partitions.PartitionTable)


@dataclass(frozen=True)
class Record:
    """One create."""

    order: Order
    tenants: tuple[Tenant, ...]
    steps: tuple[Step, ...]
    host_id: str
    boot_id: str
    begun: int = 0  # steps that may have left something
    state: str = CREATING

    @property
    def name(self) -> str:
        return self.order.name

    def to_json(self) -> dict[str, Any]:
        return {
            "schema": SCHEMA, "state": self.state, "host_id": self.host_id, "boot_id": self.boot_id,
            "begun": self.begun, "order": self.order.to_json(),
            "tenants": [tenant.to_json() for tenant in self.tenants],
            "steps": [step.to_json() for step in self.steps],
        }  # fmt: skip

    @classmethod
    def from_json(cls, data: dict[str, Any]) -> Record:
        """Raises KeyError, TypeError or ValueError when it is none."""
        if data["schema"] != SCHEMA:
            raise ValueError(f"its schema is {data['schema']}, and {SCHEMA} is known")
        found = tuple(steps.from_json(item) for item in data["steps"])
        begun = int(data["begun"])
        if not 0 <= begun <= len(found) or data["state"] not in (CREATING, READY, DELETING):
            raise ValueError("its state makes no sense")
        return cls(Order.from_json(data["order"]), tuple(Tenant.from_json(item) for item in data["tenants"]),
                   found, data["host_id"], data["boot_id"], begun, data["state"])  # fmt: skip


class Store:
    """The directory of records."""

    def __init__(self, system: System, directory: str = DIRECTORY):
        self.system = system
        self.directory = directory

    def _path(self, name: str) -> str:
        return f"{self.directory}/{name}.json"

    def save(self, record: Record) -> None:
        """On disk when it returns. Raises UsageError when the directory can't be written."""
        try:
            self.system.replace(self._path(record.name), json.dumps(record.to_json(), indent=1) + "\n")
        except OSError as error:
            raise UsageError(f"{self.directory} can't be written: {error.strerror}") from error

    def remove(self, record: Record) -> None:
        self.system.replace(self._path(record.name), None)

    def load(self, name: str) -> Record | None:
        """Raises UsageError when there is one that can't be understood."""
        path = self._path(name)
        try:
            text = self.system.read(path)
        except FileNotFoundError:
            return None
        except OSError as error:
            raise UsageError(f"{path} can't be read: {error.strerror}") from error
        try:
            return Record.from_json(json.loads(text))
        except (KeyError, TypeError, ValueError) as error:
            raise UsageError(f"{path} is no record of rflash-target's: {error}") from error

    def all(self) -> list[Record]:
        """By name. Raises UsageError when they can't be read."""
        try:
            found = self.system.listdir(self.directory)
        except FileNotFoundError:
            return []
        except OSError as error:
            raise UsageError(f"{self.directory} can't be read: {error.strerror}; this needs root") from error
        names = [name.removesuffix(".json") for name in found if name.endswith(".json")]
        return [record for record in (self.load(name) for name in names) if record is not None]

    @contextlib.contextmanager
    def lock(self) -> Iterator[None]:
        """One at a time. Raises UsageError when somebody else is at work, or we may not."""
        try:
            # Records hold bytes of the devices, which are not everybody's to read.
            os.makedirs(self.directory, mode=0o700, exist_ok=True)
            fd = os.open(f"{self.directory}/lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        except OSError as error:
            raise UsageError(f"{self.directory} can't be written: {error.strerror}; this needs root") from error
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            yield
        except BlockingIOError as error:
            raise UsageError("another rflash-target is at work; try again when it has ended") from error
        finally:
            os.close(fd)


def begin(store: Store, record: Record, number: int) -> Record:
    """Before step `number`, which counts from 0, is done."""
    record = replace(record, begun=max(record.begun, number + 1))
    store.save(record)
    return record
