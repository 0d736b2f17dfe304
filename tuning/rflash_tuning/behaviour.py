# SPDX-License-Identifier: GPL-2.0
"""How a kernel answers when a SnapshotSystem is written to.

Only what the executors depend on: which values are refused and with which
errno, how a value reads back, and what else changes with it. Each rule names
the kernel's source.
"""

from __future__ import annotations

import errno
import re
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from rflash_tuning import channels
from rflash_tuning.cpulist import format_list, parse_list, parse_mask
from rflash_tuning.errors import Unchangeable, Unsupported
from rflash_tuning.host import irqs
from rflash_tuning.tree import os_error

if TYPE_CHECKING:
    from rflash_tuning.snapshot import SnapshotSystem

PF_NO_SETAFFINITY = 0x04000000  # include/linux/sched.h
_CPU = "/sys/devices/system/cpu"
_INTEGERS = re.compile(r"\s*-?\d+(\s+-?\d+)*\s*")


def online(system: SnapshotSystem) -> frozenset[int]:
    return parse_list(system.text(f"{_CPU}/online", "0") or "0")


def is_bound(system: SnapshotSystem, tid: int) -> bool:
    """Is the thread marked PF_NO_SETAFFINITY? Field 9 of /proc/PID/stat (proc_pid_stat(5))."""
    stat = system.text(f"/proc/{tid}/stat", "") or ""
    fields = stat.rpartition(")")[2].split()
    return len(fields) > 6 and bool(int(fields[6]) & PF_NO_SETAFFINITY)


def mask_like(old: str, cpus: frozenset[int]) -> str:
    """A mask of the same width as another: the kernel prints nr_cpu_ids bits (bitmap_print_to_pagebuf)."""
    digits = max(len(old.strip().replace(",", "")), 1)
    value = f"{sum(1 << cpu for cpu in cpus):x}".rjust(digits, "0")
    groups = []
    while value:
        groups.append(value[-8:])
        value = value[:-8]
    return ",".join(reversed(groups))


# Files


def write(system: SnapshotSystem, path: str, text: str) -> None:
    """Write to a file of the kernel's. Raises OSError as the kernel does."""
    real = system.resolve(path)
    old = system.read(real)
    for pattern, rule in _RULES:
        match = pattern.search(real)
        if match:
            rule(system, real, old, text.strip(), match)
            return
    system.tree.put(real, _normal(old, text, path))


def _normal(old: str, text: str, path: str) -> str:
    """Numbers stay numbers, as many as before, separated by tabs (proc_dointvec); other text is kept."""
    end = "\n" if old.endswith("\n") else ""
    if not _INTEGERS.fullmatch(old):
        return text.rstrip("\n") + end
    words = text.split()
    if not _INTEGERS.fullmatch(text) or len(words) != len(old.split()):
        raise os_error(errno.EINVAL, path)
    return "\t".join(str(int(word)) for word in words) + end


def _irq(system: SnapshotSystem, path: str, old: str, text: str, match: re.Match[str]) -> None:
    """kernel/irq/proc.c: write_irq_affinity. The effective CPU is one of the mask, as on x86."""
    try:
        wanted = parse_list(text) if match["list"] else parse_mask(text)
    except ValueError:
        raise os_error(errno.EINVAL, path) from None
    number = int(match["number"])
    if irqs.managed(system, number, irqs.actions(system).get(number, "")):
        release = system.text("/proc/sys/kernel/osrelease", "") or ""
        raise os_error(irqs.refusal(release), path)
    usable = wanted & online(system)
    if not usable:
        raise os_error(errno.EINVAL, path)
    set_irq(system, number, wanted, frozenset([min(usable)]))


def set_irq(system: SnapshotSystem, number: int, cpus: frozenset[int], effective: frozenset[int]) -> None:
    """Put an interrupt's four files in agreement, those that are there."""
    base = f"/proc/irq/{number}"
    for name, value in (("smp_affinity", cpus), ("effective_affinity", effective)):
        if system.exists(f"{base}/{name}"):
            system.tree.put(f"{base}/{name}", mask_like(system.read(f"{base}/{name}"), value) + "\n")
        if system.exists(f"{base}/{name}_list"):
            system.tree.put(f"{base}/{name}_list", format_list(value) + "\n")


def _queue_mask(system: SnapshotSystem, path: str, old: str, text: str, match: re.Match[str]) -> None:
    """net/core/net-sysfs.c: store_rps_map, xps_cpus_store; default_smp_affinity is alike."""
    try:
        wanted = parse_mask(text)
    except ValueError:
        raise os_error(errno.EINVAL, path) from None
    if wanted and max(wanted) >= 4 * len(old.strip().replace(",", "")):
        raise os_error(errno.EOVERFLOW, path)
    system.tree.put(path, mask_like(old, wanted) + "\n")


