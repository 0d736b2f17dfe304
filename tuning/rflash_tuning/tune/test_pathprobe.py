# SPDX-License-Identifier: GPL-2.0
"""The path probe against real kernels: network namespaces joined by veth pairs.

    me --- router --- far        a line: MTUs of each end can be chosen
      \\-- other ---/            asymmetric: replies take another router

A veth drops what is larger than its own MTU on reception without a word, which
makes a black hole of a link whose ends differ.
"""

from __future__ import annotations

import ast
import ctypes
import os
import socket
import subprocess
import time
from collections.abc import Iterator
from typing import Any

import pytest

from rflash_tuning.errors import UsageError
from rflash_tuning.tune import pathprobe
from rflash_tuning.tune.pathprobe import Path, checksum, probe


def _ip(*words: str) -> None:
    subprocess.run(["ip", *words], check=True, capture_output=True, text=True)


class Net:
    """Namespaces of this test, removed at its end."""

    def __init__(self) -> None:
        self.prefix = f"rfp{os.getpid()}"
        self.names: list[str] = []

    def space(self, name: str, forward: bool = False) -> str:
        full = f"{self.prefix}{name}"
        _ip("netns", "add", full)
        self.names.append(full)
        self.do(full, "ip", "link", "set", "lo", "up")
        settings = ["net.ipv4.icmp_ratelimit=0", "net.ipv4.conf.all.rp_filter=0", "net.ipv4.conf.default.rp_filter=0"]
        settings += [
            "net.ipv6.conf.all.accept_dad=0",
            "net.ipv6.conf.default.accept_dad=0",
            "net.ipv6.icmp.ratelimit=0",
        ]
        if forward:
            settings += ["net.ipv4.ip_forward=1", "net.ipv6.conf.all.forwarding=1"]
        for setting in settings:
            subprocess.run(["ip", "netns", "exec", full, "sysctl", "-qw", setting], check=False, capture_output=True)
        return full

    def do(self, space: str, *command: str) -> None:
        subprocess.run(["ip", "netns", "exec", space, *command], check=True, capture_output=True, text=True)

    def link(self, one: tuple[str, str, str, int], two: tuple[str, str, str, int], subnet6: str) -> None:
        """Join two namespaces: (space, interface, IPv4 address, MTU) at each end, IPv6 alike."""
        (space1, dev1, _, _), (space2, dev2, _, _) = one, two
        _ip("link", "add", dev1, "netns", space1, "type", "veth", "peer", "name", dev2, "netns", space2)
        for place, (space, dev, address, mtu) in enumerate((one, two), 1):
            self.do(space, "ip", "link", "set", dev, "mtu", str(mtu), "up")
            self.do(space, "ip", "address", "add", f"{address}/24", "dev", dev)
            self.do(space, "ip", "address", "add", f"{subnet6}::{place}/64", "dev", dev, "nodad")

    def close(self) -> None:
        for name in self.names:
            subprocess.run(["ip", "netns", "del", name], check=False, capture_output=True)


def namespaces() -> Iterator[Net]:
    """What a test's namespaces are made with; they go with it."""
    if os.geteuid() != 0:
        pytest.skip("needs root for network namespaces")
    made = Net()
    try:
        try:
            made.space("t")
        except (OSError, subprocess.CalledProcessError) as error:
            pytest.skip(f"network namespaces cannot be made here: {error}")
        yield made
    finally:
        made.close()


net = pytest.fixture(namespaces)


def line(net: Net, router_far: int = 9000, far: int = 9000, router_me: int = 9000, me: int = 9000) -> str:
    """me -- router -- far; the namespace to probe from."""
    here, router, there = net.space("me"), net.space("ro", forward=True), net.space("fa")
    net.link((here, "near", "10.77.1.1", me), (router, "west", "10.77.1.2", router_me), "fd77:1")
    net.link((router, "east", "10.77.2.1", router_far), (there, "near", "10.77.2.2", far), "fd77:2")
    for space, gateway, gateway6 in ((here, "10.77.1.2", "fd77:1::2"), (there, "10.77.2.1", "fd77:2::1")):
        net.do(space, "ip", "route", "add", "default", "via", gateway)
        net.do(space, "ip", "-6", "route", "add", "default", "via", gateway6)
    return here


