# SPDX-License-Identifier: GPL-2.0
"""This machine."""

from __future__ import annotations

import contextlib
import errno
import os
import subprocess
from collections.abc import Iterable
from typing import Any

from rflash_tuning import ethtool
from rflash_tuning.cpulist import format_list
from rflash_tuning.durable import sync_directory
from rflash_tuning.errors import Unchangeable
from rflash_tuning.host import tasks
from rflash_tuning.system import Completed, System
from rflash_tuning.tree import natural


class LiveSystem(System):
    """The machine that we run on; its files below another root, where one is given."""

    live = True

    def __init__(self, root: str = "/") -> None:
        self._root = os.path.realpath(root).rstrip("/")
        self._ethtool = ethtool.Client()

    def reopen(self) -> LiveSystem:
        return LiveSystem(self._root or "/")

    def _at(self, path: str) -> str:
        return self._root + path

    # Reading

    def read(self, path: str) -> str:
        with open(self._at(path), "rb") as file:
            return file.read().decode("utf-8", "surrogateescape")

    def listdir(self, path: str) -> list[str]:
        return sorted(os.listdir(self._at(path)), key=natural)

    def exists(self, path: str) -> bool:
        return os.path.exists(self._at(path))

    def resolve(self, path: str) -> str:
        real = os.path.realpath(self._at(path), strict=True)
        return real[len(self._root) :] if real.startswith(self._root) else real

    def ethtool(self, nic: str, section: str) -> dict[str, Any]:
        return self._ethtool.get(nic, section)

    def affinity(self, tid: int) -> frozenset[int]:
        return frozenset(os.sched_getaffinity(tid))

    # Changing

    def write(self, path: str, text: str) -> None:
        """One write(2): a sysfs attribute takes its value whole. A file that is not there is not made."""
        content = text.encode("utf-8", "surrogateescape")
        handle = os.open(self._at(path), os.O_WRONLY | os.O_CLOEXEC)
        try:
            written = os.write(handle, content)
        except OSError as error:
            error.filename = path
            raise
        finally:
            os.close(handle)
        if written != len(content):
            raise OSError(errno.EIO, f"only {written} of {len(content)} bytes were taken", path)

    def replace(self, path: str, text: str | None) -> None:
        real = os.path.realpath(self._at(path))
        directory = os.path.dirname(real)
        if text is None:
            for name in (_temporary(real), real):
                with contextlib.suppress(FileNotFoundError):
                    os.unlink(name)
        else:
            _put(real, text.encode("utf-8", "surrogateescape"))
        sync_directory(directory)

    def ethtool_set(self, nic: str, section: str, values: dict[str, Any]) -> None:
        self._ethtool.set(nic, section, values)

    def set_affinity(self, tid: int, cpus: Iterable[int]) -> None:
        wanted = sorted(set(cpus))
        try:
            os.sched_setaffinity(tid, wanted)
        except OSError as error:
            if error.errno == errno.EINVAL and self._is_bound(tid):
                raise Unchangeable(f"thread {tid} is bound to its CPU by the kernel") from error
            error.filename = f"thread {tid}, CPUs {format_list(wanted)}"
            raise

    def _is_bound(self, tid: int) -> bool:
        known = tasks.parse(self.text(f"/proc/{tid}/stat"))
        return known is not None and known.bound

    def run(self, argv: list[str], timeout: float = 60) -> Completed:
        try:
            done = subprocess.run(
                argv,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                timeout=timeout,
                check=False,
                env={**os.environ, "LC_ALL": "C"},
            )
        except subprocess.TimeoutExpired:
            return Completed(124, f"{argv[0]} did not finish within {timeout:g} s")
        return Completed(done.returncode, done.stdout.decode("utf-8", "replace"))


def _temporary(real: str) -> str:
    """Always the same name, so that what a crash leaves is found again."""
    directory, name = os.path.split(real)
    return f"{directory}/.{name}.rflash"


def _put(real: str, content: bytes) -> None:
    """The old file or the new one, never half of it, with the old one's mode and owner."""
    temporary = _temporary(real)
    # What a crash has left of the last time goes first: a link there would not be followed, and not be ours.
    with contextlib.suppress(FileNotFoundError):
        os.unlink(temporary)
    handle = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(content)
            file.flush()
            try:
                old = os.stat(real)
                os.fchmod(file.fileno(), old.st_mode & 0o7777)
                os.fchown(file.fileno(), old.st_uid, old.st_gid)
            except FileNotFoundError:
                os.fchmod(file.fileno(), 0o644)
            os.fsync(file.fileno())
        os.replace(temporary, real)
    except OSError:
        with contextlib.suppress(FileNotFoundError):
            os.unlink(temporary)
        raise
