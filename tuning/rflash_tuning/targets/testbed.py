# SPDX-License-Identifier: GPL-2.0
"""A machine for tests: configfs as the kernel behaves, a disk in a file, and a crash wherever one is wanted.

sfdisk and wipefs are the real ones, over the file.
"""

from __future__ import annotations

import contextlib
import errno
import os
import re
import subprocess
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from rflash_tuning.system import Completed, System
from rflash_tuning.targets import gpt
from rflash_tuning.targets.configfs import Configfs
from rflash_tuning.targets.machine import Machine, Sectors

DISK = "nvme0n1"
DEVICE = f"/dev/{DISK}"
# Where syncing costs nothing.
MEMORY = "/dev/shm" if os.path.isdir("/dev/shm") else None


class Crash(BaseException):
    """kill -9."""


class Bomb:
    """Counts what is done to the machine, and goes off before the n-th: after one is before the next."""

    def __init__(self) -> None:
        self.count = 0
        self.at = -1

    def tick(self) -> None:
        self.count += 1
        if self.count == self.at:
            raise Crash


# What the kernel puts into a new directory: files with their text, directories ending in "/".
NEW = (
    (r"nvmet/subsystems/[^/]+", {"attr_allow_any_host": "0", "attr_serial": "", "attr_model": "Linux",
                                 "namespaces/": "", "allowed_hosts/": ""}),
    (r"nvmet/subsystems/[^/]+/namespaces/[^/]+", {"device_path": "(null)", "device_uuid": "", "enable": "0",
                                                  "ana_grpid": "1"}),
    (r"nvmet/ports/[^/]+", {"addr_trtype": "", "addr_adrfam": "", "addr_traddr": "", "addr_trsvcid": "",
                            "subsystems/": "", "referrals/": "", "ana_groups/": ""}),
    (r"target/core/iblock_[^/]+/[^/]+", {"udev_path": "", "enable": "0", "wwn/": "", "wwn/vpd_unit_serial": "",
                                         "alua/": "", "alua/default_tg_pt_gp/": "", "attrib/": ""}),
    (r"target/iscsi", {"discovery_auth/": "", "lio_version": "4.1"}),
    (r"target/iscsi/[^/]+", {"fabric_statistics/": "", "fabric_statistics/iscsi_instance/": "",
                             "fabric_statistics/iscsi_instance/sessions": "0"}),
    (r"target/iscsi/[^/]+/tpgt_\d+", {"enable": "0", "acls/": "", "lun/": "", "np/": "", "attrib/": ""}),
    (r"target/iscsi/[^/]+/tpgt_\d+/lun/[^/]+", {"statistics/": ""}),
    (r"target/iscsi/[^/]+/tpgt_\d+/acls/[^/]+", {"info": "", "attrib/": ""}),
    (r"target/iscsi/[^/]+/tpgt_\d+/acls/[^/]+/lun_\d+", {"write_protect": "0"}),
    (r"target/iscsi/[^/]+/tpgt_\d+/np/[^/]+", {"iser": "0"}),
)  # fmt: skip


class SimulatedConfigfs(Configfs):
    """configfs in memory: default groups, links that hold what they point to, exclusive names."""

    def __init__(self, bomb: Bomb):
        super().__init__("/sys/kernel/config")
        self.bomb = bomb
        self.made = {"nvmet", "target"}
        self.default = {"nvmet/subsystems", "nvmet/ports", "nvmet/hosts", "target/core", "target/core/alua"}
        self.files: dict[str, str] = {}
        self.links: dict[str, str] = {}
        self.refuse: dict[str, int] = {}  # path -> errno, of links and directories

    def state(self) -> tuple[Any, ...]:
        return frozenset(self.made), frozenset(self.default), dict(self.files), dict(self.links)

    def exists(self, name: str) -> bool:
        return name in self.made or name in self.default or name in self.files or name in self.links

    def _missing(self, name: str) -> FileNotFoundError:
        return FileNotFoundError(errno.ENOENT, "No such file or directory", name)

    def mkdir(self, name: str) -> None:
        self.bomb.tick()
        self._refuse(name)
        if self.exists(name):
            raise FileExistsError(errno.EEXIST, "File exists", name)
        if not self.exists(name.rpartition("/")[0]):
            raise self._missing(name)
        self.made.add(name)
        for pattern, contents in NEW:
            if re.fullmatch(pattern, name):
                for entry, text in contents.items():
                    if entry.endswith("/"):
                        self.default.add(f"{name}/{entry[:-1]}")
                    else:
                        self.files[f"{name}/{entry}"] = text

    def _refuse(self, name: str) -> None:
        number = self.refuse.get(name)
        if number:
            raise OSError(number, os.strerror(number), name)

    def rmdir(self, name: str) -> None:
        self.bomb.tick()
        if name in self.default:
            raise PermissionError(errno.EPERM, "Operation not permitted", name)
        if name not in self.made:
            raise self._missing(name)
        inside = name + "/"
        if any(entry.startswith(inside) for entry in (*self.made, *self.links)):
            raise OSError(errno.ENOTEMPTY, "Directory not empty", name)
        if any(target == name or target.startswith(inside) for target in self.links.values()):
            raise OSError(errno.EBUSY, "Device or resource busy", name)
        self.made.discard(name)
        self.default = {entry for entry in self.default if not entry.startswith(inside)}
        self.files = {entry: text for entry, text in self.files.items() if not entry.startswith(inside)}

    def write(self, name: str, text: str) -> None:
        self.bomb.tick()
        self._refuse(name)
        if name not in self.files:
            raise self._missing(name)
        self.files[name] = text

    def read(self, name: str) -> str:
        if name not in self.files:
            raise self._missing(name)
        return self.files[name]

    def link(self, name: str, target: str) -> None:
        self.bomb.tick()
        self._refuse(name)
        if self.exists(name):
            raise FileExistsError(errno.EEXIST, "File exists", name)
        if target not in self.made or not self.exists(name.rpartition("/")[0]):
            raise self._missing(name)
        self.links[name] = target

    def unlink(self, name: str) -> None:
        self.bomb.tick()
        if name not in self.links:
            raise self._missing(name)
        del self.links[name]

    def entries(self, name: str) -> tuple[list[str], list[str]]:
        inside = f"{name}/" if name else ""

        def children(names: Iterable[str]) -> list[str]:
            return sorted({entry[len(inside) :] for entry in names
                           if entry.startswith(inside) and "/" not in entry[len(inside) :]})  # fmt: skip

        return children(self.made | self.default), children(self.links)


