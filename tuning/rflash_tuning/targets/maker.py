# SPDX-License-Identifier: GPL-2.0
"""Create, delete and restore: all or nothing, over a crash, too.

create   checks everything that can be checked, then does step after step. Any
         failure, Ctrl-C included, undoes all that was done.
delete   undoes a record's steps in reverse order, of half a create as well.
restore  after a reboot: does again what the reboot undid.
"""

from __future__ import annotations

import contextlib
import re
import signal
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

from rflash_tuning.errors import TuneError, UsageError
from rflash_tuning.system import System
from rflash_tuning.targets import addresses, devices, gpt, model, partitions
from rflash_tuning.targets.adapter import Adapter, adapter
from rflash_tuning.targets.machine import Machine, reason
from rflash_tuning.targets.model import Order, Tenant
from rflash_tuning.targets.partitions import PartitionTable
from rflash_tuning.targets.record import CREATING, DELETING, READY, Record, Store, begin
from rflash_tuning.targets.steps import Step

Progress = Callable[[str, int, int], None]  # what, which, of how many
SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


def silent(_what: str, _number: int, _total: int) -> None:
    """No progress."""


# ---- create ------------------------------------------------------------------


def plan(machine: Machine, store: Store, order: Order) -> Record:
    """What create would do, or why not (UsageError, TuneError). Changes nothing."""
    order, device = _settle(machine, order)
    found = adapter(order.kind)
    names = [model.name(order, index) for index in range(order.tenants)]
    _refuse_records(store, order, names)
    host = model.host_id(machine.system)
    steps: list[Step] = []
    if order.use_partitions:
        parts = devices.existing(machine, device, order.tenants)
    else:
        devices.refuse_table(machine, device)
        table = partitions.table(machine, device, names)
        steps.append(table)
        parts = [(devices.partition(machine.system, device.path, number), length * device.sector, unique)
                 for number, (_, length, unique, _) in enumerate(table.parts, 1)]  # fmt: skip
    tenants = tuple(_tenant(order, host, index, part) for index, part in enumerate(parts))
    _refuse_taken(machine, found, tenants)
    steps += found.steps(machine, order, tenants)
    return Record(order, tenants, tuple(steps), host, boot_id(machine.system))


def _settle(machine: Machine, order: Order) -> tuple[Order, devices.Device]:
    """The order with device and address as they are called here. What it refuses needs no modules loaded."""
    model.check(order)
    device = devices.find(machine, order.device)
    if not order.use_partitions:
        partitions.shares(device.size, order.tenants)
    return replace(order, device=device.path, address=addresses.choose(machine.system, order.address)), device


def _tenant(order: Order, host: str, index: int, part: tuple[str, int, str]) -> Tenant:
    name = model.name(order, index)
    path, size, guid = part
    return Tenant(name, order.kind, model.identity(order.kind, host, name), order.address,
                  model.port(order.kind, order.first + index), path, size, guid,
                  model.volume_uuid(guid, path), model.hosts(order, name))  # fmt: skip


def boot_id(system: System) -> str:
    return system.text("/proc/sys/kernel/random/boot_id") or ""


def _refuse_records(store: Store, order: Order, names: Sequence[str]) -> None:
    for record in store.all():
        if record.order.kind != order.kind:
            continue
        common = [tenant.name for tenant in record.tenants if tenant.name in names]
        if not common:
            continue
        if record.state != READY:
            raise UsageError(f"{record.name} was cut short: `rflash-target delete {record.name}` cleans up")
        free = max(int(tenant.name[1:]) for tenant in record.tenants) + 1
        raise UsageError(
            f"{common[0]} is there already, of {record.name} on {record.order.device}: "
            f"`rflash-target delete {record.name}`, or add to it with --first {free}"
        )


def _refuse_taken(machine: Machine, found: Adapter, tenants: Sequence[Tenant]) -> None:
    taken = found.names_taken(machine, tenants)
    if taken:
        raise UsageError(f"{taken} is there already, and rflash-target did not make it")
    if tenants[0].kind == "nvmet-rdma":
        return
    for tenant in tenants:
        if addresses.taken(machine.system, tenant.address, tenant.port):
            raise UsageError(
                f"port {tenant.port} of {tenant.address}, which would be {tenant.name}'s, is taken: "
                f"`ss -ltnp sport = :{tenant.port}` shows it; --first moves all ports"
            )


def create(machine: Machine, store: Store, order: Order, progress: Progress = silent) -> Record:
    """Make it, or leave everything as it was and say why (UsageError, TuneError)."""
    with store.lock():
        order, _ = _settle(machine, order)
        adapter(order.kind).prepare(machine)
        record = plan(machine, store, order)
        with _interruptible():
            try:
                record = _do(machine, store, record, range(len(record.steps)), progress)
                record = replace(record, state=READY)
                store.save(record)
            except BaseException as error:
                # _do has put its last state into the store.
                _give_up(machine, store, record.name, error)
                raise
        return record


