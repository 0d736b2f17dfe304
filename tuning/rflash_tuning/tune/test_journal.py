# SPDX-License-Identifier: GPL-2.0
"""The journal's file: what is torn, foreign, damaged or old, and what a reboot makes of it."""

from __future__ import annotations

import json
import os
import stat
from pathlib import Path
from typing import Any

import pytest

from rflash_tuning import errors
from rflash_tuning.errors import UsageError
from rflash_tuning.tune import journal
from rflash_tuning.tune.apply import apply
from rflash_tuning.tune.change import Allocation, Change, Plan, Request
from rflash_tuning.tune.journal import DEFAULT_DIRECTORY, load, state_directory
from rflash_tuning.tune.revert import revert
from rflash_tuning.tune.settings import ConfigSetting, FileSetting
from rflash_tuning.tune.treesystem import TreeSystem
from rflash_tuning.tune.verify import verify

REQUEST = Request(role="server", target="iscsi", nics=("eth0",), tenants=3)
ONE, TWO, CONFIG = "/proc/sys/net/one", "/proc/sys/net/two", "/etc/some.conf"


def plan(one: str, two: str = "0", config: str = "theirs\n") -> Plan:
    changes = (
        Change(ConfigSetting(CONFIG), None, config, "k", "", ""),
        Change(FileSetting(ONE), None, one, "k", "", ""),
        Change(FileSetting(TWO), None, two, "k", "", ""),
    )
    return Plan(REQUEST, Allocation("one-core", "", "", (), (0,)), changes)


@pytest.fixture
def machine(tmp_path: Path) -> TreeSystem:
    return TreeSystem.make(tmp_path / "root", {ONE: "0\n", TWO: "0\n", CONFIG: "theirs\n"})


@pytest.fixture
def state(tmp_path: Path) -> Path:
    return tmp_path / "state"


def outcomes(report: Any) -> list[str]:
    return [outcome.outcome for outcome in report.outcomes]


def test_where_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("RFLASH_TUNE_STATE", raising=False)
    assert str(state_directory()) == DEFAULT_DIRECTORY == "/var/lib/rflash/tune"
    monkeypatch.setenv("RFLASH_TUNE_STATE", "/some/where")
    assert str(state_directory()) == "/some/where" and str(state_directory("/given")) == "/given"


def test_only_root_may_read_it(machine: TreeSystem, state: Path) -> None:
    """It holds keys of receive hashing and whole configuration files."""
    old = os.umask(0)
    try:
        apply(machine, plan("1"), state)
    finally:
        os.umask(old)
    assert stat.S_IMODE(state.stat().st_mode) == 0o700
    assert stat.S_IMODE((state / "journal").stat().st_mode) == 0o600


def test_a_line_torn_anywhere_is_as_if_it_was_never_written(machine: TreeSystem, state: Path) -> None:
    """Whatever is left of the last lines, a revert restores what the whole lines say."""
    before = machine.contents()
    apply(machine, plan("1", "1", "ours\n"), state)
    whole = (state / "journal").read_bytes()
    applied = machine.contents()
    intents = [at for at in range(len(whole)) if whole.startswith(b'{"op":"intent"', at)]
    last_intent = whole.index(b"\n", intents[-1]) + 1
    for size in range(last_intent, len(whole)):
        (state / "journal").write_bytes(whole[:size])
        assert revert(machine, state).status == errors.OK
        assert machine.contents() == before, size
        for path, data in applied.items():
            Path(path).write_bytes(data)
    for size in range(intents[-1], last_intent - 1, 7):
        # The last intent is torn: then its change was never made.
        machine.write(TWO, "0")
        (state / "journal").write_bytes(whole[:size])
        revert(machine, state)
        assert machine.contents() == before, size
        for path, data in applied.items():
            Path(path).write_bytes(data)


@pytest.mark.parametrize("tail", [b'{"op":"do', b"\0\0\0\0", b"\xff\xfe\n", b'{"op":\n', b"{}}\n"])
def test_after_a_torn_line_it_goes_on(machine: TreeSystem, state: Path, tail: bytes) -> None:
    before = machine.contents()
    apply(machine, plan("1"), state)
    with (state / "journal").open("ab") as file:
        file.write(tail)
    assert apply(machine, plan("2"), state).status == errors.OK
    assert tail + b"{" not in (state / "journal").read_bytes()
    assert revert(machine, state).status == errors.OK and machine.contents() == before


