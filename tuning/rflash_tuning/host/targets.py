# SPDX-License-Identifier: GPL-2.0
"""The tenants of this host: what its targets offer, and where it is a tenant itself.

Sources: configfs of LIO and nvmet, rflashd's configuration, and, on a tenant's
host, /sys/class/iscsi_session, /sys/class/nvme and /sys/block/rflash*.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterable
from dataclasses import replace
from typing import Any

from rflash_tuning.host.connections import Connection
from rflash_tuning.host.model import Tenant
from rflash_tuning.system import System

LIO = "/sys/kernel/config/target/iscsi"
NVMET = "/sys/kernel/config/nvmet"
RFLASHD = "/etc/rflash/rflashd.toml"
RFLASHD_MORE = "/etc/rflash/rflashd.d"  # rflash-target's
_OURS = re.compile(r"(?:iqn|nqn)\.2026-11\.org\.rflash:.+[.:](t\d+)")
_FIRST_PORT = 4420  # of rflash-target's tenants; t2's is the next


def read_tenants(system: System) -> tuple[Tenant, ...]:
    """All tenants by name, t2 before t10, and others after them. `sessions` as configfs or sysfs says."""
    served = [*_lio(system), *_nvmet(system), *_rflashd(system)]
    sessions = [*_iscsi_sessions(system), *_nvme_sessions(system), *_rflash_disks(system)]
    # A host may be logged in to itself; that makes no second tenant.
    own = {tenant.identity for tenant in served}
    return tuple(sorted([*served, *(tenant for tenant in sessions if tenant.identity not in own)], key=_order))


def served_by_lio(system: System, tenants: Iterable[Tenant]) -> list[Tenant]:
    """Those of the tenants that LIO on this host serves."""
    here = set(system.names(LIO))
    return [tenant for tenant in tenants if tenant.kind == "iscsi" and tenant.identity in here]


def count_sessions(tenants: tuple[Tenant, ...], connections: Iterable[Connection]) -> tuple[Tenant, ...]:
    """Sessions of targets whose configuration does not show them, by established connections.

    An iSCSI session has one connection here. An NVMe controller has several,
    one per queue, so its sessions are counted as hosts.
    """
    known = list(connections)
    counted = []
    for tenant in tenants:
        there = [c for c in known if c.local_port == tenant.port and _at(tenant, c)]
        count = len(there) if tenant.kind == "iscsi" else len({c.remote for c in there})
        counted.append(replace(tenant, sessions=max(tenant.sessions, count)))
    return tuple(counted)


def name_of(identity: str) -> str:
    """t3 of rflash-target's third tenant; the IQN or NQN itself of any other target."""
    match = _OURS.fullmatch(identity)
    return match[1] if match else identity


def _at(tenant: Tenant, connection: Connection) -> bool:
    return tenant.address in ("", "0.0.0.0", "::", connection.local)


def _order(tenant: Tenant) -> tuple[bool, int, str]:
    number = tenant.name[1:] if re.fullmatch(r"t\d+", tenant.name) else ""
    return (not number, int(number or 0), tenant.name)


def _portal(text: str) -> tuple[str, int]:
    """Address and port of "10.0.0.1:3260" or "[fd00::1]:3260"."""
    address, _, port = text.rpartition(":")
    return address.strip("[]"), int(port) if port.isdecimal() else 0


# Targets


def _lio(system: System) -> list[Tenant]:
    """LIO's iSCSI: one target portal group of one IQN is a tenant."""
    found = []
    for identity in system.names(LIO):
        for group in system.names(f"{LIO}/{identity}"):
            if not group.startswith("tpgt_"):
                continue
            base = f"{LIO}/{identity}/{group}"
            portals = [_portal(name) for name in system.names(f"{base}/np")]
            address, port = portals[0] if portals else ("", 0)
            found.append(
                Tenant(name_of(identity), "iscsi", identity, address, port, _lun(system, base), _logins(system, base))
            )
    return found


def _lun(system: System, group: str) -> str:
    """The device behind the first LUN, by the link from the LUN to its backstore."""
    for lun in system.names(f"{group}/lun"):
        for entry in system.names(f"{group}/lun/{lun}"):
            path = system.text(f"{group}/lun/{lun}/{entry}/udev_path")
            if path:
                return _device(system, path)
    return ""


def _logins(system: System, group: str) -> int:
    """Initiators logged in: those without a rule of their own, and those with one that is in use."""
    dynamic = (system.text(f"{group}/dynamic_sessions", "") or "").replace("\0", "\n").split()
    named = 0
    for initiator in system.names(f"{group}/acls"):
        info = system.text(f"{group}/acls/{initiator}/info", "") or ""
        named += "Session State" in info
    return len(dynamic) + named


