# SPDX-License-Identifier: GPL-2.0
"""Packs what probe.py reads of a machine, so that a SnapshotSystem gives the same Host."""

from __future__ import annotations

import errno
import re
from collections.abc import Iterable
from typing import Any

from rflash_tuning.cpulist import format_list
from rflash_tuning.host import connections, tasks, tuners
from rflash_tuning.host.model import Host
from rflash_tuning.system import Completed, System
from rflash_tuning.tree import Tree


class RecordingSystem(System):
    """Passes reads on to a System and keeps what came; refuses to change anything."""

    def __init__(self, inner: System) -> None:
        self._inner = inner
        self._places: dict[str, str | None] = {"": "", "/": "/"}
        self.tree = Tree()
        self.sections: dict[str, dict[str, Any]] = {}
        self.affinities: dict[int, frozenset[int]] = {}
        self.commands: dict[str, Completed] = {}

    def _place(self, path: str) -> str | None:
        """Where a path leads, its links recorded; None where there is nothing."""
        path = path.rstrip("/")
        if path not in self._places:
            parent, _, name = path.rpartition("/")
            above = self._place(parent)
            self._places[path] = None if above is None else self._step(path, above, name)
        return self._places[path]

    def _step(self, path: str, above: str, name: str) -> str | None:
        try:
            real = self._inner.resolve(path)
        except OSError:
            return None
        straight = f"{above.rstrip('/')}/{name}"
        if real != straight:
            self.tree.link(straight, real)
        return real

    def read(self, path: str) -> str:
        real = self._place(path)
        try:
            text = self._inner.read(path)
        except OSError as error:
            if real is not None:
                self.tree.refuse(real, errno.errorcode.get(error.errno or errno.EIO, "EIO"))
            raise
        self.tree.put(real or path, text)
        return text

    def listdir(self, path: str) -> list[str]:
        names = self._inner.listdir(path)
        self.tree.mkdir(self._place(path) or path, names)
        return names

    def exists(self, path: str) -> bool:
        there = self._inner.exists(path)
        real = self._place(path) if there else None
        if real:
            self._enter(real)
        return there

    def resolve(self, path: str) -> str:
        real = self._inner.resolve(path)
        self._enter(self._place(path) or path)
        return real

    def _enter(self, real: str) -> None:
        parent, _, name = real.rpartition("/")
        self.tree.mkdir(parent or "/", [name])

    def ethtool(self, nic: str, section: str) -> dict[str, Any]:
        values = self._inner.ethtool(nic, section)
        self.sections.setdefault(nic, {})[section] = values
        return values

    def affinity(self, tid: int) -> frozenset[int]:
        cpus = self._inner.affinity(tid)
        self.affinities[tid] = cpus
        return cpus

    def run(self, argv: list[str], timeout: float = 60) -> Completed:
        done = self._inner.run(argv, timeout)
        self.commands[" ".join(argv)] = done
        return done

    def write(self, path: str, text: str) -> None:
        raise _refusal()

    def replace(self, path: str, text: str | None) -> None:
        raise _refusal()

    def ethtool_set(self, nic: str, section: str, values: dict[str, Any]) -> None:
        raise _refusal()

    def set_affinity(self, tid: int, cpus: Iterable[int]) -> None:
        raise _refusal()


def _refusal() -> PermissionError:
    return PermissionError(errno.EPERM, "a machine that is being captured is not changed")


# What changes by itself and says nothing of how a host is set up is taken out,
# so that two captures of the same state are the same; so is what is nobody's
# business: other processes and other connections.


def tidy(tree: Tree, host: Host) -> None:
    """Leave of processes, interrupt counts and connections what a Host has of them."""
    _tidy_processes(tree)
    if "/proc/interrupts" in tree.files:
        tree.put("/proc/interrupts", _without_counts(tree.files["/proc/interrupts"]))
    ports = [tenant.port for tenant in host.tenants if tenant.port]
    for path in ("/proc/net/tcp", "/proc/net/tcp6"):
        if path in tree.files:
            tree.put(path, _own_connections(tree.files[path], ports))


def _tidy_processes(tree: Tree) -> None:
    if not tree.exists("/proc"):
        return
    for name in tree.listdir("/proc"):
        path = f"/proc/{name}"
        if not name.isdecimal():
            if path not in tree.files and not tree.is_dir(path):
                tree.remove(path)  # of /proc/kcore and others only the name is known
            continue
        process = tasks.parse(tree.files.get(f"{path}/stat"))
        if process is None or not (tasks.wanted(process.name) or process.name in tuners.PROCESSES):
            tree.remove(path)
    for path in [path for path in tree.files if re.fullmatch(r"/proc/\d+/(task/\d+/)?stat", path)]:
        process = tasks.parse(tree.files[path])
        if process is not None:
            tree.put(path, stat_line(process))


def stat_line(process: tasks.Process) -> str:
    """A line of /proc/PID/stat with the fields that we know, 0 for the others."""
    fields = ["S", *["0"] * 5, str(process.flags), *["0"] * 12, str(process.start), *["0"] * 30]
    return f"{process.pid} ({process.name}) {' '.join(fields)}\n"


def _without_counts(text: str) -> str:
    """/proc/interrupts with every count 0, and without the lines of the architecture's own interrupts."""
    lines = text.splitlines()
    kept = lines[:1]
    for line in lines[1:]:
        match = re.match(r"(\s*\d+:)((?:\s+\d+)+)(\s.*)", line)
        if match:
            kept.append(match[1] + re.sub(r"\d+", lambda found: "0".rjust(len(found[0])), match[2]) + match[3])
    return "\n".join(kept) + "\n"


def _own_connections(text: str, ports: list[int]) -> str:
    """The header and the established connections with a tenant's port, sorted and numbered anew."""
    lines = text.splitlines()
    wanted = connections.CONVENTIONAL | frozenset(ports)
    ends = []
    for line in lines[1:]:
        connection = connections.parse(line)
        if connection and (connection.local_port in wanted or connection.remote_port in wanted):
            ends.append(line.split()[1:4])
    return "\n".join([*lines[:1], *(f"{place:4d}: {' '.join(end)}" for place, end in enumerate(sorted(ends)))]) + "\n"


def summary(host: Host) -> dict[str, str]:
    """For people who open a capture."""
    return {
        "release": host.release,
        "machine": host.machine,
        "cpus": format_list(cpu.id for cpu in host.cpus),
        "nics": ", ".join(f"{nic.name} ({nic.driver})" for nic in host.nics if nic.kind == "physical"),
    }
