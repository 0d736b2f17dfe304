# SPDX-License-Identifier: GPL-2.0
"""The command line as a user meets it, over described hosts; nothing here touches this machine."""

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from rflash_tuning.errors import FAILED, OK, PARTIAL, USAGE
from rflash_tuning.snapshot import Snapshot, SnapshotSystem
from rflash_tuning.tune import commands, options, texts, verbs

TREE = Path(__file__).resolve().parents[3]
HOSTS = TREE / "tests/fixtures/hosts"
PAPER = ["--from", str(HOSTS / "paper.json"), "--nic", "eth0", "--target", "iscsi"]


@pytest.fixture
def run(capsys):
    """Run a command line; gives status, stdout and stderr."""

    def call(*words):
        try:
            status = commands.main(list(words))
        except SystemExit as stop:
            status = stop.code
        captured = capsys.readouterr()
        return status, captured.out, captured.err

    return call


def one_sentence(text):
    return text.startswith("rflash-tune: ") and text.count("\n") == 1 and "Traceback" not in text


@pytest.mark.parametrize("host", sorted(path.stem for path in HOSTS.glob("*.json")))
def test_every_described_host_can_be_planned_in_every_format(run, host, tmp_path):
    source = str(HOSTS / f"{host}.json")
    listed = run("plan", "--from", source, "--nic", "nothing", "--target", "nvmet-tcp", "--tenants", "3")
    nic = re.search(r"there are (\S+?)(,|$)", listed[2].strip())[1]
    common = ("--from", source, "--nic", nic, "--target", "nvmet-tcp", "--tenants", "3")
    status, out, _ = run("plan", *common)
    assert status == OK
    assert "Cores" in out
    status, out, _ = run("plan", *common, "-o", "json")
    plan = json.loads(out)["plan"]
    assert len(plan["allocation"]["shares"]) == 3
    for undo in ([], ["--undo"]):
        status, out, _ = run("plan", *common, "-o", "script", *undo)
        assert status == OK
        subprocess.run(["sh", "-n"], input=out, text=True, check=True)
    status, out, _ = run("plan", *common, "-o", "tuned", "--out", str(tmp_path / "t"))
    assert (tmp_path / "t/tuned.conf").exists()


def test_a_rehearsal_changes_nothing_but_the_captured_host_in_memory(run):
    before = (HOSTS / "paper.json").read_bytes()
    status, out, _ = run("apply", *PAPER, "--tenants", "6", "--max-disruption", "target", "-o", "json")
    report = json.loads(out)["report"]
    assert status == report["status"] in (OK, PARTIAL)
    assert report["counts"]["changed"] > 6
    assert (HOSTS / "paper.json").read_bytes() == before


def test_what_is_too_disruptive_is_refused_and_said(run):
    words = ("--from", str(HOSTS / "few-queues.json"), "--target", "iscsi", "--tenants", "6")
    nic = re.search(r"there are (\w+)", run("plan", *words, "--nic", "x")[2])[1]
    plan = json.loads(run("plan", *words, "--nic", nic, "-o", "json")[1])["plan"]
    status, out, _ = run("apply", *words, "--nic", nic, "--max-disruption", "none", "-o", "json")
    report = json.loads(out)["report"]
    above = plan["counts"]["packets"] + plan["counts"]["link"] + plan["counts"]["target"]
    assert report["counts"].get("refused", 0) == above
    assert status == (PARTIAL if above or plan["counts"]["foreseen"] else OK)


