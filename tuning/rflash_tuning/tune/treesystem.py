# SPDX-License-Identifier: GPL-2.0
"""For tests: a machine of plain files below a directory, so that a process that changes it can really be killed."""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from rflash_tuning.errors import Unsupported
from rflash_tuning.live import LiveSystem
from rflash_tuning.system import Completed, System

_DEFAULTS = {"/etc/machine-id": "0123456789abcdef\n", "/proc/sys/kernel/random/boot_id": "boot-one\n"}


class TreeSystem(System):
    """Configuration files are replaced as on a real one."""

    live = True

    def __init__(self, root: Path) -> None:
        self.root = root
        self._live = LiveSystem(str(root))
        self.mutations: list[tuple[str, str | None]] = []
        self.refuse: dict[str, Exception] = {}  # path -> what a write raises
        self.ignore: set[str] = set()  # a write is taken and has no effect
        self.round: dict[str, str] = {}  # path -> what it holds after any write
        self.commands: list[list[str]] = []

    @classmethod
    def make(cls, root: Path, files: dict[str, str]) -> TreeSystem:
        system = cls(root)
        for path, text in (_DEFAULTS | files).items():
            system.at(path).parent.mkdir(parents=True, exist_ok=True)
            system.at(path).write_text(text)
        return system

    def at(self, path: str) -> Path:
        return self.root / path.lstrip("/")

    def contents(self) -> dict[str, bytes]:
        """Every file with its bytes."""
        return {str(path): path.read_bytes() for path in sorted(self.root.rglob("*")) if path.is_file()}

    def reboot(self) -> None:
        self.at("/proc/sys/kernel/random/boot_id").write_text("boot-two\n")

    def read(self, path: str) -> str:
        return self.at(path).read_text()

    def listdir(self, path: str) -> list[str]:
        return sorted(os.listdir(self.at(path)))

    def exists(self, path: str) -> bool:
        return self.at(path).exists()

    def resolve(self, path: str) -> str:
        return "/" + str(self.at(path).resolve(strict=True).relative_to(self.root.resolve()))

    def ethtool(self, nic: str, section: str) -> dict[str, Any]:
        raise Unsupported(f"{nic} has no {section}")

    def affinity(self, tid: int) -> frozenset[int]:
        raise ProcessLookupError(3, "No such process")

    def write(self, path: str, text: str) -> None:
        if path in self.refuse:
            raise self.refuse[path]
        if path in self.ignore:
            return
        text = self.round.get(path, text)
        if not self.exists(path):
            raise FileNotFoundError(2, "No such file or directory")
        self._put(path, f"{text.rstrip()}\n")
        self.mutations.append((path, text))

    def _put(self, path: str, text: str) -> None:
        """At once, as a kernel's file is: nobody ever sees half of a write."""
        temporary = self.root.with_name("half-written")
        temporary.write_text(text)
        os.replace(temporary, self.at(path))

    def replace(self, path: str, text: str | None) -> None:
        if path in self.refuse:
            raise self.refuse[path]
        self._live.replace(path, text)
        self.mutations.append((path, text))

    def ethtool_set(self, nic: str, section: str, values: dict[str, Any]) -> None:
        raise Unsupported(f"{nic} has no {section}")

    def set_affinity(self, tid: int, cpus: Iterable[int]) -> None:
        raise ProcessLookupError(3, "No such process")

    def run(self, argv: list[str], timeout: float = 60) -> Completed:
        self.commands.append(argv)
        return Completed(0, "")
