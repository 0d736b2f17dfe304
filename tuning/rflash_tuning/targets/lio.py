# SPDX-License-Identifier: GPL-2.0
"""The kernel's iSCSI target (LIO): one block backstore and one IQN per tenant.

Made with rtslib-fb, the library under targetcli, so that targetcli shows and
saves it like its own. It is imported here only, and only to make something:
removing walks configfs, because what a crash left half made has no object in
the library.
"""

from __future__ import annotations

import contextlib
import os
import shlex
import warnings
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

from rflash_tuning.errors import TuneError, UsageError
from rflash_tuning.targets import addresses
from rflash_tuning.targets.adapter import Adapter
from rflash_tuning.targets.machine import Machine, reason
from rflash_tuning.targets.model import Order, Tenant
from rflash_tuning.targets.steps import MakeDirectory, Step

PLUGIN = "iblock"
# A session's queue: LIO grants 64 commands by default, open-iscsi asks for 128.
QUEUE_DEPTH = 128
# Everybody may log in, and write; what LIO calls demo mode.
OPEN = (("generate_node_acls", "1"), ("cache_dynamic_acls", "1"), ("demo_mode_write_protect", "0"))
CLOSED = (("generate_node_acls", "0"), ("cache_dynamic_acls", "0"), ("demo_mode_write_protect", "1"))


def library() -> Any:
    """The module rtslib_fb. Raises UsageError when it is not installed."""
    try:
        import rtslib_fb
    except ImportError as error:
        raise UsageError(
            f"the Python library rtslib-fb is needed for iscsi ({error}): install python3-rtslib-fb"
        ) from error
    return rtslib_fb


@contextlib.contextmanager
def _errors() -> Iterator[None]:
    """rtslib's errors as ours, without its warnings: it has one for each time that dbroot can't be set any more."""
    failure = library().RTSLibError
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    except failure as error:
        raise TuneError(f"LIO refuses it: {reason(error)}") from error


def attributes(allowed: Sequence[str]) -> tuple[tuple[str, str], ...]:
    """Of a target portal group."""
    return (("authentication", "0"), *(CLOSED if allowed else OPEN), ("default_cmdsn_depth", str(QUEUE_DEPTH)))


@dataclass(frozen=True)
class Backstore(Step):
    """A block device as LIO knows it."""

    kind: ClassVar[str] = "lio-backstore"
    index: int
    name: str
    device: str
    serial: str  # what the tenant sees as the disk's identity

    @property
    def _path(self) -> str:
        return f"target/core/{PLUGIN}_{self.index}/{self.name}"

    def label(self) -> str:
        return f"backstore {self.name}"

    def do(self, machine: Machine) -> None:
        if machine.configfs.exists(self._path.rpartition("/")[0]):
            raise FileExistsError(f"{PLUGIN}_{self.index} has come into being meanwhile")
        if not machine.system.exists(self.device):
            machine.system.run(["udevadm", "settle", "--timeout=10"])
        with _errors():
            library().BlockStorageObject(self.name, self.device, wwn=self.serial, index=self.index)

    def undo(self, machine: Machine) -> None:
        configfs = machine.configfs
        for hba in configfs.directories("target/core"):
            path = f"target/core/{hba}/{self.name}"
            if hba.startswith(f"{PLUGIN}_") and configfs.exists(path) and self._ours(machine, path):
                configfs.remove_tree(path)
                configfs.rmdir(f"target/core/{hba}")
        # A crash may have left the directory above it alone.
        above = self._path.rpartition("/")[0]
        if configfs.exists(above) and not configfs.directories(above):
            configfs.rmdir(above)

    def _ours(self, machine: Machine, path: str) -> bool:
        if path == self._path:
            return True
        with contextlib.suppress(OSError):
            # "T10 VPD Unit Serial Number: 0123"
            return self.serial in machine.configfs.read(f"{path}/wwn/vpd_unit_serial")
        return False

    def done(self, machine: Machine) -> bool:
        return any(machine.configfs.exists(f"target/core/{hba}/{self.name}")
                   for hba in machine.configfs.directories("target/core"))  # fmt: skip

    def script(self) -> list[str]:
        device = shlex.quote(self.device)
        return [
            f"mkdir -p {self._path}",
            f"printf %s udev_path={device} > {self._path}/control",
            f"printf %s {device} > {self._path}/udev_path",
            f"printf %s 1 > {self._path}/enable",
            f"printf %s {self.serial} > {self._path}/wwn/vpd_unit_serial",
        ]


