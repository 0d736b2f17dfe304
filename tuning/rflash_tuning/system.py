# SPDX-License-Identifier: GPL-2.0
"""The one door to the machine: everything that is read or changed goes through a System.

LiveSystem (live.py) is this machine. SnapshotSystem (snapshot.py) is a host
that was captured or described; it can be changed too, in memory, and then
behaves as the kernel would. Probe, planner, executor and their tests are the
same code over either.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

# What ethtool(8) knows of a NIC, one dictionary each; Nic in host/model.py says their keys.
# Read, and what ethtool_set takes of it:
#   driver    {"driver": .., "version": .., "firmware": .., "bus": ..}         nothing
#   link      {"speed": Mb/s or None, "max-mtu": n or None}                    nothing
#   channels  {"rx", "tx", "other", "combined" and each with "-max": n}        {"combined": n}
#   rings     {"rx", "tx", "rx-max", "tx-max": n}                              {"rx": n}
#   coalesce  {"rx-usecs": n, "adaptive-rx": 0 or 1, ..}                       {"rx-usecs": n}
#   features  {name: {"active": bool, "changeable": bool}}                     {name: bool}
#   rss       {"table": [queue, ..], "key": hex, "function": ..}               {"table": [..]}, {"key": hex};
#             an empty table to set is the driver's default
#   rules     {location as text: {"flow", "dst_port", "queue", ..} as Rule}    {location: such a rule or None}
#   pause     {"autoneg", "rx", "tx": 0 or 1}                                  {"rx": 0}
ETHTOOL_SECTIONS = ("driver", "link", "channels", "rings", "coalesce", "features", "rss", "rules", "pause")


@dataclass(frozen=True)
class Completed:
    """What a command came to."""

    status: int
    output: str  # stdout and stderr


class System(ABC):
    """A machine. Paths are absolute, as on the machine itself.

    Readers raise OSError (FileNotFoundError, PermissionError, ...) as the
    kernel does. Nothing here decides anything.
    """

    live = False

    # Reading

    @abstractmethod
    def read(self, path: str) -> str:
        """A whole file, as it is."""

    @abstractmethod
    def listdir(self, path: str) -> list[str]:
        """A directory's names, sorted naturally (rx-2 before rx-10)."""

    @abstractmethod
    def exists(self, path: str) -> bool: ...

    @abstractmethod
    def resolve(self, path: str) -> str:
        """The path with all symbolic links followed. Raises FileNotFoundError."""

    @abstractmethod
    def ethtool(self, nic: str, section: str) -> dict[str, Any]:
        """One of ETHTOOL_SECTIONS. Raises errors.Unsupported where kernel or driver has none."""

    @abstractmethod
    def affinity(self, tid: int) -> frozenset[int]:
        """The CPUs a thread may run on. Raises ProcessLookupError."""

    # Changing

    @abstractmethod
    def write(self, path: str, text: str) -> None:
        """Write to a file of the kernel's (sysfs, procfs, configfs), in one write."""

    @abstractmethod
    def replace(self, path: str, text: str | None) -> None:
        """Put a configuration file in place atomically and durably; None removes it."""

    @abstractmethod
    def ethtool_set(self, nic: str, section: str, values: dict[str, Any]) -> None:
        """Change some keys of a section. Raises Unsupported, Unchangeable or OSError."""

    @abstractmethod
    def set_affinity(self, tid: int, cpus: Iterable[int]) -> None:
        """Raises ProcessLookupError, PermissionError, Unchangeable (a per-CPU kernel thread)."""

    @abstractmethod
    def run(self, argv: list[str], timeout: float = 60) -> Completed:
        """Run a command (a service restart, say). Raises FileNotFoundError."""

    def reopen(self) -> System:
        """The same machine with sockets of its own: for a process that was forked off."""
        return self

    # Convenience

    def text(self, path: str, default: str | None = None) -> str | None:
        """A file's text without surrounding blanks, or the default where it can't be read."""
        try:
            return self.read(path).strip()
        except OSError:
            return default

    def number(self, path: str, default: int | None = None) -> int | None:
        """A file's number, or the default where it can't be read or is none."""
        text = self.text(path)
        try:
            return default if text is None else int(text, 0)
        except ValueError:
            return default

    def names(self, path: str) -> list[str]:
        """A directory's names, none where there is no such directory."""
        try:
            return self.listdir(path)
        except OSError:
            return []
