# SPDX-License-Identifier: GPL-2.0
"""What a tenant types to get its flash."""

from __future__ import annotations

import shlex

from rflash_tuning.targets import addresses
from rflash_tuning.targets.model import Tenant


def commands(tenant: Tenant) -> dict[str, list[str]]:
    """By program: the lines that connect a tenant's host."""
    if tenant.kind == "iscsi":
        return {"open-iscsi": _open_iscsi(tenant)}
    transport = "rdma" if tenant.kind == "nvmet-rdma" else "tcp"
    options = f"-t {transport} -a {_address(tenant)} -s {tenant.port} -n {shlex.quote(tenant.identity)}"
    found = {}
    # rflash has no RDMA yet.
    if transport == "tcp":
        found["rflash"] = [f"rflash connect {options}"]
    if tenant.kind != "rflashd":
        found["nvme-cli"] = [f"nvme connect {options}"]
    return found


def _open_iscsi(tenant: Tenant) -> list[str]:
    """Without discovery, which would show all tenants' targets and log in to them at boot."""
    node = f"iscsiadm -m node -T {tenant.identity} -p {addresses.join(_address(tenant), tenant.port)}"
    return [f"{node} -o new", f"{node} --login"]


def _address(tenant: Tenant) -> str:
    return tenant.address if tenant.address not in ("0.0.0.0", "::") else "ADDRESS"
