# SPDX-License-Identifier: GPL-2.0
"""A network between two guests that knows multiple queues and offloads.

Tap devices on a bridge, in a network namespace that has no name and no process:
the open taps are all that keeps it, so it goes with the last QEMU, however that
ends.
"""

from __future__ import annotations

import contextlib
import ctypes
import fcntl
import os
import socket
import struct
import threading

from . import cache

TUN = "/dev/net/tun"
BRIDGE = "bridge"
CLONE_NEWNET = 0x40000000
# linux/if_tun.h, linux/sockios.h
TUNSETIFF = 0x400454CA
IFF_TAP, IFF_NO_PI, IFF_VNET_HDR, IFF_MULTI_QUEUE = 0x0002, 0x1000, 0x4000, 0x0100
SIOCGIFFLAGS, SIOCSIFFLAGS, SIOCSIFMTU, SIOCGIFINDEX = 0x8913, 0x8914, 0x8922, 0x8933
SIOCBRADDBR, SIOCBRADDIF = 0x89A0, 0x89A2
IFF_UP = 0x1
IFREQ_SIZE = 40


def _request(name: str, data: bytes = b"") -> bytes:
    """A struct ifreq."""
    return struct.pack("16s", name.encode()) + data.ljust(IFREQ_SIZE - 16, b"\0")


def _up(control: socket.socket, name: str) -> None:
    answer = fcntl.ioctl(control, SIOCGIFFLAGS, _request(name))
    (flags,) = struct.unpack_from("H", answer, 16)
    fcntl.ioctl(control, SIOCSIFFLAGS, _request(name, struct.pack("H", flags | IFF_UP)))


def _tap(control: socket.socket, name: str, queues: int, mtu: int) -> list[int]:
    """A tap on the bridge; one file descriptor for each queue."""
    flags = IFF_TAP | IFF_NO_PI | IFF_VNET_HDR | (IFF_MULTI_QUEUE if queues > 1 else 0)
    files: list[int] = []
    try:
        for _ in range(queues):
            files.append(os.open(TUN, os.O_RDWR | os.O_CLOEXEC | os.O_NONBLOCK))
            fcntl.ioctl(files[-1], TUNSETIFF, _request(name, struct.pack("H", flags)))
        fcntl.ioctl(control, SIOCSIFMTU, _request(name, struct.pack("i", mtu)))
        (index,) = struct.unpack_from("i", fcntl.ioctl(control, SIOCGIFINDEX, _request(name)), 16)
        fcntl.ioctl(control, SIOCBRADDIF, _request(BRIDGE, struct.pack("i", index)))
        _up(control, name)
    except BaseException:
        close(files)
        raise
    return files


class Network:
    """Taps on a bridge that does not forward yet.

    Until the guests' queues have buffers nothing may come: QEMU would hold the
    first packet for a queue without, and with it all that follow.
    """

    def __init__(self, wanted: dict[str, int], mtu: int):
        """`wanted`: for each tap its number of queues; they have the MTU from the start."""
        self.files: dict[str, list[int]] = {}
        # Made in the namespace, it reaches it from everywhere.
        self._control = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        try:
            fcntl.ioctl(self._control, SIOCBRADDBR, BRIDGE.encode() + b"\0")
            for name, queues in wanted.items():
                self.files[name] = _tap(self._control, name, queues, mtu)
        except BaseException:
            self.close()
            raise

    def connect(self) -> None:
        """Let packets pass."""
        _up(self._control, BRIDGE)

    def close(self) -> None:
        """Give up what this process holds of it; the guests keep theirs."""
        for files in self.files.values():
            close(files)
        self.files.clear()
        self._control.close()


def make(wanted: dict[str, int], mtu: int) -> Network:
    """A network for these taps, in a namespace of its own.

    Raises LabError where this machine lets nobody make one.
    """
    made: list[Network] = []
    failed: list[OSError] = []

    def work() -> None:
        try:
            if ctypes.CDLL(None, use_errno=True).unshare(CLONE_NEWNET):
                error = ctypes.get_errno()
                raise OSError(error, os.strerror(error))
            # Not a word of this kernel's own on the network.
            with contextlib.suppress(OSError), open("/proc/sys/net/ipv6/conf/default/disable_ipv6", "w") as stream:
                stream.write("1")
            made.append(Network(wanted, mtu))
        except OSError as error:
            failed.append(error)

    # A namespace belongs to a thread: this one takes it along when it ends.
    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    if failed:
        raise cache.LabError(
            f"taps for the data link can't be made ({failed[0]}); they need root, {TUN} and the kernel's bridge"
        )
    return made[0]


def close(files: list[int]) -> None:
    for file in files:
        os.close(file)