def _cpu_list(system: SnapshotSystem, path: str, old: str, text: str, match: re.Match[str]) -> None:
    try:
        wanted = parse_list(text)
    except ValueError:
        raise os_error(errno.EINVAL, path) from None
    system.tree.put(path, format_list(wanted) + "\n")


def _choice(system: SnapshotSystem, path: str, old: str, text: str, match: re.Match[str]) -> None:
    """block/elevator.c: elv_iosched_store; the one in use is in brackets."""
    names = [name.strip("[]") for name in old.split()]
    if text not in names:
        raise os_error(errno.EINVAL, path)
    system.tree.put(path, " ".join(f"[{name}]" if name == text else name for name in names) + "\n")


def _power_of_two(system: SnapshotSystem, path: str, old: str, text: str, match: re.Match[str]) -> None:
    """rps_flow_cnt (store_rps_dev_flow_table_cnt) and rps_sock_flow_entries (rps_sock_flow_sysctl) round up."""
    if not text.isdecimal():
        raise os_error(errno.EINVAL, path)
    count = int(text)
    system.tree.put(path, f"{1 << (count - 1).bit_length() if count else 0}\n")


def _ranged(low: int, high: int) -> Callable[..., None]:
    def rule(system: SnapshotSystem, path: str, old: str, text: str, match: re.Match[str]) -> None:
        if not re.fullmatch(r"-?\d+", text) or not low <= int(text) <= high:
            raise os_error(errno.EINVAL, path)
        system.tree.put(path, f"{int(text)}\n")

    return rule


def _one_of(*words: str) -> Callable[..., None]:
    def rule(system: SnapshotSystem, path: str, old: str, text: str, match: re.Match[str]) -> None:
        if text not in words:
            raise os_error(errno.EINVAL, path)
        system.tree.put(path, text + "\n")

    return rule


def _listed(offered: str, error: int) -> Callable[..., None]:
    """One of the words of another file beside it."""

    def rule(system: SnapshotSystem, path: str, old: str, text: str, match: re.Match[str]) -> None:
        words = system.text(path.rpartition("/")[0] + "/" + offered)
        if words is not None and text not in words.split():
            raise os_error(error, path)
        system.tree.put(path, text + "\n")

    return rule


def _ignored(system: SnapshotSystem, path: str, old: str, text: str, match: re.Match[str]) -> None:
    """block/blk-sysfs.c: queue_poll_store and queue_poll_delay_store take anything and do nothing."""


def _parameter(system: SnapshotSystem, path: str, old: str, text: str, match: re.Match[str]) -> None:
    """kernel/params.c: a truth value reads back as Y or N."""
    if old.strip() in ("Y", "N"):
        if text[:1] not in tuple("yYnN10"):
            raise os_error(errno.EINVAL, path)
        system.tree.put(path, "Y\n" if text[0] in "yY1" else "N\n")
    else:
        system.tree.put(path, _normal(old, text, path))


def _smt(system: SnapshotSystem, path: str, old: str, text: str, match: re.Match[str]) -> None:
    """kernel/cpu.c: control_store; off takes all hardware threads but the first of each core offline."""
    if old.strip() not in ("on", "off"):
        raise os_error(errno.ENODEV if old.strip().startswith("not") else errno.EPERM, path)
    if text not in ("on", "off", "forceoff"):
        raise os_error(errno.EINVAL, path)
    system.tree.put(path, text + "\n")
    lists = {
        name: system.before.tree.files.get(f"{_CPU}/{name}/topology/thread_siblings_list")
        for name in system.names(_CPU)
        if re.fullmatch(r"cpu\d+", name)
    }
    up = set(parse_list(system.before.tree.read(f"{_CPU}/online")))
    for name, siblings in lists.items():
        if siblings is None:
            continue  # it was offline anyway
        file, cpu = f"{_CPU}/{name}/topology/thread_siblings_list", int(name[3:])
        if text == "on":
            system.tree.put(file, siblings)
        elif cpu == min(parse_list(siblings)):
            system.tree.put(file, f"{cpu}\n")
        else:
            up.discard(cpu)
            if system.exists(file):
                system.tree.remove(file)
    system.tree.put(f"{_CPU}/online", format_list(up) + "\n")