@pytest.mark.parametrize(
    "spoil, sentence",
    [
        (lambda lines: [b"{broken", *lines[1:]], "damaged in line 1"),
        (lambda lines: [lines[0], b"{broken", *lines[2:]], "damaged in line 2"),
        (lambda lines: [lines[0], b'{"op":"unheard of"}', *lines[2:]], "damaged in line 2"),
        (lambda lines: [lines[0], b"[]", *lines[2:]], "damaged in line 2"),
        (lambda lines: [lines[0], *lines[2:]], "damaged in line 2"),
        (lambda lines: [lines[0].replace(b'"schema":1', b'"schema":7'), *lines[1:]], "has schema 7; this .* knows 1"),
        (lambda lines: [lines[0].replace(b'"host_id":"', b'"host_id":"x'), *lines[1:]], "is of another host"),
        (lambda lines: [b'{"some":"thing"}'], "is not a journal of rflash-tune"),
        (lambda lines: [], "is not a journal of rflash-tune"),
    ],
)
def test_what_is_no_journal_of_ours_is_one_sentence(
    machine: TreeSystem, state: Path, spoil: Any, sentence: str
) -> None:
    apply(machine, plan("1"), state)
    lines = (state / "journal").read_bytes().splitlines()
    (state / "journal").write_bytes(b"".join(line + b"\n" for line in spoil(lines)))
    written = len(machine.mutations)
    for command in (apply, revert, verify):
        with pytest.raises(UsageError, match=sentence) as caught:
            command(machine, plan("2"), state) if command is apply else command(machine, state)
        assert "\n" not in str(caught.value)
    assert len(machine.mutations) == written


def test_after_a_reboot_only_files_are_put_back(machine: TreeSystem, state: Path) -> None:
    apply(machine, plan("1", "1", "ours\n"), state)
    machine.write(ONE, "7")  # what this kernel starts with now
    machine.write(TWO, "0")
    machine.reboot()
    assert verify(machine, state).status == errors.FAILED
    report = revert(machine, state)
    assert outcomes(report) == ["restored"] and report.notes == ("2 values of before the reboot went with it.",)
    assert machine.text(ONE) == "7" and machine.read(CONFIG) == "theirs\n"
    assert revert(machine, state).notes == ()


def test_after_a_reboot_an_apply_keeps_the_new_former_values(machine: TreeSystem, state: Path) -> None:
    apply(machine, plan("1", "1", "ours\n"), state)
    machine.reboot()
    machine.write(ONE, "7")
    apply(machine, plan("1", "1", "ours\n"), state)
    assert verify(machine, state).status == errors.OK
    revert(machine, state)
    assert machine.text(ONE) == "7" and machine.read(CONFIG) == "theirs\n"


def test_a_file_edited_since_is_kept(machine: TreeSystem, state: Path) -> None:
    apply(machine, plan("1", config="ours\n"), state)
    machine.replace(CONFIG, "the administrator's\n")
    report = revert(machine, state)
    assert report.status == errors.OK and outcomes(report) == ["restored", "kept"]
    assert machine.read(CONFIG) == "the administrator's\n"
    assert "was edited after rflash-tune had changed it; the edit stays." in report.outcomes[1].message
    assert "1 file edited since and left so" in report.message


def test_a_file_edited_between_two_applies_gets_the_edit_back(machine: TreeSystem, state: Path) -> None:
    apply(machine, plan("1", config="ours\n"), state)
    machine.replace(CONFIG, "the administrator's\n")
    apply(machine, plan("1", config="the administrator's and ours\n"), state)
    revert(machine, state)
    assert machine.read(CONFIG) == "the administrator's\n"


def test_a_file_removed_since_stays_removed(machine: TreeSystem, state: Path) -> None:
    apply(machine, plan("1", config="ours\n"), state)
    machine.replace(CONFIG, None)
    assert "kept" in outcomes(revert(machine, state)) and not machine.exists(CONFIG)


