# SPDX-License-Identifier: GPL-2.0
"""What a knob is given: the host, the request, who runs where; and what it leaves: changes and warnings.

A knob is a module with NAME, TITLE, a docstring that is its row in the manual,
and draw(draft), which calls draft.want for every value it has an opinion on.
Nothing here touches a machine.
"""

from __future__ import annotations

from rflash_tuning.host.disks import whole
from rflash_tuning.host.model import Disk, Host, Nic
from rflash_tuning.tune.allocation import deal_queues, knob_enabled, request_ports
from rflash_tuning.tune.change import Allocation, Change, Request, Setting, Value
from rflash_tuning.tune.settings import FileSetting

PAPER = "Flash Storage Disaggregation (EuroSys'16), section 4"
ARM = "NVMe-oF meets Arm, figures 12 to 16"
SCALING = "Documentation/networking/scaling.rst"

# Drivers that change queues, rings or MTU without taking the link down, by
# their own ndo_open and ndo_stop: they tell a hypervisor or firmware, no PHY.
KEEPS_LINK = ("virtio_net", "vmxnet3", "ena", "mlx5_core", "mana", "hv_netvsc", "netdevsim")


class Draft:
    """A plan in the making."""

    def __init__(self, host: Host, request: Request, allocation: Allocation) -> None:
        self.host = host
        self.request = request
        self.allocation = allocation
        self.ports = request_ports(host, request)
        self.disks = chosen_disks(host, request)
        self.knob = ""
        self.right = 0
        self.changes: dict[str, Change] = {}
        self.warnings: list[str] = []

    def enabled(self, knob: str) -> bool:
        return knob_enabled(self.request, knob)

    def warn(self, sentence: str) -> None:
        if sentence not in self.warnings:
            self.warnings.append(sentence)

    def want(
        self,
        setting: Setting,
        old: Value,
        new: Value,
        reason: str,
        source: str,
        *,
        disruption: str = "none",
        cuts_off: bool = False,
        tenant: str = "",
        foreseen: str = "",
    ) -> None:
        """A value that is to be so. Counted as right when it is."""
        if setting.key in self.changes:
            return  # two of a bond's ports, or two tenants, want the same value
        if setting.same(old, new):
            self.right += 1
            return
        self.changes[setting.key] = Change(
            setting, old, new, self.knob, reason, source, disruption, cuts_off, tenant, foreseen
        )

    def want_file(
        self, path: str, form: str, new: Value, reason: str, source: str, *, nic: Nic | None = None, tenant: str = ""
    ) -> bool:
        """A file of the kernel's that is to hold a value. False when this host has no such file."""
        raw = self.host.files.get(path)
        if raw is None:
            return False
        setting = FileSetting(path, form, nic.name if nic else "", nic.bus if nic else "")
        try:
            old = setting.parse(raw)
        except OSError as error:
            self.warn(f"{error.strerror or error}; left alone")
            return False
        self.want(setting, old, new, reason, source, tenant=tenant)
        return True

    def raise_file(self, path: str, least: int, reason: str, source: str) -> None:
        """A number that is to be so much at least; a larger one of the administrator's stays."""
        raw = self.host.files.get(path)
        if raw is not None and raw.lstrip("-").isdigit():
            self.want_file(path, "number", max(int(raw), least), reason, source)

    def disruption(self, nic: Nic) -> str:
        """What a change that makes a NIC's queues anew does to its traffic."""
        return "packets" if nic.driver in KEEPS_LINK else "link"

    def used_queues(self, port: Nic) -> int:
        """How many of a port's present queues the tenants use."""
        wanted = 1 + max((queue for share in self.allocation.shares for queue in share.queues), default=0)
        return min(wanted, max(1, len(port.queues)))

    def queues(self, port: Nic) -> list[tuple[int, ...]]:
        """Each share's queues of those that the port has at present.

        Fewer than the shares' own while more channels are only planned: the
        executor plans again once they are there.
        """
        shares = self.allocation.shares
        wanted = 1 + max((queue for share in shares for queue in share.queues), default=0)
        if len(port.queues) >= wanted:
            return [share.queues for share in shares]
        return deal_queues([share.connection_cpus for share in shares], max(1, len(port.queues)))

    def queue_cpu(self, port: Nic) -> dict[int, tuple[int, str]]:
        """Each present queue's CPU, and the tenant it serves ("" for none or all)."""
        found: dict[int, tuple[int, str]] = {}
        for share, queues in zip(self.allocation.shares, self.queues(port), strict=True):
            for place, queue in enumerate(queues):
                cpu = share.connection_cpus[place % len(share.connection_cpus)]
                if queue not in found:
                    found[queue] = (cpu, share.tenant)
                elif found[queue][0] == cpu:
                    found[queue] = (cpu, f"{found[queue][1]} {share.tenant}")
        cpus = self.allocation.cpus
        for queue in range(len(port.queues)):
            found.setdefault(queue, (cpus[queue % len(cpus)], ""))
        return found


def chosen_disks(host: Host, request: Request) -> tuple[Disk, ...]:
    """The flash: what the user named, else the devices behind the tenants, else all NVMe devices.

    A tenant's own disks are not the flash that is served, so none there.
    """
    if request.disks:
        return tuple(disk for disk in host.disks if disk.name in request.disks)
    if request.role == "tenant":
        return ()
    devices = [tenant.device for tenant in host.tenants if tenant.kind == request.target]
    names = [disk.name for disk in host.disks]
    behind_names = {whole(device, names) for device in devices}
    behind = tuple(disk for disk in host.disks if disk.name in behind_names)
    return behind or tuple(disk for disk in host.disks if disk.kind == "nvme")