def _do(machine: Machine, store: Store, record: Record, numbers: Sequence[int], progress: Progress) -> Record:
    """Do these steps. Raises TuneError with the step's name, and what ends the process."""
    for number in numbers:
        step = record.steps[number]
        progress(step.label(), number + 1, len(record.steps))
        before = record.begun
        record = begin(store, record, number)
        try:
            step.do(machine)
        except FileExistsError as error:
            # Somebody else's: it must not be undone with ours.
            record = replace(record, begun=before)
            store.save(record)
            raise TuneError(f"{step.label()}: somebody else has made it meanwhile") from error
        except (OSError, TuneError) as error:
            raise TuneError(f"{step.label()}: {step.why(error)}") from error
    return record


def _give_up(machine: Machine, store: Store, name: str, cause: BaseException) -> None:
    """Undo half a create. Raises TuneError when that fails, too, or when a signal was the cause."""
    if not isinstance(cause, Exception | KeyboardInterrupt):
        return  # the process is to end at once (a crash in tests)
    with contextlib.suppress(ValueError):  # only the main thread has signals
        for number in SIGNALS:
            signal.signal(number, signal.SIG_IGN)
    record = store.load(name)
    if record is None:
        return
    try:
        _undo(machine, store, record, silent)
    except (OSError, TuneError) as error:
        first = reason(cause) if isinstance(cause, Exception) else "interrupted"
        raise TuneError(
            f"{first}; undoing it failed, too ({reason(error)}): `rflash-target delete {name}` tries again"
        ) from cause
    store.remove(record)
    if isinstance(cause, KeyboardInterrupt):
        raise TuneError("interrupted; everything is as it was before") from cause


@contextlib.contextmanager
def _interruptible() -> Iterator[None]:
    """SIGTERM and SIGHUP end us as Ctrl-C does: with an exception, after which all is undone."""

    def interrupt(_number: int, _frame: Any) -> None:
        raise KeyboardInterrupt

    try:
        old = {number: signal.signal(number, interrupt) for number in SIGNALS}
    except ValueError:  # not in the main thread, which alone gets signals
        yield
        return
    try:
        yield
    finally:
        for number, handler in old.items():
            signal.signal(number, handler)


# ---- delete ------------------------------------------------------------------


def _undo(machine: Machine, store: Store, record: Record, progress: Progress,
          keep: Callable[[Step], bool] = lambda step: False) -> None:  # fmt: skip
    """Undo all steps that were begun, last first, but for those to keep."""
    total = record.begun
    try:
        while record.begun:
            step = record.steps[record.begun - 1]
            progress(f"remove {step.label()}", total - record.begun + 1, total)
            if not keep(step):
                step.undo(machine)
            record = replace(record, begun=record.begun - 1)
    except BaseException:
        # What was undone need not be tried again.
        store.save(record)
        raise


def choose(store: Store, name: str) -> Record:
    """The record of this name; the only one when no name is given. Raises UsageError."""
    if name:
        record = store.load(name) if re.fullmatch(r"[a-z0-9-]+", name) else None
        if record is None:
            names = [one.name for one in store.all()]
            raise UsageError(f"there is no {name}; there is {', '.join(names) if names else 'nothing'}")
        return record
    records = store.all()
    if len(records) == 1:
        return records[0]
    if not records:
        raise UsageError(f"there is nothing to delete: {store.directory} has no record")
    raise UsageError(f"say which: {', '.join(one.name for one in records)}, or --all")


def delete(machine: Machine, store: Store, name: str, force: bool = False, keep_partitions: bool = False,
           progress: Progress = silent) -> Record:  # fmt: skip
    """Undo a create. Refuses while somebody uses it. Raises UsageError, TuneError."""
    with store.lock():
        record = choose(store, name)
        _refuse_foreign(machine, record)
        if not force:
            _refuse_sessions(machine, record)
        tables = [step for step in record.steps[: record.begun] if isinstance(step, PartitionTable)]
        if tables and not keep_partitions:
            path = partitions.locate(machine, tables[0])
            users = devices.occupants(machine, path)
            if users:
                raise UsageError(f"{path} is in use: {users[0]}")
        record = replace(record, state=DELETING)
        store.save(record)
        try:
            _undo(machine, store, record, progress,
                  lambda step: keep_partitions and isinstance(step, PartitionTable))  # fmt: skip
        except OSError as error:
            raise TuneError(f"{record.name} could be removed only in part: {reason(error)}") from error
        store.remove(record)
        return record


def _refuse_foreign(machine: Machine, record: Record) -> None:
    if record.host_id != model.host_id(machine.system):
        raise UsageError(f"the record {record.name} is another host's, {record.host_id}")


