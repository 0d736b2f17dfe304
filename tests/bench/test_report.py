# SPDX-License-Identifier: GPL-2.0
"""The benchmark's verdicts: it must be able to say no."""

import json
import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))

import cases
import fiodata
import report


def fio_report(iops, error=0, ios=5000):
    idle = {"total_ios": 0, "iops": 0, "bw_bytes": 0, "lat_ns": {"mean": 0, "max": 0}}
    latency = {"mean": 100000.0, "max": 900000, "percentile": {"50.000000": 90000, "99.900000": 800000}}
    side = {"total_ios": ios, "iops": iops, "bw_bytes": iops * 4096, "lat_ns": latency}
    return json.dumps({"fio version": "fio-3", "jobs": [{"error": error, "read": side, "write": idle}]})


@pytest.fixture
def runs(tmp_path):
    def write(case, iops, **how):
        for subject, rounds in iops.items():
            for number, value in enumerate(rounds):
                base = tmp_path / report.run_name(case, subject, number)
                (tmp_path / f"{base.name}.json").write_text("fio: a warning\n" + fio_report(value, **how))
                (tmp_path / f"{base.name}.prerun.txt").write_text("ctxt 100\n")
                (tmp_path / f"{base.name}.postrun.txt").write_text("ctxt 2600\n")
        return tmp_path

    return write


PROMISED = next(c for c in cases.CASES if c.name == "randread-qd32")


def collected(out):
    return report.collect([PROMISED], ["nvme-tcp", "rflash"], 2, 400, out)


@pytest.mark.parametrize(("rflash", "kept"), [(17100, True), (16900, False)])
def test_promise(runs, rflash, kept):
    rows = collected(runs(PROMISED, {"nvme-tcp": [10000, 10000], "rflash": [rflash, rflash]}))
    (verdict,) = report.judge(rows)
    assert verdict["kept"] is kept
    assert verdict["ratio"] == pytest.approx(rflash / 10000)


def test_row(runs):
    rows = collected(runs(PROMISED, {"nvme-tcp": [10000, 10100], "rflash": [20000, 20000]}))
    nvme = rows[0]["subjects"]["nvme-tcp"]
    assert nvme["noise"] == pytest.approx(0.01)
    assert nvme["context_switches_per_io"] == 0.5
    assert nvme["lat_us"] == {"mean": 100, "max": 900, "p50": 90, "p999": 800}


def test_nothing_is_judged_that_was_not_measured(runs):
    rows = report.collect([PROMISED], ["rflash"], 2, 400, runs(PROMISED, {"rflash": [1, 1]}))
    assert report.judge(rows) == []
    about = {"clock": "x", "rounds": 2, "runtime_ms": 400}
    assert PROMISED.title in report.table(rows, [], about)


@pytest.mark.parametrize("how", [{"error": 5}, {"ios": 3}])
def test_bad_run(runs, how):
    out = runs(PROMISED, {"nvme-tcp": [1, 1], "rflash": [1, 1]}, **how)
    with pytest.raises(fiodata.FioError):
        collected(out)


def test_every_promise_has_its_case():
    assert {p.case for p in cases.PROMISES} <= {c.name for c in cases.CASES}