def test_what_drifted_is_put_back_and_told(machine: TreeSystem, state: Path) -> None:
    apply(machine, plan("1"), state)
    machine.write(ONE, "5")
    report = revert(machine, state)
    assert machine.text(ONE) == "0"
    assert report.outcomes[0].message == "It had drifted to 5 since." and report.outcomes[0].now == "5"


def test_what_is_gone_needs_nothing(machine: TreeSystem, state: Path) -> None:
    apply(machine, plan("1", "1"), state)
    machine.at(ONE).unlink()
    report = revert(machine, state)
    assert report.status == errors.OK and sorted(outcomes(report)) == ["gone", "restored"]
    assert not load(state).active("boot-one")


def test_what_is_stuck_stays_in_the_journal(machine: TreeSystem, state: Path) -> None:
    apply(machine, plan("1", "1"), state)
    machine.refuse[ONE] = OSError(16, "Device or resource busy")
    report = revert(machine, state)
    assert report.status == errors.FAILED and sorted(outcomes(report)) == ["restored", "stuck"]
    assert "1 value could not be put back" in report.message
    machine.refuse.clear()
    assert outcomes(revert(machine, state)) == ["restored"] and machine.text(ONE) == "0"


def test_a_setting_of_a_later_version_does_not_stop_the_rest(machine: TreeSystem, state: Path) -> None:
    apply(machine, plan("1", "1"), state)
    path = state / "journal"
    path.write_bytes(path.read_bytes().replace(b'"kind":"file"', b'"kind":"warp"', 1))
    report = revert(machine, state)
    assert report.status == errors.FAILED and "'warp' is not a kind of setting" in str(report.outcomes)
    assert machine.text(TWO) == "0"


def test_a_revert_with_the_disk_full(machine: TreeSystem, state: Path, monkeypatch: pytest.MonkeyPatch) -> None:

    before = machine.contents()
    apply(machine, plan("1", "1", "ours\n"), state)

    def full(*_: object) -> int:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patched:
        patched.setattr(journal, "_write_all", full)
        assert revert(machine, state).status == errors.OK
    assert machine.contents() == before
    assert outcomes(revert(machine, state)) == ["right"] * 3


def test_a_revert_with_the_journal_read_only(machine: TreeSystem, state: Path, monkeypatch: pytest.MonkeyPatch) -> None:

    before = machine.contents()
    apply(machine, plan("1", "1", "ours\n"), state)

    def read_only(*_: object) -> None:
        raise OSError(30, "Read-only file system")

    monkeypatch.setattr(journal.os, "ftruncate", read_only)
    report = revert(machine, state)
    assert report.status == errors.OK and "put back all the same" in report.notes[-1]
    assert machine.contents() == before


def test_it_stays_small_and_still_knows_the_first_value(machine: TreeSystem, state: Path) -> None:
    for number in range(200):
        assert apply(machine, plan(str(number + 1), "1", "ours\n"), state).status == errors.OK
    assert load(state).lines < 80
    assert outcomes(revert(machine, state)) == ["restored"] * 3
    assert machine.text(ONE) == "0" and machine.read(CONFIG) == "theirs\n"


def test_nothing_to_revert(machine: TreeSystem, state: Path) -> None:
    report = revert(machine, state)
    assert report.status == errors.OK and not state.exists()
    apply(machine, plan("1"), state)
    revert(machine, state)
    lines = (state / "journal").read_bytes()
    assert revert(machine, state).message == "Nothing was changed, so nothing to put back."
    assert (state / "journal").read_bytes() == lines


def test_every_line_is_json(machine: TreeSystem, state: Path) -> None:
    apply(machine, plan("1"), state)
    records = [json.loads(line) for line in (state / "journal").read_text().splitlines()]
    assert [record.get("op", "head") for record in records] == ["head", "begin", "intent", "done", "end"]
    assert records[0]["schema"] == 1 and records[1]["request"]["tenants"] == 3
    assert (records[2]["old"], records[2]["new"], records[2]["volatile"]) == ("0", "1", True)