def _mtu(system: SnapshotSystem, path: str, old: str, text: str, match: re.Match[str]) -> None:
    """net/core/dev.c: dev_validate_mtu; bond_change_mtu; vlan_dev_change_mtu and vlan_device_event."""
    name = match["nic"]
    if not text.isdecimal():
        raise os_error(errno.EINVAL, path)
    mtu = int(text)
    limit = system.state.ethtool.get(name, {}).get("link", {}).get("max-mtu")
    if mtu < 68 or (limit and mtu > limit):
        raise os_error(errno.EINVAL, path)
    base = f"/sys/class/net/{name}"
    lowers = [entry[len("lower_") :] for entry in system.names(base) if entry.startswith("lower_")]
    if system.exists(f"{base}/bonding"):
        for lower in lowers:
            write(system, f"/sys/class/net/{lower}/mtu", text)
    elif system.exists(f"/proc/net/vlan/{name}") or "DEVTYPE=vlan" in (system.text(f"{base}/uevent") or ""):
        for lower in lowers:
            if (system.number(f"/sys/class/net/{lower}/mtu") or 0) < mtu:
                raise os_error(errno.ERANGE, path)
    system.tree.put(path, f"{mtu}\n")
    for entry in system.names(base):
        upper = f"/sys/class/net/{entry.removeprefix('upper_')}"
        is_vlan = entry.startswith("upper_") and "DEVTYPE=vlan" in (system.text(f"{upper}/uevent") or "")
        if is_vlan and (system.number(f"{upper}/mtu") or 0) > mtu:
            write(system, f"{upper}/mtu", text)


_RULES: tuple[tuple[re.Pattern[str], Callable[..., None]], ...] = tuple(
    (re.compile(pattern), rule)
    for pattern, rule in (
        (r"^/proc/irq/(?P<number>\d+)/smp_affinity(?P<list>_list)?$", _irq),
        (r"^/proc/irq/default_smp_affinity$", _queue_mask),
        (r"/queues/rx-\d+/rps_cpus$", _queue_mask),
        (r"/queues/tx-\d+/xps_cpus$", _queue_mask),
        (r"/queues/rx-\d+/rps_flow_cnt$", _power_of_two),
        (r"^/proc/sys/net/core/rps_sock_flow_entries$", _power_of_two),
        (r"/net/(?P<nic>[^/]+)/mtu$", _mtu),
        (r"/net/[^/]+/threaded$", _ranged(0, 1)),
        (r"/queue/scheduler$", _choice),
        (r"/queue/(nomerges|rq_affinity)$", _ranged(0, 2)),
        (r"/queue/add_random$", _ranged(0, 1)),
        (r"/queue/io_poll(_delay)?$", _ignored),
        (r"^/sys/module/[^/]+/parameters/", _parameter),
        (rf"^{_CPU}/smt/control$", _smt),
        (r"/queue/wbt_lat_usec$", _ranged(-1, 1 << 40)),
        (r"/queue/nr_requests$", _ranged(1, 1 << 20)),
        (r"/queue/write_cache$", _one_of("write back", "write through")),
        (r"/scaling_governor$", _listed("scaling_available_governors", errno.EINVAL)),
        (r"/energy_performance_preference$", _listed("energy_performance_available_preferences", errno.EINVAL)),
        (r"/cpuidle/state\d+/disable$", _ranged(0, 1)),
        (r"/tcp_congestion_control$", _listed("tcp_available_congestion_control", errno.ENOENT)),
        (r"/cpus_allowed_list$", _cpu_list),
    )
)


# ethtool


def ethtool_set(
    system: SnapshotSystem, nic: str, section: str, current: dict[str, Any], values: dict[str, Any]
) -> None:
    """Change some keys of a section, which is `current` and is changed in place. Raises as ethtool.py does."""
    setters = {
        "channels": _set_channels,
        "rings": _set_rings,
        "coalesce": _set_known,
        "pause": _set_known,
        "features": _set_features,
        "rss": _set_rss,
        "rules": _set_rules,
    }
    if section not in setters:
        raise Unsupported(f"{section} of {nic} can't be set")
    setters[section](system, nic, current, values)


def _set_known(system: SnapshotSystem, nic: str, current: dict[str, Any], values: dict[str, Any]) -> None:
    """net/ethtool/coalesce.c: a parameter that the driver does not name is refused with EOPNOTSUPP."""
    for key in values:
        if key not in current:
            raise Unsupported(f"{nic} has no '{key}'")
    current.update(values)


def _set_rings(system: SnapshotSystem, nic: str, current: dict[str, Any], values: dict[str, Any]) -> None:
    """net/ethtool/rings.c: EINVAL above the maximum."""
    _bounded(nic, current, values)
    current.update(values)


def _bounded(nic: str, current: dict[str, Any], values: dict[str, Any]) -> None:
    for key, value in values.items():
        if key not in current or key.endswith("-max"):
            raise Unsupported(f"{nic} has no '{key}'")
        if value < 0 or value > current.get(f"{key}-max", 0):
            raise os_error(errno.EINVAL, f"{nic}: {key} {value} exceeds the maximum {current.get(f'{key}-max', 0)}")


