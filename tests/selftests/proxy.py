#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0
"""A TCP proxy between an NVMe/TCP host and its target that does harm on demand.

    proxy.py --listen ADDR:PORT --target ADDR:PORT --control PORT

It forwards whole PDUs and takes one command per line on 127.0.0.1:PORT,
answering each with one line, "ok ..." or "error ...":

    corrupt WHAT N   flip one bit in the N-th PDU from now on that has WHAT, on
                     an I/O queue:
                       c2h-data    payload of C2HData
                       c2h-digest  data digest of C2HData
                       c2h-header  command id of C2HData or CapsuleResp
                       c2h-length  PDU length of C2HData or CapsuleResp
                       h2c-data    payload of a command capsule or H2CData
    status N CODE    the N-th CapsuleResp from now carries this NVMe status
                     (hexadecimal, type and code: 281 is a media error)
    drop N           the N-th CapsuleResp from now does not arrive
    duplicate N      the N-th CapsuleResp from now arrives twice
    sqflow on        Connect no longer asks to do without SQ flow control, so that
                     the target ends reads by a response, not by the SUCCESS flag
    mdts N           Identify Controller says 2^N pages (0: no limit)
    delay MS         every PDU is this late (0: none)
    hole on|off      nothing is forwarded, in either direction; connections
                     are accepted and never answered
    refuse on|off    connections are refused
    reset            all connections are reset (RST)
    close            all connections are closed (FIN)
    stats            counters, as NAME=VALUE words
    clear            counters and pending faults to zero
"""

import argparse
import collections
import contextlib
import ctypes
import socket
import struct
import sys
import threading
import time

LIBC = ctypes.CDLL(None)

CMD, RSP, H2C_DATA, C2H_DATA, R2T = 0x04, 0x05, 0x06, 0x07, 0x09
NAMES = {CMD: "cmd", RSP: "rsp", H2C_DATA: "h2c_data", C2H_DATA: "c2h_data", R2T: "r2t"}
HDGST, DDGST, SUCCESS = 0x01, 0x02, 0x08
NO_SQFLOW = 0x04
MAX_PDU = 64 << 20

OP_FABRICS, OP_IDENTIFY = 0x7F, 0x06
OPCODES = {0: "flush", 1: "write", 2: "read", 8: "write_zeroes", 9: "dsm"}
WITH_BLOCKS = {1, 2, 8}

CORRUPTIONS = ("c2h-data", "c2h-digest", "c2h-header", "c2h-length", "h2c-data")


class Fault:
    """Something to do to the n-th matching PDU."""

    def __init__(self, kind, countdown, value=0):
        self.kind = kind
        self.countdown = countdown
        self.value = value

    def matches(self, kind, has_data, flags):
        if self.kind in ("status", "drop", "duplicate"):
            return kind == RSP
        if self.kind in ("c2h-header", "c2h-length"):
            return kind in (RSP, C2H_DATA)
        if self.kind == "c2h-data":
            return kind == C2H_DATA and has_data
        if self.kind == "c2h-digest":
            return kind == C2H_DATA and flags & DDGST
        return kind in (CMD, H2C_DATA) and has_data


