# SPDX-License-Identifier: GPL-2.0
"""rflashd's tenants, in its configuration: one file per create, below /etc/rflash/rflashd.d.

The file is the whole interface: rflashd reads every *.toml there when it starts
or is told to (SIGHUP). Keys that it may find besides are rflash-tune's: `cpus`,
the CPU set of a tenant's threads ("" is all of them).
"""

from __future__ import annotations

import json
from collections.abc import Sequence

from rflash_tuning.targets import addresses
from rflash_tuning.targets.adapter import Adapter
from rflash_tuning.targets.machine import Machine
from rflash_tuning.targets.model import Order, Tenant
from rflash_tuning.targets.steps import Step, WriteFile

DIRECTORY = "/etc/rflash/rflashd.d"
SERVER = "/usr/sbin/rflashd"


def path(order: Order) -> str:
    return f"{DIRECTORY}/{order.name.removeprefix('rflashd-')}.toml"


def render(tenants: Sequence[Tenant]) -> str:
    """The file's text. TOML's basic strings are JSON's."""
    lines = ["# Made by rflash-target, which removes it on `rflash-target delete`."]
    for tenant in tenants:
        lines += ["", "[[tenant]]"]
        values = {"name": tenant.name, "nqn": tenant.identity, "device": tenant.lasting_device, "uuid": tenant.uuid,
                  "address": tenant.address, "port": tenant.port, "allowed-hosts": list(tenant.allowed),
                  "cpus": ""}  # fmt: skip
        lines += [f"{key} = {json.dumps(value)}" for key, value in values.items()]
    return "\n".join(lines) + "\n"


class Rflashd(Adapter):
    configfs = False

    def names_taken(self, machine: Machine, tenants: Sequence[Tenant]) -> str:
        for name in machine.system.names(DIRECTORY):
            text = machine.system.text(f"{DIRECTORY}/{name}") or ""
            for tenant in tenants:
                if name.endswith(".toml") and f"nqn = {json.dumps(tenant.identity)}" in text:
                    return f"{tenant.identity} in {DIRECTORY}/{name}"
        return ""

    def steps(self, machine: Machine, order: Order, tenants: Sequence[Tenant]) -> list[Step]:
        return [WriteFile(path(order), render(tenants))]

    def up(self, machine: Machine, tenant: Tenant) -> bool:
        """Does anybody listen on its port?"""
        return addresses.taken(machine.system, tenant.address, tenant.port)

    def sessions(self, machine: Machine, tenant: Tenant) -> int | None:
        return len(addresses.peers(machine.system, tenant.port))

    def remarks(self, order: Order) -> list[str]:
        return [f"The tenants are in {path(order)}; `systemctl reload-or-restart rflashd` serves them."]
