# SPDX-License-Identifier: GPL-2.0
"""Every kind of value that can be set on a machine: how it is read, written and printed.

One class per kind of address. The errno of a refused write is judged here and
nowhere else: Unchangeable is for good, Unsupported means that there is no such
thing, any other OSError is a failure.
"""

from __future__ import annotations

import contextlib
import errno
import shlex
from dataclasses import asdict, dataclass, fields
from typing import Any, ClassVar

from rflash_tuning import cpulist
from rflash_tuning.errors import Unchangeable, Unsupported, UsageError
from rflash_tuning.host import irqs
from rflash_tuning.system import System
from rflash_tuning.tune.change import Setting, Value

NET = "/sys/class/net"
GONE_ERRNOS = (errno.ENOENT, errno.ENODEV, errno.EOPNOTSUPP, errno.ENOTDIR)


def nic_name(system: System, nic: str, bus: str) -> str:
    """The present name of the NIC that was called `nic`, found by its bus address.

    A virtual interface has no bus address and keeps its name. Raises
    Unsupported when the device is gone.
    """
    if not bus or _sits_at(system, nic, bus):
        return nic
    for name in system.names(NET):
        if _sits_at(system, name, bus):
            return name
    raise Unsupported(f"no network interface at {bus} any more (it was {nic})")


def _sits_at(system: System, name: str, bus: str) -> bool:
    """A virtio NIC's device is below its PCI function, so any part of the path may be the address."""
    try:
        return bus in system.resolve(f"{NET}/{name}/device").split("/")
    except OSError:
        return False


def read_file(system: System, path: str) -> str:
    """A file's text. Raises Unsupported when there is none, OSError otherwise."""
    try:
        return system.read(path)
    except OSError as error:
        if error.errno in GONE_ERRNOS:
            raise Unsupported(f"{path} does not exist here") from error
        raise


def write_file(system: System, path: str, text: str) -> None:
    """One write. Raises Unsupported when there is no such file, Unchangeable on a read-only file system."""
    try:
        system.write(path, text)
    except OSError as error:
        if error.errno in GONE_ERRNOS:
            raise Unsupported(f"{path} does not exist here") from error
        if error.errno == errno.EROFS:
            raise Unchangeable(f"{path} is on a read-only file system") from error
        raise


def _echo(path: str, text: str) -> str:
    return f"echo {shlex.quote(text)} > {shlex.quote(path)}"


@dataclass(frozen=True)
class FileSetting(Setting):
    """A file of sysfs, procfs or configfs.

    Formats and their values: "text" the text without surrounding blanks;
    "number" an integer; "cpulist" and "cpumask" CPUs as a list ("0-3") in
    either notation of the kernel's; "choice" one word of "a [b] c".
    """

    path: str
    format: str = "text"
    nic: str = ""  # with bus: the path's interface, which may have been renamed since
    bus: str = ""

    kind: ClassVar[str] = "file"

    @property
    def key(self) -> str:
        if self.bus:
            return f"file {self.path.replace(f'{NET}/{self.nic}/', f'{NET}/{self.bus}/', 1)}"
        return f"file {self.path}"

    def label(self) -> str:
        if self.nic and self.path.startswith(f"{NET}/{self.nic}/"):
            rest = self.path.removeprefix(f"{NET}/{self.nic}/").removeprefix("queues/")
            return f"{self.nic} {rest.replace('/', ' ')}"
        for prefix, shown in (("/proc/sys/", ""), ("/sys/block/", ""), ("/sys/devices/system/cpu/", ""), ("/sys/", "")):
            if self.path.startswith(prefix):
                rest = self.path.removeprefix(prefix)
                return shown + (rest.replace("/", ".") if prefix == "/proc/sys/" else rest.replace("/", " "))
        return self.path

    def current_path(self, system: System) -> str:
        if not self.bus:
            return self.path
        name = nic_name(system, self.nic, self.bus)
        return self.path.replace(f"{NET}/{self.nic}/", f"{NET}/{name}/", 1)

    def read(self, system: System) -> Value:
        path = self.current_path(system)
        return self.parse(read_file(system, path))

    def parse(self, text: str) -> Value:
        """The value of a file's text. Raises OSError (EIO) when it is of another format."""
        text = text.strip()
        try:
            if self.format == "number":
                return int(text, 0) if text.lower().startswith("0x") else int(text)
            if self.format == "cpulist":
                return cpulist.format_list(cpulist.parse_list(text))
            if self.format == "cpumask":
                return cpulist.format_list(cpulist.parse_mask(text))
        except ValueError as error:
            raise OSError(errno.EIO, f"{self.path} holds '{text}', which is no {self.format}") from error
        if self.format == "choice":
            return chosen(text)
        return text

    def text(self, value: Value) -> str:
        """What is written for a value."""
        if self.format == "cpumask":
            return cpulist.format_mask(cpulist.parse_list(value))
        return str(value)

    def write(self, system: System, value: Value) -> None:
        write_file(system, self.current_path(system), self.text(value))

    def script(self, value: Value) -> list[str]:
        return [_echo(self.path, self.text(value))]

    def same(self, one: Value, other: Value) -> bool:
        if isinstance(one, str) and isinstance(other, str):
            return one.split() == other.split()
        return one == other

    def show(self, value: Value) -> str:
        if self.format in ("cpulist", "cpumask") and value == "":
            return "none"
        return "absent" if value is None else " ".join(str(value).split())

    def to_json(self) -> dict[str, Any]:
        return _json(self)


