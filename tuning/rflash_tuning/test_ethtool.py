# SPDX-License-Identifier: GPL-2.0
"""ethtool's netlink messages and ioctl structures, against bytes that kernels sent, and on this machine's lo."""

from __future__ import annotations

import errno
import struct
from typing import Any

import pytest

from rflash_tuning import ethtool, netlink, rxfh
from rflash_tuning.errors import Unchangeable, Unsupported
from rflash_tuning.netlink import attribute, nested, text, u8, u32


class Kernel:
    """Answers in the place of a netlink socket and keeps what it was told."""

    def __init__(self, *answers: dict[int, bytes] | OSError) -> None:
        self.answers = list(answers)
        self.told: list[tuple[int, dict[int, bytes]]] = []

    def generic(self, family: str, command: int, *attributes: bytes) -> list[dict[int, bytes]]:
        assert family == "ethtool"
        self.told.append((command, netlink.table(b"".join(attributes))))
        answer = self.answers.pop(0) if self.answers else {}
        if isinstance(answer, OSError):
            raise answer
        return [answer] if answer else []


def client(*answers: dict[int, bytes] | OSError) -> tuple[ethtool.Client, Kernel]:
    made, kernel = ethtool.Client(), Kernel(*answers)
    made._netlink = kernel  # type: ignore[assignment]
    return made, kernel


def number(value: int) -> bytes:
    return struct.pack("=I", value)


def bitset(bits: dict[str, bool], masked: bool) -> bytes:
    """A bitset in its verbose form, as ethnl_put_bitset32 makes it."""
    entries = [
        nested(1, u32(1, place), text(2, name), *([attribute(3, b"")] if value and masked else []))
        for place, (name, value) in enumerate(bits.items())
    ]
    return b"".join(([] if masked else [attribute(1, b"")]) + [u32(2, 64), nested(3, *entries)])


def features(hardware: dict[str, bool], active: list[str], fixed: list[str]) -> dict[int, bytes]:
    return {
        2: bitset(hardware, True),
        4: bitset(dict.fromkeys(active, True), False),
        5: bitset(dict.fromkeys(fixed, True), False),
    }


# Attributes


def test_attributes_are_padded_and_read_back() -> None:
    packed = u8(1, 5) + text(2, "eth0") + nested(3, u32(4, 70000))
    assert packed[:8] == struct.pack("=HHB3x", 5, 1, 5)
    assert [(kind, len(payload)) for kind, payload in netlink.parse(packed)] == [(1, 1), (2, 5), (3, 8)]
    assert netlink.string(netlink.table(packed)[2]) == "eth0"
    assert netlink.number(netlink.table(netlink.table(packed)[3])[4]) == 70000


@pytest.mark.parametrize("cut", [b"", b"\x05", struct.pack("=HH", 2, 1), struct.pack("=HH", 9, 1) + b"abcd"])
def test_what_is_cut_off_is_left_out(cut: bytes) -> None:
    assert netlink.parse(u8(1, 5) + cut) == [(1, b"\x05")]


def test_a_refusal_carries_the_kernels_sentence() -> None:
    said = text(1, "requested channel count exceeds maximum")
    request = struct.pack("=IHHII", 16, 20, 5, 1, 0)
    with pytest.raises(OSError, match="requested channel count exceeds maximum") as raised:
        netlink._raise(struct.pack("=i", -errno.EINVAL) + request + said, 0x300)
    assert raised.value.errno == errno.EINVAL
    with pytest.raises(OSError, match="Operation not supported"):
        netlink._raise(struct.pack("=i", -errno.EOPNOTSUPP) + request, 0x100)
    netlink._raise(struct.pack("=i", 0) + request, 0x100)


def test_a_family_that_the_kernel_has_not_is_no_support() -> None:
    with pytest.raises(OSError, match="no netlink family 'rflash-none'") as raised:
        netlink.Connection(netlink.NETLINK_GENERIC).family("rflash-none")
    assert raised.value.errno == errno.EOPNOTSUPP


