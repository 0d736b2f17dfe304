# SPDX-License-Identifier: GPL-2.0
"""Does a packet of a given size get to a host and back unfragmented?

The request is an ICMP echo with don't-fragment, sent past what the kernel
believes of the path (IP_PMTUDISC_PROBE, ip(7)). Where it is too large, the
error queue says which hop refused it and what that hop takes (RFC 1191, RFC
8201). Where it is lost without a word, its largest size is found by bisection
and the hop in front of the hole with a growing TTL.

Which direction limits? The reply is as large as the request, but the peer's
kernel lets it be fragmented:
* a reply that arrives in fragments shows the limit of the way back
  (IP_RECVFRAGSIZE);
* a large UDP packet to a closed port draws a small answer (ICMP port
  unreachable). If it is answered, the way there is free, so a lost echo of
  that size was lost on the way back;
* if the peer answers small UDP packets and not large ones, it is the way there;
* if it answers none, the sentence says "one of the directions".
"""

from __future__ import annotations

import contextlib
import errno
import os
import select
import socket
import struct
import time
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

from rflash_tuning.errors import UsageError

# linux/in.h, linux/in6.h, linux/errqueue.h: what the socket module does not name.
_IP_MTU_DISCOVER, _IP_RECVERR, _IP_RECVFRAGSIZE = 10, 11, 25
_IPV6_MTU_DISCOVER, _IPV6_RECVERR, _IPV6_DONTFRAG, _IPV6_RECVFRAGSIZE = 23, 25, 62, 77
_PMTUDISC_PROBE = 3
_ORIGIN_LOCAL = 1
_EXTENDED_ERROR = struct.Struct("=IBBBBII")

_ECHO = {socket.AF_INET: 8, socket.AF_INET6: 128}
_ECHO_REPLY = {socket.AF_INET: 0, socket.AF_INET6: 129}
_IP_HEADER = {socket.AF_INET: 20, socket.AF_INET6: 40}
_ICMP_HEADER = _UDP_HEADER = 8
_MINIMUM = {socket.AF_INET: 68, socket.AF_INET6: 1280}  # what every link must carry (RFC 791, RFC 8200)
_COMMON = (1500, 1492, 1450, 1400)  # Ethernet, PPPoE, VXLAN, many tunnels: where a hole usually begins
_CLOSED_PORT = 33434  # where traceroute begins; nobody listens there
_TRIES = 5  # before a size counts as lost; a drop by congestion is not a limit
_BISECTION_TRIES = 2
_MOST_HOPS = 16
_SLOWEST = 1.0  # seconds to wait for an answer
_FASTEST = 0.1
_BUDGET = 20.0  # seconds for finding out about a hole: an MTU that breaks the path must not stay for long


@dataclass(frozen=True)
class Path:
    """What is known of a path. Sizes are those of IP packets, headers included."""

    address: str
    wanted: int
    answers: bool  # does the peer answer at all?
    largest: int = 0  # that passed both ways
    hop: str = ""  # who refused, or the last one in front of a hole
    limit: int | None = None  # what that hop takes
    direction: str = ""  # there, back, either
    silent: bool = False  # a black hole: lost without a word
    after: str = ""  # a hole: the next hop that is known to be behind it
    trouble: str = ""  # the probe itself could not be made

    @property
    def passes(self) -> bool:
        return self.answers and self.largest >= self.wanted

    @property
    def sentence(self) -> str:
        if self.trouble:
            return f"The path to {self.address} cannot be probed: {self.trouble}."
        if not self.answers:
            return f"{self.address} answers no echo, so the path to it cannot be probed."
        if self.passes:
            return f"Packets of {self.wanted} bytes pass to {self.address} and back."
        if self.silent:
            return f"{self._lost()}; {self.largest} bytes still pass."
        if self.direction == "back":
            return (
                f"Packets of {self.wanted} bytes are fragmented on the way back from {self.address}, "
                f"to pieces of {self.limit} bytes."
            )
        if self.hop == "":
            return f"This host itself sends at most {self.limit} bytes towards {self.address}."
        return (
            f"{self.hop} on the way to {self.address} takes packets of {self.limit} bytes at most, not {self.wanted}."
        )

    def _lost(self) -> str:
        way = {
            "there": f"on the way to {self.address}",
            "back": f"on the way back from {self.address}",
            "either": f"in one of the directions between this host and {self.address}",
        }[self.direction]
        where = ""
        if self.hop and self.after:
            where = f", between {self.hop} and {self.after}"
        elif self.after:
            where = f", before {self.after}"
        return f"Packets above {self.largest} bytes are lost without a word {way}{where}"


