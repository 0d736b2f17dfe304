# SPDX-License-Identifier: GPL-2.0
"""The proxy does the harm it is asked for, and no other."""

import socket
import struct
import sys
import threading
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))

import proxy


def pdu(kind, header, data=b"", flags=0, trailer=b""):
    """A PDU whose header is 8 bytes and these, the data right behind it."""
    hlen = 8 + len(header)
    offset = hlen if data else 0
    length = hlen + len(data) + len(trailer)
    return struct.pack("<BBBBI", kind, flags, hlen, offset, length) + header + data + trailer


def command(opcode, cid=7, qid=None, blocks=0, control=0, cns=0, data=b""):
    sqe = bytearray(64)
    struct.pack_into("<BBH", sqe, 0, opcode, 0, cid)
    if qid is not None:
        sqe[4] = 1
        struct.pack_into("<H", sqe, 42, qid)
    else:
        sqe[40] = cns
        struct.pack_into("<HH", sqe, 48, blocks, control)
    return pdu(proxy.CMD, bytes(sqe), data)


def response(cid):
    return pdu(proxy.RSP, bytes(12) + struct.pack("<HH", cid, 0))


def read_data(cid, data, **how):
    return pdu(proxy.C2H_DATA, struct.pack("<HHII", cid, 0, 0, len(data)) + bytes(4), data, **how)


@pytest.fixture
def link():
    made = proxy.Proxy(("127.0.0.1", 0), ("127.0.0.1", 9))
    yield proxy.Link(made, None, None)
    made.listener.close()


def through(link, data, from_host=False):
    return bytes(link.pdus(bytearray(data), from_host))


def on_queue(link, qid):
    through(link, command(proxy.OP_FABRICS, qid=qid), True)


def do(link, text):
    return link.proxy.command(text.split())


def differences(before, after):
    assert len(before) == len(after)
    return [i for i in range(len(before)) if before[i] != after[i]]


def test_untouched_and_whole(link):
    on_queue(link, 1)
    stream = read_data(3, b"x" * 512) + response(3)
    pending = bytearray(stream[:100])
    assert link.pdus(pending, False) == b""
    pending += stream[100:]
    assert bytes(link.pdus(pending, False)) == stream


@pytest.mark.parametrize(
    ("what", "place"),
    [("c2h-data", 24), ("c2h-digest", 24 + 512 + 3), ("c2h-header", 8), ("c2h-length", 6)],
)
def test_corrupt_read(link, what, place):
    on_queue(link, 1)
    do(link, f"corrupt {what} 2")
    sent = read_data(3, b"x" * 512, flags=proxy.DDGST, trailer=b"\1\2\3\4")
    assert through(link, sent) == sent
    assert differences(sent, through(link, sent)) == [place]
    assert through(link, sent) == sent
    assert "faults=1" in do(link, "stats")


def test_corrupt_write(link):
    on_queue(link, 1)
    do(link, "corrupt h2c-data 1")
    flush = command(0)
    assert through(link, flush, True) == flush
    write = command(1, data=b"y" * 512)
    assert differences(write, through(link, write, True)) == [72]


def test_admin_queue_is_spared(link):
    on_queue(link, 0)
    do(link, "corrupt c2h-header 1")
    assert through(link, response(1)) == response(1)


def test_responses(link):
    on_queue(link, 2)
    sent = response(5)
    do(link, "drop 1")
    assert through(link, sent) == b""
    do(link, "duplicate 1")
    assert through(link, sent) == sent + sent
    do(link, "status 1 281")
    status = struct.unpack_from("<H", through(link, sent), 22)[0]
    assert status >> 1 == 0x281 | 0x4000


def test_mdts(link):
    on_queue(link, 0)
    do(link, "mdts 3")
    through(link, command(proxy.OP_IDENTIFY, cid=9, cns=1), True)
    page = read_data(9, bytes(4096))
    changed = through(link, page)
    assert differences(page, changed) == [24 + 77]
    assert changed[24 + 77] == 3
    assert through(link, page) == page


def test_counters(link):
    on_queue(link, 1)
    through(link, command(1, blocks=7, control=0x4000, data=b"z" * 512) + command(2, blocks=31), True)
    stats = dict(word.split("=") for word in do(link, "stats").split())
    assert stats["write"] == stats["read"] == stats["fua"] == stats["in_capsule"] == "1"
    assert stats["max_write_blocks"] == "8"
    assert stats["max_read_blocks"] == "32"


@pytest.mark.parametrize("text", ["corrupt everything 1", "drop 0", "hole maybe", "explode", "status 1"])
def test_nonsense_is_refused(link, text):
    with pytest.raises((ValueError, IndexError)):
        do(link, text)


def connected():
    """A proxy in front of a target that echoes, and a connection through it."""
    target = socket.create_server(("127.0.0.1", 0))

    def echo(peer):
        peer.sendall(peer.recv(4096))

    def serve():
        while True:
            try:
                peer, _ = target.accept()
            except OSError:
                return
            threading.Thread(target=echo, args=(peer,), daemon=True).start()

    threading.Thread(target=serve, daemon=True).start()
    made = proxy.Proxy(("127.0.0.1", 0), target.getsockname())
    host = socket.create_connection(made.listener.getsockname())
    host.settimeout(5)
    return made, host


def test_reset_is_a_reset():
    made, host = connected()
    host.sendall(response(1))
    assert host.recv(4096) == response(1)
    assert made.command(["reset"]) == "1 connections"
    with pytest.raises(ConnectionResetError):
        host.recv(1)


def test_hole_swallows_until_it_closes():
    made, host = connected()
    made.command(["hole", "on"])
    host.settimeout(0.3)
    host.sendall(response(1))
    with pytest.raises(TimeoutError):
        host.recv(1)
    host.settimeout(5)
    made.command(["hole", "off"])
    assert host.recv(4096) == response(1)


def test_refuse():
    made, _ = connected()
    made.listen_addr = made.listener.getsockname()
    made.command(["refuse", "on"])
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection(made.listen_addr)
    made.command(["refuse", "off"])
    socket.create_connection(made.listen_addr).close()