def test_verify_of_a_plan_that_is_not_applied_differs(run):
    status, out, _ = run("verify", *PAPER, "--tenants", "6")
    assert status == FAILED
    assert "differs" in out


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (["plan", *PAPER[:2], "--nic", "eth9", "--target", "iscsi", "--tenants", "2"], "no NIC 'eth9' here"),
        (["plan", *PAPER, "--tenants", "0"], "--tenants is 0; it should be 1 to 4096"),
        (["plan", *PAPER, "--tenants", "x"], "--tenants is 'x'; it should be 1 to 4096"),
        (["plan", *PAPER, "--tenants", "2", "--cpus", "77"], "there is no CPU 77"),
        (["plan", *PAPER, "--tenants", "2", "--only", "nothing"], "nothing"),
        (["plan", *PAPER, "--tenants", "2", "--mtu", "70000"], "--mtu is 70000; it should be 576 to 65535"),
        (
            ["plan", *PAPER, "--tenants", "2", "--goal", "speed"],
            "--goal is 'speed'; it should be throughput, latency or",
        ),
        (["plan", "--from", "/nothing.json"], "/nothing.json"),
        (["plan", "--bogus"], "--bogus; see `rflash-tune --help`"),
        (["plna"], "VERB is 'plna'; it should be plan, apply,"),
        (["plan", "--profile", "nothing"], "no profile 'nothing'"),
        (["plan", "--undo"], "--undo goes with -o script"),
        (["plan", "-o", "tuned"], "-o tuned and --out DIR go together"),
        (["explain"], "explain what?"),
        (["explain", "nothing"], "'nothing' is neither a knob"),
        (["capture"], "OUT; see `rflash-tune capture --help`"),
    ],
)
def test_bad_input_gets_one_sentence(run, words, sentence):
    status, out, err = run(*words)
    assert (status, out) == (USAGE, "")
    assert sentence in err
    assert one_sentence(err)


def test_a_snapshot_that_is_none(run, tmp_path):
    for text in ("", "{", "[]", '{"kind": "rflash-tune snapshot", "schema": 99}', '{"schema": 1}', "\x00"):
        path = tmp_path / "s.json"
        path.write_text(text)
        status, _, err = run("plan", "--from", str(path), "--nic", "eth0", "--target", "iscsi", "--tenants", "2")
        assert status in (FAILED, USAGE), text
        assert one_sentence(err), err


def test_a_bug_of_ours_is_told_in_one_sentence_too(run, monkeypatch):
    def broken(*_):
        raise KeyError("surprise")

    monkeypatch.setattr(verbs, "knobs", broken)
    monkeypatch.delenv("RFLASH_DEBUG", raising=False)
    status, _, err = run("knobs")
    assert status == FAILED
    assert one_sentence(err)
    assert "a bug of ours: KeyError" in err
    monkeypatch.setenv("RFLASH_DEBUG", "1")
    assert "Traceback" in run("knobs")[2]


@pytest.mark.parametrize("verb", ["apply", "confirm", "revert", "watch"])
def test_what_changes_a_machine_needs_root(run, monkeypatch, verb):
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    monkeypatch.setattr(verbs, "_case", lambda *_: verbs._Case(verbs.LiveSystem(), None, None))
    status, _, err = run(verb)
    assert status == USAGE
    assert err == f"rflash-tune: {verb} needs root: try sudo\n"


@pytest.mark.parametrize("verb", texts.VERBS)
def test_help_teaches(run, verb):
    status, out, _ = run(verb, "--help")
    assert status == OK
    assert "Examples:" in out
    assert "Exit status:" in out
    if verb in commands.OF_REQUEST:
        assert all(f"--{option.name}" in out for option in options.REQUEST)


@pytest.fixture
def machine(monkeypatch, tmp_path):
    """A described host that the commands take for this one, with a state directory."""
    system = SnapshotSystem(Snapshot.load(str(HOSTS / "virtio-iscsi.json")))
    monkeypatch.setattr(verbs, "LiveSystem", lambda: system)
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    monkeypatch.setenv("RFLASH_TUNE_STATE", str(tmp_path / "state"))
    return system


