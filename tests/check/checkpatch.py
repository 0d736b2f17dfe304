# SPDX-License-Identifier: GPL-2.0
"""The kernel's checkpatch.pl, taken out of Debian's kernel source package."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tests/guest"))

from lab import cache, mirror

SUITES = ("trixie", "trixie-security")
SOURCE = "linux-source-6.12"
# The one that driver/kunit/run builds its kernel from: one download for both.
VERSION = "6.12.107-1"
SHA256 = "775b9ef84d7fa7927ccebfec33fbbe9aeb2482ebf9a92c771aafd33fb6e2ee27"
WANTED = ("checkpatch.pl", "spelling.txt", "const_structs.checkpatch")
# What checkpatch asks for and rflash does not do, and why.
EXCEPTIONS = {
    "FILE_PATH_CHANGES": "there is no MAINTAINERS file outside of the kernel's tree",
    "SPDX_LICENSE_TAG": "the check knows only the kernel's own tree",
    "LINUX_VERSION_CODE": "driver/compat asks for features, except where a feature can't be probed",
}


class CheckpatchError(Exception):
    """checkpatch.pl can't be had."""


def _package() -> Path:
    pinned = mirror.deb(SHA256)
    if pinned.exists():
        return pinned
    archive = mirror.archive(SUITES)
    offers = archive.versions(SOURCE)
    if not offers:
        raise CheckpatchError(f"the mirror has no package {SOURCE}")
    chosen = next((o for o in offers if o[:2] == (VERSION, SHA256)), offers[0])
    return archive.fetch(SOURCE, *chosen)


def _unpack(directory: Path) -> None:
    package = _package()
    pipeline = (
        f'dpkg --fsys-tarfile "$1" | tar -xO ./usr/src/{SOURCE}.tar.xz | '
        f'tar -xJ -C "$2" --strip-components=2 {" ".join(f"{SOURCE}/scripts/{name}" for name in WANTED)}'
    )
    result = subprocess.run(
        ["bash", "-o", "pipefail", "-c", pipeline, "unpack", str(package), str(directory)],
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    if result.returncode:
        raise CheckpatchError(f"{', '.join(WANTED)} can't be taken out of {SOURCE}: {result.stderr.strip()}")


def run(sources: list[str]) -> tuple[bool, str]:
    """Check whole files; is all well, and what checkpatch says."""
    try:
        directory = cache.entry(f"checkpatch/{VERSION}-{cache.digest(WANTED)}", "checkpatch", _unpack)
    except cache.LabError as error:
        raise CheckpatchError(str(error)) from error
    command = ["perl", str(directory / "checkpatch.pl"), "--no-tree", "--no-summary", "--terse", "--quiet",
               f"--ignore={','.join(EXCEPTIONS)}", "--max-line-length=100", "--show-types",
               "--file", *sources]  # fmt: skip
    result = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, errors="replace", check=False)
    # Warnings of perl itself about the script go to standard error.
    return result.returncode == 0, result.stdout or result.stderr
