#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0
"""Prints everything that a tuner could change of this machine, one value a line.

Knows nothing of the tuner: it reads the kernel's own files and asks ethtool(8),
so that two outputs that are the same byte for byte mean that nothing is left
of what happened between them. What changes by itself is left out.
"""

from __future__ import annotations

import hashlib
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

# Counters, clocks, random numbers, and what follows the load.
VOLATILE = re.compile(
    r"/proc/sys/(kernel/(random/|ns_last_pid|pty/nr|hotplug|tainted|modprobe)|fs/(dentry-state|inode-|file-nr|aio-nr"
    r"|quota|mqueue|binfmt_misc)|net/netfilter/nf_conntrack_(count|buckets)|net/ipv[46]/(neigh|route/(gc|flush))"
    r"|debug|vm/(stat|drop_caches|compact_memory)|sunrpc|dev/cdrom/info)"
)
ETHTOOL = ("-k", "-g", "-l", "-c", "-x", "-a", "-n", "--show-priv-flags")
NIC_FILES = ("mtu", "tx_queue_len", "gro_flush_timeout", "napi_defer_hard_irqs", "threaded", "flags", "dormant")
QUEUE_FILES = ("rps_cpus", "rps_flow_cnt", "xps_cpus", "xps_rxqs", "tx_maxrate", "byte_queue_limits/limit_max",
               "byte_queue_limits/limit_min")  # fmt: skip
# Kernel threads come and go; these are the ones somebody has placed.
THREADS = re.compile(r"^(iscsi_|nvmet|rflash|LIO|irqbalance|ksoftirqd|kcompactd|kswapd)")


def value(path: Path) -> str | None:
    try:
        return path.read_text(errors="replace").strip().replace("\n", "|")
    except OSError:
        return None


def of(path: Path) -> Iterator[str]:
    text = value(path)
    if text is not None:
        yield f"{path} = {text}"


def sysctls() -> Iterator[str]:
    for directory, names, files in os.walk("/proc/sys"):
        names.sort()
        for name in sorted(files):
            path = Path(directory, name)
            if not VOLATILE.match(str(path)) and os.stat(path).st_mode & 0o200:
                yield from of(path)


def nics() -> Iterator[str]:
    for nic in sorted(Path("/sys/class/net").iterdir()):
        for name in NIC_FILES:
            yield from of(nic / name)
        for queue in sorted((nic / "queues").iterdir()):
            for name in QUEUE_FILES:
                yield from of(queue / name)
        for option in ETHTOOL:
            result = subprocess.run(["ethtool", option, nic.name], capture_output=True, text=True, check=False)
            for line in result.stdout.splitlines():
                yield f"ethtool {option} {nic.name}: {line}"
    for what in ("link", "address", "route", "rule"):
        result = subprocess.run(["ip", "-o", what, "show"], capture_output=True, text=True, check=False)
        for line in sorted(result.stdout.splitlines()):
            # Time stamps of addresses.
            yield f"ip {what}: {re.sub(r'(valid|preferred)_lft [0-9]+sec', '', line)}"


def interrupts() -> Iterator[str]:
    for irq in sorted(Path("/proc/irq").iterdir()):
        yield from of(irq / "smp_affinity")
    yield from of(Path("/proc/irq/default_smp_affinity"))


def disks() -> Iterator[str]:
    for disk in sorted(Path("/sys/block").iterdir()):
        for path in sorted((disk / "queue").iterdir()):
            if path.is_file() and os.stat(path).st_mode & 0o200:
                yield from of(path)


def processors() -> Iterator[str]:
    base = Path("/sys/devices/system/cpu")
    for name in ("online", "smt/control", "cpufreq/boost"):
        yield from of(base / name)
    for path in sorted(base.glob("cpu[0-9]*/cpu*/**/*")):
        if path.name in ("scaling_governor", "energy_performance_preference", "disable", "scaling_min_freq"):
            yield from of(path)
    for name in ("/sys/module", "/sys/kernel/mm/transparent_hugepage"):
        for path in sorted([*Path(name).glob("*/parameters/*"), *Path(name).glob("*")]):
            if path.is_file() and os.stat(path).st_mode & 0o200:
                yield from of(path)


def threads() -> Iterator[str]:
    for directory in sorted(Path("/proc").glob("[0-9]*/task/[0-9]*")):
        name = value(directory / "comm")
        if name and THREADS.match(name):
            status = value(directory / "status") or ""
            allowed = re.search(r"Cpus_allowed_list:\s*([0-9,-]+)", status)
            yield f"thread {directory.name} {name}: {allowed[1] if allowed else 'gone'}"


def targets() -> Iterator[str]:
    for path in ("/sys/kernel/config/target/iscsi/cpus_allowed_list",):
        yield from of(Path(path))


def configuration() -> Iterator[str]:
    for top in ("/etc", "/usr/lib/tuned", "/var/lib/iscsi", "/usr/lib/systemd/system"):
        for directory, names, files in os.walk(top):
            names.sort()
            for name in sorted(files):
                path = Path(directory, name)
                if path.is_file():
                    stat = path.stat()
                    digest = hashlib.sha256(path.read_bytes()).hexdigest()
                    yield f"{path} {stat.st_mode:o} {stat.st_uid}:{stat.st_gid} {digest}"


PARTS = {f.__name__: f for f in (sysctls, nics, interrupts, disks, processors, threads, targets, configuration)}


def state(parts: list[str] | None = None) -> str:
    """The named parts, or all."""
    return "".join(f"{line}\n" for name in parts or PARTS for line in PARTS[name]())


if __name__ == "__main__":
    sys.stdout.write(state(sys.argv[1:] or None))