def test_a_whole_life_by_the_command_line(run, machine):
    before = machine.snapshot()
    request = ("--nic", "eth0", "--max-disruption", "target")
    status, out, _ = run("apply", *request, "--yes", "-o", "json")
    report = json.loads(out)["report"]
    assert status in (OK, PARTIAL)
    assert report["changed"]
    assert machine.snapshot() != before
    assert run("verify")[0] == OK
    status, out, _ = run("status", "-o", "json")
    assert status == OK
    assert json.loads(out)["report"]["applied"]
    again = json.loads(run("apply", *request, "-o", "json")[1])["report"]
    assert not again["changed"]
    key = next(outcome["key"] for outcome in report["outcomes"] if outcome["key"].startswith("file /proc/sys/net"))
    machine.write(key.removeprefix("file "), "4096\n")
    status, out, _ = run("verify")
    assert status == FAILED
    assert "differs" in out
    status, out, _ = run("watch", "--once", *request)
    assert status in (OK, PARTIAL)
    assert "changed" in out
    assert run("verify")[0] == OK
    status, out, _ = run("revert")
    assert status == OK
    assert "restored" in out
    assert machine.snapshot() == before
    assert run("revert")[0] == OK


def test_nothing_to_confirm(run, machine):
    status, _, err = run("confirm")
    assert status == USAGE
    assert one_sentence(err)


def test_bare_command_says_what_is_here(run, machine):
    status, out, _ = run()
    assert status == OK
    assert "eth0 (virtio_net" in out
    assert "rflash-tune plan --target iscsi --nic eth0" in out


def test_explain_a_change_says_how_to_undo_it_by_hand(run):
    status, out, _ = run("explain", "interrupts", *PAPER, "--tenants", "6")
    assert status == OK
    assert "undo by hand" in out
    assert re.search(r"echo 0-5 > /proc/irq/\d+/smp_affinity_list", out)


def test_explain_without_a_subject_is_about_the_allocation(run):
    out = run("explain", *PAPER, "--tenants", "3")[1]
    assert "two-cores" in out
    assert "How N tenants get C cores" in out


def test_json_of_explain_and_knobs(run):
    knobs = json.loads(run("knobs", "-o", "json")[1])
    assert knobs["schema"] == 1
    assert "interrupts" in [knob["name"] for knob in knobs["knobs"]]
    document = json.loads(run("explain", "rss", "-o", "json")[1])
    assert document["explain"]["knob"]["fields"]["Why"]


def test_a_profile_fills_in_and_the_command_line_wins(run):
    base = ["plan", "--from", str(HOSTS / "paper.json"), "--nic", "eth0", "--profile", "paper", "-o", "json"]
    request = json.loads(run(*base)[1])["plan"]["request"]
    assert (request["tenants"], request["read_share"]) == (6, 100)
    assert json.loads(run(*base, "--tenants", "3")[1])["plan"]["request"]["tenants"] == 3


def test_the_launcher_runs_from_anywhere_and_leaves_nothing_behind(tmp_path):
    link = tmp_path / "rflash-tune"
    link.symlink_to(TREE / "tuning/rflash-tune")
    done = subprocess.run(
        [sys.executable, str(link), "--version"], cwd=tmp_path, capture_output=True, text=True, check=True
    )
    assert done.stdout.startswith("rflash-tune ")


@pytest.mark.skipif(not shutil.which("bash"), reason="bash is missing")
def test_a_reader_that_leaves_is_no_failure():
    plan = f"{sys.executable} {TREE}/tuning/rflash-tune plan {' '.join(PAPER)} --tenants 6"
    command = f"{plan} | head -n 1; exit ${{PIPESTATUS[0]}}"
    done = subprocess.run(["bash", "-c", command], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.parametrize(
    ("redirection", "status", "said"),
    [(">&-", OK, ""), ("2>&-", OK, ""), ("<&-", OK, ""), (">/dev/full", FAILED, "no space left on device")],
)
def test_streams_that_are_closed_or_full(redirection, status, said):
    command = f"{sys.executable} {TREE}/tuning/rflash-tune knobs {redirection}"
    done = subprocess.run(["sh", "-c", command], capture_output=True, text=True, check=False)
    assert done.returncode == status
    assert done.stderr == (f"rflash-tune: {said}\n" if said else "")


def test_an_encoding_that_lacks_our_signs():
    command = [sys.executable, str(TREE / "tuning/rflash-tune"), "plan", *PAPER, "--tenants", "6"]
    environment = os.environ | {"PYTHONIOENCODING": "ascii"}
    done = subprocess.run(command, env=environment, capture_output=True, check=True)
    assert done.stdout.isascii()
    assert b"->" in done.stdout
