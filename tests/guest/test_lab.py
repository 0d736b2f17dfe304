# SPDX-License-Identifier: GPL-2.0
"""What the lab decides without a guest. That it decides right with one shows tests/meta."""

import re

import pytest
from lab import builder, cache, kernels, mirror, rootfs, session, verdict

LOG = """[    1.000000] Linux version 6.12.107
[    1.100000] Spectre V2 : WARNING: Unprivileged eBPF is enabled
[    9.000000] {}
"""


@pytest.mark.parametrize(
    ("line", "kind"),
    [
        ("WARNING: CPU: 1 PID: 77 at driver/queue.c:120 rflash_queue_stop+0x4/0x10 [rflash]", "kernel warning"),
        ("WARNING: driver/queue.c:120 at rflash_queue_stop+0x4/0x10, CPU#1: insmod/77", "kernel warning"),
        ("WARNING: possible circular locking dependency detected", "kernel warning"),
        ("BUG: kernel NULL pointer dereference, address: 0000000000000008", "kernel oops"),
        ("Oops: Oops: 0002 [#1] PREEMPT SMP NOPTI", "kernel oops"),
        ("kernel BUG at driver/tags.c:9!", "kernel oops"),
        ("BUG: KASAN: slab-use-after-free in rflash_complete+0x1/0x2", "kernel bug report"),
        ("BUG: sleeping function called from invalid context at mm/slab.h:5", "kernel bug report"),
        ("UBSAN: array-index-out-of-bounds in driver/tcp.c:7:3", "kernel bug report"),
        ("INFO: task kworker/1:2:44 blocked for more than 120 seconds.", "kernel stuck"),
        ("rcu: INFO: rcu_preempt detected stalls on CPUs/tasks:", "kernel stuck"),
        ("refcount_t: underflow; use-after-free.", "kernel stuck"),
        ("kmemleak: 3 new suspected memory leaks (see /sys/kernel/debug/kmemleak)", "memory leak"),
    ],
)
def test_trouble_is_seen(line, kind):
    found = verdict.troubles(LOG.format(line), [])
    assert found == [(kind, line)]


@pytest.mark.parametrize(
    "line",
    [
        "rflash0: reconnecting in 10 seconds",
        "rflash: loading out-of-tree module taints kernel.",
        "EXT4-fs (vda): mounted filesystem",
        "nvmet: creating controller 1 for subsystem nqn.2026-11.org.rflash",
        "sysrq: Power Off",
        "DEBUG: WARNING: a message about messages",
    ],
)
def test_no_trouble_is_invented(line):
    assert verdict.troubles(LOG.format(line), []) == []


def test_trouble_may_be_announced():
    line = "WARNING: CPU: 1 PID: 77 at driver/queue.c:120"
    assert verdict.troubles(line, [re.compile("driver/queue.c")]) == []
    assert verdict.troubles(line, [re.compile("driver/other.c")])


def test_panic():
    assert verdict.panic("[ 3.1] Kernel panic - not syncing: sysrq triggered crash\n").endswith("crash")
    assert verdict.panic("all is well") is None


@pytest.mark.parametrize(
    ("outcome", "status"),
    [
        (session.Outcome(True, 0), 0),
        (session.Outcome(True, 4), 4),
        (session.Outcome(True, 3, ["the script exited with 3"]), 3),
        (session.Outcome(True, 0, ["kernel warning: x"]), 1),
        (session.Outcome(True, 4, ["kernel warning: x"]), 1),
        (session.Outcome(True, None, ["hangs"], hang=True), 124),
        (session.Outcome(False, None, ["never started"]), 1),
    ],
)
def test_exit_status(outcome, status):
    assert outcome.exit_status() == status


