# SPDX-License-Identifier: GPL-2.0
"""A real apply on real interfaces, with a real path behind them: in network namespaces of this machine.

The apply runs in a process inside the namespace, with a /sys of its own.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from rflash_tuning import errors
from rflash_tuning.tune.test_pathprobe import FAR, Net, line, namespaces

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="needs root for network namespaces")
TUNING = Path(__file__).resolve().parents[2]
PROGRAM = """
import json, sys
from rflash_tuning.live import LiveSystem
from rflash_tuning.tune.apply import apply
from rflash_tuning.tune.change import Allocation, Change, Plan, Request
from rflash_tuning.tune.revert import revert
from rflash_tuning.tune.settings import EthtoolSetting, FileSetting
what, state, peer, within = sys.argv[1:]
system = LiveSystem()
def mtu(nic):
    return Change(FileSetting(f"/sys/class/net/{nic}/mtu", "number", nic), 1500, 9000, "mtu", "", "", "link", True)
OFFLOAD = "tx-tcp-segmentation"
def offload(nic):
    setting = EthtoolSetting(nic, "", "features", (OFFLOAD,))
    return Change(setting, {OFFLOAD: True}, {OFFLOAD: False}, "offloads", "", "", "packets", True)
request = Request("server", "iscsi", ("near",), 1, peers=(peer,) if peer != "-" else ())
if what == "revert":
    report = revert(system, state)
else:
    plan = Plan(request, Allocation("", "", "", (), ()), (mtu("near") if what == "mtu" else offload("near"),))
    report = apply(system, plan, state, confirm_within=float(within))
print(json.dumps(report.to_json()))
"""


net = pytest.fixture(namespaces)


def run(space: str, what: str, state: Path, peer: str = "-", within: int = 0) -> dict[str, Any]:
    done = subprocess.run(
        ["ip", "netns", "exec", space, sys.executable, "-c", PROGRAM, what, str(state), peer, str(within)],
        capture_output=True,
        text=True,
        env={**os.environ, "PYTHONPATH": str(TUNING)},
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def mtu(space: str, nic: str = "near") -> int:
    done = subprocess.run(["ip", "-j", "-n", space, "link", "show", nic], capture_output=True, text=True, check=True)
    return int(json.loads(done.stdout)[0]["mtu"])


def test_an_mtu_that_the_path_passes_stays(net: Net, tmp_path: Path) -> None:
    space = line(net, me=1500)
    report = run(space, "mtu", tmp_path, FAR[4])
    assert report["status"] == errors.OK, report
    assert report["notes"] == [f"Packets of 9000 bytes pass to {FAR[4]} and back."] and mtu(space) == 9000
    assert run(space, "revert", tmp_path)["status"] == errors.OK and mtu(space) == 1500


@pytest.mark.parametrize("limits", [{"router_far": 1500, "far": 1500}, {"far": 1500}], ids=["told", "black-hole"])
def test_an_mtu_that_it_does_not_is_taken_back_at_once(net: Net, tmp_path: Path, limits: dict[str, int]) -> None:
    space = line(net, me=1500, **limits)
    start = time.monotonic()
    report = run(space, "mtu", tmp_path, FAR[4])
    assert report["status"] == errors.FAILED and mtu(space) == 1500, report
    assert "10.77.1.2" in report["message"] and report["message"].endswith("The host is as it was.")
    assert ("without a word" in report["message"]) == ("router_far" not in limits)
    assert time.monotonic() - start < 30


def test_an_unconfirmed_mtu_goes_back_by_itself(net: Net, tmp_path: Path) -> None:
    """The guard works inside the namespace after its apply has ended."""
    space = line(net, me=1500)
    report = run(space, "mtu", tmp_path, within=5)
    assert report["status"] == errors.UNCONFIRMED and mtu(space) == 9000
    end = time.monotonic() + 20
    while mtu(space) != 1500:
        assert time.monotonic() < end
        time.sleep(0.1)


def segments(space: str) -> bool:
    """As the kernel says it: the device sends TCP segments of any size."""
    done = subprocess.run(
        ["ip", "netns", "exec", space, sys.executable, "-c", SEGMENTS],
        capture_output=True,
        text=True,
        env={**os.environ, "PYTHONPATH": str(TUNING)},
        check=True,
    )
    return done.stdout.strip() == "True"


SEGMENTS = """
from rflash_tuning.live import LiveSystem
print(LiveSystem().ethtool("near", "features")["tx-tcp-segmentation"]["active"])
"""


def test_the_guard_speaks_netlink_with_sockets_of_its_own(net: Net, tmp_path: Path) -> None:
    space = line(net)
    assert segments(space)
    report = run(space, "offload", tmp_path, within=8)
    assert report["status"] == errors.UNCONFIRMED and not segments(space), report
    end = time.monotonic() + 40
    while not segments(space):
        assert time.monotonic() < end, (tmp_path / "confirm.log").read_text()
        time.sleep(0.2)
