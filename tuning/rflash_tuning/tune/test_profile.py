# SPDX-License-Identifier: GPL-2.0
import re
from pathlib import Path

import pytest

from rflash_tuning.errors import UsageError
from rflash_tuning.host.model import Tenant
from rflash_tuning.knobs import table
from rflash_tuning.tune import options, profile, testdata


def load(tmp_path, text):
    path = tmp_path / "p.toml"
    path.write_text(text)
    return profile.load(str(path))


def test_keys_are_the_long_options(tmp_path):
    values = load(
        tmp_path, 'role = "server"\nnic = ["eth0", "eth1"]\nread_pct = 90\nqd = 8\ncpus = "0-2,8"\nports=3260\n'
    )
    assert values == {
        "role": "server", "nic": ("eth0", "eth1"), "read-pct": 90, "qd": 8, "cpus": (0, 1, 2, 8), "ports": (3260,),
    }  # fmt: skip


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ('role = "server"\n\nnics = "eth0"\n', r"p\.toml:3: unknown key 'nics'; known: role, target, nic,"),
        ("[server]\nqd = 3\n", r"p\.toml:1: unknown key 'server'"),
        ("# a comment\ntenants = 0\n", r"p\.toml:2: tenants is 0; it should be 1 to 4096"),
        ("tenants = true\n", r"p\.toml:1: tenants is not a number"),
        ("tenants = 1.5\n", r"p\.toml:1: tenants is not a number"),
        ('goal = "fast"\n', r"p\.toml:1: goal is 'fast'; it should be throughput, latency or mixed"),
        ('nic = ""\n', r"p\.toml:1: nic is ''; it should be NIC"),
        ('nic = "eth0;reboot"\n', r"p\.toml:1: nic is 'eth0;reboot'"),
        ("nic = 3\n", r"p\.toml:1: nic should be names"),
        ('cpus = "0-99999"\n', r"p\.toml:1: cpus is '0-99999'; numbers should be 0 to 8191"),
        ('cpus = "3-1"\n', r"p\.toml:1: cpus: '3-1' is not a range"),
        ('ports = "0"\n', r"p\.toml:1: ports is '0'; numbers should be 1 to 65535"),
        ("read-pct = 10\nread_pct = 20\n", r"p\.toml:2: read-pct is given twice"),
        ("qd = \n", r"p\.toml: line 1: invalid value"),
    ],
)
def test_mistakes_are_told_with_file_and_line(tmp_path, text, sentence):
    with pytest.raises(UsageError, match=sentence) as caught:
        load(tmp_path, text)
    assert "\n" not in str(caught.value)


def test_no_such_profile_lists_those_there_are():
    with pytest.raises(UsageError, match=r"no profile 'nothing'.*known: .*paper"):
        profile.load("nothing")


@pytest.mark.parametrize("broken", [b"\xff\xfe", b"a = 1\n" * 300000])
def test_not_a_text(tmp_path, broken):
    path = tmp_path / "p.toml"
    path.write_bytes(broken)
    with pytest.raises(UsageError):
        profile.load(str(path))


def test_a_directory_is_no_profile(tmp_path):
    with pytest.raises(UsageError):
        profile.load(f"{tmp_path}/")


def test_all_shipped_profiles_load():
    for name in profile.names():
        assert profile.load(name)


def test_the_example_loads_and_names_real_knobs():
    path = Path(__file__).resolve().parents[3] / "packaging/config/tune.toml"
    assert profile.load(str(path))["target"] == "iscsi"
    skipped = re.search(r'# skip = \["([\w-]+)"\]', path.read_text())[1]
    assert skipped in [knob.name for knob in table.knobs()]


def test_a_request_takes_from_the_host_what_is_not_given():
    host = testdata.host()
    tenants = tuple(Tenant(f"t{n}", "iscsi", f"iqn.x:{n}", "192.0.2.1", 3259 + n) for n in (1, 2))
    host = type(host)(**{**host.__dict__, "tenants": tenants})
    made = options.request(host, {"nic": ("eth0",)})
    assert (made.role, made.target, made.tenants) == ("server", "iscsi", 2)


@pytest.mark.parametrize(
    ("values", "sentence"),
    [
        ({}, r"Give --nic; this host has eth0 \(ixgbe, 10 Gb/s, 6 queues\)"),
        ({"nic": ("eth0",)}, "Give --target iscsi|nvmet-tcp|nvmet-rdma|rflashd; none is configured"),
        ({"nic": ("eth0",), "target": "iscsi"}, "Give --tenants; no iscsi target is configured"),
    ],
)
def test_what_is_missing_is_asked_for(values, sentence):
    with pytest.raises(UsageError, match=sentence):
        options.request(testdata.host(), values)


def test_a_request_as_a_command_line():
    request = testdata.request(peers=("192.0.2.9", "fe80::1%eth0"), read_share=90, cpus=(0, 1))
    assert options.command(request) == (
        "--role server --target iscsi --nic eth0 --tenants 3 --cpus 0,1 --read-pct 90 --peer 192.0.2.9,fe80::1%eth0"
    )
