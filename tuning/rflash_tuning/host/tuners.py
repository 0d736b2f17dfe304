# SPDX-License-Identifier: GPL-2.0
"""Who else on this host sets what rflash-tune sets.

Active is who has a process. Configuration files are where the distributions
put them; the first that exists is taken.
"""

from __future__ import annotations

from rflash_tuning.host.model import Tuner
from rflash_tuning.host.tasks import Process
from rflash_tuning.system import System

# Name, its process's name (the kernel cuts at 15 characters), its configuration.
_KNOWN: tuple[tuple[str, str, tuple[str, ...]], ...] = (
    (
        "irqbalance",
        "irqbalance",
        # Debian and Ubuntu; Fedora, RHEL and SUSE; upstream's unit and Arch; Gentoo and Alpine
        (
            "/etc/default/irqbalance",
            "/etc/sysconfig/irqbalance",
            "/etc/irqbalance.env",
            "/etc/conf.d/irqbalance",
        ),
    ),
    ("tuned", "tuned", ("/etc/tuned/tuned-main.conf",)),
    ("NetworkManager", "NetworkManager", ("/etc/NetworkManager/NetworkManager.conf",)),
    ("systemd-networkd", "systemd-network", ("/etc/systemd/networkd.conf",)),
    ("bpftune", "bpftune", ()),
    ("numad", "numad", ("/etc/numad.conf",)),
    ("power-profiles-daemon", "power-profiles-", ()),
)
PROCESSES = frozenset(process for _, process, _ in _KNOWN)
# systemd reads the file that its unit names; Debian and RHEL name these even before they exist.
_BY_DISTRIBUTION = (
    ({"debian", "ubuntu"}, "/etc/default/irqbalance"),
    ({"rhel", "fedora", "centos", "suse", "opensuse"}, "/etc/sysconfig/irqbalance"),
)


def read(system: System, known: tuple[Process, ...]) -> tuple[Tuner, ...]:
    """Those that run, and those that are only installed."""
    running = {process.name for process in known if not process.kernel}
    found = []
    for name, process, paths in _KNOWN:
        config = next((path for path in paths if system.exists(path)), "")
        active = process in running
        if not config and active and name == "irqbalance":
            config = _usual_config(system)
        if active or config:
            found.append(Tuner(name, active, config))
    return tuple(found)


def process_of(name: str) -> str:
    """The name of a tuner's process."""
    return next((process for known, process, _ in _KNOWN if known == name), name[:15])


def _usual_config(system: System) -> str:
    """Where irqbalance's configuration would be. Source: os-release(5)."""
    words: set[str] = set()
    for line in (system.text("/etc/os-release", "") or "").splitlines():
        key, _, value = line.partition("=")
        if key in ("ID", "ID_LIKE"):
            words.update(value.strip('"').split())
    return next((path for names, path in _BY_DISTRIBUTION if names & words), "")