def _set_channels(system: SnapshotSystem, nic: str, current: dict[str, Any], values: dict[str, Any]) -> None:
    """net/ethtool/channels.c: there must be a receive and a transmit channel; a rule's queue must stay."""
    _bounded(nic, current, values)
    wanted = {**current, **values}
    if wanted == current:
        return  # the kernel does not call the driver then
    if not wanted["combined"] and not (wanted["rx"] and wanted["tx"]):
        raise os_error(errno.EINVAL, f"{nic}: no receive or no transmit channel would be left")
    rules = system.state.ethtool.get(nic, {}).get("rules") or {}
    if any(rule["queue"] >= wanted["combined"] + wanted["rx"] for rule in rules.values()):
        raise os_error(errno.EINVAL, f"{nic}: a flow rule uses a channel that would be gone")
    receive = wanted["combined"] + wanted["rx"]
    table = (system.state.ethtool.get(nic, {}).get("rss") or {}).get("table") or [0]
    if nic in system.rss_configured and max(table) >= receive:
        # netif_is_rxfh_configured: a table that somebody set is not thrown away.
        raise os_error(errno.EINVAL, f"{nic}: the RSS table uses a channel that would be gone")
    current.update(values)
    channels.rebuild(system, nic, wanted["combined"] + wanted["rx"], wanted["combined"] + wanted["tx"])


def _set_features(system: SnapshotSystem, nic: str, current: dict[str, Any], values: dict[str, Any]) -> None:
    for name, active in values.items():
        if name not in current:
            raise Unsupported(f"{nic} has no feature '{name}'")
        if current[name]["active"] != active and not current[name]["changeable"]:
            raise Unchangeable(f"{nic}: the feature '{name}' is fixed")
    for name, active in values.items():
        current[name]["active"] = active


def _set_rss(system: SnapshotSystem, nic: str, current: dict[str, Any], values: dict[str, Any]) -> None:
    """net/ethtool/ioctl.c: ethtool_set_rxfh. An empty table is the driver's default one."""
    for key, value in values.items():
        if key not in ("table", "key", "function"):
            raise Unsupported(f"{nic} has no RSS setting '{key}'")
        if not current.get(key) or not current.get(f"{key}-settable", True):
            raise Unsupported(f"{nic}: its driver does not let the RSS {key} be set")
        if key == "table" and value:
            queues = queue_count(system, nic)
            if len(value) != len(current["table"]) or any(not 0 <= queue < queues for queue in value):
                raise os_error(errno.EINVAL, f"{nic}: an RSS table of {len(value)} entries for {queues} queues")
        if key == "key" and len(value) != len(current["key"]):
            raise os_error(errno.EINVAL, f"{nic}: an RSS key of {len(value) // 2} bytes")
    for key, value in values.items():
        if key == "table" and not value:
            queues = queue_count(system, nic)
            value = [entry % queues for entry in range(len(current["table"]))]
            system.rss_configured.discard(nic)
        elif key == "table":
            system.rss_configured.add(nic)
        current[key] = list(value) if key == "table" else value


def queue_count(system: SnapshotSystem, nic: str) -> int:
    names = system.names(f"/sys/class/net/{nic}/queues")
    return sum(1 for name in names if name.startswith("rx-")) or 1


def _set_rules(system: SnapshotSystem, nic: str, current: dict[str, Any], values: dict[str, Any]) -> None:
    """A location's rule, or None to delete it."""
    for location, rule in values.items():
        if rule is None:
            if location not in current:
                raise os_error(errno.ENOENT, f"{nic}: no flow rule {location}")
        elif not 0 <= rule["queue"] < queue_count(system, nic):
            raise os_error(errno.EINVAL, f"{nic}: a flow rule to queue {rule['queue']}")
    for location, rule in values.items():
        if rule is None:
            del current[location]
        else:
            current[location] = {key: value for key, value in rule.items() if key != "location"}


# Names


def rename_nic(system: SnapshotSystem, old: str, new: str) -> None:
    """Move the interface's directory and every link to it."""
    real = system.resolve(f"/sys/class/net/{old}")
    moved = real.rpartition("/")[0] + f"/{new}"
    tree = system.tree
    if real == f"/sys/class/net/{old}":
        tree.move(real, moved)
        return
    tree.move(real, moved)
    tree.remove(f"/sys/class/net/{old}")
    tree.link(f"/sys/class/net/{new}", moved)
    for path, target in list(tree.links.items()):
        if target == real:
            parent, _, name = path.rpartition("/")
            tree.remove(path)
            tree.link(f"{parent}/{name.replace(old, new)}", moved)
