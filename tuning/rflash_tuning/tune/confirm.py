# SPDX-License-Identifier: GPL-2.0
"""Commit-confirm: an apply that may cut its operator off is put back unless somebody confirms it.

Before the first change of such an apply a guard is started: a process of its
own session, with its own copy of all that it needs. It does not read the
terminal, the network, the working directory or the program's files again. At
the deadline it puts the apply back from the journal, whether or not the apply,
its shell or its terminal still exist.

The deadline is kept in the journal, in seconds of CLOCK_BOOTTIME (which a
change of the date does not move, and which goes on during suspend).
"""

from __future__ import annotations

import contextlib
import ctypes
import gc
import os
import signal
import syslog
import time
from pathlib import Path

from rflash_tuning import errors
from rflash_tuning.errors import TuneError, UsageError
from rflash_tuning.system import System
from rflash_tuning.tune import report
from rflash_tuning.tune.journal import (
    Journal,
    Lock,
    State,
    boot_identity,
    existing,
    host_identity,
    load,
    reason,
)
from rflash_tuning.tune.report import Report
from rflash_tuning.tune.revert import Decode, revert_state

DEFAULT_SECONDS = 60.0
# An apply that still runs so long after the deadline hangs, on a terminal that nobody reads any more, say.
GRACE_SECONDS = 30.0
_POLL_SECONDS = 0.5
_ATTEMPTS = 10
_LOG = "confirm.log"
_BOOT_ID = "/proc/sys/kernel/random/boot_id"
_MCL_CURRENT, _MCL_FUTURE = 1, 2


def now() -> float:
    """Seconds since boot, those of suspend included."""
    return time.clock_gettime(time.CLOCK_BOOTTIME)


def seconds_left(state: State, boot_id: str) -> float | None:
    """Until the apply is put back: None when none waits, 0 when its time is over (or its boot is)."""
    pending = state.pending
    if pending is None or pending.deadline is None:
        return None
    return max(0.0, pending.deadline - now()) if pending.boot_id == boot_id else 0.0


def confirm(state_dir: str | Path, boot_id: str | None = None) -> Report:
    """Keep what was applied. Raises UsageError when nothing waits, or it is too late."""
    directory = Path(state_dir)
    boot_id = Path(_BOOT_ID).read_text().strip() if boot_id is None else boot_id
    if not existing(directory):
        raise UsageError("No apply waits for a confirm.")
    with Lock(directory, create=False):
        state = load(directory)
        if state.pending is None:
            last = state.last
            if last is not None and last.reverted and last.deadline is not None:
                raise UsageError("It is too late to confirm: the apply was put back already.")
            raise UsageError("No apply waits for a confirm.")
        if state.pending.boot_id != boot_id:
            raise UsageError(
                "The host has been rebooted since that apply; run `rflash-tune revert --unconfirmed`, then apply again."
            )
        if not state.pending.ended:
            raise UsageError(
                "That apply did not finish, so there is nothing whole to confirm; run `rflash-tune revert`."
            )
        journal = Journal(directory, state.host_id, boot_id)
        try:
            journal.confirmed()
        except OSError as error:
            raise TuneError(
                f"The confirm could not be written ({reason(error)}); all is put back in time unless it succeeds."
            ) from error
        finally:
            journal.close()
    return Report("confirm", errors.OK, "Confirmed: the changes stay until `rflash-tune revert`.")


class Confirmation:
    """The promise of one apply: keeps its deadline ahead while it runs, and starts the guard."""

    def __init__(self, system: System, journal: Journal, seconds: float, decode: Decode, fds: tuple[int, ...]) -> None:
        """`fds`: what the guard must not keep open (the lock, the journal)."""
        self.seconds = seconds
        self._system = system
        self._journal = journal
        self._decode = decode
        self._fds = fds
        self._deadline = 0.0
        self.armed = False

    def arm(self) -> None:
        """From here on everything of this apply is put back unless confirmed. Raises OSError."""
        self._extend()
        _start(self._system, self._journal.directory, self._decode, self._fds)
        self.armed = True

    def keep(self) -> None:
        """The apply is alive: call before every change."""
        if self.armed and self._deadline - now() < self.seconds / 2:
            self._extend()

    def finish(self) -> None:
        """All is applied: the operator's time starts now. Raises OSError."""
        self._extend()

    def _extend(self) -> None:
        self._deadline = now() + self.seconds
        self._journal.confirm_by(self._deadline)


def _start(system: System, directory: Path, decode: Decode, fds: tuple[int, ...]) -> None:
    """Start the guard and wait until it is on its own. Raises OSError."""
    ready, told = os.pipe()
    parent = os.getpid()
    middle = os.fork()
    if middle == 0:
        _become_guard(system, directory.absolute(), decode, fds, parent, told)
    os.close(told)
    try:
        os.waitpid(middle, 0)
        if os.read(ready, 1) != b"r":
            raise OSError(0, "the process that would put everything back could not be started")
    finally:
        os.close(ready)


def _become_guard(
    system: System, directory: Path, decode: Decode, fds: tuple[int, ...], parent: int, told: int
) -> None:
    """In the child. Never returns: an exception must not climb into the apply's code."""
    status = 1
    try:
        os.setsid()
        if os.fork():
            os._exit(0)
        _detach(directory, fds, told)
        guard = Guard(system.reopen(), directory, decode, parent)
        os.write(told, b"r")
        os.close(told)
        status = guard.run()
    except BaseException as error:  # noqa: BLE001  the last frame of a process: say it and end
        _say(f"rflash-tune confirm: {error!r}")
    finally:
        os._exit(status)


