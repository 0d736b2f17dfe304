# SPDX-License-Identifier: GPL-2.0
"""A captured or described machine: its files, ethtool sections and affinities.

SnapshotSystem is a System over a Snapshot. It can be written to, in memory,
and then answers as a kernel would (behaviour.py), so that planner and executor
are tested on machines that nobody here has.
"""

from __future__ import annotations

import copy
import errno
import os
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from rflash_tuning import anonymiser, archive, behaviour, recorder, synthesis
from rflash_tuning.cpulist import format_list, parse_list
from rflash_tuning.errors import Unchangeable, Unsupported, UsageError
from rflash_tuning.host.model import Host
from rflash_tuning.host.probe import probe
from rflash_tuning.system import ETHTOOL_SECTIONS, Completed, System
from rflash_tuning.tree import Tree, os_error

SCHEMA = 1
KIND = "rflash-tune snapshot"
_KEYS = ("files", "links", "directories", "errors", "ethtool", "affinities", "commands", "meta")
# What a reboot does not bring back to its default.
_ON_DISK = ("/etc/", "/var/", "/usr/", "/boot/", "/root/", "/home/")


class Crash(BaseException):
    """An injected crash: nothing may catch it, as nothing catches a kill -9."""


@dataclass
class Snapshot:
    """A machine at one moment, as far as probe.py reads it."""

    tree: Tree = field(default_factory=Tree)
    ethtool: dict[str, dict[str, Any]] = field(default_factory=dict)  # NIC -> section -> what System.ethtool gives
    affinities: dict[int, frozenset[int]] = field(default_factory=dict)  # thread -> CPUs
    commands: dict[str, Completed] = field(default_factory=dict)  # the command line -> what it came to
    meta: dict[str, Any] = field(default_factory=dict)  # for people: captured, anonymised, synthetic, ...

    @classmethod
    def load(cls, path: str) -> Snapshot:
        """From .json, .tar.zst, .tar.gz or a directory. Raises UsageError, TuneError."""
        return cls.from_json(archive.load(path), path)

    def save(self, path: str) -> None:
        """To .json, .tar.zst, .tar.gz or (any other name) a directory. Raises TuneError."""
        archive.save(self.to_json(), path)

    def to_json(self) -> dict[str, Any]:
        return {
            "schema": SCHEMA,
            "kind": KIND,
            "meta": copy.deepcopy(self.meta),
            "files": dict(self.tree.files),
            "links": dict(self.tree.links),
            "directories": self.tree.directories(),
            "errors": dict(self.tree.errors),
            "ethtool": copy.deepcopy(self.ethtool),
            "affinities": {str(tid): format_list(cpus) for tid, cpus in sorted(self.affinities.items())},
            "commands": {line: {"status": c.status, "output": c.output} for line, c in self.commands.items()},
        }

    @classmethod
    def from_json(cls, data: dict[str, Any], source: str = "the snapshot") -> Snapshot:
        """Raises UsageError."""
        if data.get("kind") != KIND:
            raise UsageError(f"{source} is not a snapshot: its \"kind\" is not '{KIND}'")
        if data.get("schema") != SCHEMA:
            raise UsageError(f"{source} has schema {data.get('schema')}; this program reads schema {SCHEMA}")
        for key in data:
            if key not in (*_KEYS, "kind", "schema"):
                raise UsageError(f"{source} has an unknown key '{key}'; known are {', '.join(_KEYS)}")
            if key in _KEYS and not isinstance(data[key], dict):
                raise UsageError(f"{source}: '{key}' is not an object")
        try:
            return cls(
                tree=_tree(data),
                ethtool=copy.deepcopy(data.get("ethtool", {})),
                affinities={int(tid): parse_list(cpus) for tid, cpus in data.get("affinities", {}).items()},
                commands={line: Completed(**done) for line, done in data.get("commands", {}).items()},
                meta=copy.deepcopy(data.get("meta", {})),
            )
        except (TypeError, ValueError, AttributeError, OSError) as error:
            raise UsageError(f"{source} is damaged: {error}") from error

    def copy(self) -> Snapshot:
        return Snapshot(
            self.tree.copy(),
            copy.deepcopy(self.ethtool),
            dict(self.affinities),
            dict(self.commands),
            copy.deepcopy(self.meta),
        )