@dataclass(frozen=True)
class _Answer:
    """What came of one packet."""

    kind: str  # reply, limit, expired, refused, lost
    hop: str = ""  # who said so; "" for this host
    limit: int | None = None
    fragment: int | None = None  # the reply came in pieces of at most that


_LOST = _Answer("lost")


def probe(address: str, size: int) -> Path:
    """How large packets to and from an address may be, up to `size` bytes.

    Takes a few round trips when all is well, up to half a minute for a black hole.
    Raises UsageError for an address that is none.
    """
    family, sockaddr = _resolve(address)
    minimum = _MINIMUM[family]
    wanted = max(size, minimum)
    try:
        with _Prober(family, sockaddr) as prober:
            return _probe(prober, address, wanted, minimum)
    except PermissionError:
        return Path(address, wanted, False, trouble="that needs root")
    except OSError as error:
        return Path(address, wanted, False, trouble=error.strerror or str(error))


def _resolve(address: str) -> tuple[int, tuple[Any, ...]]:
    try:
        found = socket.getaddrinfo(address, None, type=socket.SOCK_DGRAM)
    except OSError as error:
        raise UsageError(f"'{address}' is not an address of a host: {error.strerror or error}.") from error
    family, _, _, _, sockaddr = found[0]
    return family, sockaddr


def _probe(prober: _Prober, address: str, wanted: int, minimum: int) -> Path:
    small = max(minimum, 84)
    if not prober.measure(small):
        return Path(address, wanted, False)
    answer = prober.insist(wanted)
    if answer.kind == "lost" and not prober.measure(small):
        return Path(address, wanted, False)  # the peer fell silent: that is no matter of size
    if answer.kind == "reply" and (answer.fragment is None or answer.fragment >= wanted):
        return Path(address, wanted, True, wanted)
    if answer.kind == "reply":
        limit = answer.fragment
        return Path(address, wanted, True, limit or minimum, address, limit, "back")
    if answer.kind == "limit" and answer.limit is not None:
        return _limited(prober, address, wanted, minimum, answer)
    return _hole(prober, address, wanted, minimum)


def _limited(prober: _Prober, address: str, wanted: int, minimum: int, answer: _Answer) -> Path:
    """Somebody said what it takes. Is that so, and is it all?"""
    limit = max(min(answer.limit or minimum, wanted - 1), minimum)
    again = prober.echo(limit, _TRIES)
    if again.kind == "limit" and limit > minimum:  # a narrower hop behind the first
        return replace(_limited(prober, address, limit, minimum, again), wanted=wanted)
    largest = (again.fragment or limit) if again.kind == "reply" else _largest(prober, minimum, limit)
    return Path(address, wanted, True, largest, answer.hop, answer.limit, "there")


def _hole(prober: _Prober, address: str, wanted: int, minimum: int) -> Path:
    """Lost without a word: how much passes, which way, and where."""
    largest = _largest(prober, minimum, wanted)
    direction = _direction(prober, wanted, minimum)
    hop = after = ""
    if direction != "back":
        hop, after = _place(prober, wanted, minimum)
    return Path(address, wanted, True, largest, hop, None, direction, True, after)


def _largest(prober: _Prober, passes: int, fails: int) -> int:
    """The largest size that passes, by bisection; first where holes usually begin."""
    for size in _COMMON:
        if not passes < size < fails:
            continue
        if _whole(prober, size):
            passes = size
            # A hole that begins right behind a common size is that size's.
            if size + 1 < fails and not _whole(prober, size + 1):
                return size
            break
        fails = size
    while fails - passes > 1 and not prober.late():
        middle = (passes + fails) // 2
        if _whole(prober, middle):
            passes = middle
        else:
            fails = middle
    return passes


def _whole(prober: _Prober, size: int) -> bool:
    answer = prober.echo(size, _BISECTION_TRIES)
    return answer.kind == "reply" and answer.fragment is None


def _direction(prober: _Prober, wanted: int, minimum: int) -> str:
    """Which way loses packets of that size? See the head of this file."""
    if prober.knock(minimum).kind != "refused":
        return "either"
    return "back" if prober.knock(wanted).kind == "refused" else "there"


def _place(prober: _Prober, wanted: int, minimum: int) -> tuple[str, str]:
    """The last hop that a packet of that size reaches, and the next one that a small packet reaches."""
    last = ""
    for ttl in range(1, _MOST_HOPS + 1):
        if prober.late():
            break
        large = prober.echo(wanted, _BISECTION_TRIES, ttl)
        if large.kind == "expired":
            last = large.hop
            continue
        small = prober.echo(minimum, _BISECTION_TRIES, ttl)
        if small.kind == "expired":
            return last, small.hop
        if small.kind == "reply":
            return last, prober.target
    return last, ""