def _detach(directory: Path, fds: tuple[int, ...], told: int) -> None:
    """Depend on nothing that the operator's session or a mount could take away."""
    gc.disable()  # what was inherited is not finalised here: it may own sockets that the apply still uses
    for number in (signal.SIGHUP, signal.SIGINT, signal.SIGQUIT, signal.SIGPIPE, signal.SIGTSTP, signal.SIGTTOU):
        signal.signal(number, signal.SIG_IGN)
    os.chdir("/")
    null = os.open("/dev/null", os.O_RDWR)
    log = null
    with contextlib.suppress(OSError):
        log = os.open(directory / _LOG, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
    os.dup2(null, 0)
    os.dup2(log, 1)
    os.dup2(log, 2)
    for fd in _open_fds():
        if fd > 2 and fd != told:
            with contextlib.suppress(OSError):
                os.close(fd)
    for fd in fds:
        with contextlib.suppress(OSError):
            os.close(fd)
    _leave_session()
    with contextlib.suppress(OSError, AttributeError):
        ctypes.CDLL(None).mlockall(_MCL_CURRENT | _MCL_FUTURE)  # no page fault on a mount that is gone


def _open_fds() -> list[int]:
    try:
        return [int(name) for name in os.listdir("/proc/self/fd")]
    except OSError:
        return list(range(3, 256))


def _leave_session() -> None:
    """logind may kill what a session leaves behind, by its control group; the memory killer, by its score."""
    for path, text in (
        ("/sys/fs/cgroup/cgroup.procs", "0"),
        ("/sys/fs/cgroup/systemd/cgroup.procs", "0"),
        ("/sys/fs/cgroup/unified/cgroup.procs", "0"),
        ("/proc/self/oom_score_adj", "-1000"),
    ):
        with contextlib.suppress(OSError), open(path, "w", encoding="ascii") as file:
            file.write(text)


class Guard:
    """Waits for the confirm, or for the deadline."""

    def __init__(self, system: System, directory: Path, decode: Decode, parent: int) -> None:
        self._system = system
        self._directory = directory
        self._decode = decode
        self._parent = parent
        self._boot_id = boot_identity(system)
        self._host_id = host_identity(system)
        self._state = load(directory, self._host_id)
        self._stamp: tuple[int, int] | None = None
        self._readable = True
        self._hurry = False

    def run(self) -> int:
        """Returns an exit status."""
        # At shutdown, or when somebody ends us, files on disk should be right: do it now.
        signal.signal(signal.SIGTERM, self._terminate)
        lock = Lock(self._directory, create=False)
        if not self._wait(lock):
            return 0
        try:
            found = self._put_back()
        finally:
            lock.free()
        _say(f"rflash-tune: the apply was not confirmed in time. {found.message}")
        return found.status

    def _terminate(self, *_: object) -> None:
        self._hurry = True

    def _left(self) -> float | None:
        self._refresh()
        left = seconds_left(self._state, self._boot_id)
        return 0.0 if left is not None and self._hurry else left

    def _refresh(self) -> None:
        """Read the journal when it has changed. Where that fails, what was read last has to do."""
        try:
            found = (self._directory / "journal").stat()
            stamp = (found.st_ino, found.st_size)
            if stamp != self._stamp:
                self._state = load(self._directory, self._host_id)
                self._stamp = stamp
        except (OSError, UsageError) as error:
            if self._readable:
                _log(f"the journal cannot be read now ({error}); going by what was read before")
            self._readable = False

    def _put_back(self) -> Report:
        for attempt in range(_ATTEMPTS):
            if attempt:
                time.sleep(2)
            found = self._revert()
            _log(found.message)
            if found.status == errors.OK:
                break
            for outcome in found.outcomes:
                if outcome.outcome == report.STUCK:
                    _log(f"{outcome.label}: {outcome.message}")
        return found

    def _revert(self) -> Report:
        try:
            journal = Journal(self._directory, self._host_id, self._boot_id)
        except UsageError as error:
            _log(error)
            return revert_state(self._system, self._state, None, True, decode=self._decode)
        try:
            return revert_state(self._system, journal.state, journal, True, decode=self._decode)
        finally:
            journal.close()

    def _wait(self, lock: Lock) -> bool:
        """True at the deadline, with the lock; False when the confirm came or there is nothing to put back."""
        patience = time.monotonic() + GRACE_SECONDS
        while True:
            left = self._left()
            if left is None:
                return False
            if left > 0:
                patience = time.monotonic() + left + GRACE_SECONDS
                time.sleep(min(left, _POLL_SECONDS))
                continue
            if self._try(lock):
                # Only now can nobody write any more: a confirm or a later deadline may have come meanwhile.
                if self._left() == 0:
                    return True
                lock.free()
                continue
            if time.monotonic() > patience and lock.holder() == self._parent:
                _log(f"the apply (process {self._parent}) hangs and is killed")
                with contextlib.suppress(OSError):
                    os.kill(self._parent, signal.SIGKILL)
            time.sleep(_POLL_SECONDS / 2)

    def _try(self, lock: Lock) -> bool:
        try:
            return lock.take()
        except UsageError as error:
            _log(f"{error} Going on without the lock.")
            return True


def _log(what: object) -> None:
    """To the log in the state directory, past whatever the apply had made of sys.stdout."""
    with contextlib.suppress(OSError):
        os.write(1, f"{time.strftime('%H:%M:%S')} {what}\n".encode())


def _say(sentence: str) -> None:
    """To the kernel's log, which never blocks, and to syslog, which may: so last."""
    with contextlib.suppress(OSError), open("/dev/kmsg", "w", encoding="utf-8") as kmsg:
        kmsg.write(f"<4>{sentence}\n")
    syslog.syslog(syslog.LOG_WARNING, sentence)
