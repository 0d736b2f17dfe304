# SPDX-License-Identifier: GPL-2.0
"""What is generated from the programs' own words must be what they say now."""

from pathlib import Path

import pytest

from rflash_tuning import manpage
from rflash_tuning.knobs import table

DOCUMENTATION = Path(__file__).resolve().parents[2] / "Documentation"
FIELDS = ["What", "Why", "Source", "Disruption", "Undo"]


def test_the_page_of_knobs_is_up_to_date():
    text = (DOCUMENTATION / "knobs.rst").read_text()
    assert text == table.rst(), "run: cd tuning; python3 -m rflash_tuning.knobs.table > ../Documentation/knobs.rst"


@pytest.mark.parametrize("name", manpage.PARSERS)
def test_the_manual_pages_are_up_to_date(name):
    text = (DOCUMENTATION / f"man/{name}.8").read_text()
    again = f"python3 -m rflash_tuning.manpage {name} > ../Documentation/man/{name}.8"
    assert text == manpage.page(name), f"run: cd tuning; {again}"


def test_every_knob_says_what_a_manual_needs():
    found = table.knobs()
    assert len(found) > 15
    for knob in found:
        assert list(knob.fields) == FIELDS, knob.name
        assert all(knob.fields.values()), knob.name