def triangle(net: Net, other_far: int, far_other: int) -> str:
    """Requests go by the router with 9000 bytes, replies by the other one; the MTUs of far's link to it are given."""
    here, router = net.space("me"), net.space("ro", forward=True)
    other, there = net.space("ot", forward=True), net.space("fa")
    net.link((here, "near", "10.77.1.1", 9000), (router, "west", "10.77.1.2", 9000), "fd77:1")
    net.link((router, "east", "10.77.2.1", 9000), (there, "near", "10.77.2.2", 9000), "fd77:2")
    net.link((here, "second", "10.77.3.1", 9000), (other, "west", "10.77.3.2", 9000), "fd77:3")
    net.link((other, "east", "10.77.4.1", other_far), (there, "aside", "10.77.4.2", far_other), "fd77:4")
    net.do(here, "ip", "route", "add", "10.77.2.0/24", "via", "10.77.1.2")
    net.do(here, "ip", "-6", "route", "add", "fd77:2::/64", "via", "fd77:1::2")
    net.do(there, "ip", "route", "add", "10.77.1.0/24", "via", "10.77.4.1")
    net.do(there, "ip", "-6", "route", "add", "fd77:1::/64", "via", "fd77:4::1")
    net.do(other, "ip", "route", "add", "10.77.1.0/24", "via", "10.77.3.1")
    net.do(other, "ip", "-6", "route", "add", "fd77:1::/64", "via", "fd77:3::1")
    return here


def within(space: str, address: str, size: int) -> Path:
    """Probe from inside a namespace: in a child, since entering one cannot be taken back by all kernels."""
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        status = 1
        try:
            os.close(reader)
            fd = os.open(f"/run/netns/{space}", os.O_RDONLY)
            _setns(fd)
            os.write(writer, repr(vars(probe(address, size))).encode())
            status = 0
        finally:
            os._exit(status)
    os.close(writer)
    with os.fdopen(reader) as pipe:
        text = pipe.read()
    os.waitpid(child, 0)
    return Path(**ast.literal_eval(text))


def _setns(fd: int) -> None:
    if ctypes.CDLL(None, use_errno=True).setns(fd, 0x40000000) != 0:
        raise OSError(ctypes.get_errno(), "setns")


FAR = {4: "10.77.2.2", 6: "fd77:2::2"}
ROUTER = {4: "10.77.1.2", 6: "fd77:1::2"}


@pytest.mark.parametrize("version", [4, 6])
def test_a_free_path_passes_quickly(net: Net, version: int) -> None:
    space = line(net)
    start = time.monotonic()
    found = within(space, FAR[version], 9000)
    assert found.passes and found.largest == 9000, found
    assert time.monotonic() - start < 15  # a hole is looked for longer, on a busy machine too
    assert found.sentence == f"Packets of 9000 bytes pass to {FAR[version]} and back."


@pytest.mark.parametrize("version", [4, 6])
def test_a_hop_that_says_its_limit_is_named(net: Net, version: int) -> None:
    found = within(line(net, router_far=1500, far=1500), FAR[version], 9000)
    assert not found.passes
    assert (found.hop, found.limit, found.largest, found.direction) == (ROUTER[version], 1500, 1500, "there"), found
    assert "takes packets of 1500 bytes at most" in found.sentence


@pytest.mark.parametrize("version", [4, 6])
def test_a_hole_behind_the_router_is_found_with_its_place_and_size(net: Net, version: int) -> None:
    found = within(line(net, far=1500), FAR[version], 9000)
    assert found.silent and not found.passes
    # A veth takes four bytes more than its MTU, for a VLAN tag.
    assert 1500 <= found.largest <= 1504, found
    assert (found.hop, found.after, found.direction) == (ROUTER[version], FAR[version], "there"), found
    assert "without a word" in found.sentence and ROUTER[version] in found.sentence


def test_a_hole_behind_a_hop_that_says_its_limit(net: Net) -> None:
    found = within(line(net, router_far=4000, far=1500), FAR[4], 9000)
    assert not found.passes and (found.hop, found.limit) == (ROUTER[4], 4000), found
    assert 1500 <= found.largest <= 1504


def test_the_narrowest_of_two_limits_is_told(net: Net) -> None:
    """Our own device's, then the router's behind it."""
    found = within(line(net, me=4000, router_far=1500, far=1500), FAR[4], 9000)
    assert (found.hop, found.limit, found.largest, found.wanted) == (ROUTER[4], 1500, 1500, 9000), found


