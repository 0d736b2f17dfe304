# SPDX-License-Identifier: GPL-2.0
"""Takes out of a snapshot who and where the machine is.

MAC and IP addresses, host names, IQNs and NQNs, machine ids and the names of
devices by serial number are replaced; what was equal stays equal. What tuning
depends on stays as it was: topology, drivers, PCI addresses, ports, RSS keys
(random numbers of that boot). Hashes of the connections' addresses do change
with the addresses, so a capture does not show which RSS entry a connection had.
"""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Callable
from typing import Any

from rflash_tuning.tree import Tree

_MAC = re.compile(r"(?<![0-9a-fA-F:])(?:[0-9a-fA-F]{2}:){5}[0-9a-fA-F]{2}(?![0-9a-fA-F:])")
_MAC_IN_NAME = re.compile(r"\benx([0-9a-f]{12})\b")
_IPV4 = re.compile(r"(?<![\d.])(?:\d{1,3}\.){3}\d{1,3}(?![\d.])")
_IPV6 = re.compile(r"(?<=\[)[0-9a-fA-F:]*:[0-9a-fA-F:.]*(?=\])|(?<=addr=)[0-9a-fA-F]*:[0-9a-fA-F:.]*")
_OURS = re.compile(r"((?:iqn|nqn)\.2026-11\.org\.rflash:)([^\s,\"/]+?)([.:]t\d+)(?![^\s,\"/])")
_QUALIFIED = re.compile(r"(iqn|nqn)\.(\d{4}-\d{2})\.[^\s,\"/]+")
_BY_ID = re.compile(r"/dev/(?:disk|mapper)/[^\s\"]+")
_IMAGE = re.compile(r"(?:/home|/root|/var|/srv|/mnt|/opt|/tmp)/[^\s\"]+")
_HOSTNAME = "/proc/sys/kernel/hostname"
_IDENTITIES = ("/etc/machine-id", "/sys/class/dmi/id/product_uuid")
# The kernel's own numbers, in which nothing is to be found that looks like an address but is none.
_NUMBERS = ("/proc/sys/", "/proc/irq/", "/sys/devices/system/", "/sys/module/")
_ADDRESS_FILES = re.compile(r"/(addr_traddr|persistent_address)$")
# Words of the kernel's command line that have to do with tuning; the rest may say anything.
_BOOT_WORDS = re.compile(
    r"(isolcpus|nohz|nohz_full|rcu_nocbs|irqaffinity|mitigations|intel_idle\.|processor\.|intel_pstate|amd_pstate"
    r"|cpufreq|cpuidle|idle|nosmt|maxcpus|nr_cpus|threadirqs|iommu|intel_iommu|amd_iommu|pcie_aspm|numa|default_hugepagesz"
    r"|hugepages|skew_tick|tsc|clocksource|nvme|nvme_core\.|nvmet|workqueue\.|transparent_hugepage|audit|selinux)"
)


