# SPDX-License-Identifier: GPL-2.0
"""What single knobs decide, beyond the golden plans: texts they edit, goals, roles, values they leave alone."""

from __future__ import annotations

from dataclasses import replace

import pytest

from rflash_tuning.host.model import (
    Connection,
    Disk,
    DiskQueue,
    Feature,
    Host,
    Irq,
    Nic,
    Rss,
    Rule,
    Task,
    Tenant,
    Tuner,
)
from rflash_tuning.knobs import irqbalance, rflashdcpus
from rflash_tuning.tune import testdata
from rflash_tuning.tune.planner import plan
from rflash_tuning.tune.toeplitz import Flow, entry

KEY = "6d5a56da255b0ec24167253d43a38fb0d0ca2bcbae7b30b477cb2da38030f20c6a42b73bbeac01fa"


def host(nic: dict | None = None, **more) -> Host:
    base = testdata.host()
    return replace(base, nics=(replace(base.nics[0], **(nic or {})),), **more)


def changes(here: Host, knob: str, **request):
    return plan(here, testdata.request(knobs=(knob,), **request)).changes


def warnings(here: Host, knob: str, **request):
    return plan(here, testdata.request(knobs=(knob,), **request)).warnings


# irqbalance

DEBIAN = "# irqbalance(1)\n#IRQBALANCE_BANNED_CPULIST=\nIRQBALANCE_ARGS=\n"


@pytest.mark.parametrize(
    ("before", "line"),
    [
        (DEBIAN, 'IRQBALANCE_ARGS="--banirq=4 --banirq=5"'),
        ("", 'IRQBALANCE_ARGS="--banirq=4 --banirq=5"'),
        ('IRQBALANCE_ARGS="--hintpolicy=exact"', 'IRQBALANCE_ARGS="--hintpolicy=exact --banirq=4 --banirq=5"'),
        ("IRQBALANCE_ARGS='-i 4 --debug'\n", 'IRQBALANCE_ARGS="-i 4 --debug --banirq=5"'),
        ("IRQBALANCE_ARGS=--a\nIRQBALANCE_ARGS=--banirq=5\n", 'IRQBALANCE_ARGS="--banirq=5 --banirq=4"'),
    ],
)
def test_irqbalance_keeps_what_the_administrator_had(before, line):
    once = irqbalance.with_banned(before, [4, 5])
    assert once.startswith(before.rstrip())
    assert once.splitlines()[-1] == line
    assert irqbalance.with_banned(once, [4, 5]) == once
    assert irqbalance.with_banned(once.rstrip(), [4, 5]) == once
    other = irqbalance.with_banned(once, [7])
    assert "--banirq=7" in other and other.count(irqbalance.MARK) == 1
    assert other == irqbalance.with_banned(before, [7])


def test_irqbalance_is_told_only_when_it_runs():
    off = (Tuner("irqbalance", False, "/etc/default/irqbalance"),)
    files = {"/etc/default/irqbalance": DEBIAN.strip()}
    assert not changes(host(tuners=off, files=files), "irqbalance")
    on = (Tuner("irqbalance", True, "/etc/default/irqbalance"),)
    banned = plan(host(tuners=on, files=files), testdata.request(knobs=("irqbalance", "interrupts"))).changes[0]
    assert all(f"--banirq={number}" in banned.new for number in range(40, 46))
    absent = plan(host(tuners=on), testdata.request(knobs=("irqbalance", "interrupts"))).changes[0]
    assert absent.old is None
    openrc = (Tuner("irqbalance", True, "/etc/conf.d/irqbalance"),)
    assert "IRQBALANCE_OPTS=" in plan(host(tuners=openrc), testdata.request()).changes[0].new
    unknown = (Tuner("irqbalance", True),)
    assert any("--banirq=40" in text for text in plan(host(tuners=unknown), testdata.request()).warnings)


def test_other_tuners_are_named():
    said = warnings(host(tuners=(Tuner("tuned", True), Tuner("NetworkManager", False))), "other-tuners")
    assert [text for text in said if text.startswith("tuned is active")]
    assert not [text for text in said if "NetworkManager" in text]


# Offloads and moderation

FEATURES = {
    name: Feature(active, True)
    for name, active in (
        ("tx-tcp-segmentation", False),
        ("rx-gro", False),
        ("rx-lro", False),
    )
}


