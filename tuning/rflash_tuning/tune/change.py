# SPDX-License-Identifier: GPL-2.0
"""A plan's lines: what is set (Setting), from what to what, why, and at what risk (Change).

A Setting is an address of one value on a machine and knows how to read, write
and print it; a Change is pure data about it. Knobs make Changes; executors
(apply.py, revert.py, script.py) use their Settings. Nobody else touches the
machine.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass, field
from typing import Any, ClassVar

from rflash_tuning.system import System

# How bad a change can be for traffic, mildest first.
DISRUPTIONS = ("none", "packets", "link", "target")

# A value is JSON: text, number, list, dictionary, None. None means absent (a
# rule, a configuration file).
Value = Any


class Setting(ABC):
    """The address of one value. Frozen dataclasses; `kind` names the class in JSON.

    read and write raise errors.Unsupported (no such thing here),
    errors.Unchangeable (refused for good) or OSError. What read returns can be
    written back and then reads the same again.
    """

    kind: ClassVar[str]
    # True when a reboot brings the value back by itself; False for files on disk.
    volatile: ClassVar[bool] = True

    @property
    @abstractmethod
    def key(self) -> str:
        """Unique and stable: what the journal knows it by."""

    @abstractmethod
    def label(self) -> str:
        """What a person calls it: "eth0 rx-3 interrupt 45 affinity"."""

    @abstractmethod
    def read(self, system: System) -> Value: ...

    @abstractmethod
    def write(self, system: System, value: Value) -> None: ...

    def settle(self, system: System, value: Value) -> None:
        """Complete a write of a value that reads right already, but may have been cut short by a crash.

        For what is more than one step: a file and its service's restart. Raises as write does.
        """
        return

    @abstractmethod
    def script(self, value: Value) -> list[str]:
        """Shell lines that do what write does."""

    def same(self, one: Value, other: Value) -> bool:
        """Do two values mean the same? ("3" and "03" of a mask do.)"""
        return one == other

    def show(self, value: Value) -> str:
        """A value for a table."""
        return "absent" if value is None else str(value)

    @abstractmethod
    def to_json(self) -> dict[str, Any]:
        """With "kind"; settings.from_json is the inverse."""


@dataclass(frozen=True)
class Change:
    """One line of a plan."""

    setting: Setting
    old: Value
    new: Value
    knob: str  # the knob's name
    reason: str  # one sentence
    source: str  # paper section, kernel document or driver document
    disruption: str = "none"
    cuts_off: bool = False  # could end the operator's own connection: commit-confirm
    tenant: str = ""  # whom it serves; "" for all
    # "" when it should work; otherwise the outcome that is foreseen
    # (unchangeable, unsupported) and `reason` says why. Never tried.
    foreseen: str = ""

    @property
    def key(self) -> str:
        return self.setting.key


@dataclass(frozen=True)
class Request:
    """What the user wants of this host."""

    role: str  # server, tenant
    target: str  # iscsi, nvmet-tcp, nvmet-rdma, rflashd
    nics: tuple[str, ...]
    tenants: int
    goal: str = "mixed"  # throughput, latency, mixed
    disks: tuple[str, ...] = ()  # () means the NVMe devices behind the tenants, or all NVMe devices
    read_share: int = 70  # per cent of requests that read
    queue_depth: int = 32
    mtu: int | None = None  # None: jumbo frames only where `peers` says so
    peers: tuple[str, ...] = ()  # addresses to probe the path to
    ports: tuple[int, ...] = ()  # the tenants' TCP ports; () takes them from the targets, then the convention
    cpus: tuple[int, ...] = ()  # () means all online ones
    knobs: tuple[str, ...] = ()  # only these; () means all
    skip: tuple[str, ...] = ()  # without these


@dataclass(frozen=True)
class Share:
    """What a tenant gets."""

    tenant: str
    port: int | None
    connection_cpus: tuple[int, ...]  # the thread that owns the connection, and its NIC queues' interrupts
    io_cpus: tuple[int, ...]  # I/O threads; who submits to NVMe
    queues: tuple[int, ...]  # of each port of the NIC


@dataclass(frozen=True)
class Allocation:
    """Who runs where, and by which rule."""

    rule: str  # spread, two-cores, one-core, shared
    reason: str
    source: str
    shares: tuple[Share, ...]
    cpus: tuple[int, ...]  # all used, NIC-local ones first
    warnings: tuple[str, ...] = ()


@dataclass(frozen=True)
class Plan:
    """What to do to a host, in the order in which to do it."""

    request: Request
    allocation: Allocation
    changes: tuple[Change, ...]  # only what is not right already, and what can't be made right
    right: int = 0  # values looked at that are right already
    warnings: tuple[str, ...] = ()
    host: dict[str, str] = field(default_factory=dict)  # host_id, boot_id, release