def test_pins_are_complete():
    assert set(kernels.pins()) == {"6.1", "6.12", "7.2"}
    for series in kernels.pins().values():
        assert series.release.startswith(series.name)
        assert all(re.fullmatch(r"[0-9a-f]{64}", p.sha256) for p in series.boot + series.headers)
        # What replaces a pin that is gone has to match what is pinned now.
        assert series.image.fullmatch(f"linux-image-{series.release}")


def test_unknown_series():
    with pytest.raises(cache.LabError, match=re.escape("no kernel series '5.0'; there are 6.1, 6.12, 7.2")):
        kernels.series("5.0")


class OldMirror:
    """A mirror that has only a newer kernel than the pinned one."""

    def __init__(self, release):
        self.release = release

    def update(self, again=False):
        pass

    def names(self, prefix):
        return [f"linux-image-{self.release}", f"linux-image-{self.release}-unsigned", "linux-image-9.9.9-amd64"]

    def versions(self, package):
        abi = self.release.removesuffix("-amd64")
        return [("6.12.120-1", "0" * 64, 5)] if abi in package else []


def test_newest_of_the_series_replaces_a_pin_that_is_gone(monkeypatch, capsys):
    newer = "6.12.120+deb13-amd64"
    monkeypatch.setattr(mirror, "archive", lambda suites: OldMirror(newer))
    monkeypatch.setattr(mirror, "deb", lambda sha256: kernels.Path("/nonexistent"))
    chosen = kernels.resolve.__wrapped__("6.12")
    assert chosen.release == newer
    assert [p.name for p in chosen.headers] == [
        f"linux-headers-{newer}",
        "linux-headers-6.12.120+deb13-common",
        "linux-kbuild-6.12.120+deb13",
    ]
    assert "no longer has kernel 6.12.107" in capsys.readouterr().err


def test_a_root_file_system_that_has_moved_on_is_told():
    assert rootfs.differences("fio 1\nbash 2\n", "fio 1\nbash 2\n") == []
    told = rootfs.differences("fio 1\nbash 2\n", "fio 1-1\nbash 2\nnew 3\n")
    assert told[0].startswith("NOTICE: 2 packages")
    assert told[1:] == ["  fio 1 -> 1-1", "  new none -> 3"]


def test_a_cache_entry_is_made_once_and_whole(monkeypatch, tmp_path):
    monkeypatch.setenv("RFLASH_CACHE", str(tmp_path))
    made = []

    def fails(directory):
        (directory / "half").write_text("")
        raise cache.LabError("interrupted")

    def works(directory):
        made.append(directory)
        (directory / "whole").write_text("")

    with pytest.raises(cache.LabError):
        cache.entry("kind/name-1", "it", fails)
    for _ in range(2):
        entry = cache.entry("kind/name-1", "it", works)
        assert sorted(p.name for p in entry.iterdir()) == ["whole"]
    assert len(made) == 1


def test_sources_are_copied_without_products(tmp_path):
    source, work = tmp_path / "source", tmp_path / "work"
    for name in ("Kbuild", "driver/a.c", "driver/a.o", "driver/.a.o.cmd", "driver/a.mod.c", "driver/gone.c"):
        (source / name).parent.mkdir(parents=True, exist_ok=True)
        (source / name).write_text(name)
    work.mkdir()
    tree = builder.Tree(source, ["Kbuild", "driver"], work)
    builder._sync(tree)
    (source / "driver/gone.c").unlink()
    (work / "driver/a.o").write_text("built here")
    builder._sync(tree)
    names = sorted(str(p.relative_to(work)) for p in work.rglob("*") if p.is_file() and p.name != ".sources")
    assert names == ["Kbuild", "driver/a.c", "driver/a.o"]
    assert (work / "driver/a.o").read_text() == "built here"


@pytest.mark.parametrize("value", ["0", "-1", "fast"])
def test_timeout_scale_refuses(monkeypatch, value):
    monkeypatch.setenv("RFLASH_TIMEOUT_SCALE", value)
    with pytest.raises(cache.LabError, match="should be a number above 0"):
        session.scale()
