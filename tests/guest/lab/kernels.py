# SPDX-License-Identifier: GPL-2.0
"""Debian kernels by series: which packages they are, and their parts ready to boot."""

from __future__ import annotations

import functools
import re
import shutil
import subprocess
import tomllib
from dataclasses import dataclass
from pathlib import Path

from . import cache, initrd, mirror

PINS = Path(__file__).resolve().parent.parent / "kernels.toml"
DEFAULT = "6.12"

# Never needed in a guest, and three quarters of the packages' bulk.
DROPPED = (
    "drivers/gpu",
    "drivers/media",
    "drivers/iio",
    "drivers/staging",
    "drivers/hid",
    "drivers/hwmon",
    "drivers/input",
    "drivers/accel",
    "drivers/comedi",
    "drivers/isdn",
    "drivers/bluetooth",
    "drivers/net/wireless",
    "drivers/net/can",
    "drivers/mmc",
    "drivers/mtd",
    "drivers/power",
    "drivers/video",
    "drivers/platform",
    "net/bluetooth",
    "net/mac80211",
    "net/wireless",
    "sound",
)
# Bump when prepare() makes something else out of the same packages.
RECIPE = 4


@dataclass(frozen=True)
class Package:
    """One package, as pinned."""

    name: str
    version: str
    sha256: str


@dataclass(frozen=True)
class Series:
    """What kernels.toml says of one series."""

    name: str
    release: str
    suites: tuple[str, ...]
    image: re.Pattern[str]
    boot: tuple[Package, ...]
    headers: tuple[Package, ...]
    toolchain_suites: tuple[str, ...]
    toolchain: tuple[str, ...]


@functools.cache
def pins() -> dict[str, Series]:
    with open(PINS, "rb") as stream:
        text = tomllib.load(stream)
    found = {}
    for name, entry in text["series"].items():
        found[name] = Series(
            name=name,
            release=entry["release"],
            suites=tuple(entry["suites"]),
            image=re.compile(entry["image"]),
            boot=tuple(Package(**p) for p in entry["boot"]),
            headers=tuple(Package(**p) for p in entry["headers"]),
            toolchain_suites=tuple(entry["toolchain_suites"]),
            toolchain=tuple(entry["toolchain"]),
        )
    return found


def series(name: str) -> Series:
    known = pins()
    if name not in known:
        raise cache.LabError(f"no kernel series '{name}'; there are {', '.join(known)}")
    return known[name]


def _cached(packages: tuple[Package, ...]) -> list[Path] | None:
    files = [mirror.deb(p.sha256) for p in packages]
    return files if all(f.exists() for f in files) else None


def _on_offer(wanted: Series, packages: tuple[Package, ...]) -> list[Path] | None:
    """The pinned packages from the mirror; None when it has one of them no more."""
    archive = mirror.archive(wanted.suites)
    offers = []
    for package in packages:
        for version, sha256, size in archive.versions(package.name):
            if (version, sha256) == (package.version, package.sha256):
                offers.append((package.name, version, sha256, size))
                break
        else:
            return None
    return [archive.fetch(*offer) for offer in offers]


def _version_key(archive: mirror.Archive, name: str) -> tuple[int, ...]:
    versions = archive.versions(name)
    return tuple(int(n) for n in re.findall(r"\d+", versions[0][0])) if versions else ()


@functools.cache
def _newest(wanted: Series) -> Series:
    """The same series at the newest release that the mirror has."""
    archive = mirror.archive(wanted.suites)
    archive.update(again=True)
    names = [n for n in archive.names("linux-image-") if wanted.image.fullmatch(n)]
    if not names:
        raise cache.LabError(
            f"the mirror has neither {wanted.release} nor any other kernel {wanted.name} in {', '.join(wanted.suites)}"
        )
    release = max(names, key=lambda n: _version_key(archive, n)).removeprefix("linux-image-")
    old_abi, new_abi = wanted.release.removesuffix("-amd64"), release.removesuffix("-amd64")

    def replace(packages: tuple[Package, ...]) -> tuple[Package, ...]:
        result = []
        for package in packages:
            name = package.name.replace(wanted.release, release).replace(old_abi, new_abi)
            offers = archive.versions(name)
            if not offers:
                raise cache.LabError(f"the mirror has linux-image-{release} but no {name}")
            result.append(Package(name, offers[0][0], offers[0][1]))
        return tuple(result)

    if release != wanted.release:
        cache.say(
            f"NOTICE: the mirror no longer has kernel {wanted.release}; using {release} instead of the pinned one"
        )
    return Series(
        name=wanted.name,
        release=release,
        suites=wanted.suites,
        image=wanted.image,
        boot=replace(wanted.boot),
        headers=replace(wanted.headers),
        toolchain_suites=wanted.toolchain_suites,
        toolchain=wanted.toolchain,
    )