class Proxy:
    def __init__(self, listen, target):
        self.listen_addr = listen
        self.target = target
        self.lock = threading.Lock()
        self.open = threading.Event()  # cleared: the black hole
        self.open.set()
        self.links = set()
        self.faults = []
        self.stats = collections.Counter()
        self.delay = 0.0
        self.mdts = None
        self.sqflow = False
        self.listener = None
        self.start_listening()

    def start_listening(self):
        family = socket.AF_INET6 if ":" in self.listen_addr[0] else socket.AF_INET
        listener = socket.create_server(self.listen_addr, family=family, backlog=64)
        self.listener = listener
        threading.Thread(target=self.accept, args=(listener,), daemon=True).start()

    def accept(self, listener):
        while True:
            try:
                host, _ = listener.accept()
            except OSError:
                return
            threading.Thread(target=self.join, args=(host,), daemon=True).start()

    def join(self, host):
        """Connect one host connection to the target and pump both ways."""
        self.stats["connections"] += 1
        self.open.wait()
        try:
            peer = socket.create_connection(self.target)
        except OSError:
            reset(host)
            return
        for sock in (host, peer):
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        link = Link(self, host, peer)
        with self.lock:
            self.links.add(link)
        link.start()

    def forget(self, link):
        with self.lock:
            self.links.discard(link)

    def end_all(self, how):
        with self.lock:
            links = list(self.links)
        for link in links:
            link.end(how)
        return len(links)

    def take_faults(self, kind, has_data, flags):
        """Faults due for this PDU of an I/O queue."""
        due = []
        with self.lock:
            for fault in self.faults:
                if fault.matches(kind, has_data, flags):
                    fault.countdown -= 1
                    if fault.countdown == 0:
                        due.append(fault)
            for fault in due:
                self.faults.remove(fault)
                self.stats["faults"] += 1
        return due

    def command(self, words):
        verb, args = words[0], words[1:]
        if verb == "corrupt" and len(args) == 2 and args[0] in CORRUPTIONS:
            self.add_fault(Fault(args[0], positive(args[1])))
        elif verb == "status" and len(args) == 2:
            self.add_fault(Fault("status", positive(args[0]), int(args[1], 16)))
        elif verb in ("drop", "duplicate") and len(args) == 1:
            self.add_fault(Fault(verb, positive(args[0])))
        elif verb == "mdts" and len(args) == 1:
            self.mdts = int(args[0])
        elif verb == "sqflow" and args in (["on"], ["off"]):
            self.sqflow = args == ["on"]
        elif verb == "delay" and len(args) == 1:
            self.delay = int(args[0]) / 1000
        elif verb == "hole" and args in (["on"], ["off"]):
            if args == ["on"]:
                self.open.clear()
            else:
                self.open.set()
        elif verb == "refuse" and args in (["on"], ["off"]):
            if args == ["off"]:
                self.start_listening()
            else:
                # close() alone leaves accept() in another thread listening.
                self.listener.shutdown(socket.SHUT_RDWR)
                self.listener.close()
        elif verb in ("reset", "close") and not args:
            return f"{self.end_all(reset if verb == 'reset' else close)} connections"
        elif verb == "stats" and not args:
            words = sorted(self.stats.items())
            pending = len(self.faults)
            return " ".join(f"{k}={v}" for k, v in [*words, ("pending", pending)])
        elif verb == "clear" and not args:
            with self.lock:
                self.stats.clear()
                self.faults.clear()
        else:
            raise ValueError(f"unknown command: {' '.join(words)}")
        return ""

    def add_fault(self, fault):
        with self.lock:
            self.faults.append(fault)


