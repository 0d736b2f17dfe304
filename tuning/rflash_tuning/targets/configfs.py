# SPDX-License-Identifier: GPL-2.0
"""The kernel's configfs, in which targets are made by making directories and links.

Paths are relative to its root ("nvmet/ports/1"). In configfs a directory that
the kernel made by itself can't be removed (EPERM), files vanish with their
directory, and a directory that is linked to can't be removed (EBUSY).
Source: Documentation/filesystems/configfs.rst.
"""

from __future__ import annotations

import contextlib
import os


class Configfs:
    """A mounted configfs. Every method raises OSError as the kernel does."""

    def __init__(self, root: str = "/sys/kernel/config"):
        self.root = root

    def path(self, name: str) -> str:
        return os.path.join(self.root, name)

    def exists(self, name: str) -> bool:
        return os.path.lexists(self.path(name))

    def mkdir(self, name: str) -> None:
        os.mkdir(self.path(name))

    def rmdir(self, name: str) -> None:
        os.rmdir(self.path(name))

    def write(self, name: str, text: str) -> None:
        """In one write, without making the file: one that is not there is a kernel that has no such setting."""
        fd = os.open(self.path(name), os.O_WRONLY)
        try:
            os.write(fd, text.encode())
        finally:
            os.close(fd)

    def read(self, name: str) -> str:
        with open(self.path(name)) as file:
            return file.read().strip()

    def link(self, name: str, target: str) -> None:
        os.symlink(self.path(target), self.path(name))

    def unlink(self, name: str) -> None:
        os.unlink(self.path(name))

    def entries(self, name: str) -> tuple[list[str], list[str]]:
        """Directories and links in a directory, sorted; nothing where it is not."""
        directories, links = [], []
        with contextlib.suppress(FileNotFoundError), os.scandir(self.path(name)) as found:
            for entry in found:
                if entry.is_symlink():
                    links.append(entry.name)
                elif entry.is_dir():
                    directories.append(entry.name)
        return sorted(directories), sorted(links)

    def directories(self, name: str) -> list[str]:
        return self.entries(name)[0]

    def remove_tree(self, name: str) -> None:
        """Remove a directory and all that was made in it, however far its making came."""
        if not self.exists(name):
            return
        self._remove_links(name)
        self._remove_directories(name)

    def _remove_links(self, name: str) -> None:
        directories, links = self.entries(name)
        for entry in links:
            self.unlink(f"{name}/{entry}")
        # "acls" comes before "lun", whose links it uses.
        for entry in directories:
            self._remove_links(f"{name}/{entry}")

    def _remove_directories(self, name: str) -> None:
        for entry in self.directories(name):
            with contextlib.suppress(PermissionError):
                self._remove_directories(f"{name}/{entry}")
        # A directory that the kernel made is refused with EPERM, whatever is in it.
        with contextlib.suppress(FileNotFoundError):
            self.rmdir(name)