def _tree(data: dict[str, Any]) -> Tree:
    tree = Tree()
    for path, target in data.get("links", {}).items():
        tree.link(path, target)
    for path, names in data.get("directories", {}).items():
        tree.mkdir(path, names)
    for path, text in data.get("files", {}).items():
        tree.put(path, text)
    for path, error in data.get("errors", {}).items():
        tree.refuse(path, error)
    return tree


def record(system: System) -> Snapshot:
    """Everything that probe reads of a machine, and nothing else. Two records of the same state are equal."""
    recording = recorder.RecordingSystem(system)
    host = probe(recording)
    recording.exists("/run/systemd/system")  # a rehearsal must know how services are restarted
    recorder.tidy(recording.tree, host)
    pids = {task.tid for task in host.tasks}
    return Snapshot(
        recording.tree,
        recording.sections,
        {tid: cpus for tid, cpus in recording.affinities.items() if tid in pids},
        recording.commands,
        dict(recorder.summary(host)),
    )


def anonymise(snapshot: Snapshot) -> Snapshot:
    """The same machine as anybody's: see anonymiser.py for what is replaced."""
    names = anonymiser.Anonymiser()
    return Snapshot(
        anonymiser.tree(names, snapshot.tree),
        anonymiser.sections(names, snapshot.ethtool),
        dict(snapshot.affinities),
        dict(snapshot.commands),
        {**names.value(snapshot.meta), "anonymised": True},
    )


def capture(system: System, path: str, anonymous: bool = True) -> Snapshot:
    """Record a machine into a file: .tar.zst, .tar.gz, .json or a directory. Raises TuneError."""
    snapshot = record(system)
    if anonymous:
        snapshot = anonymise(snapshot)
    snapshot.save(path)
    return snapshot


def from_host(host: Host) -> Snapshot:
    """A machine of which probe gives this Host again, but for its host_id and what `files` leaves out."""
    machine = synthesis.build(host)
    return Snapshot(machine.tree, machine.sections, machine.affinities, {}, {"synthetic": host.synthetic})


