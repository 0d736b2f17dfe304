# SPDX-License-Identifier: GPL-2.0
"""Which interrupt belongs to which queue of a NIC.

Drivers say it only in the names they give their interrupts, and each in its
own way. Where no name is understood, the order of the vectors is taken, which
is that of the queues in every driver we know.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from rflash_tuning.host.model import NicQueue

# Vectors that carry no packets, as the drivers name them.
_CONTROL = re.compile(
    r"config$|control$|:misc$|:fdir-|-event-\d+$|async|mgmnt|pages_eq|cmd_eq|_hwc|-ptp$|-sp$|ll_ts|-mbx|-admin",
    re.IGNORECASE,
)
# Group 1 is the index. Samples are the drivers' own formats.
_COMBINED = (
    r"(?:tx-?rx|rx-?tx)-?(\d+)$",  # ixgbe, igb, i40e-eth0-TxRx-0, ice-eth0-TxRx-0, eth0-Tx-Rx-0 (ena), eth0-rxtx-0
    r"^mlx5_comp(\d+)(?:@|$)",  # mlx5_comp0@pci:0000:03:00.0
    r"^mlx4-(\d+)@",  # mlx4-1@0000:03:00.0
    r"^mana_q(\d+)@",  # mana_q0@pci:7870:00:00.0
    r"-fp-(\d+)$",  # eth0-fp-0 (bnx2x, qede)
    r"-q(\d+)$",  # eth0-q0 (be2net)
)
_RX = (r"-rx-?(\d+)$", r"^virtio\d+-input\.(\d+)$")  # eth0-rx-0 (e1000e, vmxnet3, sfc)
_TX = (r"-tx-?(\d+)$", r"^virtio\d+-output\.(\d+)$")


@dataclass(frozen=True)
class Role:
    """What a vector's name says: combined, rx, tx, or control with index -1."""

    kind: str
    index: int
    span: tuple[int, int] = (0, 0)  # where in the name the index stands


def role(name: str, nic: str) -> Role | None:
    """What the name of an interrupt of a NIC says of it; None when it is not understood."""
    for action in name.split(", "):
        if _CONTROL.search(action):
            return Role("control", -1)
        patterns = [("combined", p) for p in _COMBINED] + [("rx", p) for p in _RX] + [("tx", p) for p in _TX]
        patterns.append(("combined", rf"^{re.escape(nic)}-(\d+)$"))  # eth0-0 (sfc)
        for kind, pattern in patterns:
            match = re.search(pattern, action, re.IGNORECASE)
            if match:
                start = name.index(action)
                return Role(kind, int(match[1]), (start + match.start(1), start + match.end(1)))
    return None


def queues(names: dict[int, str], nic: str, count: int) -> tuple[NicQueue, ...]:
    """The NIC's receive (or combined) queues 0 to count-1 with their interrupts.

    `names` are the actions of the device's interrupts by number. A NIC may
    have been renamed since its interrupts were named, so the name is not
    required to be in them.
    """
    roles = {number: role(name, nic) for number, name in names.items()}
    receive = _indexed(roles, ("combined", "rx"))
    transmit = _indexed(roles, ("tx",))
    if not receive:
        receive = _by_order(names, roles, count)
    return tuple(NicQueue(i, receive.get(i), transmit.get(i)) for i in range(count))


def _indexed(roles: dict[int, Role | None], kinds: tuple[str, ...]) -> dict[int, int]:
    """Queue -> interrupt. Where a driver numbers from 1 (tg3) or goes on counting, order decides."""
    found: dict[int, int] = {}
    for number in sorted(roles):
        known = roles[number]
        if known is not None and known.kind in kinds:
            found.setdefault(known.index, number)
    if found and 0 not in found:
        found = {place: found[index] for place, index in enumerate(sorted(found))}
    return found


def _by_order(names: dict[int, str], roles: dict[int, Role | None], count: int) -> dict[int, int]:
    """Queue -> interrupt by the order of the vectors, without those that are known to be something else.

    Vectors that differ only in a number at the end are the queues'; without
    such a family the control vector is the first, as in most drivers.
    """
    left = [number for number in sorted(names) if roles[number] is None]
    families: dict[str, list[int]] = {}
    for number in left:
        families.setdefault(re.sub(r"\d+(@.*)?$", "", names[number]), []).append(number)
    largest = max(families.values(), key=len, default=[])
    if len(largest) > 1:
        left = largest
    elif len(left) > count:
        left = left[len(left) - count :]
    return dict(enumerate(left[:count]))
