# SPDX-License-Identifier: GPL-2.0
"""What sfdisk wrote is read, and what is damaged is not."""

from __future__ import annotations

import random
import shutil
import subprocess
from pathlib import Path

import pytest

from rflash_tuning.targets import gpt

pytestmark = pytest.mark.skipif(not shutil.which("sfdisk"), reason="needs the command sfdisk (fdisk)")

GUID = "0FC63DAF-8483-4772-8E79-3D69D8477DE4"
TABLE = f'label: gpt\nlabel-id: {GUID}\nstart=2048, size=2048, name="one"\nstart=6144, size=4096, name="zwei"\n'


@pytest.fixture
def disk(tmp_path: Path) -> bytearray:
    image = tmp_path / "disk"
    image.write_bytes(bytes(8 << 20))
    subprocess.run(["sfdisk", "--quiet", str(image)], input=TABLE, text=True, check=True)
    return bytearray(image.read_bytes())


def read(disk: bytearray, sector: int = 512) -> gpt.Table | None:
    return gpt.read(lambda offset, length: bytes(disk[offset : offset + length]), sector)


def test_sfdisks_table(disk: bytearray) -> None:
    table = read(disk)
    assert table is not None
    assert table.guid.upper() == GUID
    assert [(part.number, part.start, part.sectors, part.name) for part in table.parts] == [
        (1, 2048, 2048, "one"),
        (2, 6144, 4096, "zwei"),
    ]


def test_the_table_takes_no_more_than_is_kept_of_its_place(disk: bytearray) -> None:
    head, tail = gpt.head_bytes(512), gpt.tail_bytes(512)
    assert (head, tail) == (34 * 512, 33 * 512)
    assert (gpt.head_bytes(4096), gpt.tail_bytes(4096)) == (6 * 4096, 5 * 4096)
    assert not any(disk[head : len(disk) - tail])


def test_no_table_and_the_wrong_sector_size(disk: bytearray) -> None:
    assert read(bytearray(1 << 20)) is None
    assert read(disk, 4096) is None


def test_any_damage_is_noticed(disk: bytearray) -> None:
    chance = random.Random(1)
    good = bytes(disk)
    places = [512 + offset for offset in range(92)] + [1024 + chance.randrange(16384) for _ in range(100)]
    for place in places:
        disk[place] ^= 1 << chance.randrange(8)
        assert read(disk) is None, f"byte {place}"
        disk[place] = good[place]
    assert read(disk) is not None