def test_a_refusal_for_want_of_rights_is_a_permission_error() -> None:
    with pytest.raises(PermissionError):
        netlink._raise(struct.pack("=i", -errno.EPERM) + bytes(16), 0x100)


# Sections by netlink


def test_channels_and_rings_have_all_their_keys() -> None:
    made, kernel = client({5: number(8), 9: number(6)})
    assert made.get("eth0", "channels") == {
        "rx": 0, "tx": 0, "other": 0, "combined": 6, "rx-max": 0, "tx-max": 0, "other-max": 0, "combined-max": 8,
    }  # fmt: skip
    assert kernel.told[0][0] == 17
    assert netlink.string(netlink.table(kernel.told[0][1][1])[2]) == "eth0"


def test_coalescing_has_only_what_the_driver_has() -> None:
    made, _ = client({2: number(50), 11: b"\x01"}, {})
    assert made.get("eth0", "coalesce") == {"rx-usecs": 50, "adaptive-rx": 1}
    with pytest.raises(Unsupported):
        made.get("eth0", "coalesce")


def test_numbers_are_sent_in_the_width_that_the_kernel_wants() -> None:
    made, kernel = client()
    made.set("eth0", "coalesce", {"rx-usecs": 8, "adaptive-rx": 0})
    made.set("eth0", "pause", {"rx": 1})
    made.set("eth0", "channels", {"combined": 4})
    assert [command for command, _ in kernel.told] == [20, 22, 18]
    assert {kind: payload for kind, payload in kernel.told[0][1].items() if kind > 1} == {2: number(8), 11: b"\0"}
    assert kernel.told[1][1][3] == b"\x01"
    assert kernel.told[2][1][9] == number(4)


def test_a_parameter_that_the_driver_has_not_is_unsupported_whatever_the_errno() -> None:
    refusal = OSError(errno.EINVAL, "cannot modify an unsupported parameter")
    made, _ = client(refusal, {2: number(3)})
    with pytest.raises(Unsupported, match="'adaptive-rx'"):
        made.set("eth0", "coalesce", {"adaptive-rx": 1})
    made, _ = client(OSError(errno.EINVAL, "Invalid argument"), {2: number(3)})
    with pytest.raises(OSError, match="Invalid argument"):
        made.set("eth0", "coalesce", {"rx-usecs": 7})


@pytest.mark.parametrize(("section", "values"), [("rings", {"rx-max": 1}), ("pause", {"x": 1}), ("link", {"speed": 1})])
def test_what_can_not_be_set_is_unsupported(section: str, values: dict[str, Any]) -> None:
    made, kernel = client()
    with pytest.raises(Unsupported):
        made.set("eth0", section, values)
    assert kernel.told == []


def test_the_kernels_errno_and_sentence_reach_the_caller() -> None:
    made, _ = client(OSError(errno.EOPNOTSUPP, "not here"), OSError(errno.EINVAL, "too many"))
    with pytest.raises(Unsupported, match="not here"):
        made.get("eth0", "rings")
    with pytest.raises(OSError, match="too many") as raised:
        made.set("eth0", "channels", {"combined": 99})
    assert raised.value.errno == errno.EINVAL


def test_features_know_what_is_fixed() -> None:
    hardware = {"rx-gro": True, "rx-lro": False, "tx-lockless": True}
    made, _ = client(features(hardware, ["rx-gro"], ["tx-lockless"]))
    assert made.get("eth0", "features") == {
        "rx-gro": {"active": True, "changeable": True},
        "rx-lro": {"active": False, "changeable": False},
        "tx-lockless": {"active": False, "changeable": False},
    }


def test_a_feature_is_named_to_the_kernel_and_read_back() -> None:
    hardware = {"rx-gro": True, "rx-lro": True}
    before, after = features(hardware, ["rx-gro"], []), features(hardware, ["rx-lro"], [])
    made, kernel = client(before, {}, after)
    made.set("eth0", "features", {"rx-gro": False, "rx-lro": True})
    assert kernel.told[1][0] == 12
    assert ethtool._bits(kernel.told[1][1][3]) == {"rx-gro": False, "rx-lro": True}