def _nvmet(system: System) -> list[Tenant]:
    """nvmet: a subsystem on a port is a tenant."""
    found = []
    for number in system.names(f"{NVMET}/ports"):
        base = f"{NVMET}/ports/{number}"
        transport = system.text(f"{base}/addr_trtype", "") or ""
        if transport not in ("tcp", "rdma"):
            continue
        address = system.text(f"{base}/addr_traddr", "") or ""
        service = system.text(f"{base}/addr_trsvcid", "") or ""
        port = int(service) if service.isdecimal() else 0
        for identity in system.names(f"{base}/subsystems"):
            spaces = f"{NVMET}/subsystems/{identity}/namespaces"
            devices = [system.text(f"{spaces}/{nsid}/device_path", "") or "" for nsid in system.names(spaces)]
            device = _device(system, devices[0]) if devices else ""
            found.append(Tenant(name_of(identity), f"nvmet-{transport}", identity, address, port, device))
    return found


def _rflashd(system: System) -> list[Tenant]:
    """rflashd's configuration: tables [[tenant]] with name, nqn, device, address, port."""
    paths = [RFLASHD, *(f"{RFLASHD_MORE}/{name}" for name in system.names(RFLASHD_MORE) if name.endswith(".toml"))]
    return [_rflashd_tenant(system, table) for path in paths for table in _tables(system, path)]


def _tables(system: System, path: str) -> list[dict[str, Any]]:
    try:
        tables = tomllib.loads(system.read(path)).get("tenant", [])
    except (OSError, tomllib.TOMLDecodeError):
        return []
    return [table for table in tables if isinstance(table, dict)] if isinstance(tables, list) else []


def _rflashd_tenant(system: System, table: dict[str, Any]) -> Tenant:
    identity, port = str(table.get("nqn", "")), table.get("port", 0)
    return Tenant(
        name=str(table.get("name") or name_of(identity)),
        kind="rflashd",
        identity=identity,
        address=str(table.get("address", "")),
        port=port if isinstance(port, int) else 0,
        device=_device(system, str(table.get("device", ""))),
    )


def _device(system: System, path: str) -> str:
    """The kernel's name of a device that may be given as a lasting link (/dev/disk/by-partuuid/...)."""
    try:
        return system.resolve(path) if path.startswith("/dev/") else path
    except OSError:
        return path


# Where this host is the tenant


def _iscsi_sessions(system: System) -> list[Tenant]:
    """open-iscsi: a session is a tenant; its connection knows the target's address."""
    found = []
    base = "/sys/class/iscsi_session"
    for session in system.names(base):
        identity = system.text(f"{base}/{session}/targetname", "") or ""
        connection = f"/sys/class/iscsi_connection/connection{session.removeprefix('session')}:0"
        address = system.text(f"{connection}/persistent_address", "") or ""
        port = system.number(f"{connection}/persistent_port", 0) or 0
        logged_in = (system.text(f"{base}/{session}/state", "") or "") == "LOGGED_IN"
        found.append(Tenant(name_of(identity), "iscsi", identity, address, port, "", int(logged_in)))
    return _merged(found)


def _nvme_sessions(system: System) -> list[Tenant]:
    """nvme-tcp and nvme-rdma: a controller is a session. `traddr=10.0.0.1,trsvcid=4420,src_addr=...`"""
    found = []
    base = "/sys/class/nvme"
    for controller in system.names(base):
        transport = system.text(f"{base}/{controller}/transport", "") or ""
        if transport not in ("tcp", "rdma"):
            continue
        identity = system.text(f"{base}/{controller}/subsysnqn", "") or ""
        words = dict(
            word.split("=", 1)
            for word in (system.text(f"{base}/{controller}/address", "") or "").split(",")
            if "=" in word
        )
        service = words.get("trsvcid", "")
        port = int(service) if service.isdecimal() else 0
        live = (system.text(f"{base}/{controller}/state", "") or "") == "live"
        kind = f"nvmet-{transport}"
        found.append(Tenant(name_of(identity), kind, identity, words.get("traddr", ""), port, "", int(live)))
    return _merged(found)


def _rflash_disks(system: System) -> list[Tenant]:
    """Disks of the rflash driver. sysfs does not say the server's address; the port is rflash-target's convention."""
    found = []
    for disk in system.names("/sys/block"):
        identity = system.text(f"/sys/block/{disk}/nqn") if disk.startswith("rflash") else None
        if identity:
            name = name_of(identity)
            port = _FIRST_PORT + int(name[1:]) - 1 if re.fullmatch(r"t[1-9]\d*", name) else 0
            found.append(Tenant(name, "rflashd", identity, "", port, f"/dev/{disk}", 1))
    return _merged(found)


def _merged(tenants: list[Tenant]) -> list[Tenant]:
    """One tenant for several sessions with the same target."""
    found: dict[tuple[str, str, int], Tenant] = {}
    for tenant in tenants:
        key = (tenant.identity, tenant.address, tenant.port)
        known = found.get(key)
        found[key] = replace(known, sessions=known.sessions + tenant.sessions) if known else tenant
    return list(found.values())
