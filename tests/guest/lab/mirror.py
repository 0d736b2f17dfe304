# SPDX-License-Identifier: GPL-2.0
"""Packages of other Debian releases, without touching the host's apt.

The address of the mirror is taken from the host's own apt sources, and the
host's apt configuration (proxies, for instance) stays in force; lists and
downloads live in the cache.
"""

from __future__ import annotations

import contextlib
import functools
import os
import re
import shutil
import subprocess
import time
from pathlib import Path

from . import cache

KEYRING = "/usr/share/keyrings/debian-archive-keyring.gpg"
LISTS_STAY_FRESH = 12 * 3600  # seconds


@functools.cache
def _uris() -> tuple[str, str | None]:
    """The host's addresses of Debian and, if it has one, of Debian security."""
    result = subprocess.run(
        ["apt-get", "indextargets", "--format", "$(CREATED_BY) $(REPO_URI) $(RELEASE)"],
        capture_output=True,
        text=True,
        check=False,
    )
    main = security = None
    for line in result.stdout.splitlines():
        words = line.split()
        if len(words) != 3 or words[0] != "Packages":
            continue
        uri, release = words[1].rstrip("/"), words[2]
        if not re.fullmatch(
            r"(bookworm|trixie|forky|sid|(old)*stable|testing|unstable)(-security|/updates)?",
            release,
        ):
            continue
        if release.endswith(("-security", "/updates")):
            security = security or uri
        elif uri.endswith("debian") or "/debian" in uri:
            main = main or uri
    if main is None:
        raise cache.LabError("the host's apt sources name no Debian mirror; 'apt-get update' should work first")
    return main, security


def sources(suites: tuple[str, ...]) -> str:
    """Lines of a sources.list for these suites."""
    main, security = _uris()
    lines = []
    for suite in suites:
        if suite.endswith("-security"):
            if security is None:
                continue
            uri = security
        else:
            uri = main
        lines.append(f"deb [signed-by={KEYRING}] {uri} {suite} main")
    return "\n".join(lines) + "\n"


def acquire_options() -> list[str]:
    """The host's apt settings for fetching, for tools that do not read them."""
    dump = subprocess.run(["apt-config", "dump", "Acquire"], capture_output=True, text=True, check=False)
    options = []
    for line in dump.stdout.splitlines():
        if re.match(r'Acquire::[A-Za-z:-]+ "[^"]+";', line) and "Languages" not in line:
            options.append(line)
    return options


class Archive:
    """One set of suites with its own apt state."""

    def __init__(self, suites: tuple[str, ...]):
        self.suites = suites
        self.name = "+".join(suites)
        self.dir = cache.root() / "apt" / cache.digest(sources(suites))
        self._fresh = False

    def _environment(self) -> dict[str, str]:
        return dict(os.environ, APT_CONFIG=str(self.dir / "apt.conf"), LC_ALL="C")

    def update(self, again: bool = False) -> None:
        """Have package lists that are not older than half a day."""
        if self._fresh and not again:
            return
        with cache.lock(f"apt-{self.dir.name}"):
            for part in ("lists/partial", "archives/partial"):
                (self.dir / part).mkdir(parents=True, exist_ok=True)
            (self.dir / "sources.list").write_text(sources(self.suites))
            (self.dir / "apt.conf").write_text(
                f'Dir::Etc::SourceList "{self.dir}/sources.list";\n'
                'Dir::Etc::SourceParts "-";\n'
                'Dir::Etc::Preferences "-";\n'
                'Dir::Etc::PreferencesParts "-";\n'
                f'Dir::State::Lists "{self.dir}/lists";\n'
                'Dir::State::Status "/dev/null";\n'
                f'Dir::Cache "{self.dir}";\n'
                'Dir::Cache::pkgcache "pkgcache.bin";\n'
                'Dir::Cache::srcpkgcache "";\n'
                'APT::Architecture "amd64";\n'
                'APT::Architectures {"amd64";};\n'
                'APT::Sandbox::User "root";\n'
                "APT::Update::Post-Invoke {};\n"
                "#clear APT::Update::Post-Invoke;\n"
                "#clear APT::Update::Post-Invoke-Success;\n"
                "#clear DPkg::Post-Invoke;\n"
            )
            stamp = self.dir / "updated"
            with contextlib.suppress(FileNotFoundError):
                if not again and 0 <= time.time() - stamp.stat().st_mtime < LISTS_STAY_FRESH:
                    self._fresh = True
                    return
            cache.say(f"reading the package lists of {self.name}")
            self._apt("apt-get", "-qq", "update")
            stamp.touch()
            self._fresh = True

    def _apt(self, *command: str, cwd: Path | None = None) -> str:
        result = subprocess.run(command, env=self._environment(), cwd=cwd, capture_output=True, text=True, check=False)
        if result.returncode:
            detail = (result.stderr or result.stdout).strip().splitlines()
            raise cache.LabError(f"'{' '.join(command[:3])}' for {self.name} failed: {detail[-1] if detail else ''}")
        return result.stdout

    def names(self, prefix: str) -> list[str]:
        self.update()
        return self._apt("apt-cache", "pkgnames", prefix).split()

    def versions(self, package: str) -> list[tuple[str, str, int]]:
        """(version, sha256, size) of each version of a package that is on offer."""
        self.update()
        try:
            text = self._apt("apt-cache", "show", package)
        except cache.LabError:
            return []
        found = []
        for block in text.split("\n\n"):
            fields = dict(re.findall(r"^([A-Za-z0-9-]+): (.*)$", block, re.MULTILINE))
            if fields.get("Package") == package and "SHA256" in fields:
                found.append((fields["Version"], fields["SHA256"], int(fields["Size"])))
        return found

    def fetch(self, package: str, version: str, sha256: str, size: int) -> Path:
        """One package file, in the cache under its checksum."""
        final = deb(sha256)
        if final.exists():
            return final
        with cache.lock(f"deb-{sha256[:16]}"):
            if final.exists():
                return final
            final.parent.mkdir(parents=True, exist_ok=True)
            work = final.parent / f".{sha256[:16]}.partial"
            shutil.rmtree(work, ignore_errors=True)
            work.mkdir()
            cache.say(f"downloading {package} {version} ({size / 1e6:.1f} MB)")
            self._apt("apt-get", "-qq", "download", f"{package}={version}", cwd=work)
            (got,) = work.glob("*.deb")
            if cache.file_sha256(got) != sha256:
                raise cache.LabError(f"{package} {version} does not have the checksum {sha256}")
            got.rename(final)
            shutil.rmtree(work)
        return final


def deb(sha256: str) -> Path:
    """Where the package with this checksum is, or would be."""
    return cache.root() / "debs" / f"{sha256}.deb"


@functools.cache
def archive(suites: tuple[str, ...]) -> Archive:
    return Archive(suites)
