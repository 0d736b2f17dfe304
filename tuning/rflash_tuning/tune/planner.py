# SPDX-License-Identifier: GPL-2.0
"""From a host and a request to a plan: a pure function.

Left alone on purpose: pause frames (they stop all tenants of a port for one),
PCIe settings (the firmware's), transmit queue lengths (no paper and no measurement
asks for them), and SMT unless asked.
"""

from __future__ import annotations

from collections.abc import Iterable

from rflash_tuning.errors import UsageError
from rflash_tuning.host.model import Host
from rflash_tuning.knobs import (
    busypoll,
    channels,
    coalescing,
    diskinterrupts,
    diskqueue,
    flowrules,
    governor,
    idlestates,
    interrupts,
    irqbalance,
    iscsisessions,
    mtu,
    nvmetpoll,
    offloads,
    othertuners,
    rflashdcpus,
    rfs,
    rings,
    rps,
    rss,
    smt,
    tcpbuffers,
    threads,
    xps,
)
from rflash_tuning.knobs.draft import Draft
from rflash_tuning.tune.allocation import FIRST_PORTS, allocate
from rflash_tuning.tune.change import Change, Plan, Request

# In the order in which they are turned: others who tune first, so that they do
# not undo the rest; what makes queues anew before what is set on queues; threads
# after the queues that they follow.
KNOBS = (
    irqbalance,
    othertuners,
    mtu,
    channels,
    rings,
    offloads,
    coalescing,
    rss,
    flowrules,
    interrupts,
    diskinterrupts,
    rps,
    rfs,
    xps,
    diskqueue,
    threads,
    rflashdcpus,
    iscsisessions,
    tcpbuffers,
    busypoll,
    nvmetpoll,
    governor,
    idlestates,
    smt,
)
NAMES = tuple(knob.NAME for knob in KNOBS)
ROLES = ("server", "tenant")
GOALS = ("throughput", "latency", "mixed")


def plan(host: Host, request: Request) -> Plan:
    """What to do to this host for this request; empty when all is right.

    The same host and request give the same plan. Raises UsageError, one
    sentence, when the request makes no sense here.
    """
    check(host, request)
    allocation = allocate(host, request)
    draft = Draft(host, request, allocation)
    for warning in allocation.warnings:
        draft.warn(warning)
    for knob in KNOBS:
        if draft.enabled(knob.NAME):
            draft.knob = knob.NAME
            knob.draw(draft)
    return Plan(
        request=request,
        allocation=allocation,
        changes=order(draft.changes.values()),
        right=draft.right,
        warnings=tuple(draft.warnings),
        host={"host_id": host.host_id, "boot_id": host.boot_id, "release": host.release},
    )


def order(changes: Iterable[Change]) -> tuple[Change, ...]:
    """The safe order: that of KNOBS; within a knob as it was given. Knobs that are not ours come last."""
    place = {name: number for number, name in enumerate(NAMES)}
    return tuple(sorted(changes, key=lambda change: place.get(change.knob, len(place))))


def check(host: Host, request: Request) -> None:
    """Does the request make sense on this host? Raises UsageError."""
    _check_words(request)
    if request.tenants < 1:
        raise UsageError(f"{request.tenants} tenants make no sense; there should be 1 at least")
    if not request.nics:
        raise UsageError(f"a NIC is needed; there are {_names(host)}")
    for name in request.nics:
        _check_nic(host, name)
    for disk in request.disks:
        if host.disk(disk) is None:
            there = ", ".join(known.name for known in host.disks) or "none"
            raise UsageError(f"there is no disk '{disk}' here; there are: {there}")
    if not 0 <= request.read_share <= 100:
        raise UsageError(f"a read share of {request.read_share} makes no sense; it is a percentage")
    if request.queue_depth < 1:
        raise UsageError(f"a queue depth of {request.queue_depth} makes no sense; it should be 1 at least")
    if len(request.ports) > len(set(request.ports)):
        raise UsageError("two tenants have the same port; each needs one of its own, so that they can be told apart")
    for knob in (*request.knobs, *request.skip):
        if knob not in NAMES:
            raise UsageError(f"there is no knob '{knob}'; there are {', '.join(sorted(NAMES))}")


def _check_words(request: Request) -> None:
    for what, word, known in (
        ("role", request.role, ROLES),
        ("target", request.target, tuple(FIRST_PORTS)),
        ("goal", request.goal, GOALS),
    ):
        if word not in known:
            raise UsageError(f"'{word}' is no {what}; it should be one of {', '.join(known)}")


def _check_nic(host: Host, name: str) -> None:
    nic = host.nic(name)
    if nic is None:
        raise UsageError(f"there is no NIC '{name}' here; there are {_names(host)}")
    if nic.kind == "loopback":
        raise UsageError(f"{name} is the loopback interface, which has no queues to tune")
    ports = [port for port in host.ports(name) if port.kind == "physical"]
    if not ports:
        raise UsageError(f"{name} has no physical port below it, so there are no queues to tune")
    for port in ports:
        if not port.queues:
            below = "" if port.name == name else f" below {name}"
            raise UsageError(f"{port.name}{below} has no queues that could be placed")


def _names(host: Host) -> str:
    return ", ".join(nic.name for nic in host.nics if nic.kind != "loopback") or "none"