def test_a_router_that_may_not_say_its_limit(net: Net) -> None:
    """The commonest hole: somebody filters ICMP. Here the router drops all that it sends itself."""
    space = line(net, router_far=1500, far=1500)
    net.do(f"{net.prefix}ro", "ip", "rule", "add", "iif", "lo", "to", "10.77.1.1", "blackhole")
    found = within(space, FAR[4], 9000)
    assert found.silent and (found.largest, found.direction) == (1500, "there"), found
    assert (found.hop, found.after) == ("", FAR[4])
    assert found.sentence == (
        "Packets above 1500 bytes are lost without a word on the way to 10.77.2.2, before 10.77.2.2; "
        "1500 bytes still pass."
    )


def test_a_hole_before_the_first_router(net: Net) -> None:
    found = within(line(net, router_me=1500), FAR[4], 9000)
    assert found.silent and 1500 <= found.largest <= 1504, found
    assert (found.hop, found.after, found.direction) == ("", ROUTER[4], "there"), found


@pytest.mark.parametrize("version", [4, 6])
def test_replies_that_are_fragmented_show_the_way_back(net: Net, version: int) -> None:
    found = within(triangle(net, other_far=1500, far_other=1500), FAR[version], 9000)
    assert not found.passes and found.direction == "back", found
    assert found.limit is not None and 1490 <= found.limit <= 1500, found
    assert "on the way back" in found.sentence


def test_a_hole_on_the_way_back_is_told_from_one_on_the_way_there(net: Net) -> None:
    found = within(triangle(net, other_far=1500, far_other=9000), FAR[4], 9000)
    assert found.silent and found.direction == "back" and 1500 <= found.largest <= 1504, found


def test_our_own_device_is_the_limit(net: Net) -> None:
    found = within(line(net, me=1500), FAR[4], 9000)
    assert (found.hop, found.limit, found.largest) == ("", 1500, 1500), found
    assert found.sentence == f"This host itself sends at most 1500 bytes towards {FAR[4]}."


def test_a_peer_that_answers_nothing(net: Net) -> None:
    space = line(net)
    net.do(f"{net.prefix}fa", "sysctl", "-qw", "net.ipv4.icmp_echo_ignore_all=1")
    found = within(space, FAR[4], 9000)
    assert not found.answers and not found.passes
    assert "answers no echo" in found.sentence


def test_where_the_direction_cannot_be_told_it_says_so(net: Net, monkeypatch: pytest.MonkeyPatch) -> None:
    """A peer that drops UDP without a word: only the echo tells, and it needs both ways."""
    monkeypatch.setattr(pathprobe._Prober, "knock", lambda *_: pathprobe._LOST)
    found = within(line(net, far=1500), FAR[4], 9000)
    assert found.direction == "either" and "in one of the directions" in found.sentence, found


def test_some_loss_is_no_limit(net: Net, monkeypatch: pytest.MonkeyPatch) -> None:
    """Two of three requests are lost."""
    real = pathprobe._Prober._hear
    calls = {"n": 0}

    def hear(self: Any) -> Any:
        calls["n"] += 1
        answer = real(self)
        return answer if calls["n"] % 3 == 0 else pathprobe._LOST

    monkeypatch.setattr(pathprobe._Prober, "_hear", hear)
    assert within(line(net), FAR[4], 9000).passes


def test_no_address() -> None:
    with pytest.raises(UsageError, match="is not an address"):
        probe("no such host", 9000)


def test_without_root_and_without_ping_sockets(monkeypatch: pytest.MonkeyPatch) -> None:
    real = socket.socket

    def refuse(family: int = -1, kind: int = -1, protocol: int = -1, *rest: Any) -> Any:
        if protocol == socket.IPPROTO_ICMP:
            raise PermissionError(1, "Operation not permitted")
        return real(family, kind, protocol, *rest)

    monkeypatch.setattr(socket, "socket", refuse)
    found = probe("127.0.0.1", 9000)
    assert not found.passes and "needs root" in found.sentence


def test_the_checksum() -> None:
    """The example of RFC 1071, section 3."""
    assert checksum(bytes.fromhex("0001f203f4f5f6f7")) == 0xFFFF - 0xDDF2
