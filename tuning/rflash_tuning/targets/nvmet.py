# SPDX-License-Identifier: GPL-2.0
"""The kernel's NVMe target, by configfs: one subsystem and one port per tenant.

Source: drivers/nvme/target/configfs.c. Ports are directories with a number of
16 bits: the tenant's service number, and for RDMA 20000 above it, so that a
tenant may have both.
"""

from __future__ import annotations

import json
from collections.abc import Sequence

from rflash_tuning.targets import addresses
from rflash_tuning.targets.adapter import Adapter
from rflash_tuning.targets.machine import Machine
from rflash_tuning.targets.model import Order, Tenant
from rflash_tuning.targets.steps import MakeDirectory, MakeLink, Step

RDMA_PORTS = 20000


class Nvmet(Adapter):
    def __init__(self, transport: str):
        self.transport = transport  # tcp, rdma
        self.modules = ("nvmet", f"nvmet-{transport}")

    def _subsystem(self, tenant: Tenant) -> str:
        return f"nvmet/subsystems/{tenant.identity}"

    def _port(self, tenant: Tenant) -> str:
        return f"nvmet/ports/{tenant.port + (RDMA_PORTS if self.transport == 'rdma' else 0)}"

    def names_taken(self, machine: Machine, tenants: Sequence[Tenant]) -> str:
        for tenant in tenants:
            if machine.configfs.exists(self._subsystem(tenant)):
                return f"the NVMe subsystem {tenant.identity}"
            if machine.configfs.exists(self._port(tenant)):
                return f"the NVMe target's port {self._port(tenant).rpartition('/')[2]}"
        return ""

    def steps(self, machine: Machine, order: Order, tenants: Sequence[Tenant]) -> list[Step]:
        found: list[Step] = []
        hosts = dict.fromkeys(host for tenant in tenants for host in tenant.allowed)
        for host in hosts:
            name = f"nvmet/hosts/{host}"
            if not machine.configfs.exists(name):
                found.append(MakeDirectory(name, f"host {host}", shared=True))
        for tenant in tenants:
            found += self._tenant(tenant)
        return found

    def _tenant(self, tenant: Tenant) -> list[Step]:
        subsystem, port = self._subsystem(tenant), self._port(tenant)
        family = "ipv6" if ":" in tenant.address else "ipv4"
        where = f"{addresses.join(tenant.address, tenant.port)}"
        steps: list[Step] = [
            MakeDirectory(subsystem, f"{tenant.name}'s subsystem", (
                ("attr_allow_any_host", "0" if tenant.allowed else "1"),
                ("attr_serial", tenant.serial),
                ("attr_model", "rflash"),
            )),
            MakeDirectory(f"{subsystem}/namespaces/1", f"{tenant.name}'s namespace", (
                ("device_path", tenant.device),
                ("device_uuid", tenant.uuid),
                ("enable", "1"),
            )),
        ]  # fmt: skip
        steps += [
            MakeLink(f"{subsystem}/allowed_hosts/{host}", f"nvmet/hosts/{host}", f"{host} at {tenant.name}")
            for host in tenant.allowed
        ]
        steps += [
            MakeDirectory(port, f"{tenant.name}'s port", (
                ("addr_trtype", self.transport),
                ("addr_adrfam", family),
                ("addr_traddr", tenant.address),
                ("addr_trsvcid", str(tenant.port)),
            )),
            # From here on the tenant can connect.
            MakeLink(f"{port}/subsystems/{tenant.identity}", subsystem, f"{tenant.name} on {where}", where),
        ]  # fmt: skip
        return steps

    def up(self, machine: Machine, tenant: Tenant) -> bool:
        return machine.configfs.exists(f"{self._port(tenant)}/subsystems/{tenant.identity}")

    def sessions(self, machine: Machine, tenant: Tenant) -> int | None:
        """Controllers where the kernel has them in debugfs (CONFIG_NVME_TARGET_DEBUGFS).

        Otherwise the hosts that have connections: a host with two controllers
        counts once then.
        """
        debug = f"/sys/kernel/debug/nvmet/{tenant.identity}"
        if machine.system.exists(debug):
            return sum(name.startswith("ctrl") for name in machine.system.names(debug))
        if self.transport == "tcp":
            return len(addresses.peers(machine.system, tenant.port))
        return _rdma_peers(machine, tenant)


def _rdma_peers(machine: Machine, tenant: Tenant) -> int | None:
    """Hosts with an RDMA connection to a tenant's port, by rdma(8); None without it."""
    try:
        done = machine.system.run(["rdma", "--json", "resource", "show", "cm_id"])
        listed = json.loads(done.output) if done.status == 0 else None
    except (OSError, ValueError):
        return None
    if not isinstance(listed, list):
        return None
    # [{"ifname": "rxe0", "state": "CONNECT", "ps": "TCP", "comm": "nvmet_rdma",
    #   "src-addr": "10.9.0.1:4420", "dst-addr": "10.9.0.1:54777"}, ...]: one for each queue
    return len({str(item.get("dst-addr")).rpartition(":")[0] for item in listed
                if item.get("state") == "CONNECT"
                and str(item.get("src-addr")).rpartition(":")[2] == str(tenant.port)})  # fmt: skip