@functools.cache
def resolve(name: str) -> Series:
    """The series with the release that this machine will use.

    Pinned packages when they are in the cache or on the mirror, otherwise the
    newest of the series. Image and headers are decided together, so that a
    module is always built for the kernel that is booted.
    """
    wanted = series(name)
    every = wanted.boot + wanted.headers
    if _cached(every):
        return wanted
    archive = mirror.archive(wanted.suites)
    for package in every:
        if mirror.deb(package.sha256).exists():
            continue
        if not any((v, s) == (package.version, package.sha256) for v, s, _ in archive.versions(package.name)):
            break
    else:
        return wanted
    return _newest(wanted)


def fetch(wanted: Series, packages: tuple[Package, ...]) -> list[Path]:
    files = _cached(packages) or _on_offer(wanted, packages)
    if files is None:
        raise cache.LabError(f"the packages of kernel {wanted.release} are no longer on the mirror")
    return files


@dataclass(frozen=True)
class Kernel:
    """A kernel ready to boot."""

    series: str
    release: str
    image: Path
    initrd: Path
    modules: Path


def _unpack_modules(files: list[Path], tree: Path) -> None:
    for file in files:
        subprocess.run(["dpkg", "-x", str(file), str(tree)], check=True)


def _prepare(chosen: Series, directory: Path) -> None:
    tree = directory / "tree"
    _unpack_modules(fetch(chosen, chosen.boot), tree)
    release = chosen.release
    lib = next((d for d in (tree / "usr/lib/modules", tree / "lib/modules") if (d / release).is_dir()), None)
    if lib is None:
        raise cache.LabError(f"the packages of kernel {release} hold no modules")
    images = [
        p
        for p in (tree / f"boot/vmlinuz-{release}", lib / release / "vmlinuz", lib / release / "boot/vmlinuz")
        if p.is_file()
    ]
    if not images:
        raise cache.LabError(f"the packages of kernel {release} hold no kernel image")
    shutil.copy(images[0], directory / "vmlinuz")
    for config in (tree / f"boot/config-{release}", lib / release / "config", lib / release / "boot/config"):
        if config.is_file():
            shutil.copy(config, directory / "config")
            break

    # depmod wants lib/modules; some releases ship usr/lib/modules.
    base = directory / "base"
    (base / "lib/modules").mkdir(parents=True)
    modules = base / "lib/modules" / release
    (lib / release).rename(modules)
    for part in DROPPED:
        shutil.rmtree(modules / "kernel" / part, ignore_errors=True)
    for leftover in ("vmlinuz", "boot"):
        path = modules / leftover
        if path.is_dir():
            shutil.rmtree(path)
        else:
            path.unlink(missing_ok=True)
    subprocess.run(["depmod", "-b", str(base), release], check=True)
    initrd.collect(modules, directory / "early")

    image = directory / "modules.img"
    size = sum(f.stat().st_size for f in modules.rglob("*") if f.is_file())
    subprocess.run(
        ["mkfs.ext4", "-q", "-F", "-O", "^has_journal", "-m", "0", "-L", "modules", "-d", str(base / "lib/modules"),
         str(image), f"{size // 1024 * 5 // 4 + 16384}k"],
        check=True,
        stdout=subprocess.DEVNULL,
    )  # fmt: skip
    (directory / "release").write_text(release + "\n")
    shutil.rmtree(base)
    shutil.rmtree(tree)


def prepare(name: str) -> Kernel:
    """A kernel of this series, ready to boot."""
    chosen = resolve(name)
    key = cache.digest(RECIPE, initrd.WANTED, DROPPED, *(p.sha256 for p in chosen.boot))
    directory = cache.entry(
        f"kernels/{name}-{key}", f"kernel {chosen.release}", lambda partial: _prepare(chosen, partial)
    )
    return Kernel(
        series=name,
        release=chosen.release,
        image=directory / "vmlinuz",
        initrd=initrd.prepare(directory.name, directory / "early"),
        modules=directory / "modules.img",
    )