@pytest.mark.parametrize(
    ("request_", "wanted"),
    [
        ({"role": "server"}, {"tx-tcp-segmentation": True, "rx-gro": True}),
        ({"role": "server", "read_share": 20}, {"tx-tcp-segmentation": True, "rx-gro": True, "rx-lro": True}),
        ({"role": "tenant"}, {"tx-tcp-segmentation": True, "rx-gro": True, "rx-lro": True}),
        ({"role": "tenant", "read_share": 20}, {"tx-tcp-segmentation": True, "rx-gro": True}),
        ({"role": "tenant", "goal": "latency"}, {"tx-tcp-segmentation": True}),
    ],
)
def test_offloads_follow_role_goal_and_read_share(request_, wanted):
    made = changes(host({"features": FEATURES}), "offloads", **request_)
    assert {name: value for change in made for name, value in change.new.items()} == wanted


def test_lro_goes_for_latency_and_never_comes_under_a_bridge():
    on = FEATURES | {"rx-lro": Feature(True, True)}
    made = changes(host({"features": on}), "offloads", role="tenant", goal="latency")
    assert {"rx-lro": False} in [change.new for change in made]
    here = host({"features": FEATURES})
    bridged = replace(here, nics=(*here.nics, Nic("br0", "bridge", lowers=("eth0",))))
    assert not [c for c in changes(bridged, "offloads", role="tenant") if "rx-lro" in c.new]


def test_a_fixed_offload_is_foreseen():
    fixed = {"tx-tcp-segmentation": Feature(False, False)}
    assert [change.foreseen for change in changes(host({"features": fixed}), "offloads")] == ["unchangeable"]


@pytest.mark.parametrize(
    ("driver", "known", "request_", "wanted"),
    [
        ("mlx5_core", {"adaptive-rx": 0, "rx-usecs": 8}, {}, {"adaptive-rx": 1}),
        ("mlx5_core", {"adaptive-rx": 1, "rx-usecs": 8}, {"goal": "latency"}, {"adaptive-rx": 0, "rx-usecs": 10}),
        ("x", {"rx-usecs": 3}, {"queue_depth": 8}, {"rx-usecs": 10}),
        ("x", {"rx-usecs": 3}, {"queue_depth": 32}, {"rx-usecs": 32}),
        ("x", {"rx-usecs": 3}, {"queue_depth": 64}, {"rx-usecs": 64}),
        ("igb", {"rx-usecs": 100}, {}, {"rx-usecs": 3}),
        ("igb", {"rx-usecs": 3}, {"goal": "latency"}, {"rx-usecs": 10}),
        ("x", {}, {}, None),
    ],
)
def test_moderation_follows_goal_and_queue_depth(driver, known, request_, wanted):
    made = changes(host({"driver": driver, "coalesce": known}), "coalescing", **request_)
    assert [change.new for change in made] == ([wanted] if wanted else [])


# Values of the administrator's

RINGS = {"rx": 8192, "tx": 256, "rx-max": 8192, "tx-max": 2048}


def test_what_is_better_already_stays():
    made = changes(host({"rings": RINGS}), "rings", goal="throughput")
    assert made[0].new == {"rx": 8192, "tx": 2048}
    assert not changes(host({"rings": RINGS}), "rings")
    files = {
        "/proc/sys/net/core/rmem_max": "268435456",
        "/proc/sys/net/core/wmem_max": "1000",
        "/proc/sys/net/ipv4/tcp_rmem": "4096\t131072\t268435456",
    }
    made = changes(host(files=files), "tcp-buffers")
    assert [(change.setting.label(), change.new) for change in made] == [("net.core.wmem_max", 16 << 20)]
    polls = {"/proc/sys/net/core/busy_read": "100", "/proc/sys/net/core/busy_poll": "0"}
    assert [c.setting.label() for c in changes(host(files=polls), "busy-poll", goal="latency")] == [
        "net.core.busy_poll"
    ]
    assert not changes(host(files=polls), "busy-poll")
    assert not changes(host(files=polls), "busy-poll", goal="latency", target="nvmet-tcp")


def test_jumbo_frames_need_a_peer_and_go_from_the_bottom_up():
    here = host({"max_mtu": 9600})
    upper = (Nic("bond0", "bond", lowers=("eth0",)), Nic("bond0.5", "vlan", lowers=("bond0",), max_mtu=9000))
    stacked = replace(here, nics=(here.nics[0], *upper))
    assert not changes(stacked, "mtu", nics=("bond0.5",))
    assert any("--peer" in text for text in warnings(stacked, "mtu", nics=("bond0.5",)))
    up = changes(stacked, "mtu", nics=("bond0.5",), peers=("10.0.0.2",))
    assert [(c.setting.nic, c.new) for c in up] == [("eth0", 9000), ("bond0", 9000), ("bond0.5", 9000)]
    assert all(change.cuts_off for change in up)
    raised = replace(stacked, nics=tuple(replace(nic, mtu=9000) for nic in stacked.nics))
    assert not changes(raised, "mtu", nics=("bond0.5",), peers=("10.0.0.2",))
    down = changes(raised, "mtu", nics=("bond0.5",), mtu=1500)
    assert [(c.setting.nic, c.new) for c in down] == [("bond0.5", 1500)]