def chosen(text: str) -> str:
    """ "none" of "[none] mq-deadline", or the text itself where nothing is bracketed."""
    start, end = text.find("["), text.find("]")
    return text[start + 1 : end] if 0 <= start < end else text


@dataclass(frozen=True)
class IrqSetting(Setting):
    """The CPUs that an interrupt is asked to arrive on. Value: a CPU list."""

    number: int
    device: str = ""  # NIC or disk, for people
    queue: str = ""  # "rx-3", for people

    kind: ClassVar[str] = "irq"

    @property
    def key(self) -> str:
        return f"irq {self.number}"

    @property
    def path(self) -> str:
        return f"/proc/irq/{self.number}/smp_affinity_list"

    def label(self) -> str:
        return " ".join(part for part in (self.device, self.queue, f"interrupt {self.number} affinity") if part)

    def read(self, system: System) -> Value:
        return cpulist.format_list(cpulist.parse_list(read_file(system, self.path)))

    def write(self, system: System, value: Value) -> None:
        try:
            write_file(system, self.path, value)
        except OSError as error:
            if irqs.unchangeable(error):
                raise Unchangeable(
                    f"the kernel manages interrupt {self.number} and does not let it be moved"
                ) from error
            if irqs.out_of_vectors(error):
                raise OSError(
                    errno.ENOSPC,
                    f"CPU {value} has no interrupt vector left for interrupt {self.number}; fewer queues would help",
                ) from error
            raise

    def script(self, value: Value) -> list[str]:
        return [_echo(self.path, value)]

    def to_json(self) -> dict[str, Any]:
        return _json(self)


# ethtool(8)'s letter for a section, and how it spells on and off.
_ETHTOOL_OPTIONS = {"rings": "-G", "coalesce": "-C", "features": "-K", "pause": "-A", "channels": "-L"}
_SWITCHES = {"adaptive-rx", "adaptive-tx", "autoneg"}


