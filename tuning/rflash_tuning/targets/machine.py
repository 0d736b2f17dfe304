# SPDX-License-Identifier: GPL-2.0
"""What making targets takes beyond reading: configfs, raw sectors, kernel modules."""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

from rflash_tuning.errors import TuneError, UsageError
from rflash_tuning.system import System
from rflash_tuning.targets.configfs import Configfs

BLKRRPART = 0x125F  # include/uapi/linux/fs.h: read the partition table again


class Sectors:
    """Block devices as bytes."""

    def is_device(self, path: str) -> bool:
        try:
            return os.stat(path).st_mode & 0o170000 == 0o060000
        except OSError:
            return False

    def read(self, path: str, offset: int, length: int) -> bytes:
        """Past the cache where it matters not: all writers go through the same one."""
        with open(path, "rb", buffering=0) as file:
            data = os.pread(file.fileno(), length, offset)
        if len(data) != length:
            raise OSError(errno.EIO, "could be read only in part", path)
        return data

    @contextlib.contextmanager
    def claim(self, path: str) -> Iterator[int]:
        """Hold a device for oneself: EBUSY when it or a partition is mounted, held or claimed."""
        fd = os.open(path, os.O_RDWR | os.O_EXCL | os.O_CLOEXEC)
        try:
            # Keeps udev from looking into a device that is being changed.
            fcntl.flock(fd, fcntl.LOCK_EX)
            yield fd
        finally:
            os.close(fd)

    def write(self, fd: int, offset: int, data: bytes) -> None:
        view = memoryview(data)
        while view:
            written = os.pwrite(fd, view, offset)
            offset, view = offset + written, view[written:]
        os.fsync(fd)

    def reread(self, fd: int) -> None:
        """Let the kernel read the partition table again. udev may look at a partition just now."""
        for attempt in range(50):
            try:
                fcntl.ioctl(fd, BLKRRPART)
                return
            except OSError as error:
                if error.errno != errno.EBUSY or attempt == 49:
                    raise
                time.sleep(0.1)


@dataclass
class Machine:
    """The machine that targets are made on."""

    system: System
    configfs: Configfs = field(default_factory=Configfs)
    sectors: Sectors = field(default_factory=Sectors)
    sleep: Callable[[float], None] = time.sleep

    def load(self, module: str) -> None:
        """Have a kernel module, or say in one sentence why not. Raises TuneError."""
        if self.system.exists(f"/sys/module/{module.replace('-', '_')}"):
            return
        try:
            done = self.system.run(["modprobe", module])
        except FileNotFoundError as error:
            raise TuneError(f"the kernel module {module} is not loaded, and there is no modprobe to load it") from error
        if done.status:
            said = last_line(done.output) or f"status {done.status}"
            raise TuneError(f"the kernel module {module} is needed and `modprobe {module}` fails: {said}")

    def mount_configfs(self) -> None:
        if self.configfs.entries("")[0]:
            return
        done = self.system.run(["mount", "-t", "configfs", "none", self.configfs.root])
        # "already mounted" is as good.
        if done.status and not self.configfs.entries("")[0]:
            raise TuneError(f"configfs can't be mounted at {self.configfs.root}: {last_line(done.output)}")

    def make_directories(self, path: str) -> None:
        """Like mkdir -p, where this is the machine that we run on."""
        if self.system.live:
            os.makedirs(path, exist_ok=True)

    def remove_empty(self, path: str) -> None:
        """A directory that nothing is in any more."""
        if self.system.live:
            with contextlib.suppress(OSError):
                os.rmdir(path)

    def command(self, argv: list[str], package: str) -> str:
        """A command's output. Raises TuneError with what it said, UsageError when it is missing."""
        try:
            done = self.system.run(argv)
        except FileNotFoundError as error:
            raise UsageError(f"the command {argv[0]} is needed: install {package}") from error
        if done.status:
            raise TuneError(f"{argv[0]} fails: {last_line(done.output) or f'status {done.status}'}")
        return done.output


def last_line(text: str) -> str:
    """Commands say what was wrong in their last line."""
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    return lines[-1].rstrip(".") if lines else ""


def reason(error: Exception) -> str:
    """An exception as the end of a sentence."""
    if isinstance(error, OSError) and error.strerror:
        return error.strerror[0].lower() + error.strerror[1:]
    return str(error).rstrip(".") or type(error).__name__
