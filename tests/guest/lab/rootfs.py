# SPDX-License-Identifier: GPL-2.0
"""The guests' root file system: Debian trixie with the tools that tests use.

One image serves all kernels (their modules come on a second disk) and any
number of guests at once (QEMU keeps what a guest writes to itself).
"""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Iterable
from pathlib import Path

from . import cache, mirror

SUITES = ("trixie", "trixie-security")
PACKAGES = (
    "bash",
    "bsdextrautils",
    "cryptsetup-bin",
    "dmsetup",
    "e2fsprogs",
    "ethtool",
    "fdisk",
    "fio",
    "gdisk",
    "iproute2",
    "iputils-ping",
    "irqbalance",
    "jq",
    "keyutils",
    "kmod",
    "ktls-utils",
    "lsof",
    "lvm2",
    "mdadm",
    "nbd-client",
    "nbd-server",
    "nftables",
    "nvme-cli",
    "open-iscsi",
    "openssl",
    "parted",
    "procps",
    "psmisc",
    "python3",
    "rdma-core",
    "socat",
    "strace",
    "sysstat",
    "targetcli-fb",
    "tcpdump",
    "udev",
    "util-linux",
    "xfsprogs",
)
SIZE = "6G"  # sparse
# Every package of the image that the tests were last run on, with its version.
TESTED = Path(__file__).resolve().parent.parent / "rootfs.packages"
# Bump when the same packages should give another image.
RECIPE = 1


def mmdebstrap(suites: tuple[str, ...], include: Iterable[str], target: Path, *options: str) -> None:
    """A Debian tree in the directory `target`, progress left on the terminal."""
    log = target.parent / f"{target.name}.log"
    command = ["mmdebstrap", "--mode=root", "--variant=minbase", "--format=directory",
               f"--include={','.join(include)}", *options]  # fmt: skip
    for option in mirror.acquire_options():
        command.append(f"--aptopt={option}")
    command += ["--aptopt=Acquire::Languages \"none\";",
                "--dpkgopt=force-unsafe-io", "--dpkgopt=path-exclude=/usr/share/man/*",
                "--dpkgopt=path-exclude=/usr/share/doc/*",
                "--dpkgopt=path-exclude=/usr/share/locale/*",
                suites[0], str(target), "-"]  # fmt: skip
    with open(log, "w") as stream:
        result = subprocess.run(
            command, input=mirror.sources(suites), text=True, stdout=stream, stderr=subprocess.STDOUT, check=False
        )
    if result.returncode:
        tail = "\n".join(log.read_text(errors="replace").splitlines()[-15:])
        raise cache.LabError(f"mmdebstrap of {suites[0]} failed; the end of its log:\n{tail}")
    log.unlink()


def _prepare(directory: Path) -> None:
    tree = directory / "tree"
    cache.say(f"root file system: installing {len(PACKAGES)} packages and what they need")
    mmdebstrap(SUITES, PACKAGES, tree)
    for mount_point in ("rflash", "out"):
        (tree / mount_point).mkdir()
    (tree / "usr/lib/modules").mkdir(exist_ok=True)
    (tree / "etc/hosts").write_text("127.0.0.1 localhost\n::1 localhost\n10.99.0.2 host\n10.99.0.1 server\n")
    (tree / "etc/resolv.conf").unlink(missing_ok=True)
    (tree / "etc/resolv.conf").write_text("")
    shutil.rmtree(tree / "var/lib/apt/lists", ignore_errors=True)
    listing = subprocess.run(
        ["dpkg-query", f"--admindir={tree}/var/lib/dpkg", "-W", "-f", "${Package} ${Version}\n"],
        capture_output=True, text=True, check=True,
    )  # fmt: skip
    (directory / "packages").write_text(listing.stdout)
    for line in differences(TESTED.read_text(), listing.stdout):
        cache.say(line)
    cache.say("root file system: making the image")
    subprocess.run(
        ["mkfs.ext4", "-q", "-F", "-L", "root", "-O", "^has_journal", "-E", "lazy_itable_init=1", "-d", str(tree),
         str(directory / "root.img"), SIZE],
        check=True,
        stdout=subprocess.DEVNULL,
    )  # fmt: skip
    shutil.rmtree(tree)


def differences(tested: str, have: str) -> list[str]:
    """What a person should know when the release has moved on since the tests were run."""
    before = dict(line.split() for line in tested.splitlines())
    now = dict(line.split() for line in have.splitlines())
    changed = [f"{name} {before.get(name, 'none')} -> {version}" for name, version in now.items()
               if before.get(name) != version]  # fmt: skip
    if not changed:
        return []
    return [
        f"NOTICE: {len(changed)} packages of the root file system are not of the version in {TESTED.name}",
        *(f"  {text}" for text in changed[:5]),
        *(["  ..."] if len(changed) > 5 else []),
    ]


def prepare() -> Path:
    """The image of the root file system."""
    key = cache.digest(RECIPE, SIZE, SUITES, PACKAGES)
    return cache.entry(f"rootfs/{key}", "the guests' root file system", _prepare) / "root.img"
