# SPDX-License-Identifier: GPL-2.0
"""Network interfaces: physical ports with all their settings, and what is stacked on them.

Sources: /sys/class/net (Documentation/ABI/testing/sysfs-class-net*), ethtool's
netlink and ioctl interfaces by System.ethtool.
"""

from __future__ import annotations

import re
from typing import Any

from rflash_tuning.cpulist import parse_mask
from rflash_tuning.errors import Unsupported
from rflash_tuning.host import irqnames, irqs
from rflash_tuning.host.model import Cpus, Feature, Nic, Rss, Rule
from rflash_tuning.system import System

_NET = "/sys/class/net"
_PCI = re.compile(r"[0-9a-f]{4,}:[0-9a-f]{2}:[0-9a-f]{2}\.[0-7]")
_LOOPBACK = 772  # ARPHRD_LOOPBACK of include/uapi/linux/if_arp.h
_IFF_UP = 1
# Drivers that take rules, but none that look at a port (igb_ethtool.c: igb_add_ethtool_nfc_entry; igc alike).
_ETHERNET_RULES_ONLY = ("igb", "igc")
# What is asked of interfaces that are not hardware: the rest is not theirs.
_STACKED_SECTIONS = ("link", "features")
_SECTIONS = ("driver", "link", "channels", "rings", "coalesce", "features", "rss", "rules", "pause")


def read(system: System, named: dict[int, str]) -> tuple[Nic, ...]:
    """Every interface; `named` is what irqs.actions gave."""
    return tuple(_nic(system, name, named) for name in system.names(_NET) if system.exists(f"{_NET}/{name}/mtu"))


def bus(system: System, nic: str) -> str:
    """The PCI address of an interface's device, or the device's name on another bus; "" of a virtual one.

    It stays the same when the interface is renamed.
    """
    try:
        path = system.resolve(f"{_NET}/{nic}/device")
    except OSError:
        return ""
    return bus_of(path)


def bus_of(device: str) -> str:
    """The same of a device's path in sysfs, all links followed."""
    addresses = [part for part in device.split("/") if _PCI.fullmatch(part)]
    return addresses[-1] if addresses else device.rpartition("/")[2]


def current_name(system: System, address: str) -> str | None:
    """The name that the interface with this bus address has now; None when it is not there."""
    if not address:
        return None
    return next((name for name in system.names(_NET) if bus(system, name) == address), None)


def driver(system: System, nic: str) -> str:
    """The kernel driver's name; "" of a virtual interface."""
    try:
        return system.resolve(f"{_NET}/{nic}/device/driver").rpartition("/")[2]
    except OSError:
        return ""


def section(system: System, nic: str, name: str) -> dict[str, Any] | None:
    """One of ethtool's sections; None where kernel, driver or our rights do not give it."""
    try:
        return system.ethtool(nic, name)
    except (Unsupported, OSError):
        return None


def kind_of(system: System, nic: str) -> str:
    """physical, bond, vlan, bridge, loopback or other."""
    base = f"{_NET}/{nic}"
    if system.exists(f"{base}/device"):
        return "physical"
    for kind, mark in (("bond", "bonding"), ("bridge", "bridge")):
        if system.exists(f"{base}/{mark}"):
            return kind
    uevent = system.text(f"{base}/uevent", "") or ""
    for kind in ("vlan", "bond", "bridge"):
        if f"DEVTYPE={kind}" in uevent.split():
            return kind
    return "loopback" if system.number(f"{base}/type") == _LOOPBACK else "other"


