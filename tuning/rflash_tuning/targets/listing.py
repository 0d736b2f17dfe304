# SPDX-License-Identifier: GPL-2.0
"""How targets are shown: a table for people, JSON for programs, a shell script for the careful."""

from __future__ import annotations

import ipaddress
from collections.abc import Sequence
from typing import Any

from rflash_tuning.targets import connect
from rflash_tuning.targets.adapter import adapter
from rflash_tuning.targets.machine import Machine
from rflash_tuning.targets.partitions import PartitionTable
from rflash_tuning.targets.record import READY, SCHEMA, Record

UNIT = "rflash-target.service"


def describe(machine: Machine, records: Sequence[Record], planned: bool = False) -> dict[str, Any]:
    """Everything about these records as JSON."""
    tenants = []
    for record in records:
        found = adapter(record.order.kind)
        for tenant in record.tenants:
            up = not planned and found.up(machine, tenant)
            tenants.append({
                "name": tenant.name, "kind": tenant.kind, "target": record.name,
                "state": "planned" if planned else _state(record, up), "identity": tenant.identity,
                "device": tenant.device, "size_bytes": tenant.size, "uuid": tenant.uuid,
                "address": tenant.address, "port": tenant.port, "allowed_hosts": list(tenant.allowed),
                "sessions": found.sessions(machine, tenant) if up else 0,
                "connect": connect.commands(tenant),
            })  # fmt: skip
    return {"schema": SCHEMA, "tenants": tenants}


def _state(record: Record, up: bool) -> str:
    if record.state != READY:
        return "cut short"
    return "up" if up else "down"


def table(description: dict[str, Any], commands: bool) -> list[str]:
    """Lines: one per tenant, then what each types."""
    tenants = description["tenants"]
    if not tenants:
        return ["No targets: `rflash-target create` makes them."]
    rows = [["TENANT", "KIND", "STATE", "SESSIONS", "DEVICE", "SIZE", "ADDRESS", "PORT", "HOSTS"]]
    rows += [[one["name"], one["kind"], one["state"], "?" if one["sessions"] is None else str(one["sessions"]),
              one["device"], size(one["size_bytes"]), one["address"], str(one["port"]),
              str(len(one["allowed_hosts"])) if one["allowed_hosts"] else "any"] for one in tenants]  # fmt: skip
    lines = columns(rows)
    if commands:
        lines += ["", "Connect, on the tenant's host:"]
        for one in tenants:
            for program, typed in one["connect"].items():
                lines += [f"  {one['name']}  {program}:", *(f"      {line}" for line in typed)]
    return lines


def remarks(machine: Machine, record: Record) -> list[str]:
    """What the user of a new target should know."""
    found = adapter(record.order.kind).remarks(record.order)
    open_to_all = [tenant for tenant in record.tenants if not tenant.allowed]
    if open_to_all:
        found.append(
            f"Any host that reaches {record.order.address} may connect to "
            f"{'every tenant' if len(open_to_all) == len(record.tenants) else 'these tenants'} and read and write "
            "its data: --allow-host limits that."
        )
    if ipaddress.ip_address(record.order.address).is_loopback:
        found.append(f"{record.order.address} can be reached from this host only.")
    if record.order.kind != "rflashd" and not record.order.persist:
        found.append(f"After a reboot, {UNIT} makes the targets again: `systemctl enable {UNIT}`.")
    return found


def script(record: Record) -> list[str]:
    """A shell script that does what create would do."""
    found = adapter(record.order.kind)
    lines = [
        "#!/bin/sh",
        f"# {len(record.tenants)} tenants of {record.order.device} by {record.order.kind}: what rflash-target",
        "# create would do, without its checks, its record and its undo. To be run as root.",
        "set -eu",
        "",
    ]
    lines += [f"modprobe {module}" for module in found.modules]
    before = [step for step in record.steps if isinstance(step, PartitionTable)]
    for step in before:
        lines += step.script()
    if found.configfs:
        lines += ["cd /sys/kernel/config"]
    after = [step for step in record.steps if step not in before]
    for step in after:
        lines += step.script()
    return lines


def size(count: int) -> str:
    """1.5 GiB."""
    value = float(count)
    for unit in ("B", "KiB", "MiB", "GiB", "TiB"):
        if value < 1024 or unit == "TiB":
            break
        value /= 1024
    return f"{value:.0f} {unit}" if value >= 100 or value == int(value) else f"{value:.1f} {unit}"


def columns(rows: Sequence[Sequence[str]]) -> list[str]:
    """Cells below each other, two blanks apart."""
    widths = [max(len(row[index]) for row in rows) for index in range(len(rows[0]))]
    return ["  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in rows]
