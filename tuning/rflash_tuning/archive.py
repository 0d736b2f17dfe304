# SPDX-License-Identifier: GPL-2.0
"""Snapshots on disk: one JSON file, a directory, or that directory in a tar archive.

The directory holds snapshot.json (everything that is not a file's text) and
tree/, the files as they were on the machine, so that a person can read and
diff them. An archive is read member by member and never unpacked to disk.
"""

from __future__ import annotations

import io
import json
import os
import subprocess
import tarfile
from typing import Any

from rflash_tuning.errors import TuneError, UsageError

INDEX = "snapshot.json"
TREE = "tree"


def load(path: str) -> dict[str, Any]:
    """The snapshot's JSON object, files included. Raises UsageError (not a snapshot), TuneError (no zstd)."""
    try:
        if os.path.isdir(path):
            members = _directory(path)
        elif path.endswith((".tar.zst", ".tar.gz", ".tar")):
            members = _members(_unpacked(path))
        else:
            with open(path, encoding="utf-8") as file:
                return _object(json.load(file), path)
    except (OSError, tarfile.TarError) as error:
        raise UsageError(f"cannot read the snapshot {path}: {error}") from error
    except ValueError as error:
        raise UsageError(f"{path} is not a snapshot: {error}") from error
    if INDEX not in members:
        raise UsageError(f"{path} is not a snapshot: it has no {INDEX}")
    try:
        data = _object(json.loads(members.pop(INDEX)), path)
    except ValueError as error:
        raise UsageError(f"{path} is not a snapshot: {INDEX}: {error}") from error
    files = data.setdefault("files", {})
    for name, text in members.items():
        if name.startswith(TREE + "/"):
            files[name[len(TREE) :]] = text
    return data


def save(data: dict[str, Any], path: str) -> None:
    """Write what load reads; the path's ending says how. Raises TuneError."""
    try:
        if path.endswith(".tar.zst"):
            _compress(_packed(data), path)
        elif path.endswith((".tar.gz", ".tar")):
            packed = _packed(data, "gz" if path.endswith("gz") else "")
            with open(path, "wb") as file:
                file.write(packed)
        elif path.endswith(".json"):
            with open(path, "w", encoding="utf-8") as file:
                file.write(_pretty(data))
        else:
            _write_directory(data, path)
    except OSError as error:
        raise TuneError(f"cannot write the snapshot {path}: {error}") from error


def _object(data: Any, path: str) -> dict[str, Any]:
    if not isinstance(data, dict):
        raise UsageError(f"{path} is not a snapshot: it holds no JSON object")
    return data


def _pretty(data: dict[str, Any]) -> str:
    return json.dumps(data, indent=1, sort_keys=True) + "\n"


def _parts(data: dict[str, Any]) -> dict[str, str]:
    """Member name -> text."""
    index = {key: value for key, value in data.items() if key != "files"}
    parts = {INDEX: _pretty(index)}
    parts.update({TREE + path: text for path, text in sorted(data.get("files", {}).items())})
    return parts


def _packed(data: dict[str, Any], compression: str = "") -> bytes:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode=f"w:{compression}", format=tarfile.PAX_FORMAT) as archive:
        for name, text in _parts(data).items():
            content = text.encode("utf-8", "surrogateescape")
            member = tarfile.TarInfo(name)
            member.size = len(content)
            member.mode = 0o644
            archive.addfile(member, io.BytesIO(content))
    return buffer.getvalue()


def _members(packed: bytes) -> dict[str, str]:
    members = {}
    with tarfile.open(fileobj=io.BytesIO(packed), mode="r:*") as archive:
        for member in archive:
            content = archive.extractfile(member) if member.isfile() else None
            if content is not None:
                # A packer may have put everything into one more directory or before "./".
                name = member.name.removeprefix("./")
                members[name] = content.read().decode("utf-8", "surrogateescape")
    return members


def _directory(path: str) -> dict[str, str]:
    members = {}
    for base, _, names in os.walk(path):
        for name in names:
            full = os.path.join(base, name)
            with open(full, encoding="utf-8", errors="surrogateescape", newline="") as file:
                members[os.path.relpath(full, path)] = file.read()
    return members


def _write_directory(data: dict[str, Any], path: str) -> None:
    for name, text in _parts(data).items():
        full = os.path.join(path, name)
        os.makedirs(os.path.dirname(full), exist_ok=True)
        with open(full, "w", encoding="utf-8", errors="surrogateescape", newline="") as file:
            file.write(text)


def _unpacked(path: str) -> bytes:
    """The archive's bytes; tarfile undoes gzip itself."""
    if not path.endswith(".zst"):
        with open(path, "rb") as file:
            return file.read()
    os.stat(path)  # so that a missing file is told apart from a broken one
    return _zstd(["-q", "-d", "-c", "--", path], b"", path)


def _compress(packed: bytes, path: str) -> None:
    _zstd(["-q", "-f", "-10", "-o", path, "-"], packed, path)


def _zstd(options: list[str], feed: bytes, path: str) -> bytes:
    try:
        done = subprocess.run(["zstd", *options], input=feed, capture_output=True, timeout=120, check=False)
    except FileNotFoundError as error:
        raise TuneError(f"{path} needs the command zstd, which is not installed; .tar.gz works without it") from error
    except subprocess.TimeoutExpired as error:
        raise TuneError(f"zstd did not finish with {path}") from error
    if done.returncode:
        said = done.stderr.decode(errors="replace").strip() or f"status {done.returncode}"
        raise TuneError(f"zstd failed on {path}: {said}")
    return done.stdout
