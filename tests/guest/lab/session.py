# SPDX-License-Identifier: GPL-2.0
"""One run: a script in one guest, or in the host guest of a pair."""

from __future__ import annotations

import contextlib
import json
import os
import re
import shlex
import shutil
import sys
import tempfile
import time
from dataclasses import dataclass, field
from pathlib import Path

from . import accelerator, cache, emulator, hardware, kernels, machine, rootfs, taps, verdict

ROOT = Path(__file__).resolve().parents[3]
SKIP = 4  # the selftests' exit status for a skipped test
HANG = 124  # as timeout(1) has it
BOOT_SECONDS = 150
POWER_OFF_SECONDS = 60
LAST_WORDS_SECONDS = 20
POLL_SECONDS = 0.03


@dataclass
class Job:
    """What to run, and where."""

    command: list[str]  # as the guest sees it
    title: str
    kernel: str = kernels.DEFAULT
    smp: int = 2
    peer_smp: int = 0  # virtual CPUs of the second guest; 0: as many as the first has
    memory: int = 1024
    counted: bool = False
    timeout: float = 300
    out: Path | None = None
    server: bool = False
    keep: bool = False
    shell: bool = False
    environment: dict[str, str] = field(default_factory=dict)
    allowed: list[re.Pattern[str]] = field(default_factory=list)
    append: list[str] = field(default_factory=list)
    hardware: hardware.Hardware | None = None  # of the first guest; None: the usual


@dataclass
class Outcome:
    """How a run went. Without reasons it was good."""

    started: bool = False
    status: int | None = None
    reasons: list[str] = field(default_factory=list)
    hang: bool = False
    seconds: float = 0.0

    @property
    def skipped(self) -> bool:
        return self.status == SKIP and not self.reasons

    def exit_status(self) -> int:
        if self.hang:
            return HANG
        if self.status not in (None, 0, SKIP):
            return self.status
        if self.reasons:
            return 1
        return self.status or 0


def scale() -> float:
    """A factor for every time limit, for machines much slower than the author's."""
    text = os.environ.get("RFLASH_TIMEOUT_SCALE", "1")
    try:
        factor = float(text)
    except ValueError:
        factor = 0
    if not factor > 0:
        raise cache.LabError(f"RFLASH_TIMEOUT_SCALE is '{text}'; it should be a number above 0")
    return factor


# stage/boot tells the links apart by these bytes of their addresses.
MANAGEMENT, DATA = "98", "99"


def _links(job: Job, role: str, sockets: Path, files: dict[str, list[int]]) -> list[machine.Link]:
    """A guest's ends of the links, of which a guest without a peer has one at most."""
    wanted = job.hardware or hardware.Hardware()
    number = {"server": 1, "host": 2}[role]
    links = []
    if job.server:
        mac = f"52:54:00:{MANAGEMENT}:00:{number:02x}"
        links.append(machine.Link("mgmt", sockets / "mgmt", role == "server", mac))
    if job.server or job.hardware:
        mac = f"52:54:00:{DATA}:00:{number:02x}"
        path = sockets / machine.DATA if job.server and not files else None
        data = machine.Link(machine.DATA, path, role == "server", mac, machine.DATA_MTU, taps=files.get(role, []))
        if role == "host":
            data.model, data.queues = wanted.nic, wanted.nic_queues
        links.append(data)
    return links


def _network(job: Job) -> taps.Network | None:
    """The data link, where it has to be one of taps."""
    if not job.hardware or not job.hardware.taps:
        return None
    wanted = {"host": job.hardware.nic_queues}
    if job.server:
        wanted["server"] = 1
    return taps.make(wanted, machine.DATA_MTU)


def _specs(job: Job, directory: Path, sockets: Path, out: Path, network: taps.Network | None) -> list[machine.Spec]:
    """The guests of a job: the server, when there is one, before the host."""
    kernel = kernels.prepare(job.kernel)
    image = rootfs.prepare()
    options = accelerator.choose(kernel, job.counted)
    specs = []
    for role in ("server", "host"):
        if role == "server" and not job.server:
            continue
        tuned = (role == "host" and job.hardware) or hardware.Hardware()
        words = tuned.arguments()
        if network and role == "server":
            words.append("lab.taps=1")
        specs.append(
            machine.Spec(
                role=role,
                kernel=kernel,
                accelerator=options,
                directory=directory / role,
                sockets=sockets,
                smp=job.smp if role == "host" else job.peer_smp or job.smp,
                memory=job.memory,
                disks=[
                    f"file={image},format=raw,snapshot=on,cache=unsafe",
                    f"file={kernel.modules},format=raw,readonly=on",
                ],
                shares={"source": (ROOT, False), "out": (out, True)},
                links=_links(job, role, sockets, network.files if network else {}),
                arguments=[f"lab.series={job.kernel}", *words, *job.append],
                interactive=job.shell and role == "host",
                hardware=tuned,
                emulator=emulator.newer() if tuned.nic in hardware.NEW_NICS else emulator.system(),
            )
        )
    return specs


