# SPDX-License-Identifier: GPL-2.0
"""rflash-target's command line: thin, everything it does is elsewhere."""

from __future__ import annotations

import argparse
import json
import os
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import TextIO

from rflash_tuning.errors import FAILED, OK, USAGE, TuneError, UsageError
from rflash_tuning.system import System
from rflash_tuning.targets import listing, maker, model
from rflash_tuning.targets.machine import Machine
from rflash_tuning.targets.model import KINDS, Order
from rflash_tuning.targets.partitions import PartitionTable
from rflash_tuning.targets.record import DIRECTORY, Store

NAME = "rflash-target"
PATIENCE = 2.0  # seconds without a word

DESCRIPTION = """\
Share a flash device out among tenants, and take it back.

`create` makes a partition of equal size for each tenant and a target for it,
with a name and a TCP port of its own (t1, t2, ...), and prints what each tenant
types to connect. It does all or nothing. `delete` undoes it.
"""
EPILOG = """\
examples:
  rflash-target create --kind nvmet-tcp --device /dev/nvme0n1 --tenants 6 --dry-run
  rflash-target create --kind iscsi --device /dev/nvme0n1 --tenants 6 --addr 10.0.0.1
  rflash-target show
  rflash-target delete

exit status: 0 done; 1 it was tried and did not work, nothing of it is left; 2
what was asked for makes no sense here, nothing was touched.
"""
CREATE = """\
Partition DEVICE into equal shares and make a target for each.

A device that is mounted, held, part of a target, or has a partition table or
any other signature is refused. Partitions begin on whole MiB; what the device's
first and last sectors held is kept, and put back by `delete`. Tenants' data is
neither wiped by `create` nor by `delete`: `blkdiscard` erases it.

  iscsi       the kernel's iSCSI target (LIO), through rtslib-fb; ports 3260, 3261, ...
  nvmet-tcp   the kernel's NVMe target over TCP; ports 4420, 4421, ...
  nvmet-rdma  the same over RDMA
  rflashd     rflash's own server: writes its configuration

Without --allow-host, every host that reaches the address may connect.
"""
DELETE = """\
Remove the targets, then their partitions: the device's first and last sectors
get back what they held before `create`. It refuses while a tenant is connected
(--force ends its session) or a partition is mounted here, and when the partition
table was changed since. The data on the flash stays as it is: the same create
shows it again. It also cleans up after a create that was killed.
"""

RESTORE = """\
Make the recorded targets again after a reboot, and clear away what a crash left.
Devices are found by their partition table, whatever they are called now.
"""


def parser() -> argparse.ArgumentParser:
    raw = argparse.RawDescriptionHelpFormatter
    top = argparse.ArgumentParser(NAME, description=DESCRIPTION, epilog=EPILOG, formatter_class=raw)
    top.add_argument("--state-dir", default=os.environ.get("RFLASH_TARGET_STATE") or DIRECTORY, metavar="DIR",
                     help=f"where records are kept (default: $RFLASH_TARGET_STATE or {DIRECTORY})")  # fmt: skip
    verbs = top.add_subparsers(dest="verb", required=True, metavar="VERB")

    create = verbs.add_parser("create", help="share a device out", description=CREATE, formatter_class=raw)
    create.add_argument("--kind", required=True, choices=KINDS, help="what serves it")
    create.add_argument("--device", required=True, metavar="DEVICE", help="the whole block device: /dev/nvme0n1")
    create.add_argument("--tenants", required=True, type=int, metavar="N", help="how many, 1 to 128")
    create.add_argument("--addr", default="", metavar="IP",
                        help="address to listen on (default: the only one here; 0.0.0.0: all)")  # fmt: skip
    create.add_argument("--allow-host", action="append", default=[], metavar="[tN=]NAME",
                        help="let in only this NQN or IQN (of tenant tN); may be repeated")  # fmt: skip
    create.add_argument("--first", type=int, default=1, metavar="N",
                        help="number of the first tenant, where there are some already (default 1)")  # fmt: skip
    create.add_argument("--use-partitions", action="store_true",
                        help="take the device's partitions as they are, one per tenant")  # fmt: skip
    create.add_argument("--persist", action="store_true", help="iscsi: save in targetcli's configuration, too")
    create.add_argument("-n", "--dry-run", action="store_true", help="check and show everything, change nothing")
    create.add_argument("-o", "--output", choices=("table", "json", "script"), default="table",
                        help="script prints a shell script that does it, and changes nothing")  # fmt: skip

    show = verbs.add_parser("show", help="list tenants, their targets and sessions")
    show.add_argument("-c", "--connect", action="store_true", help="with what each tenant types to connect")
    show.add_argument("-o", "--output", choices=("table", "json"), default="table")

    delete = verbs.add_parser("delete", help="undo a create", description=DELETE, formatter_class=raw)
    delete.add_argument("name", nargs="?", default="", metavar="NAME",
                        help="what create called it, such as iscsi-t1; needed when there are several")  # fmt: skip
    delete.add_argument("--device", default="", metavar="DEVICE", help="what was made on this device")
    delete.add_argument("--all", action="store_true", help="everything")
    delete.add_argument("--force", action="store_true", help="also while tenants are connected")
    delete.add_argument("--keep-partitions", action="store_true",
                        help="leave the partition table, for a create with --use-partitions")  # fmt: skip

    verbs.add_parser("restore", help="after a reboot: make again what is recorded (rflash-target.service)",
                     description=RESTORE)  # fmt: skip
    return top


