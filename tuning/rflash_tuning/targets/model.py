# SPDX-License-Identifier: GPL-2.0
"""What a user orders and what each tenant gets: plain data, names and numbers, no I/O.

The conventions that rflash-tune relies on are here: tenants are t1, t2, ...;
each has a target, a partition and a port of its own, so that a flow rule can
tell tenants apart by port.
"""

from __future__ import annotations

import hashlib
import re
import uuid
from dataclasses import asdict, dataclass
from typing import Any

from rflash_tuning.errors import UsageError
from rflash_tuning.system import System

KINDS = ("iscsi", "nvmet-tcp", "nvmet-rdma", "rflashd")
FIRST_PORT = {"iscsi": 3260, "nvmet-tcp": 4420, "nvmet-rdma": 4420, "rflashd": 4420}
NAMES = "2026-11.org.rflash"
LIMIT = 128  # entries of a GUID partition table as everybody makes it

_HOST = {
    "iscsi": (re.compile(r"(iqn\.\d{4}-\d{2}\.[a-z0-9.-]+(:\S*)?|eui\.[0-9a-fA-F]{16}|naa\.[0-9a-fA-F]{16,32})"),
              "an initiator's name, such as iqn.1993-08.org.debian:01:abcdef (/etc/iscsi/initiatorname.iscsi)"),
    "nvme": (re.compile(r"nqn\.\d{4}-\d{2}\.[^\s/]+"),
             "a host's NQN, such as nqn.2014-08.org.nvmexpress:uuid:... (/etc/nvme/hostnqn)"),
}  # fmt: skip


@dataclass(frozen=True)
class Allowed:
    """A host that may log in: to one tenant, or to all of them."""

    host: str  # IQN or NQN
    tenant: str = ""  # "" is every tenant


@dataclass(frozen=True)
class Order:
    """What the user asked for."""

    kind: str
    device: str
    tenants: int
    first: int = 1  # number of the first tenant
    address: str = ""
    allowed: tuple[Allowed, ...] = ()
    use_partitions: bool = False
    persist: bool = False  # iscsi: also in targetcli's saved configuration

    @property
    def name(self) -> str:
        """What the record of it is called: "iscsi-t1"."""
        return f"{self.kind}-t{self.first}"

    def to_json(self) -> dict[str, Any]:
        return asdict(self)

    @classmethod
    def from_json(cls, data: dict[str, Any]) -> Order:
        return cls(**{**data, "allowed": tuple(Allowed(**item) for item in data["allowed"])})


@dataclass(frozen=True)
class Tenant:
    """One tenant's target."""

    name: str
    kind: str
    identity: str  # IQN or NQN
    address: str
    port: int
    device: str  # block device behind it
    size: int  # bytes
    part: str  # its partition's unique GUID; "" where the table has none
    uuid: str  # of the volume, as the tenant sees it: the same after each restore
    allowed: tuple[str, ...] = ()  # hosts; () is any

    @property
    def serial(self) -> str:
        """Up to 20 characters, as an NVMe subsystem's serial number is."""
        return self.uuid.replace("-", "")[:20]

    @property
    def lasting_device(self) -> str:
        """A path that is right after a reboot, too, for what is read back then."""
        return f"/dev/disk/by-partuuid/{self.part}" if self.part else self.device

    def to_json(self) -> dict[str, Any]:
        return asdict(self)

    @classmethod
    def from_json(cls, data: dict[str, Any]) -> Tenant:
        return cls(**{**data, "allowed": tuple(data["allowed"])})


def check(order: Order) -> None:
    """Refuse what makes no sense on any machine. Raises UsageError."""
    if order.kind not in KINDS:
        raise UsageError(f"there is no kind '{order.kind}': it is one of {', '.join(KINDS)}")
    if order.tenants < 1:
        raise UsageError(f"{order.tenants} tenants make no target: --tenants is at least 1")
    if order.tenants > LIMIT:
        raise UsageError(f"{order.tenants} tenants are more than a partition table has room for, which is {LIMIT}")
    if order.first < 1 or port(order.kind, order.first + order.tenants - 1) > 65535:
        raise UsageError(f"--first {order.first} is not a tenant's number: it begins at 1, and ports end at 65535")
    if order.persist and order.kind != "iscsi":
        raise UsageError(f"--persist writes targetcli's configuration, which {order.kind} has no part in")
    names = [name(order, index) for index in range(order.tenants)]
    pattern, example = _HOST["iscsi" if order.kind == "iscsi" else "nvme"]
    for allowed in order.allowed:
        if len(allowed.host) > 223 or not pattern.fullmatch(allowed.host):
            raise UsageError(f"--allow-host {allowed.host}: this is not {example}")
        if allowed.tenant and allowed.tenant not in names:
            raise UsageError(f"--allow-host for {allowed.tenant}: the tenants are {names[0]} to {names[-1]}")
    if any(item.tenant for item in order.allowed):
        left = [one for one in names if not hosts(order, one)]
        if left:
            raise UsageError(f"--allow-host says nobody for {left[0]}, which would leave it open to everybody")


def allowed(text: str) -> Allowed:
    """--allow-host's value: a name, or t2=NAME for that tenant alone."""
    match = re.fullmatch(r"(t\d+)=(.+)", text)
    return Allowed(match[2], match[1]) if match else Allowed(text)


def name(order: Order, index: int) -> str:
    """Of the tenant with this index, which counts from 0."""
    return f"t{order.first + index}"


def hosts(order: Order, tenant: str) -> tuple[str, ...]:
    """Who may log in to this tenant's target; () is everybody."""
    return tuple(dict.fromkeys(item.host for item in order.allowed if item.tenant in ("", tenant)))


def port(kind: str, number: int) -> int:
    """The TCP port (RDMA: service) of tenant t<number>."""
    return FIRST_PORT[kind] + number - 1


def identity(kind: str, host_id: str, tenant: str) -> str:
    """The IQN or NQN of a tenant's target."""
    return f"iqn.{NAMES}:{host_id}.{tenant}" if kind == "iscsi" else f"nqn.{NAMES}:{host_id}:{tenant}"


def host_id(system: System) -> str:
    """12 hexadecimal digits that tell this host from others; not its machine id, which is confidential.

    Source: machine-id(5). Without one: the board's UUID, then the host's name.
    """
    for path in ("/etc/machine-id", "/sys/class/dmi/id/product_uuid", "/proc/sys/kernel/hostname"):
        text = system.text(path) or ""
        if text and text != "uninitialized":
            return hashlib.sha256(f"rflash:{text}".encode()).hexdigest()[:12]
    raise UsageError("this host has no /etc/machine-id: `systemd-machine-id-setup` makes one")


def volume_uuid(part: str, device: str) -> str:
    """The same volume has the same UUID for ever: its partition's, or one made of its path."""
    return part.lower() if part else str(uuid.uuid5(uuid.NAMESPACE_URL, f"rflash:{device}"))