@dataclass(frozen=True)
class EthtoolSetting(Setting):
    """Some keys of one section of ethtool's. Value: a dictionary of exactly `names`; features are booleans."""

    nic: str
    bus: str
    section: str  # rings, coalesce, features, pause
    names: tuple[str, ...]

    kind: ClassVar[str] = "ethtool"

    @property
    def key(self) -> str:
        return f"ethtool {self.bus or self.nic} {self.section} {' '.join(self.names)}"

    def label(self) -> str:
        section = {"rings": "ring", "features": "offload", "coalesce": "coalescing"}.get(self.section, self.section)
        return f"{self.nic} {section} {' '.join(self.names)}"

    def read(self, system: System) -> Value:
        values = system.ethtool(nic_name(system, self.nic, self.bus), self.section)
        missing = [name for name in self.names if values.get(name) is None]
        if missing:
            raise Unsupported(f"{self.nic} has no {self.section} setting {', '.join(missing)}")
        return {name: _active(values[name]) if self.section == "features" else values[name] for name in self.names}

    def write(self, system: System, value: Value) -> None:
        # Only what differs: a driver may refuse to be told again what it does not let be changed.
        present = self.read(system)
        differing = {name: wanted for name, wanted in value.items() if present.get(name) != wanted}
        if differing:
            system.ethtool_set(nic_name(system, self.nic, self.bus), self.section, differing)

    def script(self, value: Value) -> list[str]:
        words = " ".join(f"{name} {self._word(name, value[name])}" for name in self.names)
        return [f"ethtool {_ETHTOOL_OPTIONS[self.section]} {shlex.quote(self.nic)} {words}"]

    def _word(self, name: str, value: Value) -> str:
        if self.section in ("features", "pause") or name in _SWITCHES:
            return "on" if value else "off"
        return str(value)

    def show(self, value: Value) -> str:
        if value is None:
            return "absent"
        if len(self.names) == 1:
            return self._word(self.names[0], value[self.names[0]])
        return ", ".join(f"{name} {self._word(name, value[name])}" for name in self.names)

    def to_json(self) -> dict[str, Any]:
        return _json(self)


def _active(feature: Any) -> bool:
    return bool(feature["active"]) if isinstance(feature, dict) else bool(feature)


@dataclass(frozen=True)
class ChannelsSetting(Setting):
    """How many queues a NIC has, and what a driver forgets when that changes.

    Value: {"channels": {"combined": 6, ...}, "dependents": {...}}. Reading
    gives both. Writing without dependents sets the channels alone; with them,
    the interrupts' affinities, the RSS table and key, RPS, RFS and XPS of that
    time are put back afterwards, interrupts by their order since a driver may
    get other numbers.
    """

    nic: str
    bus: str

    kind: ClassVar[str] = "channels"

    @property
    def key(self) -> str:
        return f"channels {self.bus or self.nic}"

    def label(self) -> str:
        return f"{self.nic} channels"

    def read(self, system: System) -> Value:
        name = nic_name(system, self.nic, self.bus)
        channels = self._channels(system, name)
        return {"channels": channels, "dependents": read_dependents(system, name)}

    def _channels(self, system: System, name: str) -> dict[str, int]:
        values = system.ethtool(name, "channels")
        return {key: values[key] for key in ("rx", "tx", "other", "combined") if values.get(key) is not None}

    def write(self, system: System, value: Value) -> None:
        name = nic_name(system, self.nic, self.bus)
        present = self._channels(system, name)
        wanted = {key: number for key, number in value["channels"].items() if present.get(key, 0) != number}
        if wanted:
            self._make_room(system, name, present | wanted)
            system.ethtool_set(name, "channels", wanted)
        if value.get("dependents"):
            write_dependents(system, name, value["dependents"])

    def _make_room(self, system: System, name: str, channels: dict[str, int]) -> None:
        """The kernel refuses to remove queues that a table somebody set still uses (EINVAL)."""
        queues = channels.get("combined", 0) + channels.get("rx", 0)
        try:
            table = system.ethtool(name, "rss").get("table") or []
        except Unsupported:
            return
        if queues and table and max(table) >= queues:
            RssSetting(self.nic, self.bus).write(system, {"table": [entry % queues for entry in range(len(table))]})

    def script(self, value: Value) -> list[str]:
        words = " ".join(f"{key} {number}" for key, number in value["channels"].items())
        return [f"ethtool -L {shlex.quote(self.nic)} {words}"]

    def same(self, one: Value, other: Value) -> bool:
        if one is None or other is None:
            return one is other
        names = set(one["channels"]) & set(other["channels"])
        if any(one["channels"][name] != other["channels"][name] for name in names):
            return False
        if not one.get("dependents") or not other.get("dependents"):
            return True
        return one["dependents"] == other["dependents"]

    def show(self, value: Value) -> str:
        if value is None:
            return "absent"
        return ", ".join(f"{key} {number}" for key, number in value["channels"].items() if number) or "none"

    def to_json(self) -> dict[str, Any]:
        return _json(self)