def _refuse_sessions(machine: Machine, record: Record) -> None:
    found = adapter(record.order.kind)
    busy = [(tenant, found.sessions(machine, tenant) or 0) for tenant in record.tenants]
    busy = [(tenant, count) for tenant, count in busy if count]
    if busy:
        tenant, count = busy[0]
        plural = "session" if count == 1 else "sessions"
        others = f", and {len(busy) - 1} more tenants have some" if len(busy) > 1 else ""
        raise UsageError(f"{tenant.name} has {count} {plural}{others}: log out there first, or --force ends them")


# ---- restore -----------------------------------------------------------------


@dataclass(frozen=True)
class Restored:
    """What became of one record."""

    name: str
    did: str  # restored, there already, removed, failed
    why: str = ""


def restore(machine: Machine, store: Store, progress: Progress = silent) -> list[Restored]:
    """After a reboot: make again what is recorded. One that fails does not keep the others from it."""
    results = []
    with store.lock():
        for record in store.all():
            try:
                results.append(_restore(machine, store, record, progress))
            except TuneError as error:
                results.append(Restored(record.name, "failed", str(error)))
    return results


def _restore(machine: Machine, store: Store, record: Record, progress: Progress) -> Restored:
    _refuse_foreign(machine, record)
    found = adapter(record.order.kind)
    found.prepare(machine)
    if record.state in (CREATING, DELETING):
        try:
            _undo(machine, store, record, progress)
        except OSError as error:
            raise TuneError(f"what a crash left of it can't be removed: {reason(error)}") from error
        store.remove(record)
        return Restored(record.name, "removed", "it was cut short by a crash")
    if all(step.done(machine) for step in record.steps):
        return Restored(record.name, "there already")
    if not all(step.done(machine) for step in record.steps if isinstance(step, PartitionTable)):
        raise TuneError(f"no device here has the partitions that were made on {record.order.device}")
    record = _renewed(machine, found, record)
    missing = [number for number, step in enumerate(record.steps) if not step.done(machine)]
    try:
        record = _do(machine, store, record, missing, progress)
    except TuneError:
        # Its partitions stay: they hold the tenants' data.
        kept = store.load(record.name) or record
        with contextlib.suppress(OSError, TuneError):
            for number in reversed(missing):
                if number < kept.begun:
                    kept.steps[number].undo(machine)
        raise
    store.save(record)
    return Restored(record.name, "restored")


def _renewed(machine: Machine, found: Adapter, record: Record) -> Record:
    """The record for this boot: devices may have other names, and LIO's numbers may be taken."""
    now = boot_id(machine.system)
    if now == record.boot_id:
        return record
    tables = [step for step in record.steps if isinstance(step, PartitionTable)]
    order = record.order
    if tables:
        path = partitions.locate(machine, tables[0], strict=True)
        order = replace(order, device=path)
        tenants = [replace(tenant, device=devices.partition(machine.system, path, number))
                   for number, tenant in enumerate(record.tenants, 1)]  # fmt: skip
    else:
        tenants = [replace(tenant, device=_partition_again(machine, tenant)) for tenant in record.tenants]
    lasting = tuple(step for step in record.steps if step.persistent)
    again = tuple(step for step in found.steps(machine, order, tenants) if not step.persistent)
    # What lasts comes first in the undoing of half a restore, too: last.
    front = tuple(step for step in lasting if isinstance(step, PartitionTable))
    back = tuple(step for step in lasting if step not in front)
    steps = front + again + back if not _saved_first(back) else front + back[:1] + again + back[1:]
    return replace(record, order=order, tenants=tuple(tenants), steps=steps, boot_id=now, begun=len(steps))


def _saved_first(steps: Sequence[Step]) -> bool:
    """Is the first of these the one that acts at the end of undoing?"""
    return bool(steps) and getattr(steps[0], "when", "") == "undo"


def _partition_again(machine: Machine, tenant: Tenant) -> str:
    """The partition that a tenant had before the reboot. Raises TuneError."""
    system = machine.system
    for name in system.names("/sys/block"):
        facts = devices.geometry(system, name)
        if not tenant.part or not facts or not facts[0]:
            continue
        try:
            table = gpt.read(partitions.reader(machine, f"/dev/{name}"), facts[1])
        except OSError:
            continue
        for part in table.parts if table else ():
            if part.guid == tenant.part:
                return devices.partition(system, f"/dev/{name}", part.number)
    size = system.number(f"/sys/class/block/{tenant.device.removeprefix('/dev/')}/size", 0) or 0
    if not tenant.part and size * 512 == tenant.size:
        return tenant.device
    raise TuneError(f"{tenant.name}'s partition, {tenant.device}, is not there")