# Steering

CONNECTIONS = tuple(
    Connection("10.0.0.1", 3260 + tenant, "10.0.0.9", 40000 + 2 * number) for tenant in range(3) for number in range(2)
)


def queue_of(made, connection: Connection) -> int:
    flow = Flow(connection.local, connection.local_port, connection.remote, connection.remote_port, 0)
    table = made.new["table"]
    return table[entry(bytes.fromhex(made.new.get("key", KEY)), flow, len(table))]


@pytest.mark.parametrize("key_settable", [True, False])
def test_connections_meet_their_tenants_queue(key_settable):
    rss = Rss(tuple(entry % 6 for entry in range(128)), KEY, "toeplitz", key_settable=key_settable)
    made = changes(host({"rss": rss}, connections=CONNECTIONS), "rss")[0]
    assert ("key" in made.new) == key_settable
    assert [queue_of(made, one) for one in CONNECTIONS] == [one.local_port - 3260 for one in CONNECTIONS]
    assert set(made.new["table"]) == {0, 1, 2}


def test_a_key_of_our_own_needs_no_connection_yet():
    rss = Rss((0, 1, 2, 3) * 32, KEY, "toeplitz")
    for role in ("server", "tenant"):
        made = changes(host({"rss": rss}), "rss", role=role)[0]
        later = [replace(one, local_port=50000 + n) for n, one in enumerate(CONNECTIONS)]
        later = [replace(one, remote_port=3260 + n // 2) for n, one in enumerate(later)]
        connections = CONNECTIONS if role == "server" else later
        assert [queue_of(made, one) for one in connections] == [0, 0, 1, 1, 2, 2]
        done = replace(rss, table=tuple(made.new["table"]), key=made.new["key"])
        assert not changes(host({"rss": done}, connections=tuple(connections)), "rss", role=role)


def test_ipv6_connections_are_steered_one_by_one():
    rss = Rss((0, 1, 2, 3) * 32, KEY, "toeplitz")
    six = tuple(replace(one, local="fd00::1", remote="fd00::9") for one in CONNECTIONS)
    made = changes(host({"rss": rss}, connections=six), "rss")[0]
    assert [queue_of(made, one) for one in six] == [one.local_port - 3260 for one in six]


def test_a_driver_that_hides_its_key_uses_the_kernels():
    rss = Rss((0, 1, 2) * 42 + (0, 1), "", "", key_settable=False)
    files = {"/proc/sys/net/core/netdev_rss_key": ":".join(KEY[at : at + 2] for at in range(0, 80, 2))}
    igb = host({"rss": rss, "driver": "igb", "rules": ()}, connections=CONNECTIONS, files=files)
    made = changes(igb, "rss")[0]
    assert "key" not in made.new
    assert not changes(igb, "flow-rules"), "igb's rules know no ports"
    hidden = replace(igb, files={})
    assert not [change for change in changes(hidden, "rss") if "connection" in change.reason]


def test_no_connection_yet_is_said():
    rss = Rss((0, 1, 2, 3) * 32, KEY, "toeplitz", key_settable=False)
    assert any("watch" in text for text in warnings(host({"rss": rss}), "rss"))


def test_rules_of_others_stay_and_ours_are_corrected():
    rules = (
        Rule(0, "tcp4", 22, 1),
        Rule(1, "tcp4", 3260, 5),
        Rule(7, "tcp4", 3261, 4, src_port=4711),
        Rule(8, "tcp4", 3262, 2),
    )
    made = changes(host({"rules": rules}), "flow-rules")
    found = {change.setting.location: change.new for change in made}
    assert found[1] == {"flow": "tcp4", "dst_port": 3260, "queue": 0}
    assert found[7] is None, "the connection has ended"
    assert found[2] == {"flow": "tcp4", "dst_port": 3261, "queue": 1}
    assert set(found) == {1, 2, 7}


def test_ipv6_tenants_get_a_rule_as_well():
    tenants = (Tenant("t1", "iscsi", "iqn", "::", 3260), Tenant("t2", "iscsi", "iqn2", "10.0.0.1", 3261))
    made = changes(host({"rules": ()}, tenants=tenants), "flow-rules", tenants=2)
    assert [(c.new["flow"], c.new["dst_port"]) for c in made] == [("tcp4", 3260), ("tcp6", 3260), ("tcp4", 3261)]


def test_a_tenants_host_steers_by_the_servers_port():
    made = changes(host({"rules": ()}), "flow-rules", role="tenant")
    assert [change.new.get("src_port") for change in made] == [3260, 3261, 3262]


# Threads and disks


def test_a_pair_of_threads_is_placed_and_unknown_ones_are_said():
    tasks = tuple(
        Task(tid, tid, name, 5, frozenset(range(6)), True, False)
        for tid, name in ((100, "iscsi_ttx"), (101, "iscsi_trx"), (102, "iscsi_ttx"), (103, "iscsi_trx"))
    )
    tenants = (Tenant("t1", "iscsi", "iqn", "", 3260, sessions=1, tasks=(100, 101)),)
    here = host(tasks=tasks, tenants=tenants)
    made = changes(here, "threads")
    assert {(c.setting.tid, c.new, c.tenant) for c in made} == {(101, "0", "t1"), (100, "1", "t1")}
    assert any("2 of LIO's threads" in text for text in warnings(here, "threads"))
    assert not changes(here, "threads", tenants=1), "one tenant is spread by the kernel"
    bound = replace(here, tasks=tuple(replace(task, bound=True) for task in tasks))
    assert {change.foreseen for change in changes(bound, "threads")} == {"unchangeable"}


def disk(managed: bool) -> Disk:
    irqs = tuple(Irq(60 + n, f"nvme0q{n + 1}", frozenset({n}), frozenset({n}), managed) for n in range(6))
    queues = tuple(DiskQueue(n, frozenset({n}), 60 + n) for n in range(6))
    return Disk("nvme0n1", "nvme", 0, "", 1 << 40, 512, False, "", ("none",), "none", queues, irqs)


def test_managed_interrupts_are_one_line_and_others_are_moved():
    made = changes(host(disks=(disk(managed=True),)), "disk-interrupts")
    assert [change.foreseen for change in made] == ["unchangeable"]
    assert "submitters" in made[0].reason
    made = changes(host(disks=(disk(managed=False),)), "disk-interrupts")
    assert all(not change.foreseen for change in made)
    assert {change.new for change in made} <= {"1", "3", "5"}


def test_power_is_for_the_cores_in_use():
    base = "/sys/devices/system/cpu"
    files = {}
    for cpu in range(6):
        files[f"{base}/cpufreq/policy{cpu}/scaling_governor"] = "powersave"
        files[f"{base}/cpufreq/policy{cpu}/scaling_available_governors"] = "performance powersave"
        for state, latency in enumerate((0, 2, 133)):
            files[f"{base}/cpu{cpu}/cpuidle/state{state}/latency"] = str(latency)
            files[f"{base}/cpu{cpu}/cpuidle/state{state}/disable"] = "0"
    here = host(files=files)
    assert len(changes(here, "governor", cpus=(0, 1, 2))) == 3
    assert not changes(here, "idle-states")
    made = changes(here, "idle-states", goal="latency")
    assert {change.setting.path.split("/")[-2] for change in made} == {"state2"}
    assert len(made) == 6
    only_preference = {
        f"{base}/cpufreq/policy0/scaling_governor": "powersave",
        f"{base}/cpufreq/policy0/energy_performance_preference": "balance_power",
        f"{base}/cpufreq/policy0/energy_performance_available_preferences": "default performance balance_power",
    }
    assert [c.new for c in changes(host(files=only_preference), "governor")] == ["performance"]


def test_smt_goes_only_when_asked():
    here = replace(host(), smt="on", files={"/sys/devices/system/cpu/smt/control": "on"})
    made = plan(here, testdata.request())
    assert not [change for change in made.changes if change.knob == "smt"]
    assert any("hardware threads are on" in text for text in made.warnings)
    assert [change.new for change in changes(here, "smt")] == ["off"]


# rflashd

TENANTS = """# Made by rflash-target
[[tenant]]
name = "t1"
port = 4420
cpus = ""

[[tenant]]
name = "t2"
port = 4421

[[tenant]]
name = "other"
cpus = "7"
"""


def test_rflashd_gets_a_set_for_each_tenant():
    path = "/etc/rflash/rflashd.d/flash.toml"
    made = changes(host(files={path: TENANTS.strip()}), "rflashd-cpus", target="rflashd")[0]
    assert 'name = "t1"\nport = 4420\ncpus = "0-1"' in made.new
    assert 'name = "t2"\ncpus = "2-3"' in made.new
    assert 'cpus = "7"' in made.new
    assert rflashdcpus.with_cpus(made.new, {"t1": "0-1", "t2": "2-3"}) == made.new
    assert not changes(host(files={path: TENANTS}), "rflashd-cpus")
