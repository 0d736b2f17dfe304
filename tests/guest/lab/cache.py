# SPDX-License-Identifier: GPL-2.0
"""Where downloads and images are kept: by content, safe for several runs at once."""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import os
import shutil
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

STALE_SECONDS = 21 * 24 * 3600


class LabError(Exception):
    """The lab can't do what was asked; the text says why in one sentence."""


def say(text: str) -> None:
    """Tell the person who waits what is going on."""
    print(f"lab: {text}", file=sys.stderr, flush=True)


def root() -> Path:
    """The cache directory, outside the source tree so that clones share it."""
    chosen = os.environ.get("RFLASH_CACHE")
    if not chosen:
        base = os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache")
        chosen = os.path.join(base, "rflash")
    path = Path(chosen).absolute()
    path.mkdir(parents=True, exist_ok=True)
    return path


def digest(*parts: object) -> str:
    """A short name for whatever is made out of these parts."""
    total = hashlib.sha256()
    for part in parts:
        data = part if isinstance(part, bytes) else str(part).encode()
        total.update(len(data).to_bytes(8, "little"))
        total.update(data)
    return total.hexdigest()[:16]


def file_sha256(path: Path) -> str:
    with open(path, "rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()


@contextlib.contextmanager
def lock(name: str) -> Iterator[None]:
    """Hold one named lock of the cache; the kernel drops it when we die."""
    directory = root() / "locks"
    directory.mkdir(exist_ok=True)
    with open(directory / name.replace("/", "_"), "w") as stream:
        try:
            fcntl.flock(stream, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            say(f"another run is preparing {name}; waiting for it")
            fcntl.flock(stream, fcntl.LOCK_EX)
        yield


def entry(name: str, what: str, make: Callable[[Path], None]) -> Path:
    """The directory `name` of the cache; make it when it is not there.

    It is made under another name and renamed when complete, so that an
    interrupted run leaves nothing that looks finished.
    """
    final = root() / name
    if final.is_dir():
        os.utime(final)
        return final
    with lock(name):
        if final.is_dir():
            return final
        final.parent.mkdir(parents=True, exist_ok=True)
        partial = final.parent / f".{final.name}.partial"
        if partial.exists():
            shutil.rmtree(partial)
        partial.mkdir()
        say(f"preparing {what} (once)")
        make(partial)
        partial.rename(final)
        _prune(final)
    return final


def _prune(fresh: Path) -> None:
    """Drop what this entry replaces, once nobody has used it for weeks."""
    family = fresh.name.rpartition("-")[0]
    for other in fresh.parent.iterdir():
        if other == fresh or other.name.startswith(".") or other.name.rpartition("-")[0] != family:
            continue
        if time.time() - other.stat().st_mtime > STALE_SECONDS:
            shutil.rmtree(other, ignore_errors=True)