def test_a_fixed_feature_and_one_that_the_kernel_keeps_are_unchangeable() -> None:
    before = features({"rx-gro": True, "rx-lro": False}, ["rx-gro"], [])
    made, kernel = client(before)
    with pytest.raises(Unchangeable, match="'rx-lro' is fixed"):
        made.set("eth0", "features", {"rx-lro": True})
    assert len(kernel.told) == 1
    made, _ = client(before, {}, before)
    with pytest.raises(Unchangeable, match="leaves the feature 'rx-gro' on"):
        made.set("eth0", "features", {"rx-gro": False})
    made, _ = client(before)
    with pytest.raises(Unsupported, match="no feature 'rx-magic'"):
        made.set("eth0", "features", {"rx-magic": True})


# Structures of the ioctls


class Driver:
    """Answers SIOCETHTOOL as a driver does: RSS of 4 entries and a key of 8 bytes, and flow rules."""

    def __init__(self) -> None:
        self.table, self.key, self.transformation = [0, 1, 0, 1], bytes(range(8)), 0
        self.rules: dict[int, bytes] = {}

    def __call__(self, nic: str, request: bytes | bytearray) -> bytes:
        raw = bytearray(request)
        command = struct.unpack_from("=I", raw)[0]
        handler = {0x46: self.get_rss, 0x47: self.set_rss, 0x2E: self.count, 0x2F: self.get_rule, 0x30: self.list_rules,
                   0x31: self.delete, 0x32: self.insert}[command]  # fmt: skip
        handler(raw)
        return bytes(raw)

    def get_rss(self, raw: bytearray) -> None:
        entries, key = struct.unpack_from("=II", raw, 8)
        struct.pack_into("=II", raw, 8, 4, 8)
        raw[16:18] = bytes([1, self.transformation])
        if entries:
            assert (entries, key, len(raw)) == (4, 8, 24 + 16 + 8)
            struct.pack_into("=4I8s", raw, 24, *self.table, self.key)

    def set_rss(self, raw: bytearray) -> None:
        entries, key = struct.unpack_from("=II", raw, 8)
        assert raw[17] == self.transformation
        assert raw[18:24] == bytes(6)
        at = 24
        if entries == 0:
            self.table = [0, 1, 0, 1]
        elif entries != 0xFFFFFFFF:
            self.table = list(struct.unpack_from("=4I", raw, 24))
            at += 16
        if key:
            self.key = bytes(raw[at : at + 8])

    def count(self, raw: bytearray) -> None:
        struct.pack_into("=I", raw, 184, len(self.rules))

    def list_rules(self, raw: bytearray) -> None:
        assert struct.unpack_from("=I", raw, 184)[0] == len(self.rules)
        struct.pack_into(f"={len(self.rules)}I", raw, 188, *sorted(self.rules, reverse=True))

    def get_rule(self, raw: bytearray) -> None:
        raw[16:184] = self.rules[struct.unpack_from("=I", raw, 176)[0]][16:184]

    def insert(self, raw: bytearray) -> None:
        assert len(raw) == 192
        self.rules[struct.unpack_from("=I", raw, 176)[0]] = bytes(raw)

    def delete(self, raw: bytearray) -> None:
        location = struct.unpack_from("=I", raw, 176)[0]
        if location not in self.rules:
            raise OSError(errno.ENOENT, "No such file or directory")
        del self.rules[location]


@pytest.fixture
def driver(monkeypatch) -> Driver:
    made = Driver()
    monkeypatch.setattr(rxfh, "_call", made)
    return made


def test_rss_is_read_and_each_part_set_alone(driver: Driver) -> None:
    driver.transformation = 1
    made = ethtool.Client()
    assert made.get("eth0", "rss") == {"table": [0, 1, 0, 1], "key": "0001020304050607", "function": "toeplitz"}
    made.set("eth0", "rss", {"key": "ff" * 8})
    assert (driver.table, driver.key) == ([0, 1, 0, 1], b"\xff" * 8)
    made.set("eth0", "rss", {"table": [1, 1, 0, 0]})
    assert (driver.table, driver.key) == ([1, 1, 0, 0], b"\xff" * 8)
    made.set("eth0", "rss", {"table": [], "key": "00" * 8})
    assert (driver.table, driver.key) == ([0, 1, 0, 1], bytes(8))