class Anonymiser:
    """The replacements of one snapshot, numbered as they come."""

    def __init__(self) -> None:
        self._known: dict[tuple[str, str], str] = {}
        self._counts: dict[str, int] = {}

    def _instead(self, kind: str, value: str, make: Callable[[int], str]) -> str:
        if (kind, value) not in self._known:
            self._counts[kind] = self._counts.get(kind, 0) + 1
            self._known[kind, value] = make(self._counts[kind])
        return self._known[kind, value]

    def mac(self, address: str) -> str:
        """02:00:00:00:00:01 and so on: locally administered, unicast. None and broadcast stay."""
        digits = address.replace(":", "").lower()
        if digits in ("0" * 12, "f" * 12):
            return address
        number = self._instead("mac", digits, lambda count: f"02{count:010x}")
        return number if ":" not in address else ":".join(number[at : at + 2] for at in range(0, 12, 2))

    def ip(self, address: str) -> str:
        """An address of those set aside for documentation (RFC 5737, 3849) or tests (RFC 2544)."""
        try:
            parsed = ipaddress.ip_address(address)
        except ValueError:
            return address
        if parsed.is_loopback or parsed.is_unspecified:
            return address
        if isinstance(parsed, ipaddress.IPv6Address):
            if parsed.ipv4_mapped:
                return f"::ffff:{self.ip(str(parsed.ipv4_mapped))}"
            return self._instead("ipv6", str(parsed), lambda count: str(ipaddress.ip_address("2001:db8::") + count))
        return self._instead("ipv4", str(parsed), _documentation_address)

    def qualified(self, name: str) -> str:
        """An IQN or NQN; of rflash-target's, only the part that tells the host."""
        ours = _OURS.fullmatch(name)
        if ours:
            return ours[1] + self._instead("host", ours[2], lambda count: f"{count:012x}") + ours[3]
        kind = name[:3]
        return self._instead("name", name, lambda count: f"{kind}.2000-01.org.example:{count}")

    def text(self, value: str) -> str:
        """Any text, or a path."""
        value = _BY_ID.sub(lambda found: self._device("/dev/disk/by-id/device", found[0]), value)
        value = _QUALIFIED.sub(lambda found: self.qualified(found[0]), value)
        value = _MAC.sub(lambda found: self.mac(found[0]), value)
        value = _MAC_IN_NAME.sub(lambda found: "enx" + self.mac(found[1]), value)
        value = _IPV4.sub(lambda found: self.ip(found[0]), value)
        return _IPV6.sub(lambda found: self.ip(found[0]), value)

    def file(self, path: str, text: str) -> str:
        """A file's text. `path` is the one that it was captured from."""
        if path == _HOSTNAME:
            return "host\n"
        if path.endswith(_IDENTITIES):
            return self._instead("machine", text, lambda count: f"{count:032x}") + "\n"
        if path == "/proc/cmdline":
            return " ".join(word for word in text.split() if _BOOT_WORDS.match(word)) + "\n"
        if path in ("/proc/net/tcp", "/proc/net/tcp6"):
            return re.sub(r"\b([0-9A-F]{32}|[0-9A-F]{8})(?=:[0-9A-F]{4}\b)", lambda found: self._hex(found[0]), text)
        if path.startswith("/etc/"):
            # A comment may say anything, and does nothing.
            text = "".join(line for line in text.splitlines(keepends=True) if not line.lstrip().startswith("#"))
        if path.startswith(_NUMBERS):
            return text
        if _ADDRESS_FILES.search(path):
            return self.ip(text.strip()) + "\n"
        text = _IMAGE.sub(lambda found: self._device("/srv/image", found[0]), text)
        return self.text(text)

    def _device(self, base: str, name: str) -> str:
        return self._instead(base, name, lambda count: f"{base}-{count}")

    def _hex(self, digits: str) -> str:
        """An address as /proc/net/tcp has it: each 32 bits as a little-endian number."""
        raw = b"".join(bytes.fromhex(digits[at : at + 8])[::-1] for at in range(0, len(digits), 8))
        packed = ipaddress.ip_address(self.ip(str(ipaddress.ip_address(raw)))).packed
        return "".join(packed[at : at + 4][::-1].hex().upper() for at in range(0, len(packed), 4))

    def value(self, value: Any) -> Any:
        """JSON: every string and key in it."""
        if isinstance(value, str):
            return self.text(value)
        if isinstance(value, dict):
            return {self.text(key): self.value(item) for key, item in value.items()}
        return [self.value(item) for item in value] if isinstance(value, list) else value


def _documentation_address(count: int) -> str:
    return f"192.0.2.{count}" if count < 255 else str(ipaddress.ip_address("198.18.0.0") + count)


def tree(anonymiser: Anonymiser, old: Tree) -> Tree:
    """A tree with every path, link and text replaced; in the order of the paths, so that numbers are repeatable."""
    new = Tree()
    for path, target in sorted(old.links.items()):
        new.link(anonymiser.text(path), anonymiser.text(target))
    for path, names in sorted(old.directories().items()):
        new.mkdir(anonymiser.text(path), [anonymiser.text(name) for name in names])
    for path, text in sorted(old.files.items()):
        new.put(anonymiser.text(path), anonymiser.file(path, text))
    for path, error in sorted(old.errors.items()):
        new.refuse(anonymiser.text(path), error)
    return new


def sections(anonymiser: Anonymiser, known: dict[str, dict[str, Any]]) -> dict[str, dict[str, Any]]:
    """ethtool's: the addresses of flow rules. Firmware versions look like addresses and are kept."""
    found: dict[str, dict[str, Any]] = {}
    for nic, of_nic in known.items():
        found[anonymiser.text(nic)] = {
            name: anonymiser.value(values) if name == "rules" else values for name, values in of_nic.items()
        }
    return found