@dataclass
class Ticker:
    """Says what is being done, once it takes longer than people wait without wondering."""

    stream: TextIO
    clock: Callable[[], float] = time.monotonic
    begin: float = field(init=False)

    def __post_init__(self) -> None:
        self.begin = self.clock()

    def __call__(self, what: str, number: int, total: int) -> None:
        if self.clock() - self.begin >= PATIENCE:
            print(f"{NAME}: {number} of {total}: {what}", file=self.stream, flush=True)


def main(argv: Sequence[str] | None = None, machine: Machine | None = None) -> int:
    """The exit status. Errors are one sentence on stderr."""
    options = parser().parse_args(argv)
    try:
        machine = machine or Machine(_live())
        return _VERBS[options.verb](machine, Store(machine.system, options.state_dir), options)
    except TuneError as error:
        print(f"{NAME}: {error}", file=sys.stderr)
        return error.status
    except PermissionError as error:
        print(f"{NAME}: {error.filename or 'this'}: permission denied; this needs root", file=sys.stderr)
        return USAGE
    except OSError as error:
        where = f"{error.filename}: " if error.filename else ""
        print(f"{NAME}: {where}{error.strerror or error}", file=sys.stderr)
        return FAILED
    except KeyboardInterrupt:
        print(f"{NAME}: interrupted", file=sys.stderr)
        return 130


def _live() -> System:
    from rflash_tuning.live import LiveSystem

    return LiveSystem()


def _create(machine: Machine, store: Store, options: argparse.Namespace) -> int:
    order = Order(options.kind, options.device, options.tenants, options.first, options.addr,
                  tuple(model.allowed(text) for text in options.allow_host), options.use_partitions,
                  options.persist)  # fmt: skip
    planned = options.dry_run or options.output == "script"
    progress = Ticker(sys.stderr)
    record = maker.plan(machine, store, order) if planned else maker.create(machine, store, order, progress)
    if options.output == "script":
        print("\n".join(listing.script(record)))
        return OK
    description = listing.describe(machine, [record], planned)
    remarks = listing.remarks(machine, record)
    if options.output == "json":
        extra = {"steps": [step.label() for step in record.steps]} if planned else {}
        print(json.dumps({**description, **extra, "remarks": remarks}, indent=2))
        return OK
    print("\n".join(listing.table(description, commands=True)))
    if planned:
        print("\nIn this order:")
        print("\n".join(f"  {step.label()}" for step in record.steps))
    print()
    print("\n".join(remarks))
    end = "Nothing was changed: this was --dry-run." if planned else f"`{NAME} delete {record.name}` undoes it."
    print(end)
    return OK


def _show(machine: Machine, store: Store, options: argparse.Namespace) -> int:
    description = listing.describe(machine, store.all())
    if options.output == "json":
        print(json.dumps(description, indent=2))
    else:
        print("\n".join(listing.table(description, options.connect)))
    return OK


def _delete(machine: Machine, store: Store, options: argparse.Namespace) -> int:
    if sum(map(bool, (options.name, options.device, options.all))) > 1:
        raise UsageError("say it in one way: NAME, --device or --all")
    names = [options.name]
    if options.all:
        names = [record.name for record in store.all()]
    elif options.device:
        device = machine.system.resolve(options.device) if machine.system.exists(options.device) else options.device
        names = [record.name for record in store.all() if record.order.device == device]
        if not names:
            raise UsageError(f"nothing was made on {options.device}; `{NAME} show` lists what was")
    for name in names:
        record = maker.delete(machine, store, name, options.force, options.keep_partitions, Ticker(sys.stderr))
        made = any(isinstance(step, PartitionTable) for step in record.steps)
        kept = made and options.keep_partitions
        where = f"{record.order.device} {'keeps its partitions' if kept else 'is as it was before'}" if made else (
            f"the partitions of {record.order.device} were there before, and stay")  # fmt: skip
        print(f"Removed {record.name}, {len(record.tenants)} tenants; {where}.")
    if not names:
        print("There is nothing to delete.")
    return OK


def _restore(machine: Machine, store: Store, options: argparse.Namespace) -> int:
    results = maker.restore(machine, store, Ticker(sys.stderr))
    for result in results:
        print(f"{result.name}: {result.did}{f': {result.why}' if result.why else ''}", flush=True)
    return FAILED if any(result.did == "failed" for result in results) else OK


_VERBS = {"create": _create, "show": _show, "delete": _delete, "restore": _restore}