def _job_file(job: Job) -> str:
    lines = [f"export {name}={shlex.quote(value)}" for name, value in sorted(job.environment.items())]
    lines.append(f"LAB_COMMAND=({' '.join(shlex.quote(word) for word in job.command)})")
    lines.append(f"LAB_SHELL={int(job.shell)}")
    if job.shell:
        size = shutil.get_terminal_size()
        lines.append(f"LAB_ROWS={size.lines} LAB_COLUMNS={size.columns}")
    return "\n".join(lines) + "\n"


class Run:
    """One attempt to run a job."""

    def __init__(self, job: Job, directory: Path, out: Path):
        self.job = job
        self.directory = directory
        self.out = out
        self.sockets = machine.socket_directory()
        self.machines: dict[str, machine.Machine] = {}
        self.network: taps.Network | None = None  # until the guests have it
        self.outcome = Outcome()

    def __enter__(self) -> Run:
        return self

    def __exit__(self, *_: object) -> None:
        for guest in self.machines.values():
            guest.stop()
        if self.network:
            self.network.close()
        shutil.rmtree(self.sockets, ignore_errors=True)
        (self.out / ".lab-job").unlink(missing_ok=True)

    @property
    def host(self) -> machine.Machine:
        return self.machines["host"]

    def _start(self) -> None:
        (self.out / ".lab-job").write_text(_job_file(self.job))
        self.network = _network(self.job)
        for spec in _specs(self.job, self.directory, self.sockets, self.out, self.network):
            self.machines[spec.role] = machine.Machine(spec)
            if spec.role == "server":
                self._wait_for_sockets()

    def _connect(self) -> None:
        """Let packets pass between taps, once both guests have their cards up."""
        if self.network and all(guest.reached("linked") for guest in self.machines.values()):
            self.network.connect()
            self.network.close()
            self.network = None

    def _wait_for_sockets(self) -> None:
        """The host's QEMU connects at once: the sockets have to be there."""
        server = self.machines["server"]
        paths = [link.path for link in server.spec.links if link.path]
        deadline = time.monotonic() + 30
        while not all(path.exists() for path in paths):
            if server.ended() or time.monotonic() > deadline:
                raise cache.LabError(f"the server guest's QEMU did not start: {server.complaint()}")
            time.sleep(POLL_SECONDS)

    def _show_output(self) -> None:
        data = self.host.more_output()
        if data:
            sys.stdout.buffer.write(data)
            sys.stdout.buffer.flush()

    def execute(self) -> Outcome:
        """Run to the end, whatever that is."""
        begin = time.monotonic()
        self._start()
        factor = scale()
        started = None
        limit = begin + BOOT_SECONDS * factor
        while True:
            self._show_output()
            self._connect()
            if started is None and self.host.reached("start"):
                started = time.monotonic()
                self.outcome.started = True
                limit = started + self.job.timeout * factor
            if self.host.reached("end") or self.host.ended():
                break
            server = self.machines.get("server")
            if server and server.ended():
                self._last_words(factor)
                break
            if time.monotonic() > limit and not self.job.shell:
                self.outcome.hang = started is not None
                for guest in self.machines.values():
                    guest.show_tasks()
                break
            time.sleep(POLL_SECONDS)
        if self.host.reached("end") or self.host.ended():
            for guest in self.machines.values():
                wanted = guest is self.host or self.host.reached("end")
                if wanted and not guest.wait(POWER_OFF_SECONDS * factor):
                    self.outcome.reasons.append(f"the {guest.spec.role} guest did not power off after its script")
        self._show_output()
        for guest in self.machines.values():
            guest.stop()
        self._show_output()
        self.outcome.status = self.host.status()
        self._judge()
        self.outcome.seconds = time.monotonic() - begin
        return self.outcome

    def _last_words(self, factor: float) -> None:
        """The host powers the server off before it tells its status: on a busy machine that comes late."""
        until = time.monotonic() + LAST_WORDS_SECONDS * factor
        while time.monotonic() < until and not (self.host.reached("end") or self.host.ended()):
            self._show_output()
            time.sleep(POLL_SECONDS)

    def _judge(self) -> None:
        outcome = self.outcome
        for role, guest in self.machines.items():
            outcome.reasons += self._judge_machine(role, guest)
        status = outcome.status
        if status not in (None, 0, SKIP):
            outcome.reasons.insert(0, f"the script exited with {status}")

    def _judge_machine(self, role: str, guest: machine.Machine) -> list[str]:
        where = "" if role == "host" and len(self.machines) == 1 else f"{role} guest: "
        reasons = []
        panic = verdict.panic(guest.console())
        if panic:
            reasons.append(f"{where}kernel panic: {panic}")
        troubles = verdict.troubles(guest.console() + "\n" + guest.dmesg(), self.job.allowed)
        reasons += [f"{where}{kind}: {message}" for kind, message in troubles[:5]]
        if len(troubles) > 5:
            reasons.append(f"{where}and {len(troubles) - 5} more messages of this kind")
        if guest.reached("end"):
            if not guest.dmesg().strip():
                reasons.append(f"{where}the kernel's messages did not arrive")
            return reasons
        code = guest.process.returncode
        if self.outcome.hang:
            if role == "host":
                reasons.insert(0, f"no result after {self.job.timeout:g} s: the script hangs")
        elif code not in (0, -15, -9):
            reasons.append(f"{where}QEMU ended with {code}: {guest.complaint() or 'no message'}")
        elif code == -9:
            reasons.append(f"{where}QEMU was killed")
        elif not guest.reached("start"):
            last = " / ".join(guest.console().strip().splitlines()[-2:])
            if code != -15 or role == "host":
                reasons.append(f"{where}the guest never reached its start: {last or guest.complaint()}")
        elif code == 0 and not panic:
            reasons.append(f"{where}the guest powered off before its script had ended")
        elif code == -15 and role == "host" and not any(m.ended() and m is not guest for m in self.machines.values()):
            reasons.append(f"{where}QEMU was terminated")
        return reasons