def test_flow_rules_go_and_come_as_they_are(driver: Driver) -> None:
    made = ethtool.Client()
    assert made.get("eth0", "rules") == {}
    by_port = {"flow": "tcp4", "dst_port": 3260, "queue": 5, "src_port": None, "dst_ip": None, "other": ""}
    by_address = {"flow": "tcp6", "dst_port": None, "queue": 2, "src_port": 4420, "dst_ip": "2001:db8::1", "other": ""}
    made.set("eth0", "rules", {"1023": by_port, "3": by_address})
    assert made.get("eth0", "rules") == {"3": by_address, "1023": by_port}
    made.set("eth0", "rules", {"3": None})
    assert sorted(made.get("eth0", "rules")) == ["1023"]
    with pytest.raises(FileNotFoundError):
        made.set("eth0", "rules", {"3": None})


def test_a_rule_is_where_the_kernels_structure_has_it() -> None:
    raw = rxfh.pack_rule(7, {"flow": "tcp4", "dst_port": 3260, "queue": 5, "dst_ip": "10.0.0.1"})
    assert len(raw) == 192
    assert struct.unpack_from("=I", raw, 16) == (1,)  # TCP_V4_FLOW
    assert raw[20 + 4 : 20 + 8] == bytes([10, 0, 0, 1])
    assert raw[20 + 10 : 20 + 12] == struct.pack(">H", 3260)
    assert raw[92 + 4 : 92 + 8] == b"\xff" * 4
    assert raw[92 + 8 : 92 + 12] == b"\0\0\xff\xff"
    assert struct.unpack_from("=QI", raw, 16 + 152) == (5, 7)


def test_what_a_rule_matches_beside_is_said() -> None:
    raw = bytearray(rxfh.pack_rule(0, {"flow": "tcp4", "dst_port": 1, "queue": 0}))
    struct.pack_into("=I", raw, 16, 1 | 0x80000000)
    raw[92] = 0xFF  # part of the source address
    struct.pack_into("=Q", raw, 16 + 152, 0xFFFFFFFFFFFFFFFF)
    rule = rxfh.parse_rule(bytes(raw))
    assert (rule["queue"], rule["other"]) == (-1, "VLAN or data, discard, more fields")


@pytest.mark.parametrize(
    ("rule", "error"),
    [
        ({"flow": "ether", "queue": 0}, errno.EOPNOTSUPP),
        ({"flow": "tcp4", "queue": 0, "other": "MAC"}, errno.EOPNOTSUPP),
        ({"flow": "tcp4", "queue": 0, "dst_ip": "::1"}, errno.EINVAL),
    ],
)
def test_a_rule_that_can_not_be_expressed_is_not_half_set(rule: dict[str, Any], error: int) -> None:
    with pytest.raises(OSError, match=r".") as raised:
        rxfh.pack_rule(0, rule)
    assert raised.value.errno == error


# This machine


def test_the_loopback_interface_as_this_kernel_shows_it() -> None:
    made = ethtool.Client()
    known = made.get("lo", "features")
    assert known["loopback"] == {"active": True, "changeable": False}
    assert made.get("lo", "link") == {"speed": None, "max-mtu": None}
    for section in ("channels", "rings", "coalesce", "rss", "rules", "pause"):
        with pytest.raises(Unsupported):
            made.get("lo", section)


@pytest.mark.parametrize("section", ["features", "link", "rings", "rss", "rules", "driver"])
def test_an_interface_that_is_not_there_is_enodev(section: str) -> None:
    with pytest.raises(OSError, match="none0") as raised:
        ethtool.Client().get("none0", section)
    assert raised.value.errno == errno.ENODEV


def test_a_name_that_is_too_long_is_no_interface() -> None:
    with pytest.raises(OSError, match="too long"):
        rxfh.driver("a-name-that-is-too-long")
