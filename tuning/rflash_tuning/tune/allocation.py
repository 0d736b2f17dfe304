# SPDX-License-Identifier: GPL-2.0
"""Who runs where: N tenants on the cores of a host, by the rules of "Flash Storage Disaggregation", section 4.

A core is a physical core; its hardware threads stay with one tenant as long
as there are as many cores as tenants. The rules, and what the paper leaves open:

* 1 tenant: interrupts and threads over all cores ("spread").
* 2 cores per tenant and more ("two-cores"): one half of a tenant's cores for
  the threads that own connections and for its NIC queues, the other for I/O
  threads and NVMe interrupts. Of an odd number the larger half does I/O.
* 1 core per tenant ("one-core"): all of a tenant on it. With two hardware
  threads per core a tenant gets "two-cores" on the two threads of its core.
* fewer ("shared"): tenants are dealt over hardware threads evenly, so that
  counts differ by one at most; up to three tenants per core as in the paper,
  beyond that with a warning.
* Cores that are left over go to the first tenants, one each.
* Cores of the NIC's NUMA node come first. Other nodes are used only when the
  NIC's node does not reach for two cores per tenant (six for one tenant, the
  paper's number), or when the user named the CPUs.
* nvmet targets run where packets arrive, so both halves take queues and I/O.
"""

from __future__ import annotations

from dataclasses import dataclass

from rflash_tuning.errors import UsageError
from rflash_tuning.host.model import Cpu, Host, Nic
from rflash_tuning.tune.change import Allocation, Request, Share

PAPER = "Flash Storage Disaggregation (EuroSys'16), section 4"
SPREAD_ENOUGH = 6  # cores; the paper spread one tenant over six
PER_CORE = 3  # application tenants that one core served in the paper
FIRST_PORTS = {"iscsi": 3260, "nvmet-tcp": 4420, "nvmet-rdma": 4420, "rflashd": 4420}
# Targets that work where packets arrive: no threads of a tenant's to place.
STEERED = ("nvmet-tcp", "nvmet-rdma")


@dataclass(frozen=True)
class Core:
    """A physical core: the CPUs of it that may be used, lowest first."""

    node: int
    cpus: tuple[int, ...]


def allocate(host: Host, request: Request) -> Allocation:
    """Deal the host's cores to the request's tenants. Raises UsageError when no CPU is left to use."""
    cores = usable_cores(host, request)
    names = tenant_names(host, request)
    local = [core for core in cores if core.node in nic_nodes(host, request)] or cores
    enough = SPREAD_ENOUGH if request.tenants == 1 else 2 * request.tenants
    warnings = []
    if not request.cpus and len(local) < len(cores) and len(local) >= enough:
        spared = len(cores) - len(local)
        warnings.append(
            f"{spared} cores of other NUMA nodes than the NIC's are left alone; the NIC's own {len(local)} are enough"
        )
        cores = local
    else:
        cores = local + [core for core in cores if core not in local]
    rule, reason, halves = _deal(request, cores, len(local))
    warnings += _scarcity(request, cores, halves)
    capacity = min((queue_capacity(nic, request) for nic in request_ports(host, request)), default=1)
    queues = deal_queues([first for first, _ in halves], capacity)
    shares = tuple(
        Share(name, port, connection_cpus=first, io_cpus=second, queues=mine)
        for (name, port), (first, second), mine in zip(names, halves, queues, strict=True)
    )
    warnings += _queue_warnings(request, shares, capacity) + _port_warnings(shares)
    used = list(dict.fromkeys(cpu for first, second in halves for cpu in first + second))
    order = [cpu for core in cores for cpu in core.cpus]
    return Allocation(
        rule=rule,
        reason=reason,
        source=PAPER,
        shares=shares,
        cpus=tuple(sorted(used, key=order.index)),
        warnings=tuple(warnings),
    )


def usable_cores(host: Host, request: Request) -> list[Core]:
    """The cores with CPUs that are online and asked for, by node and number.

    Raises UsageError for CPUs that are not there or off, and when none is left.
    """
    online = {cpu.id: cpu for cpu in host.online}
    known = {cpu.id for cpu in host.cpus}
    for number in request.cpus:
        if number not in known:
            raise UsageError(f"there is no CPU {number} on this host")
        if number not in online:
            raise UsageError(f"CPU {number} is offline")
    wanted = [cpu for cpu in host.online if not request.cpus or cpu.id in request.cpus]
    if not wanted:
        raise UsageError("no CPU is online")
    cores: dict[frozenset[int], list[Cpu]] = {}
    for cpu in sorted(wanted, key=lambda cpu: (cpu.node, cpu.id)):
        cores.setdefault(cpu.siblings | {cpu.id}, []).append(cpu)
    return [Core(members[0].node, tuple(cpu.id for cpu in members)) for members in cores.values()]


