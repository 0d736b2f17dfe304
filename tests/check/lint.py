# SPDX-License-Identifier: GPL-2.0
"""Static checks, each of which counts as a test."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from pathlib import Path

import checkpatch
import tap
import venv_dir

ROOT = Path(__file__).resolve().parents[2]
SERIES = "6.12"


def files() -> list[Path]:
    """Every file that is, or would be, under version control."""
    listing = subprocess.run(
        ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
        cwd=ROOT, capture_output=True, text=True, check=False,
    )  # fmt: skip
    if listing.returncode == 0:
        names = [ROOT / name for name in listing.stdout.split("\0") if name]
    else:
        skipped = {".git", ".venv", "build", "target"}
        names = [p for p in ROOT.rglob("*") if not skipped & set(p.relative_to(ROOT).parts)]
    return sorted(p for p in names if p.is_file() and not p.is_symlink())


def first_line(path: Path) -> str:
    with open(path, "rb") as stream:
        return stream.readline(200).decode(errors="replace")


def with_interpreter(pattern: str, suffix: str) -> list[str]:
    """Scripts by their ending or their first line."""
    found = []
    for path in files():
        if path.suffix == suffix or (
            not path.suffix and re.match(rf"#!.*\b({pattern})\b|# shellcheck shell=({pattern})", first_line(path))
        ):
            found.append(str(path.relative_to(ROOT)))
    return found


def _run(command: list[str]) -> tuple[bool, str]:
    if shutil.which(command[0], path=None) is None and not Path(command[0]).exists():
        return False, f"{command[0]} is missing; 'make setup' installs it"
    result = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, errors="replace", check=False)
    return result.returncode == 0, result.stdout + result.stderr


def lint_shell() -> tuple[bool, str]:
    return _run(["shellcheck", "--external-sources", "--source-path=SCRIPTDIR", *with_interpreter("bash|sh", ".sh")])


def lint_python() -> tuple[bool, str]:
    scripts = with_interpreter("python3", ".py")
    return _run([str(venv_dir.python()), "-m", "ruff", "check", "--quiet", *scripts])


def lint_python_format() -> tuple[bool, str]:
    scripts = with_interpreter("python3", ".py")
    return _run([str(venv_dir.python()), "-m", "ruff", "format", "--diff", "--quiet", *scripts])


def lint_rust_format() -> tuple[bool, str]:
    return _run(["cargo", "fmt", "--all", "--check", "--manifest-path", "userspace/Cargo.toml"])


def lint_rust() -> tuple[bool, str]:
    return _run(
        ["cargo", "clippy", "--locked", "--quiet", "--workspace", "--all-targets", "--manifest-path",
         "userspace/Cargo.toml", "--", "-D", "warnings"]
    )  # fmt: skip


def lint_module() -> tuple[bool, str]:
    """gcc with W=1 and sparse with endian checks; a warning is an error."""
    work = ROOT / "build/lint/module"
    # Nothing may be left from before: what is not compiled gives no warning.
    shutil.rmtree(work, ignore_errors=True)
    good, text = _run(
        ["tests/guest/build-module", "--kernel", SERIES, "--work", str(work), "--", "W=1", "C=1",
         "CF=-D__CHECK_ENDIAN__"]
    )  # fmt: skip
    warnings = [line for line in text.splitlines() if re.match(r"driver/.*\b(warning|error):", line)]
    return good and not warnings, "\n".join(warnings) if good else text


def lint_checkpatch() -> tuple[bool, str]:
    sources = [
        str(p.relative_to(ROOT))
        for p in files()
        if p.suffix in (".c", ".h") and p.relative_to(ROOT).parts[0] in ("driver", "tests")
    ]
    return checkpatch.run(sources)


CHECKS = {
    "shellcheck": lint_shell,
    "ruff check": lint_python,
    "ruff format": lint_python_format,
    "rustfmt": lint_rust_format,
    "clippy": lint_rust,
    "gcc W=1 and sparse on the module": lint_module,
    "checkpatch": lint_checkpatch,
}


def run() -> tap.Count:
    count = tap.Count()
    print(f"TAP version 13\n1..{len(CHECKS)}", flush=True)
    for number, (name, check) in enumerate(CHECKS.items(), 1):
        try:
            good, text = check()
        except (venv_dir.VenvError, checkpatch.CheckpatchError) as error:
            good, text = False, str(error)
        print(f"{'ok' if good else 'not ok'} {number} {name}", flush=True)
        if good:
            count.passed += 1
        else:
            count.fail(f"lint: {name}")
            for line in text.splitlines()[:80]:
                print(f"#   {line}")
            sys.stdout.flush()
    return count