@dataclass(frozen=True)
class Target(Step):
    """A tenant's target with its one LUN, its hosts and its portal."""

    kind: ClassVar[str] = "lio-target"
    tenant: str
    iqn: str
    address: str
    port: int
    backstore: str
    index: int
    allowed: tuple[str, ...]

    @property
    def _path(self) -> str:
        return f"target/iscsi/{self.iqn}"

    @property
    def _portal(self) -> str:
        return addresses.join(self.address, self.port)

    def label(self) -> str:
        return f"{self.tenant} on {self._portal}"

    def do(self, machine: Machine) -> None:
        if machine.configfs.exists(self._path):
            raise FileExistsError(f"the target {self.iqn} has come into being meanwhile")
        with _errors():
            lib = library()
            group = lib.TPG(lib.Target(lib.FabricModule("iscsi"), self.iqn, mode="create"), 1, mode="create")
            for name, value in attributes(self.allowed):
                group.set_attribute(name, value)
            storage = lib.BlockStorageObject(self.backstore, index=self.index)
            lun = lib.LUN(group, 0, storage_object=storage, alias=self.tenant)
            for host in self.allowed:
                lib.MappedLUN(lib.NodeACL(group, host, mode="create"), 0, lun, write_protect=False, alias="default")
            lib.NetworkPortal(group, self._portal.rpartition(":")[0], self.port, mode="create")
            # From here on the tenant can log in.
            group.enable = True

    def undo(self, machine: Machine) -> None:
        configfs = machine.configfs
        for group in configfs.directories(self._path):
            if group.startswith("tpgt_"):
                # Ends the sessions, and returns when they have ended.
                with contextlib.suppress(FileNotFoundError):
                    configfs.write(f"{self._path}/{group}/enable", "0")
        configfs.remove_tree(self._path)

    def done(self, machine: Machine) -> bool:
        return enabled(machine, self.iqn)

    def why(self, error: Exception) -> str:
        # The library hides the reason; the portal is what is refused in practice.
        text = reason(error)
        if "NetworkPortal" in text:
            return f"{self._portal} is taken, or its address is not on this host ({text})"
        return text

    def script(self) -> list[str]:
        group = f"{self._path}/tpgt_1"
        lun = f"{group}/lun/lun_0"
        lines = [f"mkdir {self._path}", f"mkdir {group}"]
        lines += [f"printf %s {value} > {group}/attrib/{name}" for name, value in attributes(self.allowed)]
        lines += [
            f"mkdir {lun}",
            f'ln -s "$PWD"/target/core/{PLUGIN}_{self.index}/{self.backstore} {lun}/{self.tenant}',
        ]
        for host in self.allowed:
            acl = f"{group}/acls/{host}"
            lines += [f"mkdir {acl}", f"mkdir {acl}/lun_0", f'ln -s "$PWD"/{lun} {acl}/lun_0/default',
                      f"printf %s 0 > {acl}/lun_0/write_protect"]  # fmt: skip
        return [*lines, f"mkdir {shlex.quote(f'{group}/np/{self._portal}')}", f"printf %s 1 > {group}/enable"]


@dataclass(frozen=True)
class SavedConfiguration(Step):
    """targetcli's saveconfig.json, written anew: at the end of a create, and at the end of its undoing."""

    kind: ClassVar[str] = "lio-saved"
    persistent: ClassVar[bool] = True
    when: str  # create, undo

    def label(self) -> str:
        return "targetcli's saved configuration"

    def do(self, machine: Machine) -> None:
        if self.when == "create":
            self._save()

    def undo(self, machine: Machine) -> None:
        if self.when == "undo":
            self._save()

    def _save(self) -> None:
        with _errors():
            library().RTSRoot().save_to_file()

    def script(self) -> list[str]:
        return ["targetcli saveconfig"] if self.when == "create" else []


def enabled(machine: Machine, iqn: str) -> bool:
    """Is there such a target, and does it let in?"""
    try:
        return machine.configfs.read(f"target/iscsi/{iqn}/tpgt_1/enable") == "1"
    except OSError:
        return False


class Lio(Adapter):
    modules = ("target_core_mod", "target_core_iblock", "iscsi_target_mod")

    def prepare(self, machine: Machine) -> None:
        root = library().root.RTSRoot
        super().prepare(machine)
        # LIO keeps reservations below it, and the library refuses to work without.
        with contextlib.suppress(PermissionError):
            os.makedirs(getattr(root, "_preferred_dbroot", "/etc/target"), exist_ok=True)
        # Which it tells the kernel, as targetcli does; that works before the first backstore only.
        with _errors():
            root()

    def names_taken(self, machine: Machine, tenants: Sequence[Tenant]) -> str:
        configfs = machine.configfs
        stores = {name for hba in configfs.directories("target/core") if hba.startswith(f"{PLUGIN}_")
                  for name in configfs.directories(f"target/core/{hba}")}  # fmt: skip
        for tenant in tenants:
            if configfs.exists(f"target/iscsi/{tenant.identity}"):
                return f"the iSCSI target {tenant.identity}"
            if _store(tenant) in stores:
                return f"the backstore {_store(tenant)}"
        return ""

    def steps(self, machine: Machine, order: Order, tenants: Sequence[Tenant]) -> list[Step]:
        found: list[Step] = [SavedConfiguration("undo")] if order.persist else []
        if not machine.configfs.exists("target/iscsi"):
            found.append(MakeDirectory("target/iscsi", "the iSCSI target", shared=True))
        # rtslib counts over all plugins, so that fileio_3 and iblock_3 do not both exist.
        used = {hba.rpartition("_")[2] for hba in machine.configfs.directories("target/core")}
        free = (number for number in range(1 << 20) if str(number) not in used)
        for tenant in tenants:
            index = next(free)
            device = tenant.lasting_device if order.persist else tenant.device
            found += [
                Backstore(index, _store(tenant), device, tenant.uuid),
                Target(tenant.name, tenant.identity, tenant.address, tenant.port, _store(tenant), index,
                       tenant.allowed),
            ]  # fmt: skip
        return [*found, SavedConfiguration("create")] if order.persist else found

    def up(self, machine: Machine, tenant: Tenant) -> bool:
        return enabled(machine, tenant.identity)

    def sessions(self, machine: Machine, tenant: Tenant) -> int | None:
        """As LIO counts them; source: drivers/target/iscsi/iscsi_target_stat.c."""
        name = f"target/iscsi/{tenant.identity}/fabric_statistics/iscsi_instance/sessions"
        try:
            return int(machine.configfs.read(name))
        except (OSError, ValueError):
            return 0 if not self.up(machine, tenant) else None


def _store(tenant: Tenant) -> str:
    return f"rflash-{tenant.name}"
