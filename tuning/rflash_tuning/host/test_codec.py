# SPDX-License-Identifier: GPL-2.0
"""A Host survives JSON, and a wrong description gets one sentence."""

from __future__ import annotations

import json

import pytest

from rflash_tuning.errors import UsageError
from rflash_tuning.host import codec
from rflash_tuning.host.model import Cpu, Feature, Host, Irq, Nic, NicQueue, Rss, Rule


def example() -> Host:
    nic = Nic(
        "eth0",
        "physical",
        driver="ice",
        bus="0000:03:00.0",
        queues=(NicQueue(0, 45), NicQueue(1, None)),
        irqs=(Irq(45, "ice-eth0-TxRx-0", frozenset({0, 1, 2, 8}), frozenset({2}), False),),
        features={"rx-lro": Feature(False, True)},
        channels={"combined": 2},
        rss=Rss((0, 1), "aa", "toeplitz"),
        rules=(Rule(0, "tcp4", 3260, 1),),
        xps=(frozenset(), None),
    )
    cpu = Cpu(0, True, 0, 0, 0, frozenset({0, 1}))
    return Host("6.12.1", "x86_64", "b", "h", (cpu,), "on", (nic,), (), (), (), (), (), {"/proc/x": "1"})


def test_a_host_comes_back_without_loss() -> None:
    text = json.dumps(codec.to_json(example()))
    assert codec.from_json(json.loads(text)) == example()


def test_cpus_are_lists_in_the_kernels_notation() -> None:
    data = codec.to_json(example())
    assert data["nics"][0]["irqs"][0]["affinity"] == "0-2,8"
    assert data["nics"][0]["xps"] == ["", None]


def test_fields_with_a_default_may_be_left_out() -> None:
    data = codec.to_json(example())
    for key in ("schema", "synthetic", "files"):
        del data[key]
    data["nics"] = [{"name": "lo", "kind": "loopback"}]
    assert codec.from_json(data).nics == (Nic("lo", "loopback"),)


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        ({"schema": 9}, "schema 9"),
        ({"colour": 1}, "host has an unknown key 'colour'"),
        ({"nics": [{"name": "a", "kind": "b", "mto": 1}]}, r"host.nics\[0\] has an unknown key 'mto'"),
        ({"nics": [{"name": "a"}]}, r"host.nics\[0\] lacks the key 'kind'"),
        ({"release": 6}, "host.release is not of type str"),
        ({"nics": {}}, "host.nics is not a list"),
        ({"nics": [{"name": "a", "kind": "b", "mtu": True}]}, "truth value"),
    ],
)
def test_a_wrong_description_is_refused_in_one_sentence(change: dict, sentence: str) -> None:
    with pytest.raises(UsageError, match=sentence):
        codec.from_json(codec.to_json(example()) | change)


def test_a_wrong_list_of_cpus_is_refused() -> None:
    data = codec.to_json(example())
    data["cpus"][0]["siblings"] = "3-1"
    with pytest.raises(UsageError, match=r"host.cpus\[0\].siblings is not a list of CPUs"):
        codec.from_json(data)


def test_something_else_is_refused() -> None:
    with pytest.raises(UsageError, match="not a JSON object"):
        codec.from_json([])
