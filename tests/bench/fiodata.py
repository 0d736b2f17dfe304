# SPDX-License-Identifier: GPL-2.0
"""Reads fio's JSON: one run's figures, and nothing taken on trust."""

import json
from pathlib import Path


class FioError(Exception):
    """A run that can't be used, and why."""


def load(path: Path) -> dict:
    """fio's report. It may be preceded by lines that are not JSON."""
    try:
        text = path.read_text()
    except OSError as err:
        raise FioError(f"{path}: {err.strerror}") from err
    start = text.find("{")
    try:
        return json.loads(text[start:]) if start >= 0 else {}
    except json.JSONDecodeError as err:
        raise FioError(f"{path} is not fio's JSON: {err}") from err


def figures(path: Path, min_ios: int = 100) -> dict:
    """IOPS, bandwidth and total latency of a run that went in one direction."""
    report = load(path)
    jobs = report.get("jobs")
    if not jobs:
        raise FioError(f"{path}: no job in fio's report")
    job = jobs[0]
    if job["error"]:
        raise FioError(f"{path}: fio reports error {job['error']}")
    side = max((job["read"], job["write"]), key=lambda s: s["total_ios"])
    if side["total_ios"] < min_ios:
        raise FioError(f"{path}: {side['total_ios']} requests are too few to measure (at least {min_ios})")
    lat = side["lat_ns"]
    percentile = lat.get("percentile", {})
    return {
        "iops": side["iops"],
        "bytes_per_s": side["bw_bytes"],
        "ios": side["total_ios"],
        "lat_us": {
            "mean": lat["mean"] / 1000,
            "max": lat["max"] / 1000,
            **{"p" + key.rstrip("0").rstrip(".").replace(".", ""): value / 1000 for key, value in percentile.items()},
        },
        "bins": {int(k): v for k, v in lat.get("bins", {}).items()},
        "fio_version": report.get("fio version", ""),
    }
