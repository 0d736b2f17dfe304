# SPDX-License-Identifier: GPL-2.0
"""What the lab decides without a guest. That it decides right with one shows tests/meta."""

import importlib.machinery
import importlib.util
import itertools
import re
from pathlib import Path

import pytest
from lab import builder, cache, emulator, hardware, kernels, machine, mirror, rootfs, session, verdict

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


# Hardware of the host to be tuned

QEMU = emulator.Emulator("/opt/qemu", ("-L", "/opt/firmware"))


def run_script():
    """tests/guest/run as a module."""
    path = str(Path(__file__).parent / "run")
    loader = importlib.machinery.SourceFileLoader("lab_run", path)
    module = importlib.util.module_from_spec(importlib.util.spec_from_loader("lab_run", loader))
    loader.exec_module(module)
    return module


def job(*words):
    module = run_script()
    return module.to_job(module.arguments().parse_args([*words, "tests/meta/scenario.sh"]))


def command_line(directory, links=(), **options):
    kernel = kernels.Kernel("6.12", "6.12.1", Path("/k/vmlinuz"), Path("/k/initrd"), Path("/k/modules"))
    spec = machine.Spec("host", kernel, ["-accel", "tcg"], directory, directory, links=list(links), emulator=QEMU,
                        **options)  # fmt: skip
    return machine.command(spec)


def devices(line):
    return [value for option, value in itertools.pairwise(line) if option == "-device"]


def test_a_run_without_hardware_options_is_as_it_was():
    plain = job("--server")
    assert plain.hardware is None
    assert (plain.smp, plain.peer_smp, plain.server) == (2, 0, True)


def test_a_host_to_tune():
    made = job("--peer", "--smp", "6", "--peer-smp", "1", "--nic-queues", "6", "--disk", "nvme")
    assert (made.server, made.smp, made.peer_smp) == (True, 6, 1)
    assert made.hardware == hardware.Hardware("virtio", 6, "nvme")
    assert made.hardware.taps
    assert made.hardware.arguments() == ["nvme_core.multipath=N", "lab.modprobe=nvme", "lab.taps=1"]


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["--nic", "igb", "--nic-queues", "4"], "the number of queues of igb is its driver's choice"),
        (["--nic-queues", "0"], "0 queues: there can be 1 to 64"),
        (["--nodes", "4", "--smp", "6"], "6 CPUs can't be shared out evenly over 4 NUMA nodes"),
        (["--disk", "nvme", "--disk-size", "0"], "a disk of 0 MB"),
        (["--peer-smp", "1"], "--peer-smp is the number of CPUs"),
        (["--peer", "--peer-smp", "0"], "--peer-smp is the number of CPUs"),
    ],
)
def test_hardware_that_cannot_be(words, says):
    with pytest.raises(cache.LabError, match=re.escape(says)):
        job(*words)


def test_which_cards_need_what():
    needs_taps = [name for name in hardware.NICS if hardware.Hardware(name).taps]
    assert needs_taps == ["vmxnet3"]
    assert hardware.Hardware("virtio", 2).taps
    assert hardware.Hardware("igb").arguments() == ["lab.modprobe=igb"]


def test_data_link_of_each_guest(tmp_path):
    pair = job("--peer", "--nic", "igb")
    mgmt, data = session._links(pair, "host", tmp_path, {})
    assert (mgmt.model, data.model, data.mtu) == ("virtio", "igb", 9000)
    assert data.backend() == f"stream,id=data,server=off,addr.type=unix,addr.path={tmp_path}/data"
    assert session._links(pair, "server", tmp_path, {})[1].model == "virtio"
    (alone,) = session._links(job("--nic", "igb"), "host", tmp_path, {})
    assert alone.backend() == "hubport,id=data,hubid=0"
    assert session._links(job(), "host", tmp_path, {}) == []


def test_command_line_of_a_multiqueue_card_on_taps(tmp_path):
    files = {"host": [5, 6, 7], "server": [8]}
    made = job("--peer", "--nic-queues", "3")
    line = command_line(tmp_path, session._links(made, "host", tmp_path, files), smp=3, hardware=made.hardware)
    assert line[:3] == ["/opt/qemu", "-L", "/opt/firmware"]
    assert "tap,id=data,fds=5:6:7,vhost=off" in line
    card = next(d for d in devices(line) if "netdev=data" in d)
    assert card.startswith("virtio-net-pci,netdev=data,mac=52:54:00:99:00:02")
    assert card.endswith("host_mtu=9000,mq=on,rss=on,hash=on,rx_queue_size=1024,vectors=8")
    peer = session._links(made, "server", tmp_path, files)[1]
    assert peer.backend() == "tap,id=data,fd=8,vhost=off"


def test_command_line_of_a_drive_and_nodes(tmp_path):
    made = job("--nic", "igb", "--disk", "nvme", "--disk-size", "64", "--nodes", "2", "--smp", "6")
    line = command_line(
        tmp_path, session._links(made, "host", tmp_path, {}), smp=6, memory=1024, hardware=made.hardware
    )
    assert "6,sockets=2,cores=3,threads=1" in line
    assert "node,nodeid=1,memdev=memory1,cpus=3-5" in line
    last = devices(line)[-5:]
    assert [d.partition(",")[0] for d in last] == ["pxb-pcie", "pcie-root-port", "pcie-root-port", "igb", "nvme"]
    assert last[3].endswith(",bus=far1")
    assert last[4] == "nvme,drive=flash,serial=flash0,max_ioqpairs=6,msix_qsize=7,bus=far2"
    assert (tmp_path / "flash.img").stat().st_size == 64 << 20


@pytest.mark.parametrize(
    ("version", "expected"),
    [("1:10.0.2+ds-2+deb13u1~bpo12+1", (10, 0)), ("7.2.22", (7, 2)), ("1:7.2+dfsg-7+deb12u18", (7, 2))],
)
def test_version_numbers(version, expected):
    assert emulator.numbers(version) == expected


class Archive:
    """A mirror that has one version of every package."""

    def __init__(self, version):
        self.version = version

    def update(self, again=False):
        pass

    def versions(self, package):
        return [(self.version, "0" * 64, 5)]


def test_newest_qemu_replaces_a_pin_that_is_gone(monkeypatch, capsys):
    oldest, suites, pins = emulator._pins()
    monkeypatch.setattr(mirror, "deb", lambda sha256: Path("/nonexistent"))
    monkeypatch.setattr(mirror, "archive", lambda suites: Archive("1:11.0.1-1~bpo12+1"))
    assert [p.version for p in emulator._chosen(suites, pins, oldest)] == ["1:11.0.1-1~bpo12+1"] * len(pins)
    assert "no longer has QEMU 1:10.0.2" in capsys.readouterr().err
    monkeypatch.setattr(mirror, "archive", lambda suites: Archive("1:7.2+dfsg-7"))
    with pytest.raises(cache.LabError, match=r"the device needs 8\.0 or newer"):
        emulator._chosen(suites, pins, oldest)


def test_a_qemu_that_is_new_enough_is_used(monkeypatch):
    monkeypatch.setattr(emulator, "system", lambda: QEMU)
    monkeypatch.setattr(emulator, "version", lambda one: (10, 0))
    assert emulator.newer() == QEMU
