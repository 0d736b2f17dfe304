# SPDX-License-Identifier: GPL-2.0
"""What can be asked for: one table for the command line and for profiles, and the Request it makes."""

from __future__ import annotations

import dataclasses
import re
from dataclasses import dataclass
from typing import Any

from rflash_tuning.cpulist import parse_list
from rflash_tuning.errors import UsageError
from rflash_tuning.host.model import Host, Nic
from rflash_tuning.tune.change import DISRUPTIONS, Request

TARGETS = ("iscsi", "nvmet-tcp", "nvmet-rdma", "rflashd")


@dataclass(frozen=True)
class Option:
    """One thing that can be asked for: --NAME on the command line, NAME in a profile."""

    name: str
    field: str  # of Request; "" for those that say how to apply
    kind: str  # word, number, seconds, names, numbers
    help: str
    metavar: str = ""
    choices: tuple[str, ...] = ()
    low: int = 0
    high: int = 0


REQUEST = (
    Option("role", "role", "word", "what this host is (default: server)", choices=("server", "tenant")),
    Option("target", "target", "word", "how the flash is served (default: what is configured here)", choices=TARGETS),
    Option("nic", "nics", "names", "network interfaces that carry the flash's traffic; bonds and VLANs too",
           "NIC[,NIC...]"),
    Option("tenants", "tenants", "number", "how many tenants share the flash (default: as many as are configured here)",
           "N", low=1, high=4096),
    Option("goal", "goal", "word", "what matters most (default: mixed)", choices=("throughput", "latency", "mixed")),
    Option("disk", "disks", "names", "block devices that are the flash (default: those of the tenants, or all NVMe)",
           "DISK[,DISK...]"),
    Option("cpus", "cpus", "numbers", "CPUs that may be used (default: all that are online)", "LIST", high=8191),
    Option("ports", "ports", "numbers", "the tenants' TCP ports, in order (default: as configured, or the usual ones)",
           "LIST", low=1, high=65535),
    Option("read-pct", "read_share", "number", "per cent of the requests that read (default: 70)", "N", high=100),
    Option("qd", "queue_depth", "number", "requests that a tenant has in flight (default: 32)", "N", low=1, high=65535),
    Option("peer", "peers", "names", "other hosts' addresses; a larger MTU is kept only if the path to them passes it",
           "ADDR[,ADDR...]"),
    Option("mtu", "mtu", "number", "MTU to set (default: left alone, 9000 with --peer)", "BYTES", low=576, high=65535),
    Option("only", "knobs", "names", "turn these knobs only; `rflash-tune knobs` lists them", "KNOB[,KNOB...]"),
    Option("skip", "skip", "names", "leave these knobs alone", "KNOB[,KNOB...]"),
)  # fmt: skip

APPLY = (
    Option("max-disruption", "", "word", "the worst a change may do to traffic (default: packets)",
           choices=DISRUPTIONS),
    Option("confirm-within", "", "seconds", "put everything back after so many seconds without `rflash-tune confirm`; "
           "0 never does (default: 60 where a change could cut you off)", "SECONDS", high=86400),
)  # fmt: skip

BY_NAME = {option.name: option for option in REQUEST + APPLY}


def parse(option: Option, value: Any) -> Any:
    """A value from the command line (text) or a profile (text, number, list) in its proper type.

    Raises ValueError with a sentence that says what would be right.
    """
    if option.kind == "word":
        return _word(option, value)
    if option.kind in ("number", "seconds"):
        return _number(option, value)
    items = value if isinstance(value, list) else [value]
    if option.kind == "names":
        return _names(option, items)
    return _numbers(option, items)


def _word(option: Option, value: Any) -> str:
    if value not in option.choices:
        raise ValueError(f"{option.name} is '{value}'; it should be {_either(option.choices)}")
    return value


def _number(option: Option, value: Any) -> int:
    wanted = f"it should be {option.low} to {option.high}"
    if isinstance(value, bool) or not isinstance(value, int | str):
        raise ValueError(f"{option.name} is not a number; {wanted}")
    try:
        number = int(value)
    except ValueError:
        raise ValueError(f"{option.name} is '{value}'; {wanted}") from None
    if not option.low <= number <= option.high:
        raise ValueError(f"{option.name} is {number}; {wanted}")
    return number


