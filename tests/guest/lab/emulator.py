# SPDX-License-Identifier: GPL-2.0
"""Which QEMU: the machine's own, or a newer one in the cache where a device needs it."""

from __future__ import annotations

import functools
import re
import shutil
import subprocess
import tomllib
from dataclasses import dataclass
from pathlib import Path

from . import cache, mirror

PINS = Path(__file__).resolve().parent.parent / "qemu.toml"
QEMU = "qemu-system-x86_64"
# Bump when unpack() makes something else out of the same packages.
RECIPE = 1


@dataclass(frozen=True)
class Emulator:
    """A QEMU and the options that it needs where it stands."""

    binary: str
    options: tuple[str, ...] = ()


@dataclass(frozen=True)
class Offer:
    """One package: name, version and checksum."""

    name: str
    version: str
    sha256: str


@functools.cache
def _pins() -> tuple[tuple[int, ...], tuple[str, ...], tuple[Offer, ...]]:
    with open(PINS, "rb") as stream:
        text = tomllib.load(stream)
    return numbers(text["oldest"]), tuple(text["suites"]), tuple(Offer(**p) for p in text["packages"])


def numbers(version: str) -> tuple[int, ...]:
    """The first two numbers of a version, without a Debian epoch."""
    return tuple(int(n) for n in re.findall(r"\d+", version.partition(":")[2] or version)[:2])


def system() -> Emulator:
    """The QEMU on the PATH."""
    path = shutil.which(QEMU)
    if path is None:
        raise cache.LabError(f"{QEMU} is missing; 'make setup' installs it")
    return Emulator(path)


def version(emulator: Emulator) -> tuple[int, ...]:
    result = subprocess.run([emulator.binary, "--version"], capture_output=True, text=True, check=False)
    found = re.search(r"version (\d+)\.(\d+)", result.stdout)
    if not found:
        raise cache.LabError(f"{emulator.binary} does not tell its version: {result.stderr.strip()}")
    return int(found[1]), int(found[2])


def _chosen(suites: tuple[str, ...], pins: tuple[Offer, ...], oldest: tuple[int, ...]) -> tuple[Offer, ...]:
    """The pinned packages, or the newest when the mirror has one of them no more."""
    if all(mirror.deb(p.sha256).exists() for p in pins):
        return pins
    archive = mirror.archive(suites)
    offers = {p.name: archive.versions(p.name) for p in pins}
    if all(any((v, s) == (p.version, p.sha256) for v, s, _ in offers[p.name]) for p in pins):
        return pins
    archive.update(again=True)
    newest = []
    for pin in pins:
        found = archive.versions(pin.name)
        if not found:
            raise cache.LabError(f"the mirror has no {pin.name} in {', '.join(suites)}")
        newest.append(Offer(pin.name, found[0][0], found[0][1]))
    if numbers(newest[0].version) < oldest:
        raise cache.LabError(
            f"the mirror has QEMU {newest[0].version} in {', '.join(suites)}, and the device needs"
            f" {'.'.join(map(str, oldest))} or newer"
        )
    cache.say(f"NOTICE: the mirror no longer has QEMU {pins[0].version}; using {newest[0].version} instead")
    return tuple(newest)


def _fetch(suites: tuple[str, ...], offer: Offer) -> Path:
    file = mirror.deb(offer.sha256)
    if file.exists():
        return file
    archive = mirror.archive(suites)
    size = next((n for _, s, n in archive.versions(offer.name) if s == offer.sha256), 0)
    return archive.fetch(offer.name, offer.version, offer.sha256, size)


def newer() -> Emulator:
    """A QEMU that is new enough for every device of the lab; the machine's own if it is."""
    own = system()
    oldest, suites, pins = _pins()
    if version(own) >= oldest:
        return own
    packages = _chosen(suites, pins, oldest)

    def unpack(directory: Path) -> None:
        for package in packages:
            subprocess.run(["dpkg", "-x", str(_fetch(suites, package)), str(directory)], check=True)

    key = cache.digest(RECIPE, *(p.sha256 for p in packages))
    tree = cache.entry(f"qemu/{key}", f"QEMU {packages[0].version}", unpack)
    firmware = [tree / "usr/share/qemu", tree / "usr/share/seabios"]
    found = Emulator(
        str(tree / "usr/bin" / QEMU), tuple(word for directory in firmware for word in ("-L", str(directory)))
    )
    if version(found) < oldest:
        raise cache.LabError(f"{found.binary} is older than {'.'.join(map(str, oldest))}")
    return found