class SimulatedSystem(System):
    """Files in memory, one disk in a file."""

    def __init__(self, image: Path, bomb: Bomb, sector: int = 512):
        self.image, self.bomb, self.sector = image, bomb, sector
        self.files: dict[str, str] = {
            "/etc/machine-id": "0123456789abcdef0123456789abcdef",
            "/proc/sys/kernel/random/boot_id": "boot-1",
            "/proc/net/fib_trie": "Local:\n     |-- 10.0.0.1\n        /32 host LOCAL\n"
                                  "     |-- 127.0.0.1\n        /32 host LOCAL\n",
            "/proc/net/tcp": "  sl  local_address rem_address   st\n",
            "/proc/self/mountinfo": "",
        }  # fmt: skip
        self.commands: list[list[str]] = []
        self.missing_modules: set[str] = set()
        self.name = DISK
        self.partitions()

    def partitions(self) -> None:
        """What the kernel knows of the disk, anew from its table."""
        for path in [path for path in self.files if path.startswith(("/sys/block/", "/sys/class/block/"))]:
            del self.files[path]
        base = f"/sys/block/{self.name}"
        size = self.image.stat().st_size
        self.files |= {f"{base}/size": str(size // 512), f"{base}/queue/logical_block_size": str(self.sector),
                       f"{base}/ro": "0", f"{base}/ext_range": "256",
                       f"/sys/class/block/{self.name}/dev": "259:0"}  # fmt: skip
        with open(self.image, "rb") as file:
            table = gpt.read(lambda offset, length: os.pread(file.fileno(), length, offset), self.sector)
        for part in table.parts if table else ():
            child = f"{self.name}p{part.number}"
            self.files |= {f"{base}/{child}/partition": str(part.number),
                           f"{base}/{child}/size": str(part.sectors * self.sector // 512),
                           f"/sys/class/block/{child}/partition": str(part.number),
                           f"/sys/class/block/{child}/dev": f"259:{part.number}"}  # fmt: skip

    def read(self, path: str) -> str:
        if path not in self.files:
            raise FileNotFoundError(errno.ENOENT, "No such file or directory", path)
        return self.files[path]

    def listdir(self, path: str) -> list[str]:
        inside = path.rstrip("/") + "/"
        found = sorted({entry[len(inside) :].split("/")[0] for entry in self.files if entry.startswith(inside)})
        if not found:
            raise FileNotFoundError(errno.ENOENT, "No such file or directory", path)
        return found

    def exists(self, path: str) -> bool:
        if path.startswith("/dev/"):
            return f"/sys/class/block/{path[5:]}/dev" in self.files
        return path in self.files or bool(self.names(path))

    def resolve(self, path: str) -> str:
        if path.startswith("/dev/") and not self.exists(path):
            raise FileNotFoundError(errno.ENOENT, "No such file or directory", path)
        return path

    def replace(self, path: str, text: str | None) -> None:
        self.bomb.tick()
        if text is None:
            self.files.pop(path, None)
        else:
            self.files[path] = text

    def run(self, argv: list[str], timeout: float = 60) -> Completed:
        self.commands.append(argv)
        if argv[0] == "modprobe":
            missing = argv[1] in self.missing_modules
            return Completed(1, f"modprobe: FATAL: Module {argv[1]} not found.\n") if missing else Completed(0, "")
        if argv[0] not in ("sh", "wipefs"):
            raise FileNotFoundError(argv[0])
        real = [str(self.image) if word == f"/dev/{self.name}" else word for word in argv]
        if argv[0] == "wipefs" and self.blank():
            return Completed(0, "")
        if argv[0] == "wipefs":
            done = subprocess.run(real, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False)
            return Completed(done.returncode, done.stdout)
        self.bomb.tick()
        done = subprocess.run(real, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False)
        self.partitions()
        return Completed(done.returncode, done.stdout)

    def blank(self) -> bool:
        """Nothing for wipefs to find; a process less for each of the many creates of a test."""
        with open(self.image, "rb") as file:
            data = file.read()
        return data.count(0) == len(data)

    def ethtool(self, nic: str, section: str) -> dict[str, Any]:
        raise NotImplementedError

    def ethtool_set(self, nic: str, section: str, values: dict[str, Any]) -> None:
        raise NotImplementedError

    def affinity(self, tid: int) -> frozenset[int]:
        raise NotImplementedError

    def set_affinity(self, tid: int, cpus: Iterable[int]) -> None:
        raise NotImplementedError

    def write(self, path: str, text: str) -> None:
        raise NotImplementedError


class SimulatedSectors(Sectors):
    def __init__(self, system: SimulatedSystem, bomb: Bomb):
        self.system, self.bomb = system, bomb
        self.busy = False  # the device is claimed
        self.opened = False  # a partition is open

    def is_device(self, path: str) -> bool:
        return path.startswith("/dev/") and self.system.exists(path)

    def read(self, path: str, offset: int, length: int) -> bytes:
        if path != f"/dev/{self.system.name}":
            raise FileNotFoundError(errno.ENOENT, "No such file or directory", path)
        return super().read(str(self.system.image), offset, length)

    @contextlib.contextmanager
    def claim(self, path: str) -> Iterator[int]:
        if self.busy:
            raise OSError(errno.EBUSY, "Device or resource busy", path)
        with super().claim(str(self.system.image)) as fd:
            yield fd

    def write(self, fd: int, offset: int, data: bytes) -> None:
        self.bomb.tick()
        super().write(fd, offset, data)

    def reread(self, fd: int) -> None:
        if self.opened:
            raise OSError(errno.EBUSY, "Device or resource busy")
        self.system.partitions()


def machine(image: Path, size: int = 8 << 20) -> Machine:
    """A machine with one blank disk of `size` bytes."""
    image.touch()
    os.truncate(image, size)
    bomb = Bomb()
    system = SimulatedSystem(image, bomb)
    return Machine(system, SimulatedConfigfs(bomb), SimulatedSectors(system, bomb), sleep=lambda _: None)


class Library:
    """What lio.py uses of rtslib_fb, over a simulated configfs."""

    class RTSLibError(Exception):
        pass

    class root:
        class RTSRoot:
            _preferred_dbroot = "/tmp"

    def __init__(self, configfs: SimulatedConfigfs):
        self.configfs = configfs

    def BlockStorageObject(self, name: str, dev: str = "", wwn: str = "", index: int = 0) -> str:
        path = f"target/core/iblock_{index}"
        if dev:
            self.configfs.mkdir(path)
            self.configfs.mkdir(f"{path}/{name}")
            for file, text in (("udev_path", dev), ("enable", "1"), ("wwn/vpd_unit_serial", f"Serial: {wwn}")):
                self.configfs.write(f"{path}/{name}/{file}", text)
        return f"{path}/{name}"

    def FabricModule(self, name: str) -> str:
        return f"target/{name}"

    def Target(self, fabric: str, iqn: str, mode: str) -> str:
        self.configfs.mkdir(f"{fabric}/{iqn}")
        return f"{fabric}/{iqn}"

    def TPG(self, target: str, tag: int, mode: str) -> Any:
        self.configfs.mkdir(f"{target}/tpgt_{tag}")
        return _Group(self.configfs, f"{target}/tpgt_{tag}")

    def LUN(self, group: Any, number: int, storage_object: str, alias: str) -> str:
        path = f"{group.path}/lun/lun_{number}"
        self.configfs.mkdir(path)
        self.configfs.link(f"{path}/{alias}", storage_object)
        return path

    def NodeACL(self, group: Any, host: str, mode: str) -> str:
        self.configfs.mkdir(f"{group.path}/acls/{host}")
        return f"{group.path}/acls/{host}"

    def MappedLUN(self, acl: str, number: int, lun: str, write_protect: bool, alias: str) -> None:
        self.configfs.mkdir(f"{acl}/lun_{number}")
        self.configfs.link(f"{acl}/lun_{number}/{alias}", lun)

    def NetworkPortal(self, group: Any, address: str, port: int, mode: str) -> None:
        try:
            self.configfs.mkdir(f"{group.path}/np/{address}:{port}")
        except OSError as error:
            raise self.RTSLibError("Could not create NetworkPortal in configFS") from error


class _Group:
    def __init__(self, configfs: SimulatedConfigfs, path: str):
        object.__setattr__(self, "configfs", configfs)
        object.__setattr__(self, "path", path)

    def set_attribute(self, name: str, value: str) -> None:
        """Attributes are files that tests don't look at."""

    def __setattr__(self, name: str, value: Any) -> None:
        self.configfs.write(f"{self.path}/{name}", str(int(value)))
