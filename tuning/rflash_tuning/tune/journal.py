# SPDX-License-Identifier: GPL-2.0
"""The write-ahead journal: what was on the machine before we changed it.

One file of JSON lines in the state directory. Before a value is changed, a
line with the value that the machine had at that moment is written and synced;
only then is it changed. Whatever happens between any two system calls, the
journal knows at least as much as was done, and `revert` needs nothing else.

Lines, by "op" (the first line is {"schema", "host_id"}):

  begin       an apply: boot_id, time, request
  intent      n, key, label, setting, old, new, volatile: is about to be changed
  done        n, and "reads" where the value reads back as another than was written
  undone      n: is as it was before
  confirm-by  deadline (seconds of CLOCK_BOOTTIME), boot_id: this apply needs a `confirm`
  confirmed
  end         the apply finished
  reverted    what was waiting for a confirm was put back

"done" and "undone" are not synced: an intent without them counts as possibly
done, and undoing it twice does no harm. A last line that is torn is ignored.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import json
import os
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from rflash_tuning.durable import sync_directory
from rflash_tuning.errors import TuneError, UsageError
from rflash_tuning.system import System
from rflash_tuning.targets.model import host_id
from rflash_tuning.tune.change import Setting, Value

SCHEMA = 1
DEFAULT_DIRECTORY = "/var/lib/rflash/tune"
VARIABLE = "RFLASH_TUNE_STATE"
_FILE = "journal"
_LOCK = "lock"
# Seconds to wait for another rflash-tune: `watch` and the guard of a confirm have it for moments only.
PATIENCE = 3.0
# Rewritten without its dead lines when it has this many, and more than twice as many as live ones.
_COMPACT_ABOVE = 64


def state_directory(given: str | None = None) -> Path:
    """--state-dir, else $RFLASH_TUNE_STATE, else /var/lib/rflash/tune."""
    return Path(given or os.environ.get(VARIABLE) or DEFAULT_DIRECTORY)


def host_identity(system: System) -> str:
    """Which machine this is, as Host.host_id; "" where nothing tells."""
    try:
        return host_id(system)
    except UsageError:
        return ""


def boot_identity(system: System) -> str:
    """Which boot this is, "" where the kernel does not say."""
    return system.text("/proc/sys/kernel/random/boot_id", "") or ""


def reason(error: OSError) -> str:
    """An error as words: its own where it has some, else those of its errno."""
    return error.strerror or str(error) or "it failed"


@dataclass
class Entry:
    """One intended change."""

    n: int
    key: str
    label: str
    setting: dict[str, Any]
    old: Value
    new: Value
    volatile: bool
    group: int
    boot_id: str
    undone: bool = False
    reads: Value = None  # what it reads as after the change, where that is not `new`


@dataclass
class Group:
    """One apply."""

    number: int
    boot_id: str
    time: str
    request: dict[str, Any]
    ended: bool = False
    deadline: float | None = None  # CLOCK_BOOTTIME of its boot
    confirmed: bool = False
    reverted: bool = False

    @property
    def pending(self) -> bool:
        """Is it waiting for a confirm?"""
        return self.deadline is not None and not self.confirmed and not self.reverted


@dataclass
class Target:
    """A value to put back: all that was ever done to one key, folded."""

    entries: list[Entry]
    former: Value

    @property
    def first(self) -> Entry:
        return self.entries[0]

    @property
    def last(self) -> Entry:
        return self.entries[-1]

    def ours(self, value: Value) -> bool:
        """Is this one of the values that we wrote?"""
        return any(value == entry.new or (value is not None and value == entry.reads) for entry in self.entries)


@dataclass
class State:
    """The journal as it was read."""

    host_id: str = ""
    groups: list[Group] = field(default_factory=list)
    entries: list[Entry] = field(default_factory=list)
    size: int = 0  # bytes up to the last whole line
    lines: int = 0

    @property
    def last(self) -> Group | None:
        return self.groups[-1] if self.groups else None

    @property
    def pending(self) -> Group | None:
        """The apply that waits for a confirm. There is one at most: no other may begin before."""
        return self.last if self.last and self.last.pending else None

    def active(self, boot_id: str) -> list[Entry]:
        """What is still changed. A reboot has undone what is volatile."""
        return [e for e in self.entries if not e.undone and (not e.volatile or e.boot_id == boot_id)]

    def rebooted(self, boot_id: str) -> list[Entry]:
        """What a reboot has undone."""
        return [e for e in self.entries if not e.undone and e.volatile and e.boot_id != boot_id]

    def unfinished(self, boot_id: str) -> bool:
        """Was the last apply cut short, and is something of it still there?"""
        last = self.last
        return last is not None and not last.ended and any(e.group == last.number for e in self.active(boot_id))

    def targets(self, boot_id: str, group: int | None = None) -> list[Target]:
        """What to put back, in the order in which it was first changed; of one apply only, or of all."""
        folded: dict[str, list[Entry]] = {}
        for entry in self.active(boot_id):
            if group is None or entry.group == group:
                folded.setdefault(entry.key, []).append(entry)
        return [Target(entries, _former(entries)) for entries in folded.values()]


def _former(entries: list[Entry]) -> Value:
    """The value before us.

    For kernel state that is the first one, whoever drifted it in between. For
    a file on disk it is the last one that was not ours: an administrator may
    have edited it between two applies.
    """
    if entries[0].volatile:
        return entries[0].old
    written = [entry.new for entry in entries]
    return next((entry.old for entry in reversed(entries) if entry.old not in written), entries[0].old)


def load(directory: Path, identity: str | None = None) -> State:
    """Read the journal; an empty State where there is none. Never writes.

    Raises UsageError when it is another host's (unless identity is None), of
    another schema, damaged or unreadable.
    """
    path = directory / _FILE
    try:
        data = path.read_bytes()
    except FileNotFoundError:
        return State(host_id=identity or "")
    except OSError as error:
        raise UsageError(f"The journal {path} cannot be read ({reason(error)}).") from error
    state = _parse(data, path)
    if identity is not None and state.host_id != identity:
        raise UsageError(
            f"The journal {path} is of another host ({state.host_id or 'unnamed'}; this is {identity or 'unnamed'}); "
            f"nothing was changed. Give another --state-dir, or remove it."
        )
    return state


def _parse(data: bytes, path: Path) -> State:
    records = list(_records(data, path))
    if not records or not isinstance(records[0][0].get("host_id"), str):
        raise UsageError(f"{path} is not a journal of rflash-tune; nothing was changed.")
    head = records[0][0]
    if head.get("schema") != SCHEMA:
        raise UsageError(f"The journal {path} has schema {head.get('schema')}; this rflash-tune knows {SCHEMA}.")
    state = State(host_id=head["host_id"], size=records[-1][1], lines=len(records))
    for number, (record, _) in enumerate(records[1:], 2):
        try:
            _take(state, record)
        except (KeyError, IndexError, TypeError) as error:
            raise UsageError(f"The journal {path} is damaged in line {number}; nothing was changed.") from error
    return state


def _records(data: bytes, path: Path) -> Iterator[tuple[dict[str, Any], int]]:
    """Each record with where it ends. What follows the last newline, and a last line that is no JSON, is torn."""
    lines = data.split(b"\n")[:-1]
    end = 0
    for number, line in enumerate(lines, 1):
        end += len(line) + 1
        try:
            record = json.loads(line)
        except ValueError as error:
            if number == len(lines):
                return
            raise UsageError(f"The journal {path} is damaged in line {number}; nothing was changed.") from error
        if not isinstance(record, dict):
            raise UsageError(f"The journal {path} is damaged in line {number}; nothing was changed.")
        yield record, end


def _take(state: State, record: dict[str, Any]) -> None:
    """Add a record to the state. Raises KeyError, IndexError or TypeError for one that makes no sense."""
    op = record["op"]
    if op == "begin":
        state.groups.append(Group(len(state.groups), record["boot_id"], record["time"], record["request"]))
    elif op == "intent":
        group = state.groups[-1]
        state.entries.append(
            Entry(
                n=record["n"],
                key=record["key"],
                label=record["label"],
                setting=record["setting"],
                old=record["old"],
                new=record["new"],
                volatile=record["volatile"],
                group=group.number,
                boot_id=group.boot_id,
            )
        )
        if record["n"] != len(state.entries):
            raise KeyError("n")
    elif op == "done":
        state.entries[record["n"] - 1].reads = record.get("reads")
    elif op == "undone":
        state.entries[record["n"] - 1].undone = True
    elif op == "confirm-by":
        state.groups[-1].deadline = float(record["deadline"])
    elif op == "confirmed":
        state.groups[-1].confirmed = True
    elif op == "end":
        state.groups[-1].ended = True
    elif op == "reverted":
        state.groups[-1].reverted = state.groups[-1].ended = True
    else:
        raise KeyError(op)


class Lock:
    """One rflash-tune at a time in a state directory. A context manager; the kernel frees it when we die."""

    def __init__(self, directory: Path, create: bool = True) -> None:
        self._directory = directory
        self._create = create
        self.fd = -1

    def __enter__(self) -> Lock:
        """Raises UsageError when another one stays at work or the directory cannot be written."""
        until = time.monotonic() + PATIENCE
        while not self.take():
            if time.monotonic() < until:
                time.sleep(0.05)
                continue
            raise UsageError(
                f"Another rflash-tune{self._holder()} is at work in {self._directory}; nothing was changed. "
                "Try again when it is done."
            )
        return self

    def take(self) -> bool:
        """False when somebody else has it. Raises UsageError."""
        try:
            if self._create:
                make_directory(self._directory)
            self.fd = self._open()
        except OSError as error:
            raise UsageError(unwritable(self._directory, error)) from error
        try:
            fcntl.flock(self.fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            self.free()
            return False
        with contextlib.suppress(OSError):  # it only helps to name the holder
            os.ftruncate(self.fd, 0)
            os.write(self.fd, f"{os.getpid()}\n".encode())
        return True

    def _open(self) -> int:
        path = self._directory / _LOCK
        try:
            return os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        except OSError as error:
            # A revert has to work on a file system that has become read-only, too.
            if error.errno == errno.EROFS and not self._create:
                return os.open(path, os.O_RDONLY | os.O_CLOEXEC)
            raise

    def holder(self) -> int | None:
        """The process that has it, as far as is known."""
        try:
            return int((self._directory / _LOCK).read_text())
        except (OSError, ValueError):
            return None

    def _holder(self) -> str:
        pid = self.holder()
        return f" (process {pid})" if pid else ""

    def free(self) -> None:
        if self.fd >= 0:
            os.close(self.fd)
            self.fd = -1

    def __exit__(self, *_: object) -> None:
        self.free()


def unwritable(directory: Path, error: OSError) -> str:
    return f"The state directory {directory} cannot be written ({reason(error)}); nothing was changed."


def make_directory(directory: Path) -> None:
    """Create the state directory durably, readable by its owner only. Raises OSError."""
    missing = []
    here = directory
    while not here.exists():
        missing.append(here)
        here = here.parent
    for path in reversed(missing):
        path.mkdir(mode=0o700, exist_ok=True)
        sync_directory(path.parent)


class Journal:
    """The journal open for appending. Its user holds the Lock."""

    def __init__(self, directory: Path, identity: str, boot_id: str) -> None:
        """Raises UsageError: another host's, damaged, or not writable."""
        self.directory = directory
        self.path = directory / _FILE
        self.boot_id = boot_id
        self.state = load(directory, identity)
        self.begun = False
        try:
            if not self.state.lines:
                self._create([{"schema": SCHEMA, "host_id": identity}])
            self._fd = os.open(self.path, os.O_WRONLY | os.O_CLOEXEC)
            # What is torn goes, or the next line would be torn as well.
            os.ftruncate(self._fd, self.state.size)
            os.lseek(self._fd, 0, os.SEEK_END)
        except OSError as error:
            raise UsageError(unwritable(directory, error)) from error

    def _create(self, records: list[dict[str, Any]]) -> None:
        """Put a whole journal in place at once. Raises OSError."""
        temporary = self.directory / f"{_FILE}.new"
        fd = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
        try:
            _write_all(fd, b"".join(_line(record) for record in records))
            os.fsync(fd)
        finally:
            os.close(fd)
        os.replace(temporary, self.path)
        sync_directory(self.directory)
        self.state = load(self.directory)

    def compact(self) -> None:
        """Drop what no revert will ever need, when there is much of it. Raises OSError."""
        live = self.state.targets(self.boot_id)
        if self.state.pending or self.state.lines <= max(_COMPACT_ABOVE, 4 * len(live)):
            return
        self._create(self._essence(live))
        os.close(self._fd)
        self._fd = os.open(self.path, os.O_WRONLY | os.O_CLOEXEC)
        os.lseek(self._fd, 0, os.SEEK_END)

    def _essence(self, live: list[Target]) -> list[dict[str, Any]]:
        records: list[dict[str, Any]] = [{"schema": SCHEMA, "host_id": self.state.host_id}]
        group = None
        for n, target in enumerate(live, 1):
            last = target.last
            if group != last.group:
                group = last.group
                whole = self.state.groups[group]
                records.append({"op": "begin", "boot_id": whole.boot_id, "time": whole.time, "request": whole.request})
            records.append(_intent(n, last.key, last.label, last.setting, target.former, last.new, last.volatile))
            records.append({"op": "done", "n": n} | ({} if last.reads is None else {"reads": last.reads}))
        return [*records, {"op": "end"}] if live else records

    def begin(self, request: dict[str, Any]) -> None:
        """An apply starts. Synced with its first intent."""
        now = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
        self._append({"op": "begin", "boot_id": self.boot_id, "time": now, "request": request}, sync=False)
        self.begun = True

    def intent(self, setting: Setting, old: Value, new: Value) -> int:
        """This is about to be changed; on disk before this returns. Raises OSError: then it must not be changed."""
        n = len(self.state.entries) + 1
        self._append(_intent(n, setting.key, setting.label(), setting.to_json(), old, new, setting.volatile))
        return n

    def done(self, n: int, reads: Value = None) -> None:
        self._append({"op": "done", "n": n} | ({} if reads is None else {"reads": reads}), sync=False)

    def undone(self, n: int) -> None:
        self._append({"op": "undone", "n": n}, sync=False)

    def confirm_by(self, deadline: float) -> None:
        self._append({"op": "confirm-by", "deadline": deadline, "boot_id": self.boot_id})

    def confirmed(self) -> None:
        self._append({"op": "confirmed"})

    def end(self) -> None:
        self._append({"op": "end"})

    def reverted(self) -> None:
        self._append({"op": "reverted"})

    def _append(self, record: dict[str, Any], sync: bool = True) -> None:
        """Add a line. Raises OSError (a full disk); the journal is then as before."""
        start = self.state.size
        line = _line(record)
        try:
            _write_all(self._fd, line)
            if sync:
                os.fsync(self._fd)
        except OSError:
            with contextlib.suppress(OSError):
                os.ftruncate(self._fd, start)
                os.lseek(self._fd, start, os.SEEK_SET)
            raise
        _take(self.state, json.loads(line))
        self.state.size = start + len(line)
        self.state.lines += 1

    def close(self) -> None:
        os.close(self._fd)


def _intent(
    n: int, key: str, label: str, setting: dict[str, Any], old: Value, new: Value, volatile: bool
) -> dict[str, Any]:
    return {
        "op": "intent",
        "n": n,
        "key": key,
        "label": label,
        "setting": setting,
        "old": old,
        "new": new,
        "volatile": volatile,
    }


def _line(record: dict[str, Any]) -> bytes:
    return json.dumps(record, separators=(",", ":")).encode() + b"\n"


def _write_all(fd: int, data: bytes) -> None:
    while data:
        data = data[os.write(fd, data) :]


@contextlib.contextmanager
def opened(directory: Path, system: System) -> Iterator[Journal]:
    """The journal of this host in this boot, locked. Raises UsageError."""
    with Lock(directory):
        journal = Journal(directory, host_identity(system), boot_identity(system))
        try:
            yield journal
        finally:
            journal.close()


def existing(directory: Path) -> bool:
    """Is there a journal? Raises TuneError where we may not look."""
    try:
        return (directory / _FILE).exists()
    except OSError as error:
        raise TuneError(f"The state directory {directory} cannot be read ({reason(error)}).") from error