_QUEUE_FILES = (("rps", "rx", "rps_cpus"), ("rps_flows", "rx", "rps_flow_cnt"), ("xps", "tx", "xps_cpus"))


def read_dependents(system: System, name: str) -> dict[str, Any]:
    """All that a driver may reset with the number of its queues. JSON; what can't be read is absent."""
    numbers = irqs.of_device(system, f"{NET}/{name}/device")
    found: dict[str, Any] = {"irqs": [_irq_affinity(system, number) for number in numbers]}
    try:
        rss = system.ethtool(name, "rss")
        found["rss"] = {key: rss[key] for key in ("table", "key") if rss.get(key)}
        if "table" in found["rss"]:
            found["rss"]["table"] = list(found["rss"]["table"])
    except Unsupported:
        found["rss"] = {}
    for label, direction, file in _QUEUE_FILES:
        queues = [queue for queue in system.names(f"{NET}/{name}/queues") if queue.startswith(f"{direction}-")]
        texts = {queue: system.text(f"{NET}/{name}/queues/{queue}/{file}") for queue in queues}
        found[label] = {queue: text for queue, text in texts.items() if text is not None}
    return found


def _irq_affinity(system: System, number: int) -> str:
    return system.text(f"/proc/irq/{number}/smp_affinity_list", "") or ""


def write_dependents(system: System, name: str, dependents: dict[str, Any]) -> None:
    """Put back what read_dependents read. Raises OSError; what is gone or managed is passed over."""
    for number, cpus in zip(irqs.of_device(system, f"{NET}/{name}/device"), dependents.get("irqs", []), strict=False):
        if cpus and _irq_affinity(system, number) != cpus:
            _tolerant(IrqSetting(number), system, cpus)
    if dependents.get("rss"):
        _tolerant(RssSetting(name, ""), system, dependents["rss"])
    for label, _, file in _QUEUE_FILES:
        for queue, text in dependents.get(label, {}).items():
            path = f"{NET}/{name}/queues/{queue}/{file}"
            if system.text(path) != text:
                _tolerant(FileSetting(path), system, text)


def _tolerant(setting: Setting, system: System, value: Value) -> None:
    try:
        setting.write(system, value)
    except (Unsupported, Unchangeable):
        return  # the driver made that queue or that vector anew without it: nothing to restore


@dataclass(frozen=True)
class RssSetting(Setting):
    """Indirection table and key of receive-side scaling. Value: {"table": [..], "key": hex}, or one of the two."""

    nic: str
    bus: str

    kind: ClassVar[str] = "rss"

    @property
    def key(self) -> str:
        return f"rss {self.bus or self.nic}"

    def label(self) -> str:
        return f"{self.nic} receive hashing"

    def read(self, system: System) -> Value:
        values = system.ethtool(nic_name(system, self.nic, self.bus), "rss")
        found: dict[str, Any] = {}
        if values.get("table"):
            found["table"] = list(values["table"])
        if values.get("key"):
            found["key"] = plain_key(values["key"])
        if not found:
            raise Unsupported(f"{self.nic} shows no receive hashing")
        return found

    def write(self, system: System, value: Value) -> None:
        present = self.read(system)
        differing = {key: wanted for key, wanted in value.items() if not self.same({key: wanted}, present)}
        if not differing:
            return
        name = nic_name(system, self.nic, self.bus)
        if "table" in differing and self._is_default(system, name, differing["table"]):
            # The kernel forgets then that somebody set it, and adapts it to other channels again.
            with contextlib.suppress(Unsupported, OSError):
                system.ethtool_set(name, "rss", {"table": []})
            differing = {
                key: wanted for key, wanted in differing.items() if not self.same({key: wanted}, self.read(system))
            }
        if differing:
            system.ethtool_set(name, "rss", differing)

    def _is_default(self, system: System, name: str, table: list[int]) -> bool:
        """ethtool_rxfh_indir_default: queue after queue, over all there are."""
        queues = sum(1 for queue in system.names(f"{NET}/{name}/queues") if queue.startswith("rx-"))
        return queues > 0 and list(table) == [entry % queues for entry in range(len(table))]

    def same(self, one: Value, other: Value) -> bool:
        if one is None or other is None:
            return one is other
        return all(_rss_part(key, one[key]) == _rss_part(key, other.get(key)) for key in one if key in other) and bool(
            set(one) & set(other)
        )

    def script(self, value: Value) -> list[str]:
        lines = []
        nic = shlex.quote(self.nic)
        if value.get("key"):
            lines.append(f"ethtool -X {nic} hkey {coloned_key(value['key'])}")
        if value.get("table"):
            queues = max(value["table"]) + 1
            if list(value["table"]) == [entry % queues for entry in range(len(value["table"]))]:
                lines.append(f"ethtool -X {nic} equal {queues}")
            else:
                # ethtool(8) has no way to name single entries; the ioctl has.
                lines.append(f"# {self.nic}: a table that ethtool cannot write; 'rflash-tune apply' sets it:")
                lines.append(f"# {' '.join(map(str, value['table']))}")
        return lines

    def show(self, value: Value) -> str:
        if value is None:
            return "absent"
        parts = []
        if value.get("table"):
            parts.append(show_table(value["table"]))
        if value.get("key"):
            # What hashes IPv4; the rest is for IPv6.
            parts.append(f"key {plain_key(value['key'])[:32]}..")
        return ", ".join(parts)

    def to_json(self) -> dict[str, Any]:
        return _json(self)