def request_ports(host: Host, request: Request) -> tuple[Nic, ...]:
    """The physical ports below the request's interfaces, each once."""
    found = {port.name: port for name in request.nics for port in host.ports(name)}
    return tuple(found.values())


def nic_nodes(host: Host, request: Request) -> set[int]:
    return {port.node for port in request_ports(host, request)}


def tenant_names(host: Host, request: Request) -> list[tuple[str, int | None]]:
    """Name and port of each tenant: those configured here in the order of their ports, then by convention.

    A port that the user named wins over a configured one.
    """
    configured = sorted(
        (tenant for tenant in host.tenants if tenant.kind == request.target),
        key=lambda tenant: (tenant.port, tenant.name),
    )
    first = FIRST_PORTS[request.target]
    names: list[tuple[str, int | None]] = [
        (tenant.name, tenant.port or None) for tenant in configured[: request.tenants]
    ]
    taken = {name for name, _ in names}
    for number in range(len(names), request.tenants):
        name = f"t{number + 1}"
        names.append((name if name not in taken else f"tenant{number + 1}", first + number))
    ports = request.ports
    return [(name, ports[at] if at < len(ports) else port) for at, (name, port) in enumerate(names)]


def split(total: int, parts: int) -> list[int]:
    """Total in parts that differ by one at most, the larger ones first: 7 in 3 is 3, 2, 2."""
    return [total // parts + (1 if part < total % parts else 0) for part in range(parts)]


Halves = tuple[tuple[int, ...], tuple[int, ...]]  # CPUs for connections, CPUs for I/O


def _deal(request: Request, cores: list[Core], local: int) -> tuple[str, str, list[Halves]]:
    count = request.tenants
    if count == 1:
        cpus = tuple(core.cpus[0] for core in cores)
        return "spread", _spread_reason(len(cores)), [(cpus, cpus)]
    if len(cores) < count:
        return "shared", _shared_reason(count, len(cores)), _deal_threads(cores, count)
    sizes = split(len(cores), count)
    dealt = _deal_cores(cores, sizes, local)
    halves = [_halves(request, mine) for mine in dealt]
    left = _remainder(len(cores), count)
    if sizes[-1] >= 2:
        return "two-cores", _two_reason(request, len(cores), sizes) + left, halves
    if all(len(mine) > 1 or len(mine[0].cpus) > 1 for mine in dealt):
        reason = (
            f"{len(cores)} cores for {count} tenants, each with two hardware threads: connection and NIC queue on the"
            " one, I/O on the other"
        )
        return "two-cores", reason + left, halves
    reason = f"{len(cores)} cores for {count} tenants: one each for all that a tenant does (+11 % at 6 on 6)"
    return "one-core", reason + left, halves


def _spread_reason(cores: int) -> str:
    return f"one tenant: the interrupts of NIC and NVMe over all {cores} cores (+21 % for one tenant on 6 cores)"


def _two_reason(request: Request, cores: int, sizes: list[int]) -> str:
    share = f"{sizes[-1]}" if sizes[0] == sizes[-1] else f"{sizes[-1]} or {sizes[0]}"
    text = f"{cores} cores for {len(sizes)} tenants: {share} each"
    if request.target in STEERED:
        return text + ", each with a NIC queue, since this target works where packets arrive"
    return text + ", some for connections and NIC queues, the others for I/O (+6 % for 3 tenants on 6 cores)"


def _shared_reason(tenants: int, cores: int) -> str:
    share = split(tenants, cores)
    text = f"{share[-1]}" if share[0] == share[-1] else f"{share[-1]} or {share[0]}"
    return f"{tenants} tenants on {cores} cores: {text} per core; one core served {PER_CORE} application tenants"


def _remainder(cores: int, tenants: int) -> str:
    left = cores % tenants
    if not left:
        return ""
    whom = "the first tenant has one core more" if left == 1 else f"the first {left} tenants have one core more each"
    return f"; {whom}"


def _deal_cores(cores: list[Core], sizes: list[int], local: int) -> list[list[Core]]:
    """Whole cores to each tenant, its connection cores first.

    Neighbours share caches, so a tenant's cores are consecutive where all are
    NIC-local. Otherwise every tenant first gets its connection cores, so that
    those are NIC-local as far as they reach, and then its I/O cores.
    """
    waiting = iter(cores)
    if sum(sizes) <= local:
        return [[next(waiting) for _ in range(size)] for size in sizes]
    firsts = [max(1, size // 2) for size in sizes]
    dealt = [[next(waiting) for _ in range(first)] for first in firsts]
    for mine, size, first in zip(dealt, sizes, firsts, strict=True):
        mine += [next(waiting) for _ in range(size - first)]
    return dealt


def _halves(request: Request, cores: list[Core]) -> Halves:
    """A tenant's CPUs: one thread of each core, both only where it has a single core."""
    cpus = tuple(core.cpus[0] for core in cores) if len(cores) > 1 else cores[0].cpus[:2]
    if len(cpus) == 1 or request.target in STEERED:
        return cpus, cpus
    return cpus[: len(cpus) // 2], cpus[len(cpus) // 2 :]


def _deal_threads(cores: list[Core], tenants: int) -> list[Halves]:
    """Tenants over cores, then over a core's hardware threads; neither count differs by more than one."""
    halves: list[Halves] = []
    for core, here in zip(cores, split(tenants, len(cores)), strict=True):
        threads = core.cpus[:here]
        for thread, sharing in zip(threads, split(here, len(threads)), strict=True):
            halves += [((thread,), (thread,))] * sharing
    return halves


def _scarcity(request: Request, cores: list[Core], halves: list[Halves]) -> list[str]:
    warnings = []
    count = request.tenants
    if count > PER_CORE * len(cores):
        warnings.append(
            f"{count} tenants on {len(cores)} cores are more than {PER_CORE} per core: the paper's fourth tenant on a"
            " core made all four slower; add cores or move tenants"
        )
    paired = {frozenset(core.cpus) for core in cores if len(core.cpus) > 1}
    both = [
        half for half in halves if len(set(sum(half, ()))) == 2 and any(set(sum(half, ())) <= pair for pair in paired)
    ]
    if both and count <= len(cores) and count > 1:
        warnings.append(
            "cores run out, so tenants use both hardware threads of a core; the paper saw no gain from those"
        )
    elif len(cores) < count and any(len(core.cpus) > 1 for core in cores):
        warnings.append("there are fewer cores than tenants, so tenants share cores by their hardware threads")
    return warnings


def queue_capacity(nic: Nic, request: Request) -> int:
    """How many receive queues the NIC has or, where channels may be set, can have; at least 1."""
    present = max(1, len(nic.queues))
    if nic.channels is None or not knob_enabled(request, "channels"):
        return present
    most = max(nic.channels.get("combined-max", 0), nic.channels.get("rx-max", 0))
    return max(present, most) if most else present


def knob_enabled(request: Request, name: str) -> bool:
    return (not request.knobs or name in request.knobs) and name not in request.skip


def deal_queues(connection_cpus: list[tuple[int, ...]], capacity: int) -> list[tuple[int, ...]]:
    """The queues of each tenant, numbered from 0.

    One queue per CPU that owns connections; tenants that share a CPU share its
    queue. With fewer queues than that, tenants get equal numbers, and with
    fewer queues than tenants' first CPUs they share queues in turn.
    """
    numbers: dict[int, int] = {}
    for cpus in connection_cpus:
        for cpu in cpus:
            numbers.setdefault(cpu, len(numbers))
    if len(numbers) <= capacity:
        return [tuple(numbers[cpu] for cpu in cpus) for cpus in connection_cpus]
    groups = list(dict.fromkeys(connection_cpus))  # tenants that share their CPUs are one group
    if len(groups) <= capacity:
        return _fewer_each(connection_cpus, groups, capacity)
    return [(groups.index(cpus) % capacity,) for cpus in connection_cpus]


def _fewer_each(
    connection_cpus: list[tuple[int, ...]], groups: list[tuple[int, ...]], capacity: int
) -> list[tuple[int, ...]]:
    dealt: dict[tuple[int, ...], tuple[int, ...]] = {}
    next_queue = 0
    for cpus, number in zip(groups, split(capacity, len(groups)), strict=True):
        number = min(number, len(cpus))
        dealt[cpus] = tuple(range(next_queue, next_queue + number))
        next_queue += number
    return [dealt[cpus] for cpus in connection_cpus]


def _queue_warnings(request: Request, shares: tuple[Share, ...], capacity: int) -> list[str]:
    groups = {share.connection_cpus: share.queues for share in shares}
    if len(set(groups.values())) < len(groups):
        return [
            f"the NIC has {capacity} queue{'s' if capacity > 1 else ''} for {request.tenants} tenants:"
            " tenants share queues, so their packets meet on one core"
        ]
    return []


def _port_warnings(shares: tuple[Share, ...]) -> list[str]:
    ports = [share.port for share in shares]
    together = [share.tenant for share in shares if share.port and ports.count(share.port) > 1]
    if not together:
        return []
    return [f"{', '.join(together)} share a TCP port, so a NIC can't tell them apart; rflash-target gives each its own"]