class _Prober:
    """The sockets towards one host."""

    def __init__(self, family: int, sockaddr: tuple[Any, ...]) -> None:
        """`sockaddr` as getaddrinfo gives it, the interface of a link-local address included."""
        self.family = family
        self.target = str(sockaddr[0])
        self._until = time.monotonic() + _BUDGET
        self._sequence = 0
        self._identity = os.getpid() & 0xFFFF
        self._wait = _SLOWEST
        self._icmp, self._raw = _icmp_socket(family)
        self._udp = socket.socket(family, socket.SOCK_DGRAM)
        for one in (self._icmp, self._udp):
            _dont_fragment(one, family)
            one.setblocking(False)
            one.connect((sockaddr[0], _CLOSED_PORT if one is self._udp else 0, *sockaddr[2:]))

    def __enter__(self) -> _Prober:
        return self

    def __exit__(self, *_: object) -> None:
        self._icmp.close()
        self._udp.close()

    def late(self) -> bool:
        """Is the time over? What is known by then has to do."""
        return time.monotonic() > self._until

    def measure(self, size: int) -> bool:
        """Does the peer answer at all, and how fast? That sets how long to wait for others."""
        for _ in range(3):
            start = time.monotonic()
            if self.echo(size, 1).kind == "reply":
                self._wait = min(max(8 * (time.monotonic() - start), _FASTEST), _SLOWEST)
                return True
        return False

    def echo(self, size: int, tries: int, ttl: int | None = None) -> _Answer:
        """Send an echo of `size` bytes, IP header included, until something is heard of it."""
        _set_ttl(self._icmp, self.family, ttl)
        for _ in range(tries):
            self._sequence = (self._sequence + 1) & 0xFFFF
            answer = self._send(self._icmp, self._request(size))
            if answer is None:
                answer = self._hear()
            if answer.kind != "lost":
                return answer
        return _LOST

    def insist(self, size: int) -> _Answer:
        """As echo, for a peer that may be busy for a moment: what this finds lost is not lost by chance."""
        usual, self._wait = self._wait, _SLOWEST
        try:
            return self.echo(size, _TRIES)
        finally:
            self._wait = usual

    def knock(self, size: int) -> _Answer:
        """Send a UDP packet of `size` bytes to a closed port: "refused" when it got there."""
        payload = bytes(size - _IP_HEADER[self.family] - _UDP_HEADER)
        for _ in range(3):
            answer = self._send(self._udp, payload)
            if answer is None:
                answer = self._hear_refusal()
            if answer.kind != "lost":
                return answer
            time.sleep(self._wait)  # peers limit how often they refuse (icmp_ratelimit)
        return _LOST

    def _request(self, size: int) -> bytes:
        payload = bytes(size - _IP_HEADER[self.family] - _ICMP_HEADER)
        head = struct.pack("!BBHHH", _ECHO[self.family], 0, 0, self._identity, self._sequence)
        if self.family == socket.AF_INET6 or not self._raw:
            return head + payload  # the kernel computes the checksum
        return head[:2] + struct.pack("!H", checksum(head + payload)) + head[4:] + payload

    def _send(self, one: socket.socket, packet: bytes) -> _Answer | None:
        """None when it is on its way."""
        _drain(one)
        try:
            one.send(packet)
        except OSError as error:
            # What was heard of an earlier packet comes out here, too: only our own limit is of this one.
            if error.errno == errno.EMSGSIZE:
                return next((found for found in _errors(one, self.family) if found.kind == "limit"), _LOST)
            if error.errno in (errno.ECONNREFUSED, errno.EHOSTUNREACH, errno.ENETUNREACH, errno.ENOBUFS):
                return _LOST
            raise
        return None

    def _hear(self) -> _Answer:
        until = time.monotonic() + self._wait
        while (left := until - time.monotonic()) > 0:
            if not _ready(self._icmp, left):
                break
            for answer in _errors(self._icmp, self.family):
                return answer
            with contextlib.suppress(BlockingIOError, OSError):
                data, control, _, _ = self._icmp.recvmsg(1 << 16, 256)
                if self._is_ours(data):
                    return _Answer("reply", fragment=_fragment(control))
        return _LOST

    def _hear_refusal(self) -> _Answer:
        until = time.monotonic() + self._wait
        while (left := until - time.monotonic()) > 0:
            if not _ready(self._udp, left):
                break
            for answer in _errors(self._udp, self.family):
                return answer
            _drain(self._udp)
        return _LOST

    def _is_ours(self, data: bytes) -> bool:
        """A reply to the last request. A raw IPv4 socket hands over the IP header as well."""
        if self._raw and self.family == socket.AF_INET:
            data = data[(data[0] & 15) * 4 :]
        if len(data) < _ICMP_HEADER:
            return False
        kind, _, _, identity, sequence = struct.unpack_from("!BBHHH", data)
        mine = identity == self._identity or not self._raw  # otherwise the kernel chose it and sorts by it
        return kind == _ECHO_REPLY[self.family] and mine and sequence == self._sequence


