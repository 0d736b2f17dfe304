# SPDX-License-Identifier: GPL-2.0
"""A small netlink client: requests, nested attributes, and the kernel's own words when it refuses.

Formats: Documentation/userspace-api/netlink/intro.rst, include/uapi/linux/netlink.h,
genetlink.h. Numbers are in the machine's byte order; attributes are padded to 4 bytes.
"""

from __future__ import annotations

import errno
import os
import socket
import struct

NETLINK_ROUTE = 0
NETLINK_GENERIC = 16

_SOL_NETLINK = 270
_CAP_ACK = 10  # an error does not carry the request back
_EXT_ACK = 11  # an error carries a sentence
_REQUEST = 0x1
_ACK = 0x4
_NLMSG_ERROR = 2
_NLMSG_DONE = 3
_CAPPED = 0x100  # flags of an error message
_ACK_TLVS = 0x200
_ERROR_TEXT = 1  # NLMSGERR_ATTR_MSG
_NESTED = 0x8000
_TYPE_MASK = 0x3FFF
_HEADER = struct.Struct("=IHHII")  # struct nlmsghdr
_GENERIC = struct.Struct("=BBH")  # struct genlmsghdr
_GENL_ID_CTRL = 16
_CTRL_GETFAMILY = 3
_CTRL_FAMILY_ID = 1
_CTRL_FAMILY_NAME = 2
_TIMEOUT = 10.0  # seconds; a driver may take its time to reset
_BUFFER = 1 << 18


def attribute(kind: int, payload: bytes) -> bytes:
    """One attribute, padded."""
    length = 4 + len(payload)
    return struct.pack("=HH", length, kind) + payload + bytes(-length % 4)


def nested(kind: int, *attributes: bytes) -> bytes:
    return attribute(kind | _NESTED, b"".join(attributes))


def text(kind: int, value: str) -> bytes:
    return attribute(kind, value.encode() + b"\0")


def u8(kind: int, value: int) -> bytes:
    return attribute(kind, struct.pack("=B", value))


def u32(kind: int, value: int) -> bytes:
    return attribute(kind, struct.pack("=I", value))


def parse(payload: bytes) -> list[tuple[int, bytes]]:
    """Type and payload of each attribute, in order. What is cut off is left out."""
    found = []
    at = 0
    while at + 4 <= len(payload):
        length, kind = struct.unpack_from("=HH", payload, at)
        if length < 4 or at + length > len(payload):
            break
        found.append((kind & _TYPE_MASK, payload[at + 4 : at + length]))
        at += (length + 3) & ~3
    return found


def table(payload: bytes) -> dict[int, bytes]:
    """The attributes by type, where each comes once."""
    return dict(parse(payload))


def number(payload: bytes) -> int:
    """A number of 1, 2, 4 or 8 bytes."""
    return int.from_bytes(payload, "little" if struct.pack("=H", 1) == b"\1\0" else "big")


def string(payload: bytes) -> str:
    return payload.split(b"\0", 1)[0].decode(errors="replace")


class Connection:
    """A socket of one netlink protocol. Opened at first use; not for several threads."""

    def __init__(self, protocol: int) -> None:
        self._protocol = protocol
        self._socket: socket.socket | None = None
        self._sequence = 0
        self._families: dict[str, int] = {}

    def request(self, kind: int, payload: bytes, flags: int = 0) -> list[bytes]:
        """The payloads of the answers. Raises OSError with the kernel's errno and sentence."""
        connection = self._open()
        self._sequence += 1
        length = _HEADER.size + len(payload)
        head = _HEADER.pack(length, kind, _REQUEST | _ACK | flags, self._sequence, 0)
        connection.send(head + payload)
        answers: list[bytes] = []
        while not self._receive(connection, answers):
            pass
        return answers

    def family(self, name: str) -> int:
        """The number of a generic netlink family. Raises OSError (EOPNOTSUPP: there is none)."""
        if name not in self._families:
            payload = _GENERIC.pack(_CTRL_GETFAMILY, 1, 0) + text(_CTRL_FAMILY_NAME, name)
            try:
                answers = self.request(_GENL_ID_CTRL, payload)
            except FileNotFoundError:
                answers = []
            known = table(answers[0][_GENERIC.size :]) if answers else {}
            if _CTRL_FAMILY_ID not in known:
                raise OSError(errno.EOPNOTSUPP, f"the kernel has no netlink family '{name}'")
            self._families[name] = number(known[_CTRL_FAMILY_ID])
        return self._families[name]

    def generic(self, family: str, command: int, *attributes: bytes) -> list[dict[int, bytes]]:
        """The answers to a generic netlink command, as attributes by type."""
        payload = _GENERIC.pack(command, 1, 0) + b"".join(attributes)
        return [table(answer[_GENERIC.size :]) for answer in self.request(self.family(family), payload)]

    def _open(self) -> socket.socket:
        if self._socket is None:
            opened = socket.socket(socket.AF_NETLINK, socket.SOCK_RAW | socket.SOCK_CLOEXEC, self._protocol)
            opened.bind((0, 0))
            for option in (_CAP_ACK, _EXT_ACK):
                opened.setsockopt(_SOL_NETLINK, option, 1)
            opened.settimeout(_TIMEOUT)
            self._socket = opened
        return self._socket

    def _receive(self, connection: socket.socket, answers: list[bytes]) -> bool:
        """Take what has come; True at the end of the answer to the present request."""
        data = connection.recv(_BUFFER)
        at = 0
        while at + _HEADER.size <= len(data):
            length, kind, flags, sequence, _ = _HEADER.unpack_from(data, at)
            if length < _HEADER.size:
                break
            payload = data[at + _HEADER.size : at + length]
            at += (length + 3) & ~3
            if sequence != self._sequence:
                continue  # of a request that timed out
            if kind == _NLMSG_ERROR:
                _raise(payload, flags)
                return True
            if kind == _NLMSG_DONE:
                return True
            answers.append(payload)
        return False


def _raise(payload: bytes, flags: int) -> None:
    """Raise what an error message says; an error of 0 is the acknowledgement."""
    code = -struct.unpack_from("=i", payload)[0]
    if not code:
        return
    said = ""
    if flags & _ACK_TLVS:
        request = struct.unpack_from("=I", payload, 4)[0]
        start = 4 + (_HEADER.size if flags & _CAPPED else (request + 3) & ~3)
        said = string(table(payload[start:]).get(_ERROR_TEXT, b""))
    raise OSError(code, said or os.strerror(code))
