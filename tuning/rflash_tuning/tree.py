# SPDX-License-Identifier: GPL-2.0
"""A file system in memory: files, directories and symbolic links, with the kernel's errors.

Paths are absolute. What is a link is followed component by component, as the
kernel does, so /sys/class/net/eth0/mtu and the device's own path are one file.
"""

from __future__ import annotations

import errno
import os
import re
from collections.abc import Iterable

_DIGITS = re.compile(r"(\d+)")
_MAX_LINKS = 40  # MAXSYMLINKS of include/linux/namei.h


def natural(name: str) -> list[tuple[int, int, str]]:
    """A sort key by which rx-2 comes before rx-10."""
    parts = _DIGITS.split(name)
    return [(0, int(part), "") if place % 2 else (1, 0, part) for place, part in enumerate(parts)]


def os_error(number: int, path: str) -> OSError:
    """The OSError (FileNotFoundError and so on) of an errno."""
    return OSError(number, os.strerror(number), path)


class Tree:
    """Files, links and directories. Not a Snapshot: it knows nothing of what they mean."""

    def __init__(self) -> None:
        self.files: dict[str, str] = {}
        self.links: dict[str, str] = {}  # path -> where it leads, absolute
        self.errors: dict[str, str] = {}  # path -> name of the errno that reading it gives
        self._names: dict[str, set[str]] = {"/": set()}  # directory -> what is in it

    # What is there

    def walk(self, path: str) -> str:
        """The path without symbolic links, whether or not something is there. Raises OSError (ELOOP)."""
        waiting = [part for part in reversed(path.split("/")) if part and part != "."]
        here = ""
        followed = 0
        while waiting:
            part = waiting.pop()
            if part == "..":
                here = here.rpartition("/")[0]
                continue
            here = f"{here}/{part}"
            if here in self.links:
                followed += 1
                if followed > _MAX_LINKS:
                    raise os_error(errno.ELOOP, path)
                waiting += [part for part in reversed(self.links[here].split("/")) if part]
                here = ""
        return here or "/"

    def exists(self, path: str) -> bool:
        try:
            return self._is_there(self.walk(path))
        except OSError:
            return False

    def _is_there(self, real: str) -> bool:
        if real in self.files or real in self._names:
            return True
        parent, _, name = real.rpartition("/")
        return name in self._names.get(parent or "/", ())

    def is_dir(self, path: str) -> bool:
        return self.walk(path) in self._names

    def resolve(self, path: str) -> str:
        real = self.walk(path)
        if not self._is_there(real):
            raise os_error(errno.ENOENT, path)
        return real

    def read(self, path: str) -> str:
        real = self.walk(path)
        if real in self.errors:
            raise os_error(getattr(errno, self.errors[real], errno.EIO), path)
        if real in self.files:
            return self.files[real]
        raise os_error(errno.EISDIR if real in self._names else errno.ENOENT, path)

    def listdir(self, path: str) -> list[str]:
        real = self.walk(path)
        if real not in self._names:
            raise os_error(errno.ENOTDIR if real in self.files else errno.ENOENT, path)
        return sorted(self._names[real], key=natural)

    def directories(self) -> dict[str, list[str]]:
        """Every directory with the names of what is in it but is neither file, link nor directory here."""
        found = {}
        for path, names in self._names.items():
            base = path.rstrip("/")
            here = [f"{base}/{name}" for name in names]
            bare = [p for p in here if p not in self.files and p not in self.links and p not in self._names]
            if bare or not names:
                found[path] = sorted((p.rpartition("/")[2] for p in bare), key=natural)
        return found

    # Changing it

    def put(self, path: str, text: str) -> None:
        """A file with its text, its directories with it."""
        real = self.walk(path)
        self.files[real] = text
        self.errors.pop(real, None)
        self._enter(real)

    def link(self, path: str, target: str) -> None:
        """A symbolic link to an absolute path."""
        parent, _, name = path.rpartition("/")
        base = self.walk(parent or "/").rstrip("/")
        self.links[f"{base}/{name}"] = target
        self._enter(f"{base}/{name}")

    def mkdir(self, path: str, names: Iterable[str] = ()) -> None:
        """A directory, with the names of things in it of which nothing else is known."""
        real = self.walk(path)
        self._enter(real)
        self._names.setdefault(real, set()).update(names)

    def refuse(self, path: str, error: str) -> None:
        """Reading this file gives an error ("EACCES")."""
        real = self.walk(path)
        self.errors[real] = error
        self._enter(real)

    def remove(self, path: str) -> None:
        """A file, a link (not what it leads to), or a directory with all that is below it."""
        parent, _, name = path.rstrip("/").rpartition("/")
        base = self.walk(parent or "/").rstrip("/")
        real = f"{base}/{name}"
        if not self._is_there(real):
            raise os_error(errno.ENOENT, path)
        self._names[base or "/"].discard(name)
        below = real + "/"
        for store in (self.files, self.links, self.errors, self._names):
            for key in [key for key in store if key == real or key.startswith(below)]:
                del store[key]

    def move(self, old: str, new: str) -> None:
        """Rename a directory with all that is below it. Links elsewhere stay as they are."""
        source, below = self.walk(old), self.walk(old) + "/"
        files = {path: text for path, text in self.files.items() if path.startswith(below)}
        links = {path: target for path, target in self.links.items() if path.startswith(below)}
        errors = {path: name for path, name in self.errors.items() if path.startswith(below)}
        names = {path: set(n) for path, n in self._names.items() if path == source or path.startswith(below)}
        self.remove(source)
        for path, inside in names.items():
            self.mkdir(new + path[len(source) :], inside)
        for path, text in files.items():
            self.put(new + path[len(source) :], text)
        for path, target in links.items():
            self.link(new + path[len(source) :], target)
        for path, name in errors.items():
            self.refuse(new + path[len(source) :], name)

    def _enter(self, real: str) -> None:
        while real not in ("", "/"):
            parent, _, name = real.rpartition("/")
            parent = parent or "/"
            known = self._names.setdefault(parent, set())
            if name in known:
                return
            known.add(name)
            real = parent

    def copy(self) -> Tree:
        other = Tree()
        other.files = dict(self.files)
        other.links = dict(self.links)
        other.errors = dict(self.errors)
        other._names = {path: set(names) for path, names in self._names.items()}
        return other

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Tree):
            return NotImplemented
        return (self.files, self.links, self.errors, self._names) == (
            other.files,
            other.links,
            other.errors,
            other._names,
        )

    __hash__ = None  # type: ignore[assignment]