def _rss_part(key: str, value: Any) -> Any:
    if value is None:
        return None
    return plain_key(value) if key == "key" else list(value)


def plain_key(key: str) -> str:
    """ "6d5a56" of "6D:5A:56"."""
    return key.replace(":", "").lower()


def coloned_key(key: str) -> str:
    """ "6d:5a:56" of "6d5a56", as ethtool(8) wants it."""
    plain = plain_key(key)
    return ":".join(plain[at : at + 2] for at in range(0, len(plain), 2))


def show_table(table: list[int]) -> str:
    """ "128 entries over queues 0-5", with the counts where they are uneven."""
    counts = {queue: table.count(queue) for queue in sorted(set(table))}
    text = f"{len(table)} entries over queues {cpulist.format_list(counts)}"
    if table == [entry % len(counts) for entry in range(len(table))]:
        return text
    return f"{text} ({', '.join(f'{queue}:{count}' for queue, count in counts.items())})"


_RULE_WORDS = (("dst_ip", "dst-ip"), ("src_port", "src-port"), ("dst_port", "dst-port"))


ANY_LOCATION = 0xFFFFFFFF  # RX_CLS_LOC_ANY of include/uapi/linux/ethtool.h


@dataclass(frozen=True)
class RuleSetting(Setting):
    """A flow rule (ntuple). Value: {"flow", "dst_port", "queue", ...} as host.model.Rule, or None.

    With `flow` it is the rule that matches on just these ports, wherever it
    is: some drivers (sfc, bnxt) choose the location themselves. `location` is
    where it was, or where it goes where the driver lets us choose. Without
    `flow` it is the rule at the location.
    """

    nic: str
    bus: str
    location: int
    flow: str = ""
    dst_port: int | None = None
    src_port: int | None = None

    kind: ClassVar[str] = "rule"

    @property
    def key(self) -> str:
        where = f"{self.flow} {self.dst_port} {self.src_port}" if self.flow else str(self.location)
        return f"rule {self.bus or self.nic} {where}"

    def label(self) -> str:
        if not self.flow:
            return f"{self.nic} flow rule {self.location}"
        ends = (("dst-port", self.dst_port), ("src-port", self.src_port))
        return f"{self.nic} flow rule {self.flow}" + "".join(
            f" {word} {port}" for word, port in ends if port is not None
        )

    def _find(self, rules: dict[str, Any]) -> str | None:
        """The location of the rule, as text."""
        if not self.flow:
            return str(self.location) if str(self.location) in rules else None
        wanted = {"flow": self.flow, "dst_port": self.dst_port, "src_port": self.src_port}
        wanted = _plain_rule(wanted)
        for location, rule in rules.items():
            if {name: value for name, value in _plain_rule(rule).items() if name != "queue"} == wanted:
                return location
        return None

    def read(self, system: System) -> Value:
        rules = system.ethtool(nic_name(system, self.nic, self.bus), "rules")
        found = self._find(rules)
        return None if found is None else _plain_rule(rules[found])

    def write(self, system: System, value: Value) -> None:
        name = nic_name(system, self.nic, self.bus)
        rules = system.ethtool(name, "rules")
        found = self._find(rules)
        if value is None:
            if found is not None:
                system.ethtool_set(name, "rules", {found: None})
            return
        rule = {"dst_port": None, **value}
        place = found or self._free(rules)
        try:
            system.ethtool_set(name, "rules", {place: rule})
        except OSError as error:
            if not self.flow or error.errno != errno.EINVAL:
                raise
            # This driver chooses the location itself, and can't put one rule in another's place.
            if found is not None:
                system.ethtool_set(name, "rules", {found: None})
            system.ethtool_set(name, "rules", {str(ANY_LOCATION): rule})

    def _free(self, rules: dict[str, Any]) -> str:
        """The location that was planned, or the next one when somebody has taken it since."""
        if not self.flow or str(self.location) not in rules:
            return str(self.location)
        return next(str(number) for number in range(len(rules) + 1) if str(number) not in rules)

    def same(self, one: Value, other: Value) -> bool:
        if one is None or other is None:
            return one is other
        return _plain_rule(one) == _plain_rule(other)

    def script(self, value: Value) -> list[str]:
        nic = shlex.quote(self.nic)
        if value is None:
            return [f"ethtool -N {nic} delete {self.location}"]
        words = "".join(f" {word} {value[name]}" for name, word in _RULE_WORDS if value.get(name) is not None)
        return [f"ethtool -N {nic} flow-type {value['flow']}{words} action {value['queue']} loc {self.location}"]

    def show(self, value: Value) -> str:
        if value is None:
            return "absent"
        words = "".join(f" {word} {value[name]}" for name, word in _RULE_WORDS if value.get(name) is not None)
        return f"{value['flow']}{words} to queue {value['queue']}"

    def to_json(self) -> dict[str, Any]:
        return _json(self)


