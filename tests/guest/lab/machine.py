# SPDX-License-Identifier: GPL-2.0
"""One QEMU guest: its command line, its channels and its end."""

from __future__ import annotations

import contextlib
import ctypes
import json
import os
import signal
import socket
import subprocess
import time
from dataclasses import dataclass, field
from pathlib import Path

from . import emulator, hardware, kernels

DATA = "data"  # the name of the link that tests use
DATA_MTU = 9000
_PR_SET_PDEATHSIG = 1


def _die_with_parent() -> None:
    """A guest must not outlive the run, even when that is killed."""
    ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)


@dataclass
class Link:
    """One end of a private network between two guests, or of one that leads nowhere."""

    name: str  # of the link
    path: Path | None  # unix socket
    listens: bool
    mac: str
    mtu: int = 1500
    model: str = "virtio"
    queues: int = 1
    taps: list[int] = field(default_factory=list)  # instead of the socket: a file descriptor for each queue

    def backend(self) -> str:
        """QEMU's side of it."""
        if self.taps:
            files = f"fd={self.taps[0]}" if len(self.taps) == 1 else f"fds={':'.join(map(str, self.taps))}"
            return f"tap,id={self.name},{files},vhost=off"
        if self.path:
            listen = "on" if self.listens else "off"
            return f"stream,id={self.name},server={listen},addr.type=unix,addr.path={self.path}"
        return f"hubport,id={self.name},hubid=0"


@dataclass
class Spec:
    """What a guest is made of."""

    role: str
    kernel: kernels.Kernel
    accelerator: list[str]
    directory: Path  # for the channels' files
    sockets: Path
    smp: int = 2
    memory: int = 1024
    disks: list[str] = field(default_factory=list)  # -drive options without id and if
    shares: dict[str, tuple[Path, bool]] = field(default_factory=dict)  # tag: (path, writable)
    links: list[Link] = field(default_factory=list)
    arguments: list[str] = field(default_factory=list)  # for the kernel
    hardware: hardware.Hardware = field(default_factory=hardware.Hardware)
    emulator: emulator.Emulator = field(default_factory=emulator.system)
    interactive: bool = False


def command(spec: Spec) -> list[str]:
    """The QEMU command line of a guest."""
    where = spec.directory
    arguments = [
        "console=ttyS0",
        "panic=-1",
        "loglevel=5",
        "mitigations=off",
        "no_timer_check",
        "net.ifnames=0",
        "sysrq_always_enabled=1",
        "log_buf_len=4M",
        "rcupdate.rcu_cpu_stall_timeout=150",
        "watchdog_thresh=60",
        f"lab.role={spec.role}",
        *spec.arguments,
    ]
    line = [spec.emulator.binary, *spec.emulator.options,
            "-name", f"rflash-{spec.role}", "-nodefaults", "-no-user-config", "-display", "none", "-no-reboot",
            "-machine", "q35", *spec.accelerator,
            *hardware.cpus(spec.smp, spec.hardware.nodes, spec.memory),
            "-kernel", str(spec.kernel.image), "-initrd", str(spec.kernel.initrd), "-append", " ".join(arguments),
            "-qmp", f"unix:{spec.sockets}/{spec.role}.qmp,server=on,wait=off",
            "-device", "virtio-rng-pci", "-device", "virtio-serial-pci"]  # fmt: skip
    if spec.interactive:
        line += ["-chardev", "stdio,id=console,mux=off,signal=off", "-serial", "chardev:console"]
    else:
        line += ["-chardev", f"socket,id=console,path={spec.sockets}/{spec.role}.console,server=on,wait=off"
                             f",logfile={where}/console.log",
                 "-serial", "chardev:console"]  # fmt: skip
    for port in ("output", "result", "dmesg"):
        line += ["-chardev", f"file,id={port},path={where}/{port}",
                 "-device", f"virtserialport,chardev={port},name={port}"]  # fmt: skip
    for number, disk in enumerate(spec.disks):
        line += ["-drive", f"{disk},if=none,id=disk{number}", "-device", f"virtio-blk-pci,drive=disk{number}"]
    for tag, (path, writable) in spec.shares.items():
        mode = "" if writable else ",readonly=on"
        line += ["-virtfs", f"local,path={path},mount_tag={tag},security_model=none,multidevs=remap{mode}"]
    buses = hardware.Buses(spec.hardware.nodes)
    far = []
    for link in spec.links:
        bus = buses.next() if link.name == DATA else ""
        card = ["-netdev", link.backend()]
        card += hardware.nic(link.model, link.name, link.mac, link.mtu, link.queues, bus)
        if bus:
            far += card
        else:
            line += card
    if spec.hardware.disk:
        far += hardware.nvme(where / "flash.img", spec.hardware.disk_size, spec.smp, buses.next())
    # Last: without a bus of its own, a device would go to the one made last.
    line += [*buses.line, *far]
    return line


