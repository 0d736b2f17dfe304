# SPDX-License-Identifier: GPL-2.0
"""Making targets, step by step; each step is data, can be done, undone and printed as shell.

A step goes into the record before it is done, so undo must come right with a
step that was done, half done, or not begun. Steps that outlive a reboot are
persistent; the others are done again by `restore`.
"""

from __future__ import annotations

import errno
import shlex
from abc import ABC, abstractmethod
from dataclasses import asdict, dataclass
from typing import Any, ClassVar

from rflash_tuning.errors import TuneError
from rflash_tuning.targets.machine import Machine, reason

_CLASSES: dict[str, type[Step]] = {}


class Step(ABC):
    """Frozen dataclasses; `kind` is their name in a record."""

    kind: ClassVar[str]
    persistent: ClassVar[bool] = False

    def __init_subclass__(cls, **keywords: Any):
        super().__init_subclass__(**keywords)
        _CLASSES[cls.kind] = cls

    @abstractmethod
    def label(self) -> str:
        """What it makes, for people: "port 4420 of 10.0.0.1"."""

    @abstractmethod
    def do(self, machine: Machine) -> None:
        """Raises FileExistsError when somebody else has made it, OSError or TuneError."""

    @abstractmethod
    def undo(self, machine: Machine) -> None:
        """Raises OSError or TuneError; then it can be tried again."""

    @abstractmethod
    def script(self) -> list[str]:
        """Shell lines that do what do does."""

    def done(self, machine: Machine) -> bool:
        """Is it there?"""
        return True

    def why(self, error: Exception) -> str:
        """The error of do, as the end of a sentence."""
        return reason(error)

    def to_json(self) -> dict[str, Any]:
        return {"step": self.kind, **asdict(self)}


def from_json(data: dict[str, Any]) -> Step:
    """Raises KeyError or TypeError when it is none."""
    fields = {key: _tuples(value) for key, value in data.items() if key != "step"}
    return _CLASSES[data["step"]](**fields)


def _tuples(value: Any) -> Any:
    return tuple(_tuples(item) for item in value) if isinstance(value, list) else value


@dataclass(frozen=True)
class MakeDirectory(Step):
    """A directory of configfs and what is written to the files that the kernel puts into it."""

    kind: ClassVar[str] = "directory"
    name: str
    title: str
    values: tuple[tuple[str, str], ...] = ()
    shared: bool = False  # others may put things into it, too; it goes with the last of them

    def label(self) -> str:
        return self.title

    def do(self, machine: Machine) -> None:
        machine.configfs.mkdir(self.name)
        for file, value in self.values:
            try:
                machine.configfs.write(f"{self.name}/{file}", value)
            except OSError as error:
                raise TuneError(f"the kernel does not take {file} = {value}: {reason(error)}") from error

    def undo(self, machine: Machine) -> None:
        try:
            if self.shared:
                if machine.configfs.exists(self.name):
                    machine.configfs.rmdir(self.name)
            else:
                machine.configfs.remove_tree(self.name)
        except OSError as error:
            if not (self.shared and error.errno in (errno.EBUSY, errno.ENOTEMPTY)):
                raise

    def done(self, machine: Machine) -> bool:
        return machine.configfs.exists(self.name)

    def script(self) -> list[str]:
        lines = [f"mkdir {'-p ' if self.shared else ''}{shlex.quote(self.name)}"]
        lines += [f"printf %s {shlex.quote(value)} > {shlex.quote(f'{self.name}/{file}')}"
                  for file, value in self.values]  # fmt: skip
        return lines


@dataclass(frozen=True)
class MakeLink(Step):
    """A link in configfs: a host is let in, a port begins to listen."""

    kind: ClassVar[str] = "link"
    name: str
    target: str
    title: str
    where: str = ""  # ADDRESS port N, where the link is what begins to listen

    def label(self) -> str:
        return self.title

    def do(self, machine: Machine) -> None:
        machine.configfs.link(self.name, self.target)

    def undo(self, machine: Machine) -> None:
        if machine.configfs.exists(self.name):
            machine.configfs.unlink(self.name)

    def done(self, machine: Machine) -> bool:
        return machine.configfs.exists(self.name)

    def why(self, error: Exception) -> str:
        number = getattr(error, "errno", None)
        if self.where and number == errno.EADDRINUSE:
            return f"{self.where} is taken"
        if self.where and number in (errno.EADDRNOTAVAIL, errno.ENODEV):
            return f"{self.where} can't be listened on: the address is not on this host, or not on an RDMA device"
        return reason(error)

    def script(self) -> list[str]:
        # A link of configfs must name what it points to by an absolute path.
        return [f'ln -s "$PWD"/{shlex.quote(self.target)} {shlex.quote(self.name)}']


@dataclass(frozen=True)
class WriteFile(Step):
    """A configuration file, put in place as a whole."""

    kind: ClassVar[str] = "file"
    persistent: ClassVar[bool] = True
    path: str
    text: str

    def label(self) -> str:
        return self.path

    def do(self, machine: Machine) -> None:
        if machine.system.exists(self.path):
            raise FileExistsError(errno.EEXIST, "is there already", self.path)
        machine.make_directories(self.path.rpartition("/")[0])
        machine.system.replace(self.path, self.text)

    def undo(self, machine: Machine) -> None:
        if machine.system.exists(self.path):
            machine.system.replace(self.path, None)
        machine.remove_empty(self.path.rpartition("/")[0])

    def done(self, machine: Machine) -> bool:
        return machine.system.exists(self.path)

    def script(self) -> list[str]:
        directory = self.path.rpartition("/")[0]
        return [f"mkdir -p {shlex.quote(directory)}", f"cat > {shlex.quote(self.path)} <<'END'",
                *self.text.splitlines(), "END"]  # fmt: skip