def _nic(system: System, name: str, named: dict[int, str]) -> Nic:
    base = f"{_NET}/{name}"
    kind = kind_of(system, name)
    wanted = _SECTIONS if kind == "physical" else _STACKED_SECTIONS
    known = {entry: section(system, name, entry) for entry in wanted}
    numbers = irqs.of_device(system, f"{base}/device") if kind == "physical" else ()
    link = known["link"] or {}
    entries = system.names(f"{base}/queues")
    rx = [entry for entry in entries if entry.startswith("rx-")]
    tx = [entry for entry in entries if entry.startswith("tx-")]
    return Nic(
        name=name,
        kind=kind,
        lowers=tuple(entry[len("lower_") :] for entry in system.names(base) if entry.startswith("lower_")),
        driver=driver(system, name) or (known.get("driver") or {}).get("driver", ""),
        bus=bus(system, name),
        mac=system.text(f"{base}/address", "") or "",
        node=node_of(system, f"{base}/device"),
        mtu=system.number(f"{base}/mtu", 1500) or 1500,
        max_mtu=link.get("max-mtu"),
        up=_is_up(system, base),
        speed=link.get("speed") or _speed(system, base),
        queues=irqnames.queues({number: named.get(number, "") for number in numbers}, name, len(rx)),
        tx_queues=len(tx),
        irqs=irqs.read(system, numbers, named),
        features=_features(known["features"]),
        channels=known.get("channels"),
        rings=known.get("rings"),
        coalesce=known.get("coalesce"),
        pause=known.get("pause"),
        rss=_rss(known.get("rss")),
        rules=_rules(known.get("rules")) if _steers(system, name, known["features"]) else None,
        rps=tuple(_mask(system, f"{base}/queues/{entry}/rps_cpus") or frozenset() for entry in rx),
        rps_flows=tuple(system.number(f"{base}/queues/{entry}/rps_flow_cnt", 0) or 0 for entry in rx),
        xps=tuple(_mask(system, f"{base}/queues/{entry}/xps_cpus") for entry in tx),
    )


def node_of(system: System, device: str) -> int:
    """The NUMA node of a device in sysfs or of what it hangs on; 0 where there is none."""
    try:
        path = system.resolve(device)
    except OSError:
        return 0
    while path.count("/") > 2:
        node = system.number(f"{path}/numa_node")
        if node is not None:
            return max(node, 0)
        path = path.rpartition("/")[0]
    return 0


def _is_up(system: System, base: str) -> bool:
    flags = system.text(f"{base}/flags", "0x1") or "0x1"
    return bool(int(flags, 16) & _IFF_UP)


def _speed(system: System, base: str) -> int | None:
    """Mb/s. The kernel answers EINVAL or -1 without a link."""
    speed = system.number(f"{base}/speed")
    return speed if speed and speed > 0 else None


def _features(known: dict[str, Any] | None) -> dict[str, Feature]:
    return {name: Feature(value["active"], value["changeable"]) for name, value in (known or {}).items()}


def _rss(known: dict[str, Any] | None) -> Rss | None:
    if known is None:
        return None
    return Rss(
        table=tuple(known["table"]),
        key=known["key"],
        function=known["function"],
        table_settable=bool(known["table"]) and known.get("table-settable", True),
        key_settable=bool(known["key"]) and known.get("key-settable", True),
    )


def _steers(system: System, nic: str, features: dict[str, Any] | None) -> bool:
    """Can the NIC have rules for TCP ports? That it lists its rules, of which there are none, says nothing."""
    ntuple = (features or {}).get("rx-ntuple-filter", {"active": True, "changeable": True})
    return (ntuple["active"] or ntuple["changeable"]) and driver(system, nic) not in _ETHERNET_RULES_ONLY


def _rules(known: dict[str, Any] | None) -> tuple[Rule, ...] | None:
    if known is None:
        return None
    return tuple(
        Rule(location=int(location), **{key: value for key, value in rule.items() if key in _RULE_KEYS})
        for location, rule in sorted(known.items(), key=lambda item: int(item[0]))
    )


_RULE_KEYS = ("flow", "dst_port", "queue", "src_port", "dst_ip", "other")


def _mask(system: System, path: str) -> Cpus | None:
    text = system.text(path)
    return None if text is None else parse_mask(text)
