# SPDX-License-Identifier: GPL-2.0
import json
import re
from dataclasses import replace

from rflash_tuning.tune import render, testdata
from rflash_tuning.tune.change import Change
from rflash_tuning.tune.coremap import core_map, short
from rflash_tuning.tune.paint import ASCII, Paint, bar, columns
from rflash_tuning.tune.settings import FileSetting

PLAIN = Paint()


def table(paint=PLAIN):
    return render.plan_table(testdata.plan(), testdata.host(), paint, "rflash-tune apply --here")


def test_the_allocation_comes_first_with_cores_queues_and_interrupts():
    text = table()
    row = next(line for line in text.splitlines() if line.lstrip().startswith("t2 "))
    assert row.split() == ["t2", "3261", "CPU", "2", "CPU", "3", "1", "eth0", "41"]
    assert text.index("Allocation") < text.index("irq-affinity") < text.index("Warnings")


def test_a_diff_shows_old_new_reason_source_and_disruption():
    text = table()
    assert re.search(r"~  eth0 rx-0 interrupt 40 affinity +0-5 → 0 +t1", text)
    assert "[link, could cut you off]" in text
    assert "fewer packets for the same data (EuroSys'16 figure 3)" in text


def test_a_reason_is_printed_once_for_all_lines_that_share_it():
    assert table().count("arrives where the tenant's connection is served") == 1


def test_reasons_that_differ_by_the_tenant_only_are_one():
    changes = tuple(
        Change(FileSetting(f"/proc/sys/net/x{n}"), "0", "1", "k", f"t{n}'s packets to t{n}'s queue", "", tenant=f"t{n}")
        for n in (1, 2)
    )
    text = render.plan_table(replace(testdata.plan(), changes=changes), testdata.host(), PLAIN)
    assert text.count("the tenant's packets to the tenant's queue") == 1
    text = render.plan_table(replace(testdata.plan(), changes=changes[:1]), testdata.host(), PLAIN)
    assert "t1's packets to t1's queue" in text


def test_many_lines_that_differ_by_a_number_are_one():
    rows = [render.Row("~", f"cpu{n} state3 disable", "0", "1", "") for n in (0, 1, 2, 5)]
    assert [row.label for row in render.collapsed(rows)] == ["cpu0-2,5 state3 disable"]
    assert render.collapsed(rows[:3]) == rows[:3]
    others = [render.Row("~", f"rx-{n} interrupt {n + 40}", "0-3", "0", "") for n in range(4)]
    assert render.collapsed(others) == others


def test_new_queues_are_said_to_be_planned_again():
    text = render.plan_table(testdata.plan(without_channels=False), testdata.host(), PLAIN)
    assert "planned again once they are there" in text


def test_a_configuration_file_is_shown_as_the_lines_that_differ():
    text = table()
    assert re.search(r"^ +\+ B=2$", text, re.MULTILINE)
    assert "A=1" not in text


def test_what_cannot_be_changed_and_warnings_come_last():
    text = table()
    last = text[text.index("Cannot be changed here") :]
    assert "[unchangeable] nvme0n1 queue 1 interrupt 60" in last
    assert "two tenants share a link" in last
    assert "8 changes (disruption: 6 none, 1 packets, 1 link); 7 right already; 1 cannot be changed." in last
    assert last.rstrip().endswith("To do it: rflash-tune apply --here\nTo undo it: rflash-tune revert")


def test_colours_only_when_asked_for():
    assert "\x1b" not in table()
    coloured = table(Paint(colour=True))
    assert "\x1b[32m" in coloured
    bare = re.sub(r"\x1b\[[0-9;]*m", "", coloured)
    assert [line.rstrip() for line in bare.splitlines()] == table().splitlines()


def test_ascii_where_nothing_else_can_be_shown():
    text = table(Paint(unicode=False))
    assert text.isascii()
    assert "0-5 -> 0" in text
    assert set(ASCII).isdisjoint(text)


def test_lines_stay_within_the_width():
    prose = [line for line in table(Paint(width=70)).splitlines() if "→" not in line and "tenant" not in line]
    assert max(len(line) for line in prose if not line.startswith(("Plan", "To do it", "8 changes"))) <= 70


def test_core_map_shows_who_is_where():
    ids, who = core_map(testdata.host(), testdata.allocation(2), PLAIN)[1:]
    assert ids.split() == ["node", "0", "0", "1", "2", "3", "4", "5"]
    assert who.split() == ["t1●", "t1○", "t2●", "t2○", "·", "·"]


def test_core_map_puts_threads_of_a_core_together_and_marks_offline_ones():
    host = testdata.host(8, threads=2, nodes=2, offline=(7,))
    lines = core_map(host, testdata.allocation(1), PLAIN)
    assert lines[1].split() == ["node", "0", "0", "4", "│", "1", "5", "│"]
    assert lines[-1].split() == ["node", "1", "2-3,6", "·,", "7", "x"]
    assert "x offline" in lines[0]


def test_core_map_of_many_cpus_wraps():
    lines = core_map(testdata.host(64, threads=2), testdata.allocation(3), Paint(width=80))
    assert all(len(line.rstrip()) <= 80 for line in lines[1:])
    shown = [int(word) for line in lines[1::2] for word in line.replace("node", "").split() if word.isdigit()]
    assert sorted(shown)[-1] == 63


def test_short_names():
    assert short(["t1", "t2", "t3", "t5"]) == "t1-3,5"
    assert short(["nqn.2024-01.io.example:a", "nqn.2024-01.io.example:b"]) == "a,b"
    assert short(["iqn.x:a", "iqn.x:b", "iqn.x:c"]) == "a+2"


def test_json_has_everything_and_survives():
    document = json.loads(json.dumps(render.plan_json(testdata.plan())))
    assert document["schema"] == 1
    plan = document["plan"]
    assert plan["disruption"] == "link"
    assert plan["counts"] == {"none": 6, "packets": 1, "link": 1, "target": 0, "foreseen": 1}
    assert plan["changes"][1] | {"reason": "", "source": ""} == {
        "key": "file /sys/class/net/0000:01:00.0/mtu", "label": "eth0 mtu",
        "setting": {"kind": "file", "path": "/sys/class/net/eth0/mtu", "format": "number", "nic": "eth0",
                    "bus": "0000:01:00.0"},
        "old": 1500, "new": 9000, "shown": ["1500", "9000"], "knob": "mtu", "reason": "", "source": "",
        "disruption": "link", "cuts_off": True, "tenant": "", "foreseen": "",
        "undo": ["echo 1500 > /sys/class/net/eth0/mtu"],
    }  # fmt: skip


def test_columns_ignore_colours():
    red = Paint(colour=True)("ab", "red")
    assert columns([[red, "x"], ["abcd", "y"]]) == [red + "    x", "abcd  y"]


def test_bar():
    assert bar(0.5, 4) == "██··"
    assert bar(7, 2) == "██"
