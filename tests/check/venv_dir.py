# SPDX-License-Identifier: GPL-2.0
"""The project's own Python environment, for the tools that Debian lacks."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
REQUIREMENTS = ROOT / "requirements-dev.txt"
VENV = ROOT / ".venv"


class VenvError(Exception):
    """The environment can't be made."""


def python() -> Path:
    """Its interpreter, with everything in requirements-dev.txt."""
    interpreter = VENV / "bin/python"
    stamp = VENV / "requirements-dev.txt"
    wanted = REQUIREMENTS.read_text()
    if interpreter.exists() and stamp.exists() and stamp.read_text() == wanted:
        return interpreter
    print(f"# making the Python environment {VENV.relative_to(ROOT)}", flush=True)
    steps = [
        [sys.executable, "-m", "venv", str(VENV)],
        [str(interpreter), "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "-r", str(REQUIREMENTS)],
    ]
    for step in steps:
        if subprocess.run(step, check=False).returncode:
            raise VenvError(f"'{' '.join(step[1:4])}' failed: {VENV} lacks what {REQUIREMENTS.name} lists")
    stamp.write_text(wanted)
    return interpreter