def _names(option: Option, items: list[Any]) -> tuple[str, ...]:
    names: list[str] = []
    for item in items:
        if not isinstance(item, str):
            raise ValueError(f"{option.name} should be names, {item!r} is none")
        parts = [part.strip() for part in item.split(",")]
        if not all(re.fullmatch(r"[\w.:@%+\[\]-]+", part) for part in parts):
            raise ValueError(f"{option.name} is '{item}'; it should be {option.metavar}")
        names += parts
    return tuple(dict.fromkeys(names))


def _numbers(option: Option, items: list[Any]) -> tuple[int, ...]:
    numbers: list[int] = []
    for item in items:
        text = str(item)
        # A range is checked before it is made: "0-9999999999" is a mistake, not a list.
        if isinstance(item, bool) or not re.fullmatch(r"\d{1,9}(-\d{1,9})?(,\d{1,9}(-\d{1,9})?)*", text):
            raise ValueError(f"{option.name} is '{text}'; it should be a list such as 0-3,8")
        if any(not option.low <= int(end) <= option.high for end in re.findall(r"\d+", text)):
            raise ValueError(f"{option.name} is '{text}'; numbers should be {option.low} to {option.high}")
        for part in text.split(","):
            try:
                numbers += sorted(parse_list(part))
            except ValueError as error:
                raise ValueError(f"{option.name}: {error}") from None
    return tuple(dict.fromkeys(numbers))


def _either(words: tuple[str, ...]) -> str:
    return " or ".join((", ".join(words[:-1]), words[-1])) if len(words) > 1 else words[0]


def request(host: Host, values: dict[str, Any]) -> Request:
    """The Request of these options, with what this host says by itself filled in.

    Raises UsageError when something is needed that neither says.
    """
    fields = {option.field: values[option.name] for option in REQUEST if values.get(option.name) is not None}
    fields.setdefault("role", "server")
    if "nics" not in fields:
        raise UsageError(f"which network interface carries the flash's traffic? Give --nic; {_nics(host)}")
    kinds = sorted({tenant.kind for tenant in host.tenants})
    if "target" not in fields:
        if len(kinds) != 1:
            found = f"here are {' and '.join(kinds)}" if kinds else "none is configured here"
            raise UsageError(f"which kind of target? Give --target {'|'.join(TARGETS)}; {found}")
        fields["target"] = kinds[0]
    if "tenants" not in fields:
        count = sum(tenant.kind == fields["target"] for tenant in host.tenants)
        if not count:
            raise UsageError(f"how many tenants? Give --tenants; no {fields['target']} target is configured here")
        fields["tenants"] = count
    return Request(**fields)


def _nics(host: Host) -> str:
    ports = [nic for nic in host.nics if nic.kind not in ("loopback", "other")]
    if not ports:
        return "this host has none"
    return "this host has " + ", ".join(describe_nic(nic) for nic in ports)


def describe_nic(nic: Nic) -> str:
    """ "eth0 (mlx5_core, 25 Gb/s, 8 queues)"."""
    words = [nic.driver if nic.kind == "physical" else nic.kind]
    if nic.speed:
        words.append(f"{nic.speed / 1000:g} Gb/s" if nic.speed >= 1000 else f"{nic.speed} Mb/s")
    if nic.queues:
        words.append(f"{len(nic.queues)} queue{'s' * (len(nic.queues) > 1)}")
    if not nic.up:
        words.append("down")
    return f"{nic.name} ({', '.join(word for word in words if word)})"


def command(request: Request, known: dict[str, Any] | None = None) -> str:
    """The options that make this request again, for a command line; without those known from a profile."""
    words = []
    defaults = {field.name: field.default for field in dataclasses.fields(Request)}
    for option in REQUEST:
        value = getattr(request, option.field)
        if value == (known or {}).get(option.name, defaults[option.field]) or value is None:
            continue
        text = ",".join(str(item) for item in value) if isinstance(value, tuple) else str(value)
        words.append(f"--{option.name} {text}")
    return " ".join(words)
