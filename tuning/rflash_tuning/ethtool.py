# SPDX-License-Identifier: GPL-2.0
"""ethtool without the command: NIC settings by netlink, and by ioctl what netlink has not.

Sections are those of system.ETHTOOL_SECTIONS. Netlink (Documentation/networking/
ethtool-netlink.rst, since Linux 5.6) gives link, channels, rings, coalesce,
features and pause with the kernel's own names and error sentences. RSS table
and key, flow rules and the driver's name are ioctls on all kernels from 6.1 on
(rxfh.py).
"""

from __future__ import annotations

import errno
from collections.abc import Callable
from typing import Any

from rflash_tuning import netlink, rxfh
from rflash_tuning.errors import Unchangeable, Unsupported
from rflash_tuning.netlink import NETLINK_GENERIC, NETLINK_ROUTE, Connection, nested, number, parse, string, table

_FAMILY = "ethtool"
# enum ETHTOOL_MSG_USER of include/uapi/linux/ethtool_netlink.h
_LINKMODES_GET = 4
_FEATURES_GET, _FEATURES_SET = 11, 12
_GET_SET = {"rings": (15, 16), "channels": (17, 18), "coalesce": (19, 20), "pause": (21, 22)}
# Attributes of each message by number: the first is always the header.
_RINGS = {"rx-max": 2, "tx-max": 5, "rx": 6, "tx": 9}
_CHANNELS = {
    "rx-max": 2,
    "tx-max": 3,
    "other-max": 4,
    "combined-max": 5,
    "rx": 6,
    "tx": 7,
    "other": 8,
    "combined": 9,
}
_COALESCE = {
    "rx-usecs": 2,
    "rx-frames": 3,
    "rx-usecs-irq": 4,
    "rx-frames-irq": 5,
    "tx-usecs": 6,
    "tx-frames": 7,
    "tx-usecs-irq": 8,
    "tx-frames-irq": 9,
    "adaptive-rx": 11,
    "adaptive-tx": 12,
}
_PAUSE = {"autoneg": 2, "rx": 3, "tx": 4}
_ATTRIBUTES = {"rings": _RINGS, "channels": _CHANNELS, "coalesce": _COALESCE, "pause": _PAUSE}
_BYTES = {"adaptive-rx", "adaptive-tx", "autoneg"}  # u8 attributes; all of pause are, too
_HEADER = 1
_HEADER_NAME = 2
_HEADER_FLAGS = 3
_OMIT_REPLY = 2
_LINKMODES_SPEED = 5
_FEATURES_HW, _FEATURES_WANTED, _FEATURES_ACTIVE, _FEATURES_NOCHANGE = 2, 3, 4, 5
_BITSET_BITS = 3
_BIT = 1
_BIT_NAME, _BIT_VALUE = 2, 3
_UNKNOWN = 0xFFFFFFFF  # SPEED_UNKNOWN
# rtnetlink
_RTM_GETLINK = 18
_IFLA_IFNAME = 3
_IFLA_MAX_MTU = 51
_IFINFO = bytes(16)  # struct ifinfomsg


