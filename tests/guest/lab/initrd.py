# SPDX-License-Identifier: GPL-2.0
"""The first file system of a guest: busybox and the few modules that reach the disks."""

from __future__ import annotations

import lzma
import os
import shutil
import subprocess
import tempfile
from pathlib import Path

from . import cache

STAGE = Path(__file__).resolve().parent.parent / "stage"
BUSYBOX = Path("/bin/busybox")
WANTED = ("virtio_pci", "virtio_blk", "ext4", "9pnet_virtio", "9p", "virtio_console", "virtio_net", "virtio_rng",
          "configfs")  # fmt: skip


def _with_dependencies(modules: Path) -> list[str]:
    """Paths of the wanted modules and what they need, in the order to insert them."""
    needs: dict[str, list[str]] = {}
    by_name: dict[str, str] = {}
    for line in (modules / "modules.dep").read_text().splitlines():
        path, _, rest = line.partition(":")
        needs[path] = rest.split()
        by_name[os.path.basename(path).split(".")[0].replace("-", "_")] = path
    built_in = {
        os.path.basename(line).split(".")[0].replace("-", "_")
        for line in (modules / "modules.builtin").read_text().splitlines()
    }
    # ext4 looks its checksum up by name: no dependency shows it.
    order: list[str] = []

    def add(path: str) -> None:
        for other in reversed(needs[path]):
            if other not in order:
                add(other)
        if path not in order:
            order.append(path)

    for name in ("crc32c_generic", "crc32c_cryptoapi", *WANTED):
        if name in by_name:
            add(by_name[name])
        elif name not in built_in and not name.startswith("crc32c"):
            raise cache.LabError(f"kernel {modules.name} has no module {name}")
    return order


def _decompressed(path: Path) -> bytes:
    data = path.read_bytes()
    if path.suffix == ".xz":
        return lzma.decompress(data)
    if path.suffix == ".zst":
        return subprocess.run(["zstd", "-dcq"], input=data, stdout=subprocess.PIPE, check=True).stdout
    return data


def collect(modules: Path, target: Path) -> None:
    """Put what an initrd needs of the module tree /lib/modules/RELEASE into a directory."""
    target.mkdir()
    order = []
    for number, path in enumerate(_with_dependencies(modules)):
        file = f"{number:02d}-{os.path.basename(path).split('.')[0]}.ko"
        (target / file).write_bytes(_decompressed(modules / path))
        order.append(file)
    (target / "order").write_text("\n".join(order) + "\n")


def _build(collected: Path, target: Path) -> None:
    with tempfile.TemporaryDirectory(dir=target.parent) as name:
        tree = Path(name)
        for directory in ("bin", "dev", "proc", "sys", "root"):
            (tree / directory).mkdir()
        shutil.copytree(collected, tree / "modules")
        shutil.copy(BUSYBOX, tree / "bin/busybox")
        shutil.copy(STAGE / "initrd-init", tree / "init")
        (tree / "init").chmod(0o755)
        names = sorted(str(p.relative_to(tree)) for p in tree.rglob("*"))
        with open(target, "wb") as stream:
            subprocess.run(
                ["cpio", "--quiet", "-o", "-H", "newc", "-R", "0:0"],
                input="\n".join(names).encode(), stdout=stream, cwd=tree, check=True,
            )  # fmt: skip


def prepare(kernel: str, collected: Path) -> Path:
    """The initrd of a kernel, with these modules."""
    if not BUSYBOX.exists():
        raise cache.LabError(f"{BUSYBOX} is missing; 'make setup' installs it")
    key = cache.digest(kernel, (STAGE / "initrd-init").read_bytes(), cache.file_sha256(BUSYBOX))
    directory = cache.entry(
        f"initrd/{kernel}-{key}", f"the initrd of {kernel}", lambda partial: _build(collected, partial / "initrd.cpio")
    )
    return directory / "initrd.cpio"