class SnapshotSystem(System):
    """A machine in memory. What was done to it is in `mutations`, in order."""

    def __init__(self, snapshot: Snapshot) -> None:
        """The snapshot is copied and stays as it is."""
        self.before = snapshot.copy()  # the machine as it boots
        self.state = snapshot.copy()
        self.mutations: list[tuple[str, ...]] = []
        self.ran: list[list[str]] = []
        self.rss_configured: set[str] = set()  # NICs whose RSS table was set here: the kernel remembers that
        self._countdown: int | None = None
        self._injected: BaseException | None = None
        self._late = False

    @property
    def tree(self) -> Tree:
        return self.state.tree

    def snapshot(self) -> Snapshot:
        """The machine as it is now; two of them compare equal when nothing differs."""
        return self.state.copy()

    # Reading

    def read(self, path: str) -> str:
        return self.tree.read(path)

    def listdir(self, path: str) -> list[str]:
        return self.tree.listdir(path)

    def exists(self, path: str) -> bool:
        return self.tree.exists(path)

    def resolve(self, path: str) -> str:
        return self.tree.resolve(path)

    def ethtool(self, nic: str, section: str) -> dict[str, Any]:
        return copy.deepcopy(self._section(nic, section))

    def affinity(self, tid: int) -> frozenset[int]:
        if tid not in self.state.affinities:
            raise ProcessLookupError(errno.ESRCH, os.strerror(errno.ESRCH))
        return self.state.affinities[tid]

    def _section(self, nic: str, section: str) -> dict[str, Any]:
        if section not in ETHTOOL_SECTIONS:
            raise ValueError(f"'{section}' is no section of ethtool's")
        if nic not in self.state.ethtool and not self.exists(f"/sys/class/net/{nic}"):
            raise os_error(errno.ENODEV, nic)
        found = self.state.ethtool.get(nic, {}).get(section)
        if found is None:
            raise Unsupported(f"{nic} has no {section} settings")
        return found

    # Changing

    def write(self, path: str, text: str) -> None:
        with self._mutation("write", path, text):
            behaviour.write(self, path, text)

    def replace(self, path: str, text: str | None) -> None:
        with self._mutation("replace", path, "" if text is None else text):
            if text is None:
                if self.exists(path):
                    self.tree.remove(path)
            elif self.exists(path) and self.tree.is_dir(path):
                raise os_error(errno.EISDIR, path)
            else:
                self.tree.put(path, text)

    def ethtool_set(self, nic: str, section: str, values: dict[str, Any]) -> None:
        with self._mutation("ethtool", nic, section, repr(values)):
            behaviour.ethtool_set(self, nic, section, self._section(nic, section), values)

    def set_affinity(self, tid: int, cpus: Iterable[int]) -> None:
        wanted = frozenset(cpus)
        with self._mutation("affinity", str(tid), format_list(wanted)):
            self.affinity(tid)  # is it there?
            if behaviour.is_bound(self, tid):
                raise Unchangeable(f"thread {tid} is bound to its CPU by the kernel")
            allowed = wanted & behaviour.online(self)
            if not allowed:
                raise os_error(errno.EINVAL, f"CPUs {format_list(wanted)}")
            self.state.affinities[tid] = allowed

    def run(self, argv: list[str], timeout: float = 60) -> Completed:
        self.ran.append(list(argv))
        line = " ".join(argv)
        if line in self.state.commands:
            return self.state.commands[line]
        if argv[0] == "systemctl" and self.exists("/run/systemd/system"):
            return Completed(0, "")
        raise os_error(errno.ENOENT, argv[0])

    # What else happens to machines

    def fail_after(self, count: int, error: BaseException | None = None, late: bool = False) -> None:
        """Raise error (Crash) at the count-th mutation from now, 1 being the next.

        Early, the mutation does not happen; late, it happens and its caller
        never hears of it. Once only.
        """
        if count < 1:
            raise ValueError("the first mutation is number 1")
        self._countdown = count
        self._injected = error or Crash(f"injected at mutation {count}")
        self._late = late

    def rename_nic(self, old: str, new: str) -> None:
        """As `ip link set OLD name NEW` does; actions in /proc/interrupts keep the old name."""
        behaviour.rename_nic(self, old, new)
        if old in self.state.ethtool:
            self.state.ethtool[new] = self.state.ethtool.pop(old)

    def end_task(self, tid: int) -> None:
        """A thread (with a process of its own, as kernel threads have) is gone."""
        self.state.affinities.pop(tid, None)
        for path in (f"/proc/{tid}",):
            if self.exists(path):
                self.tree.remove(path)

    def reboot(self, boot_id: str = "00000000-0000-4000-8000-000000000002") -> None:
        """Everything but files on disk is as it was at first, and the boot has another id."""
        kept = {path: text for path, text in self.tree.files.items() if path.startswith(_ON_DISK)}
        self.state = self.before.copy()
        self.rss_configured.clear()
        for path in [path for path in self.tree.files if path.startswith(_ON_DISK) and path not in kept]:
            self.tree.remove(path)
        for path, text in kept.items():
            self.tree.put(path, text)
        self.tree.put("/proc/sys/kernel/random/boot_id", boot_id + "\n")

    def _mutation(self, *what: str) -> _Mutation:
        return _Mutation(self, what)

    def _strike(self, late: bool) -> None:
        """Raise the injected error when its time has come."""
        if self._countdown is None or late != self._late:
            return
        self._countdown -= 1
        if self._countdown == 0:
            self._countdown = None
            injected, self._injected = self._injected, None
            if injected is not None:
                raise injected


class _Mutation:
    """Counts a mutation, before it or after it; one that failed is not listed."""

    def __init__(self, system: SnapshotSystem, what: tuple[str, ...]) -> None:
        self._system = system
        self._what = what

    def __enter__(self) -> None:
        self._system._strike(late=False)

    def __exit__(self, kind: object, *_: object) -> None:
        if kind is None:
            self._system.mutations.append(self._what)
            self._system._strike(late=True)