class Client:
    """Reads and sets sections. Sockets are opened at first use; not for several threads."""

    def __init__(self) -> None:
        self._netlink = Connection(NETLINK_GENERIC)
        self._route = Connection(NETLINK_ROUTE)

    def get(self, nic: str, section: str) -> dict[str, Any]:
        """One section. Raises Unsupported where kernel or driver has none, OSError (ENODEV) without the NIC."""
        readers: dict[str, Callable[[str], dict[str, Any]]] = {
            "driver": rxfh.driver,
            "link": self._link,
            "features": self._features,
            "rss": rxfh.rss,
            "rules": rxfh.rules,
        }
        if section in _GET_SET:
            return _supported(lambda: self._numbers(nic, section), nic, section)
        if section not in readers:
            raise ValueError(f"'{section}' is no section of ethtool's")
        return _supported(lambda: readers[section](nic), nic, section)

    def set(self, nic: str, section: str, values: dict[str, Any]) -> None:
        """Change some keys of a section. Raises Unsupported, Unchangeable or OSError with the kernel's sentence."""
        setters: dict[str, Callable[[str, dict[str, Any]], None]] = {
            "features": self._set_features,
            "rss": rxfh.set_rss,
            "rules": rxfh.set_rules,
        }
        if section in _GET_SET:
            _supported(lambda: self._set_numbers(nic, section, values), nic, section)
        elif section in setters:
            _supported(lambda: setters[section](nic, values), nic, section)
        else:
            raise Unsupported(f"{section} of {nic} can't be set")

    def _ask(self, command: int, nic: str, *attributes: bytes) -> dict[int, bytes]:
        header = nested(_HEADER, netlink.text(_HEADER_NAME, nic))
        answers = self._netlink.generic(_FAMILY, command, header, *attributes)
        return answers[0] if answers else {}

    def _tell(self, command: int, nic: str, *attributes: bytes) -> None:
        header = nested(_HEADER, netlink.text(_HEADER_NAME, nic), netlink.u32(_HEADER_FLAGS, _OMIT_REPLY))
        self._netlink.generic(_FAMILY, command, header, *attributes)

    def _link(self, nic: str) -> dict[str, Any]:
        """Speed (Mb/s, None without a link) and the largest MTU that the driver takes (None where it says none)."""
        try:
            speed = number(self._ask(_LINKMODES_GET, nic).get(_LINKMODES_SPEED, b""))
        except OSError as error:
            if error.errno != errno.EOPNOTSUPP:
                raise
            speed = 0
        known = speed if 0 < speed < _UNKNOWN else None
        return {"speed": known, "max-mtu": self._max_mtu(nic)}

    def _max_mtu(self, nic: str) -> int | None:
        answers = self._route.request(_RTM_GETLINK, _IFINFO + netlink.text(_IFLA_IFNAME, nic))
        found = table(answers[0][len(_IFINFO) :]) if answers else {}
        return number(found.get(_IFLA_MAX_MTU, b"")) or None

    def _numbers(self, nic: str, section: str) -> dict[str, int]:
        """Channels and rings have all their keys, 0 for what a driver has not; coalesce only what there is."""
        answer = self._ask(_GET_SET[section][0], nic)
        known = {name: number(answer[kind]) for name, kind in _ATTRIBUTES[section].items() if kind in answer}
        if section in ("channels", "rings"):
            return {name: known.get(name, 0) for name in _ATTRIBUTES[section]}
        if not known:
            raise Unsupported(f"{nic} has no {section} settings")
        return known

    def _set_numbers(self, nic: str, section: str, values: dict[str, int]) -> None:
        attributes = []
        for name, value in values.items():
            kind = _ATTRIBUTES[section].get(name)
            if kind is None or name.endswith("-max"):
                raise Unsupported(f"{nic} has no {section} setting '{name}'")
            small = section == "pause" or name in _BYTES
            attributes.append(netlink.u8(kind, int(value)) if small else netlink.u32(kind, int(value)))
        try:
            self._tell(_GET_SET[section][1], nic, *attributes)
        except OSError as error:
            # What a driver has not is EINVAL here, too ("cannot modify an unsupported parameter").
            missing = [name for name in values if name not in self._numbers(nic, section)]
            if error.errno == errno.EINVAL and missing:
                raise Unsupported(f"{nic} has no {section} setting '{missing[0]}'") from error
            raise

    def _features(self, nic: str) -> dict[str, dict[str, bool]]:
        """By the kernel's names. What hardware has not, or the driver or the device fixes, is not changeable."""
        answer = self._ask(_FEATURES_GET, nic)
        hardware = _bits(answer.get(_FEATURES_HW, b""))
        active = _bits(answer.get(_FEATURES_ACTIVE, b""))
        fixed = _bits(answer.get(_FEATURES_NOCHANGE, b""))
        return {
            name: {"active": name in active, "changeable": able and name not in fixed}
            for name, able in hardware.items()
        }

    def _set_features(self, nic: str, values: dict[str, bool]) -> None:
        """The kernel takes a request that it can't fulfil without an error, so it is read back."""
        before = self._features(nic)
        for name, wanted in values.items():
            if name not in before:
                raise Unsupported(f"{nic} has no feature '{name}'")
            if before[name]["active"] != wanted and not before[name]["changeable"]:
                raise Unchangeable(f"{nic}: the feature '{name}' is fixed")
        bits = [
            nested(_BIT, netlink.text(_BIT_NAME, name), *([netlink.attribute(_BIT_VALUE, b"")] if wanted else []))
            for name, wanted in values.items()
        ]
        self._tell(_FEATURES_SET, nic, nested(_FEATURES_WANTED, nested(_BITSET_BITS, *bits)))
        after = self._features(nic)
        for name, wanted in values.items():
            if after[name]["active"] != wanted:
                state = "off" if wanted else "on"
                raise Unchangeable(f"{nic}: the kernel leaves the feature '{name}' {state}; another one decides it")


def _bits(bitset: bytes) -> dict[str, bool]:
    """Name -> set, of a bitset in its verbose form. A list without a mask holds only bits that are set."""
    bits = table(bitset).get(_BITSET_BITS, b"")
    attributes = [table(payload) for kind, payload in parse(bits) if kind == _BIT]
    masked = _NOMASK not in table(bitset)
    return {string(bit[_BIT_NAME]): _BIT_VALUE in bit or not masked for bit in attributes if _BIT_NAME in bit}


_NOMASK = 1


def _supported(action: Callable[[], Any], nic: str, section: str) -> Any:
    """The action's result, EOPNOTSUPP being Unsupported."""
    try:
        return action()
    except OSError as error:
        if error.errno == errno.EOPNOTSUPP:
            raise Unsupported(f"{nic} has no {section} settings: {error.strerror}") from error
        error.filename = f"{nic} {section}"
        raise