def _plain_rule(rule: dict[str, Any]) -> dict[str, Any]:
    """Without what is absent, and without the location, which is the address."""
    return {name: value for name, value in rule.items() if value not in (None, "") and name != "location"}


@dataclass(frozen=True)
class TaskSetting(Setting):
    """The CPUs a thread may run on. Value: a CPU list.

    `start` is its start time in clock ticks since boot: a thread of that id
    that started at another time is another one, and ours is gone.
    """

    tid: int
    name: str
    start: int

    kind: ClassVar[str] = "task"

    @property
    def key(self) -> str:
        return f"task {self.tid} {self.start}"

    def label(self) -> str:
        return f"{self.name} thread {self.tid} affinity"

    def _check(self, system: System) -> None:
        """/proc/TID/stat: "811 (iscsi_trx) S 2 0 ..."; the start time is the 22nd field."""
        try:
            text = system.read(f"/proc/{self.tid}/stat")
            start = int(text.rpartition(")")[2].split()[19])
        except (OSError, IndexError, ValueError) as error:
            raise Unsupported(f"{self.name} thread {self.tid} has ended") from error
        if start != self.start:
            raise Unsupported(f"{self.name} thread {self.tid} has ended; another one has its number now")

    def read(self, system: System) -> Value:
        self._check(system)
        try:
            return cpulist.format_list(system.affinity(self.tid))
        except ProcessLookupError as error:
            raise Unsupported(f"{self.name} thread {self.tid} has ended") from error

    def write(self, system: System, value: Value) -> None:
        self._check(system)
        try:
            system.set_affinity(self.tid, cpulist.parse_list(value))
        except ProcessLookupError as error:
            raise Unsupported(f"{self.name} thread {self.tid} has ended") from error

    def script(self, value: Value) -> list[str]:
        return [f"taskset -pc {value} {self.tid}  # {self.name}"]

    def to_json(self) -> dict[str, Any]:
        return _json(self)


