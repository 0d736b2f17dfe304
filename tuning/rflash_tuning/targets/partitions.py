# SPDX-License-Identifier: GPL-2.0
"""Static partitioning: equal shares of the flash, one partition per tenant.

A share is a whole number of MiB and begins on one; the first and the last MiB
belong to the table and its copy. The table is made by sfdisk(8). What was in
its place before is in the record, so that undoing puts back the very bytes.
The tenants' data is not touched by either: partitions of the same size made
again show it again.
"""

from __future__ import annotations

import base64
import errno
import shlex
import uuid
import zlib
from collections.abc import Callable
from dataclasses import dataclass
from typing import ClassVar

from rflash_tuning.errors import TuneError, UsageError
from rflash_tuning.targets import devices, gpt
from rflash_tuning.targets.machine import Machine, last_line, reason
from rflash_tuning.targets.steps import Step

MIB = 1 << 20
WAIT = 10.0  # seconds for the partitions' devices to appear


def shares(size: int, tenants: int) -> int:
    """Bytes of each tenant's share of a device of `size` bytes. Raises UsageError when there is not a MiB for each."""
    share = (size // MIB - 2) // tenants * MIB
    if share < MIB:
        room = max(0, size // MIB - 2)
        raise UsageError(f"{tenants} tenants are more than shares of 1 MiB on this device, of which there are {room}")
    return share


@dataclass(frozen=True)
class PartitionTable(Step):
    """The partition table of a device that had none."""

    kind: ClassVar[str] = "partition-table"
    persistent: ClassVar[bool] = True
    device: str
    size: int  # bytes of the device
    sector: int
    guid: str
    parts: tuple[tuple[int, int, str, str], ...]  # start and length in sectors, unique GUID, name
    head: str  # what was there: zlib, base64
    tail: str

    def label(self) -> str:
        return f"partitions on {self.device}"

    def sfdisk(self) -> str:
        """The table in sfdisk's language."""
        lines = ["label: gpt", f"label-id: {self.guid.upper()}"]
        lines += [f'start={start}, size={length}, type=linux, uuid={unique.upper()}, name="{name}"'
                  for start, length, unique, name in self.parts]  # fmt: skip
        return "\n".join(lines)

    def do(self, machine: Machine) -> None:
        argv = ["sh", "-c", f'printf "%s\\n" "$1" | {" ".join(_SFDISK)} "$2"', "sh", self.sfdisk(), self.device]
        done = machine.system.run(argv)
        if done.status == 127:
            raise TuneError("the command sfdisk is needed: install fdisk")
        if done.status:
            raise TuneError(f"sfdisk fails: {last_line(done.output) or f'status {done.status}'}")
        for number in range(1, len(self.parts) + 1):
            self._await(machine, number)

    def _await(self, machine: Machine, number: int) -> None:
        waited = 0.0
        while not machine.system.exists(devices.partition(machine.system, self.device, number)):
            if waited >= WAIT:
                raise TuneError(f"partition {number} does not appear within {WAIT:.0f} s")
            machine.sleep(0.05)
            waited += 0.05

    def undo(self, machine: Machine) -> None:
        """Put the bytes back that were there, if the table is ours and nobody uses the device."""
        path = locate(machine, self)
        try:
            with machine.sectors.claim(path) as fd:
                head, tail = self.before()
                end = self.size - len(tail)
                now = machine.sectors.read(path, 0, len(head)), machine.sectors.read(path, end, len(tail))
                if now != (head, tail):
                    self._refuse_foreign(machine, path)
                    # EBUSY while somebody has a partition open, and then nothing may be written.
                    machine.sectors.reread(fd)
                    # The copy first: a table that is torn here is still found by its head.
                    machine.sectors.write(fd, end, tail)
                    machine.sectors.write(fd, 0, head)
                machine.sectors.reread(fd)
        except OSError as error:
            if error.errno == errno.EBUSY:
                users = devices.users(machine, path)
                raise TuneError(
                    f"{path} is in use{': ' + users[0] if users else ''}, so its partitions stay"
                ) from error
            raise

    def _refuse_foreign(self, machine: Machine, path: str) -> None:
        table = gpt.read(reader(machine, path), self.sector)
        if table is None:
            # Torn by a crash in the midst of sfdisk; something else has a signature of its own.
            others = [found for found in devices.signatures(machine, path) if found not in ("gpt", "PMBR")]
            if not others:
                return
            raise TuneError(
                f"{path} has a signature ({others[0]}) that rflash-target did not make; it is left as it is"
            )
        ours = tuple((part.start, part.sectors, part.guid.lower()) for part in table.parts)
        if table.guid != self.guid or ours != tuple((start, length, unique) for start, length, unique, _ in self.parts):
            raise TuneError(
                f"the partition table of {path} was changed since rflash-target made it, and is left as it is: "
                "`rflash-target delete --keep-partitions` removes the targets and forgets it"
            )

    def before(self) -> tuple[bytes, bytes]:
        """What the device's first and last sectors held."""
        return _unpack(self.head), _unpack(self.tail)

    def done(self, machine: Machine) -> bool:
        try:
            return locate(machine, self, strict=True) != ""
        except TuneError:
            return False

    def why(self, error: Exception) -> str:
        return reason(error)

    def script(self) -> list[str]:
        return [f"{' '.join(_SFDISK)} {shlex.quote(self.device)} <<'END'", *self.sfdisk().splitlines(), "END",
                "udevadm settle"]  # fmt: skip


# --lock: udev does not look while it is written. Nothing but the table is wiped or written.
_SFDISK = ["sfdisk", "--quiet", "--lock", "--wipe", "never", "--wipe-partitions", "never"]


def table(machine: Machine, device: devices.Device, names: list[str],
          new_guid: Callable[[], uuid.UUID] = uuid.uuid4) -> PartitionTable:  # fmt: skip
    """The table for these tenants. Reads what is in its place. Raises UsageError, OSError."""
    share = shares(device.size, len(names))
    unit = MIB // device.sector
    length = share // device.sector
    parts = tuple((unit + index * length, length, str(new_guid()), f"rflash-{name}")
                  for index, name in enumerate(names))  # fmt: skip
    tail = gpt.tail_bytes(device.sector)
    return PartitionTable(
        device.path, device.size, device.sector, str(new_guid()), parts,
        _pack(machine.sectors.read(device.path, 0, gpt.head_bytes(device.sector))),
        _pack(machine.sectors.read(device.path, device.size - tail, tail)),
    )  # fmt: skip


def locate(machine: Machine, step: PartitionTable, strict: bool = False) -> str:
    """The device that has this table now; it may have another name since a reboot.

    When none has it, the recorded path (the table may not have been written),
    or with `strict` TuneError.
    """
    names = [step.device.removeprefix("/dev/")]
    names += [name for name in machine.system.names("/sys/block") if name != names[0]]
    for name in names:
        facts = devices.geometry(machine.system, name)
        if facts != (step.size, step.sector):
            continue
        path = f"/dev/{name}"
        try:
            found = gpt.read(reader(machine, path), step.sector)
        except OSError:
            continue
        if found is not None and found.guid == step.guid:
            return path
    if strict:
        raise TuneError(f"no device here has the partitions that were made on {step.device}")
    if devices.geometry(machine.system, names[0]) != (step.size, step.sector):
        raise TuneError(f"{step.device}, on which the partitions were made, is not there; --keep-partitions forgets it")
    return step.device


def reader(machine: Machine, path: str) -> gpt.Read:
    return lambda offset, length: machine.sectors.read(path, offset, length)


def _pack(data: bytes) -> str:
    return base64.b64encode(zlib.compress(data)).decode()


def _unpack(text: str) -> bytes:
    return zlib.decompress(base64.b64decode(text))