class Link:
    """One connection of the host and its twin to the target."""

    def __init__(self, proxy, host, peer):
        self.proxy = proxy
        self.host = host
        self.peer = peer
        self.qid = None
        self.identify = set()  # command ids of Identify Controller under way

    def start(self):
        for args in ((self.host, self.peer), (self.peer, self.host)):
            threading.Thread(target=self.pump, args=args, daemon=True).start()

    def end(self, how):
        how(self.host)
        how(self.peer)
        self.proxy.forget(self)

    def pump(self, source, sink):
        pending = bytearray()
        try:
            while True:
                chunk = source.recv(1 << 18)
                # What was already on its way when the hole opened is lost in
                # it until it closes: this side never sees it either.
                self.proxy.open.wait()
                if not chunk:
                    break
                pending += chunk
                out = self.pdus(pending, source is self.host)
                if self.proxy.delay:
                    time.sleep(self.proxy.delay)
                if out:
                    sink.sendall(out)
        except OSError:
            pass
        self.end(close)

    def pdus(self, pending, from_host):
        """Takes whole PDUs off the front of pending; returns what to forward."""
        out = bytearray()
        at = 0
        while len(pending) - at >= 8:
            length = struct.unpack_from("<I", pending, at + 4)[0]
            if not 8 <= length <= MAX_PDU:
                raise OSError(f"PDU length {length}")
            if len(pending) - at < length:
                break
            out += self.one(pending[at : at + length], from_host)
            at += length
        del pending[:at]
        return out

    def one(self, pdu, from_host):
        kind, flags, hlen, pdo, _ = struct.unpack_from("<BBBBI", pdu)
        stats = self.proxy.stats
        if kind in NAMES:
            stats[NAMES[kind]] += 1
        if flags & HDGST:
            stats["header_digests"] += 1
        has_data = kind in (CMD, H2C_DATA, C2H_DATA) and 0 < pdo < len(pdu)
        if flags & DDGST and has_data:
            stats["data_digests"] += 1
        if kind == C2H_DATA and flags & SUCCESS:
            stats["success"] += 1
        if kind == CMD:
            self.count_command(pdu, has_data)
        if self.qid == 0 and kind == C2H_DATA:
            self.set_mdts(pdu, pdo)
        if not self.qid:
            return pdu
        for fault in self.proxy.take_faults(kind, has_data, flags):
            if fault.kind == "drop":
                return b""
            if fault.kind == "duplicate":
                return pdu + pdu
            if fault.kind == "status":
                # Little-endian, shifted past the phase bit; no retry (DNR).
                struct.pack_into("<H", pdu, 8 + 14, (fault.value | 0x4000) << 1)
            else:
                place = {
                    "c2h-data": pdo,
                    "h2c-data": pdo,
                    "c2h-digest": len(pdu) - 1,
                    "c2h-header": hlen - 4 if kind == RSP else 8,
                    "c2h-length": 6,
                }[fault.kind]
                pdu[place] ^= 0x40
        return pdu

    def count_command(self, pdu, has_data):
        stats = self.proxy.stats
        opcode, _, cid = struct.unpack_from("<BBH", pdu, 8)
        if opcode == OP_FABRICS and pdu[8 + 4] == 1:  # Connect
            self.qid = struct.unpack_from("<H", pdu, 8 + 42)[0]
            stats["max_qid"] = max(stats["max_qid"], self.qid)
            if self.proxy.sqflow:
                pdu[8 + 46] &= ~NO_SQFLOW
        if self.qid == 0:
            cns = pdu[8 + 40]
            if opcode == OP_IDENTIFY and cns == 1:
                self.identify.add(cid)
            return
        if opcode not in OPCODES:
            return
        name = OPCODES[opcode]
        stats[name] += 1
        if has_data:
            stats["in_capsule"] += 1
        if opcode in WITH_BLOCKS:
            blocks, control = struct.unpack_from("<HH", pdu, 8 + 48)
            stats[f"max_{name}_blocks"] = max(stats[f"max_{name}_blocks"], blocks + 1)
            if control & 0x4000:
                stats["fua"] += 1

    def set_mdts(self, pdu, pdo):
        cid, _, offset, length = struct.unpack_from("<HHII", pdu, 8)
        if cid in self.identify:
            if self.proxy.mdts is not None and offset <= 77 < offset + length:
                pdu[pdo + 77 - offset] = self.proxy.mdts
            self.identify.discard(cid)


def positive(word):
    number = int(word)
    if number < 1:
        raise ValueError(f"{word} is not a number from 1")
    return number


def reset(sock):
    """Sends RST. close() does not wake a recv() in another thread, and
    shutdown() would send FIN; connecting to AF_UNSPEC resets and wakes."""
    unspec = bytes(16)
    LIBC.connect(sock.fileno(), unspec, len(unspec))
    sock.close()


def close(sock):
    with contextlib.suppress(OSError):
        sock.shutdown(socket.SHUT_RDWR)
    sock.close()


def serve_control(proxy, port):
    server = socket.create_server(("127.0.0.1", port))
    print("ready", flush=True)
    while True:
        conn, _ = server.accept()
        with conn, conn.makefile("rw") as lines:
            for line in lines:
                words = line.split()
                if not words:
                    continue
                try:
                    answer = f"ok {proxy.command(words)}".rstrip()
                except (ValueError, OSError) as err:
                    answer = f"error {err}"
                lines.write(answer + "\n")
                lines.flush()


def address(text):
    host, _, port = text.rpartition(":")
    return host.strip("[]"), int(port)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--listen", type=address, required=True)
    parser.add_argument("--target", type=address, required=True)
    parser.add_argument("--control", type=int, required=True)
    args = parser.parse_args()
    serve_control(Proxy(args.listen, args.target), args.control)


if __name__ == "__main__":
    sys.exit(main())
