# SPDX-License-Identifier: GPL-2.0
"""Reading a GUID partition table from a device's bytes. Writing is sfdisk's business.

Source: UEFI specification 2.10, section 5.3. All numbers are little-endian; a
GUID's first three fields are, too.
"""

from __future__ import annotations

import struct
import uuid
import zlib
from collections.abc import Callable
from dataclasses import dataclass

Read = Callable[[int, int], bytes]  # offset and length in bytes

_HEADER = struct.Struct("<8sIIIIQQQQ16sQIII")
_ENTRY = struct.Struct("<16s16sQQQ72s")
ENTRIES = 128
ENTRY_BYTES = 128


@dataclass(frozen=True)
class Part:
    """A partition; sectors are logical blocks of the device."""

    number: int
    start: int
    sectors: int
    guid: str
    name: str


@dataclass(frozen=True)
class Table:
    guid: str
    parts: tuple[Part, ...]


def head_bytes(sector: int) -> int:
    """What the table takes at the beginning of a device: protective MBR, header, entries."""
    return 2 * sector + _entry_bytes(sector)


def tail_bytes(sector: int) -> int:
    """What its copy takes at the end: entries, header."""
    return sector + _entry_bytes(sector)


def _entry_bytes(sector: int) -> int:
    return -(-ENTRIES * ENTRY_BYTES // sector) * sector


def read(source: Read, sector: int) -> Table | None:
    """The table at the device's beginning, None when there is none or it is damaged."""
    header = source(sector, sector)
    (signature, _, size, crc, _, mine, _, _, _, guid, first, count, length, entries_crc) = _HEADER.unpack_from(header)
    if signature != b"EFI PART" or mine != 1 or not _HEADER.size <= size <= sector:
        return None
    if zlib.crc32(header[:16] + bytes(4) + header[20:size]) != crc:
        return None
    # Bounds: a damaged header must not make us read gigabytes.
    if count > 1024 or length not in (128, 256, 512) or first < 2:
        return None
    entries = source(first * sector, -(-count * length // sector) * sector)[: count * length]
    if zlib.crc32(entries) != entries_crc:
        return None
    parts = []
    for index in range(count):
        kind, unique, start, end, _, name = _ENTRY.unpack_from(entries, index * length)
        if kind != bytes(16):
            text = name.decode("utf-16-le", "replace").split("\0")[0]
            parts.append(Part(index + 1, start, end - start + 1, str(uuid.UUID(bytes_le=unique)), text))
    return Table(str(uuid.UUID(bytes_le=guid)), tuple(parts))