class Machine:
    """A running guest."""

    def __init__(self, spec: Spec):
        self.spec = spec
        self.directory = spec.directory
        self.directory.mkdir(parents=True, exist_ok=True)
        for name in ("output", "result", "dmesg", "console.log"):
            (self.directory / name).write_bytes(b"")
        self._log = open(self.directory / "qemu.log", "wb")  # noqa: SIM115, closed in stop()
        self.process = subprocess.Popen(
            command(spec),
            stdin=None if spec.interactive else subprocess.DEVNULL,
            stdout=None if spec.interactive else self._log,
            stderr=self._log,
            preexec_fn=_die_with_parent,
            pass_fds=[file for link in spec.links for file in link.taps],
        )
        self._seen = 0

    # What came out

    def _read(self, name: str) -> str:
        try:
            return (self.directory / name).read_text(errors="replace")
        except FileNotFoundError:
            return ""

    def results(self) -> list[list[str]]:
        """The complete lines of the result channel, in words."""
        text = self._read("result")
        return [line.split() for line in text.split("\n")[:-1] if line.startswith("lab ")]

    def reached(self, word: str) -> bool:
        return any(words[1] == word for words in self.results() if len(words) > 1)

    def status(self) -> int | None:
        """The script's exit status, once it is there."""
        for words in self.results():
            if words[1] == "status" and len(words) == 3:
                return int(words[2])
        return None

    def console(self) -> str:
        return self._read("console.log")

    def dmesg(self) -> str:
        return self._read("dmesg")

    def complaint(self) -> str:
        """What QEMU itself had to say, on one line."""
        lines = [
            line for line in self._read("qemu.log").splitlines() if line.strip() and "warning: TCG doesn't" not in line
        ]
        return "; ".join(lines[-3:])

    def more_output(self) -> bytes:
        """What the script has printed since the last call."""
        with open(self.directory / "output", "rb") as stream:
            stream.seek(self._seen)
            data = stream.read()
        self._seen += len(data)
        return data

    # Its end

    def ended(self) -> bool:
        return self.process.poll() is not None

    def wait(self, seconds: float) -> bool:
        try:
            self.process.wait(seconds)
        except subprocess.TimeoutExpired:
            return False
        return True

    def stop(self) -> None:
        """End it, however it is."""
        if not self.ended():
            self.process.terminate()
            if not self.wait(5):
                self.process.kill()
                self.process.wait()
        self._log.close()

    def show_tasks(self) -> None:
        """Make a guest that hangs print its blocked tasks and CPUs on its console."""
        before = len(self.console())
        with contextlib.suppress(OSError, ValueError):
            with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as terminal:
                terminal.settimeout(3)
                terminal.connect(str(self._socket("console")))
                # Break and a letter on the serial console are SysRq and that letter.
                for key in (b"w", b"l"):
                    self._monitor({"execute": "chardev-send-break", "arguments": {"id": "console"}})
                    terminal.sendall(key)
                    time.sleep(0.3)
            for _ in range(30):
                size = len(self.console())
                time.sleep(0.2)
                if before + 200 < size == len(self.console()):
                    break

    def _socket(self, name: str) -> Path:
        return self.spec.sockets / f"{self.spec.role}.{name}"

    def _monitor(self, request: dict[str, object]) -> None:
        """Ask QEMU itself for something (QMP)."""
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as connection:
            connection.settimeout(3)
            connection.connect(str(self._socket("qmp")))
            stream = connection.makefile("rw")
            stream.readline()
            for message in ({"execute": "qmp_capabilities"}, request):
                stream.write(json.dumps(message) + "\n")
                stream.flush()
                stream.readline()


def socket_directory() -> Path:
    """A short path: unix sockets can't have long ones."""
    import tempfile

    return Path(tempfile.mkdtemp(prefix="rflash-lab-", dir=os.environ.get("XDG_RUNTIME_DIR") or "/tmp"))
