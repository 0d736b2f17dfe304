# SPDX-License-Identifier: GPL-2.0
"""Builds out-of-tree modules for the guests' kernels.

Each series has a chroot of the Debian release that its kernel comes from,
with the compiler that built it and its headers: the host's libc is too old
for the newer releases' build tools, and another compiler gives other code.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from dataclasses import dataclass, field
from pathlib import Path

from . import cache, kernels, rootfs

COMMON = ("make", "sparse", "libelf1", "zlib1g")
# Bump when the same packages should give another chroot.
RECIPE = 2
# Runs in a mount namespace of its own: $1 chroot, $2 directory to build in, rest command.
ENTER = """
set -e
root=$1 work=$2
shift 2
# Fails where / is no mount point, in a chroot: there nothing is shared either.
mount --make-rprivate / 2>/dev/null || true
mount -t proc proc "$root/proc"
mount --bind /dev "$root/dev"
mount -t tmpfs tmpfs "$root/tmp"
mount --bind "$work" "$root/build"
exec chroot "$root" /usr/bin/env -i PATH=/usr/sbin:/usr/bin:/sbin:/bin LC_ALL=C HOME=/tmp \
    KBUILD_BUILD_TIMESTAMP=1970-01-01 KBUILD_BUILD_USER=rflash KBUILD_BUILD_HOST=builder "$@"
"""


@dataclass
class Tree:
    """Sources of one module: a directory with a Kbuild file, and where to build it."""

    source: Path
    parts: list[str]  # what to take from the source directory
    work: Path
    variables: list[str] = field(default_factory=list)  # for make


def chroot(series: kernels.Series) -> Path:
    """The build chroot of a series."""
    packages = [*COMMON, *series.toolchain]
    key = cache.digest(RECIPE, series.toolchain_suites, packages, *(p.sha256 for p in series.headers))

    def prepare(directory: Path) -> None:
        tree = directory / "root"
        cache.say(f"module builder for {series.release}: installing {', '.join(series.toolchain)}")
        rootfs.mmdebstrap(series.toolchain_suites, packages, tree)
        for file in kernels.fetch(series, series.headers):
            # Not with dpkg -x: it would replace /lib, a symbolic link, by a directory.
            archive = subprocess.Popen(["dpkg", "--fsys-tarfile", str(file)], stdout=subprocess.PIPE)
            subprocess.run(["tar", "-x", "--keep-directory-symlink", "-C", str(tree)], stdin=archive.stdout, check=True)
            if archive.wait():
                raise cache.LabError(f"{file} can't be unpacked")
        (tree / "build").mkdir()

    return cache.entry(f"builder/{series.name}-{key}", f"the module builder for {series.release}", prepare) / "root"


def _is_product(name: Path) -> bool:
    """Is this left over from a build in the source tree?"""
    return (
        name.name.startswith(".")
        or name.suffix in (".o", ".ko", ".mod", ".order", ".symvers")
        or name.name.endswith(".mod.c")
        or "generated" in name.parts
    )


def _sync(tree: Tree) -> None:
    """Copy changed sources, times included, and drop those that are gone."""
    wanted = set()
    for part in tree.parts:
        source = tree.source / part
        files = [source] if source.is_file() else sorted(p for p in source.rglob("*") if p.is_file())
        for file in files:
            name = file.relative_to(tree.source)
            if _is_product(name):
                continue
            wanted.add(str(name))
            target = tree.work / name
            status = file.stat()
            if target.exists():
                have = target.stat()
                if (have.st_size, have.st_mtime_ns, have.st_mode) == (
                    status.st_size, status.st_mtime_ns, status.st_mode,
                ):  # fmt: skip
                    continue
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(file, target)
    listing = tree.work / ".sources"
    if listing.exists():
        for gone in set(listing.read_text().splitlines()) - wanted:
            (tree.work / gone).unlink(missing_ok=True)
    listing.write_text("\n".join(sorted(wanted)) + "\n")


def build(name: str, tree: Tree) -> None:
    """Run the kernel's build of a module tree; warnings are shown, errors raised."""
    if os.geteuid() != 0:
        raise cache.LabError("building modules for guests needs root (it uses a chroot); run this as root")
    series = kernels.resolve(name)
    root = chroot(series)
    tree.work.mkdir(parents=True, exist_ok=True)
    with cache.lock(f"build-{cache.digest(tree.work)}"):
        _sync(tree)
        enter = [
            "unshare",
            "--mount",
            "--propagation=unchanged",
            "sh",
            "-c",
            ENTER,
            "builder",
            str(root),
            str(tree.work),
        ]
        make = ["make", "--no-print-directory", f"-j{os.cpu_count()}", "-C", f"/usr/src/linux-headers-{series.release}"]
        command = [*enter, *make, "M=/build", *tree.variables, "modules"]
        result = subprocess.Popen(
            command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, errors="replace"
        )
        assert result.stdout is not None
        for line in result.stdout:
            # Show paths of the source tree, which an editor can open.
            sys.stderr.write(line.replace("/build/", ""))
        if result.wait():
            raise cache.LabError(f"the module does not build for kernel {series.release}")


def rflash_tree(top: Path, work: Path, variables: list[str]) -> Tree:
    """The sources of rflash.ko."""
    if not (top / "Kbuild").exists():
        raise cache.LabError(f"{top} has no Kbuild")
    return Tree(top, ["Kbuild", "driver"], work, variables)


def rflash(name: str, top: Path, variables: list[str]) -> Path:
    """Build rflash.ko for a series; build/modules/SERIES/rflash.ko."""
    final = top / "build" / "modules" / name
    work = final / "src"
    build(name, rflash_tree(top, work, variables))
    _publish(work / "rflash.ko", final / "rflash.ko")
    return final / "rflash.ko"


def _publish(built: Path, final: Path) -> None:
    """Replace the module in one step: a guest may be reading it."""
    partial = final.with_suffix(".partial")
    shutil.copy2(built, partial)
    partial.rename(final)