def _keep_logs(run_directory: Path, out: Path, job: Job, outcome: Outcome) -> None:
    """Put what a person wants to read after a failure beside the script's output."""
    target = out / "lab"
    target.mkdir(exist_ok=True)
    for role in ("host", "server"):
        for name in ("console.log", "dmesg", "qemu.log", "output"):
            source = run_directory / role / name
            with contextlib.suppress(FileNotFoundError):
                shutil.copy(source, target / f"{role}-{name.removesuffix('.log')}.log")
    (target / "result.json").write_text(
        json.dumps(
            {
                "title": job.title,
                "kernel": job.kernel,
                "status": outcome.exit_status(),
                "started": outcome.started,
                "hang": outcome.hang,
                "reasons": outcome.reasons,
                "seconds": round(outcome.seconds, 1),
            },
            indent=1,
        )
        + "\n"
    )


def execute(job: Job) -> Outcome:
    """Run a job; once more when the guest did not even get as far as the script."""
    base = ROOT / "build" / "guest"
    base.mkdir(parents=True, exist_ok=True)
    for attempt in (1, 2):
        directory = Path(tempfile.mkdtemp(prefix=f"{re.sub(r'[^A-Za-z0-9.-]+', '-', job.title)[:40]}-", dir=base))
        out = job.out or directory / "out"
        out.mkdir(parents=True, exist_ok=True)
        try:
            with Run(job, directory, out) as run:
                outcome = run.execute()
            _keep_logs(directory, out, job, outcome)
        except BaseException:
            shutil.rmtree(directory, ignore_errors=True)
            raise
        if outcome.started or outcome.status is not None or attempt == 2:
            break
        cache.say(f"{'; '.join(outcome.reasons)}; trying once more")
        shutil.rmtree(directory, ignore_errors=True)
    for role in ("host", "server"):
        shutil.rmtree(directory / role, ignore_errors=True)
    if job.out:
        directory.rmdir()
    elif not outcome.reasons and not job.keep:
        shutil.rmtree(directory, ignore_errors=True)
    return report(job, outcome, out)


def report(job: Job, outcome: Outcome, out: Path) -> Outcome:
    """The closing lines for a person."""
    word = "FAIL" if outcome.reasons else "SKIP" if outcome.skipped else "PASS"
    cache.say(f"{word} {job.title} on kernel {job.kernel} ({outcome.seconds:.1f} s)")
    for reason in outcome.reasons:
        cache.say(f"  {reason}")
    if outcome.reasons:
        cache.say(f"  logs: {out}/lab")
    return outcome