@dataclass(frozen=True)
class ConfigSetting(Setting):
    """A whole configuration file, and the service that reads it. Value: its text, or None when there is none.

    The service is restarted when it runs, never started. Without systemd its
    init script does that; without either the file counts from its next start.
    """

    path: str
    unit: str = ""  # "irqbalance"; "" when nothing is to be restarted

    kind: ClassVar[str] = "config"
    volatile: ClassVar[bool] = False

    @property
    def key(self) -> str:
        return f"config {self.path}"

    def label(self) -> str:
        return self.path

    def read(self, system: System) -> Value:
        try:
            return system.read(self.path)
        except FileNotFoundError:
            return None

    def write(self, system: System, value: Value) -> None:
        if value != self.read(system):
            self.settle(system, value)

    def settle(self, system: System, value: Value) -> None:
        """Put the file in place and tell its service, whatever is there."""
        system.replace(self.path, value)
        command = self._restart(system)
        if not command:
            return
        try:
            done = system.run(command)
        except FileNotFoundError as error:
            raise OSError(errno.ENOENT, f"{command[0]} is missing, so {self.unit} was not restarted") from error
        if done.status != 0:
            raise OSError(errno.EIO, f"{self.unit} did not restart: {done.output.strip()[-200:]}")

    def _restart(self, system: System) -> list[str]:
        if not self.unit:
            return []
        if system.exists("/run/systemd/system"):
            return ["systemctl", "try-restart", f"{self.unit}.service"]
        script = f"/etc/init.d/{self.unit}"
        # Few init scripts know try-restart, and not all tell by `status` what runs.
        return [script, "restart"] if system.exists(script) and _runs(system, self.unit) else []

    def same(self, one: Value, other: Value) -> bool:
        if one is None or other is None:
            return one is other
        return one.rstrip() == other.rstrip()

    def script(self, value: Value) -> list[str]:
        path = shlex.quote(self.path)
        if value is None:
            lines = [f"rm -f {path}"]
        else:
            lines = [f"cat > {path} <<'END_OF_FILE'", *value.rstrip("\n").split("\n"), "END_OF_FILE"]
        return [*lines, f"systemctl try-restart {self.unit}.service"] if self.unit else lines

    def show(self, value: Value) -> str:
        """The lines that say something, for a file that is mostly comment."""
        if value is None:
            return "absent"
        lines = [line.strip() for line in value.splitlines()]
        return "; ".join(line for line in lines if line and not line.startswith("#")) or "only comments"

    def to_json(self) -> dict[str, Any]:
        return _json(self)


def _runs(system: System, name: str) -> bool:
    """Is there a process of this name?"""
    return any(system.text(f"/proc/{pid}/comm") == name for pid in system.names("/proc") if pid.isdigit())


KINDS: dict[str, type[Setting]] = {
    setting.kind: setting
    for setting in (
        FileSetting,
        IrqSetting,
        EthtoolSetting,
        ChannelsSetting,
        RssSetting,
        RuleSetting,
        TaskSetting,
        ConfigSetting,
    )
}


def _json(setting: Any) -> dict[str, Any]:
    values = {name: list(value) if isinstance(value, tuple) else value for name, value in asdict(setting).items()}
    return {"kind": setting.kind, **values}


def from_json(values: dict[str, Any]) -> Setting:
    """The setting that to_json gave. Raises UsageError when it is of no kind we know."""
    kind = values.get("kind")
    if kind not in KINDS:
        raise UsageError(f"'{kind}' is not a kind of setting; there are {', '.join(KINDS)}")
    given = {
        name: tuple(value) if isinstance(value, list) else value for name, value in values.items() if name != "kind"
    }
    names = {field.name for field in fields(KINDS[kind])}  # type: ignore[arg-type]
    if set(given) - names:
        raise UsageError(f"a setting of kind '{kind}' has no '{min(set(given) - names)}'")
    try:
        return KINDS[kind](**given)
    except TypeError as error:
        raise UsageError(f"a setting of kind '{kind}' lacks something: {error}") from error
