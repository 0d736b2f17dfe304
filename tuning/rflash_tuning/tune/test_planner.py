# SPDX-License-Identifier: GPL-2.0
"""What the planner refuses, in what order it puts things, and what it leaves out on request."""

from __future__ import annotations

from dataclasses import replace

import pytest

from rflash_tuning.errors import UsageError
from rflash_tuning.host.model import Disk, Nic, Tenant
from rflash_tuning.tune import testdata
from rflash_tuning.tune.planner import KNOBS, NAMES, order, plan


def host(*nics: Nic, **more):
    base = testdata.host()
    return replace(base, nics=base.nics + nics, **more)


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        ({"nics": ("eth9",)}, "there is no NIC 'eth9' here; there are eth0, br0, dummy0, idle0"),
        ({"nics": ()}, "a NIC is needed"),
        ({"nics": ("lo",)}, "lo is the loopback interface"),
        ({"nics": ("dummy0",)}, "dummy0 has no physical port below it"),
        ({"nics": ("idle0",)}, "idle0 has no queues"),
        ({"nics": ("br0",)}, "idle0 below br0 has no queues"),
        ({"tenants": 0}, "0 tenants make no sense"),
        ({"tenants": -1}, "-1 tenants make no sense"),
        ({"role": "client"}, "'client' is no role; it should be one of server, tenant"),
        ({"target": "nbd"}, "'nbd' is no target"),
        ({"goal": "speed"}, "'speed' is no goal"),
        ({"knobs": ("warp",)}, "there is no knob 'warp'"),
        ({"skip": ("warp",)}, "there is no knob 'warp'"),
        ({"disks": ("sdx",)}, "there is no disk 'sdx' here; there are: none"),
        ({"read_share": 101}, "a read share of 101"),
        ({"queue_depth": 0}, "a queue depth of 0"),
        ({"ports": (3260, 3260)}, "the same port"),
        ({"cpus": (77,)}, "there is no CPU 77"),
        ({"mtu": 9000}, "eth0 takes an MTU of 1500 at most"),
    ],
)
def test_what_makes_no_sense_is_refused_in_one_sentence(changes, sentence):
    here = host(
        Nic("lo", "loopback"),
        Nic("br0", "bridge", lowers=("idle0",)),
        Nic("dummy0", "other"),
        Nic("idle0", "physical"),
    )
    nics = tuple(replace(nic, max_mtu=1500) if nic.name == "eth0" else nic for nic in here.nics)
    with pytest.raises(UsageError) as refused:
        plan(replace(here, nics=nics), testdata.request(**changes))
    assert sentence in str(refused.value)
    assert "\n" not in str(refused.value)


def test_the_order_is_that_of_the_knobs_and_stable():
    changes = testdata.plan(without_channels=False).changes
    renamed = [replace(change, knob=knob) for change, knob in zip(changes, reversed(NAMES), strict=False)]
    ordered = order(renamed)
    assert [NAMES.index(change.knob) for change in ordered] == sorted(NAMES.index(change.knob) for change in renamed)
    unknown = replace(changes[0], knob="somebody-elses")
    assert order([unknown, *renamed])[-1] == unknown


def test_only_and_skip_choose_among_the_knobs():
    only = plan(host(), testdata.request(knobs=("interrupts",)))
    assert {change.knob for change in only.changes} == {"interrupts"}
    without = plan(host(), testdata.request(skip=("interrupts",)))
    assert "interrupts" not in {change.knob for change in without.changes}


def test_every_knob_has_its_row_of_the_manual():
    for knob in KNOBS:
        text = knob.__doc__
        assert knob.NAME and knob.TITLE
        for field in ("What", "Why", "Source", "Disruption", "Undo"):
            assert f":{field}:" in text, f"{knob.NAME} does not say its {field.lower()}"


def test_the_flash_is_that_behind_the_tenants():
    disks = tuple(
        Disk(name, kind, 0, "", 1 << 40, 512, False, "", ("none", "mq-deadline"), "mq-deadline")
        for name, kind in (("nvme0n1", "nvme"), ("nvme1n1", "nvme"), ("sda", "scsi"))
    )
    base = host(disks=disks)

    def chosen(here, **more):
        made = plan(here, testdata.request(knobs=("disk-queue",), **more))
        return [change.setting.path.split("/")[3] for change in made.changes]

    assert chosen(base) == ["nvme0n1", "nvme1n1"]
    assert chosen(base, disks=("sda",)) == ["sda"]
    assert chosen(base, role="tenant") == []
    tenant = Tenant("t1", "iscsi", "iqn", "", 3260, "/dev/nvme1n1p2")
    assert chosen(replace(base, tenants=(tenant,))) == ["nvme1n1"]


def test_tenants_that_share_a_port_are_said_and_not_steered():
    tenants = tuple(Tenant(name, "iscsi", name, "", 3260) for name in ("a", "b"))
    nics = (replace(host().nics[0], rules=()),)
    made = plan(replace(host(), nics=nics, tenants=tenants), testdata.request(tenants=2))
    assert any("share a TCP port" in warning for warning in made.warnings)
    assert not [change for change in made.changes if change.knob == "flow-rules"]
