# SPDX-License-Identifier: GPL-2.0
"""What each kind of target has to say: its modules, its steps, its sessions."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence

from rflash_tuning.targets.machine import Machine
from rflash_tuning.targets.model import Order, Tenant
from rflash_tuning.targets.steps import Step


class Adapter(ABC):
    """One kind of target. Without state."""

    modules: tuple[str, ...] = ()
    configfs = True  # made in configfs, and so gone after a reboot

    def prepare(self, machine: Machine) -> None:
        """Have what the steps need, or raise TuneError or UsageError. Makes nothing that would have to be undone."""
        for module in self.modules:
            machine.load(module)
        if self.configfs:
            machine.mount_configfs()

    @abstractmethod
    def names_taken(self, machine: Machine, tenants: Sequence[Tenant]) -> str:
        """The first name that is there already, as the beginning of a sentence; "" when all are free."""

    @abstractmethod
    def steps(self, machine: Machine, order: Order, tenants: Sequence[Tenant]) -> list[Step]:
        """What makes these tenants' targets, once their devices are there. Reads, changes nothing."""

    @abstractmethod
    def up(self, machine: Machine, tenant: Tenant) -> bool:
        """Is the tenant's target there?"""

    @abstractmethod
    def sessions(self, machine: Machine, tenant: Tenant) -> int | None:
        """How many are logged in; None where the kernel does not tell."""

    def remarks(self, order: Order) -> list[str]:
        """What the user should know about it, in sentences."""
        return []


def adapter(kind: str) -> Adapter:
    """The adapter of a kind. They are imported when they are wanted: LIO's needs a library that others don't."""
    if kind == "iscsi":
        from rflash_tuning.targets.lio import Lio

        return Lio()
    if kind == "rflashd":
        from rflash_tuning.targets.rflashd import Rflashd

        return Rflashd()
    from rflash_tuning.targets.nvmet import Nvmet

    return Nvmet(kind.removeprefix("nvmet-"))