def _icmp_socket(family: int) -> tuple[socket.socket, bool]:
    """An ICMP socket and whether it is a raw one. Raises PermissionError where neither kind is allowed."""
    protocol = socket.IPPROTO_ICMP if family == socket.AF_INET else socket.IPPROTO_ICMPV6
    try:
        return socket.socket(family, socket.SOCK_RAW, protocol), True
    except PermissionError:
        return socket.socket(family, socket.SOCK_DGRAM, protocol), False


def _dont_fragment(one: socket.socket, family: int) -> None:
    if family == socket.AF_INET:
        one.setsockopt(socket.IPPROTO_IP, _IP_MTU_DISCOVER, _PMTUDISC_PROBE)
        one.setsockopt(socket.IPPROTO_IP, _IP_RECVERR, 1)
        one.setsockopt(socket.IPPROTO_IP, _IP_RECVFRAGSIZE, 1)
    else:
        one.setsockopt(socket.IPPROTO_IPV6, _IPV6_MTU_DISCOVER, _PMTUDISC_PROBE)
        one.setsockopt(socket.IPPROTO_IPV6, _IPV6_DONTFRAG, 1)
        one.setsockopt(socket.IPPROTO_IPV6, _IPV6_RECVERR, 1)
        one.setsockopt(socket.IPPROTO_IPV6, _IPV6_RECVFRAGSIZE, 1)


def _set_ttl(one: socket.socket, family: int, ttl: int | None) -> None:
    if family == socket.AF_INET:
        one.setsockopt(socket.IPPROTO_IP, socket.IP_TTL, 64 if ttl is None else ttl)
    else:
        one.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_UNICAST_HOPS, -1 if ttl is None else ttl)


def _ready(one: socket.socket, seconds: float) -> bool:
    poll = select.poll()
    poll.register(one, select.POLLIN | select.POLLERR)
    return bool(poll.poll(max(1, int(seconds * 1000))))


def _drain(one: socket.socket) -> None:
    """Throw away what came for earlier packets."""
    for flags in (0, socket.MSG_ERRQUEUE):
        for _ in range(64):
            try:
                one.recvmsg(1 << 16, 512, flags)
            except BlockingIOError:
                break
            except OSError:
                continue


def _errors(one: socket.socket, family: int) -> Iterator[_Answer]:
    """What the error queue says, oldest first."""
    while True:
        try:
            _, control, _, _ = one.recvmsg(1 << 16, 512, socket.MSG_ERRQUEUE)
        except OSError:
            return
        for _, _, data in control:
            if len(data) >= _EXTENDED_ERROR.size:
                yield _classify(data, family)


def _classify(data: bytes, family: int) -> _Answer:
    """struct sock_extended_err, followed by the offender's address."""
    number, origin, kind, _, _, info, _ = _EXTENDED_ERROR.unpack_from(data)
    hop = "" if origin == _ORIGIN_LOCAL else _offender(data[_EXTENDED_ERROR.size :], family)
    if number == errno.EMSGSIZE:
        return _Answer("limit", hop, info or None)
    expired = 11 if family == socket.AF_INET else 3
    if origin != _ORIGIN_LOCAL and kind == expired:
        return _Answer("expired", hop)
    if number == errno.ECONNREFUSED:
        return _Answer("refused", hop)
    return _Answer("lost", hop)


def _offender(address: bytes, family: int) -> str:
    if family == socket.AF_INET:
        return socket.inet_ntop(family, address[4:8]) if len(address) >= 8 else ""
    return socket.inet_ntop(family, address[8:24]) if len(address) >= 24 else ""


def _fragment(control: list[tuple[int, int, bytes]]) -> int | None:
    """The size of the largest piece that a packet came in, None for a whole one."""
    for level, kind, data in control:
        if (level, kind) in ((socket.IPPROTO_IP, _IP_RECVFRAGSIZE), (socket.IPPROTO_IPV6, _IPV6_RECVFRAGSIZE)):
            return struct.unpack_from("=i", data)[0] or None
    return None


def checksum(data: bytes) -> int:
    """The Internet checksum (RFC 1071)."""
    if len(data) % 2:
        data += b"\0"
    total = sum(struct.unpack(f"!{len(data) // 2}H", data))
    while total >> 16:
        total = (total & 0xFFFF) + (total >> 16)
    return ~total & 0xFFFF
