# SPDX-License-Identifier: GPL-2.0
"""Makes a Host of a System. Reads only, as any user; what can't be read is absent."""

from __future__ import annotations

from rflash_tuning.errors import UsageError
from rflash_tuning.host import connections, cpus, disks, files, irqs, nics, targets, tasks, threads, tuners
from rflash_tuning.host.model import Host
from rflash_tuning.system import System
from rflash_tuning.targets import model


def probe(system: System) -> Host:
    """This machine at this moment. Odd hardware is never an error."""
    named = irqs.actions(system)
    processes = tasks.processes(system)
    threads_of = tasks.read(system, processes)
    tenants = targets.read_tenants(system)
    established = connections.read(system, [tenant.port for tenant in tenants if tenant.port])
    tenants = targets.count_sessions(tenants, established)
    return Host(
        release=system.text("/proc/sys/kernel/osrelease", "") or "",
        machine=_machine(system),
        boot_id=system.text("/proc/sys/kernel/random/boot_id", "") or "",
        host_id=_host_id(system),
        cpus=cpus.read(system),
        smt=cpus.smt(system),
        nics=nics.read(system, named),
        disks=disks.read(system, named),
        tasks=threads_of,
        connections=established,
        tenants=threads.attribute(system, tenants, threads_of),
        tuners=tuners.read(system, processes),
        files=files.read(system),
    )


def _machine(system: System) -> str:
    """x86_64, aarch64. /proc/sys/kernel/arch is there since Linux 6.1."""
    known = system.text("/proc/sys/kernel/arch")
    if known:
        return known
    try:
        return system.run(["uname", "-m"]).output.strip()
    except OSError:
        return ""


def _host_id(system: System) -> str:
    try:
        return model.host_id(system)
    except UsageError:
        return ""
