# SPDX-License-Identifier: GPL-2.0
"""Tenants as configfs and sysfs show them, and whose threads are whose."""

from __future__ import annotations

from dataclasses import replace

from rflash_tuning.host import targets, threads
from rflash_tuning.host.model import Connection, Task, Tenant
from rflash_tuning.host.probe import probe
from rflash_tuning.samples import machine
from rflash_tuning.snapshot import SnapshotSystem

OURS = "iqn.2026-11.org.rflash:0123456789ab"
NQN = "nqn.2026-11.org.rflash:0123456789ab"
CORE = "/sys/kernel/config/target/core"


def test_lios_tenants_with_device_portal_and_sessions() -> None:
    texts, links = {"/sys/kernel/config/target/iscsi/cpus_allowed_list": "0-5\n"}, {}
    for number, portal in ((1, "10.0.0.1:3260"), (10, "[fd00::1]:3269"), (2, "10.0.0.1:3261")):
        base = f"{targets.LIO}/{OURS}.t{number}/tpgt_1"
        texts[f"{base}/np/{portal}/iser"] = "0\n"
        texts[f"{CORE}/iblock_{number}/b{number}/udev_path"] = f"/dev/nvme0n1p{number}\n"
        links[f"{base}/lun/lun_0/abcdef"] = f"{CORE}/iblock_{number}/b{number}"
        texts[f"{base}/dynamic_sessions"] = ""
    texts[f"{targets.LIO}/{OURS}.t1/tpgt_1/dynamic_sessions"] = (
        "iqn.1993-08.org.debian:01:a\0iqn.1993-08.org.debian:01:b\0"
    )
    acl = f"{targets.LIO}/{OURS}.t2/tpgt_1/acls"
    texts[f"{acl}/iqn.1/info"] = "InitiatorName: x\nSession State: TARG_SESS_STATE_LOGGED_IN\n"
    texts[f"{acl}/iqn.2/info"] = "No active iSCSI Session for Initiator Endpoint: iqn.2\n"
    assert targets.read_tenants(machine(texts, links)) == (
        Tenant("t1", "iscsi", f"{OURS}.t1", "10.0.0.1", 3260, "/dev/nvme0n1p1", 2),
        Tenant("t2", "iscsi", f"{OURS}.t2", "10.0.0.1", 3261, "/dev/nvme0n1p2", 1),
        Tenant("t10", "iscsi", f"{OURS}.t10", "fd00::1", 3269, "/dev/nvme0n1p10", 0),
    )


def test_nvmets_tenants_are_subsystems_on_ports() -> None:
    texts, links = {}, {}
    for number, kind in ((1, "tcp"), (2, "rdma"), (3, "loop")):
        base = f"{targets.NVMET}/ports/{number}"
        texts |= {f"{base}/addr_trtype": f"{kind}\n", f"{base}/addr_traddr": "0.0.0.0\n",
                  f"{base}/addr_trsvcid": f"{4419 + number}\n",
                  f"{targets.NVMET}/subsystems/{NQN}:t{number}/namespaces/1/device_path": "/dev/nvme0n1\n"}  # fmt: skip
        links[f"{base}/subsystems/{NQN}:t{number}"] = f"{targets.NVMET}/subsystems/{NQN}:t{number}"
    assert targets.read_tenants(machine(texts, links)) == (
        Tenant("t1", "nvmet-tcp", f"{NQN}:t1", "0.0.0.0", 4420, "/dev/nvme0n1"),
        Tenant("t2", "nvmet-rdma", f"{NQN}:t2", "0.0.0.0", 4421, "/dev/nvme0n1"),
    )


def test_rflashds_configuration_and_nonsense_in_it() -> None:
    good = '[[tenant]]\nname = "t1"\nnqn = "x"\naddress = "10.0.0.1"\nport = 4420\ndevice = "/dev/nvme0n1p1"\n'
    assert targets.read_tenants(machine({targets.RFLASHD: good})) == (
        Tenant("t1", "rflashd", "x", "10.0.0.1", 4420, "/dev/nvme0n1p1"),
    )
    for bad in ("not toml", "tenant = 3", "tenant = [3]", '[[tenant]]\nport = "x"\n'):
        assert all(tenant.port == 0 for tenant in targets.read_tenants(machine({targets.RFLASHD: bad})))


def test_a_lasting_link_is_followed_to_the_device() -> None:
    links = {"/dev/disk/by-partuuid/0a-1b": "/dev/nvme0n1p1"}
    text = '[[tenant]]\nname = "t1"\nnqn = "x"\naddress = ""\nport = 4420\ndevice = "/dev/disk/by-partuuid/0a-1b"\n'
    texts = {"/dev/nvme0n1p1": "", f"{targets.RFLASHD_MORE}/t1.toml": text, f"{targets.RFLASHD_MORE}/notes": "x"}
    assert [tenant.device for tenant in targets.read_tenants(machine(texts, links))] == ["/dev/nvme0n1p1"]


def test_sessions_of_a_tenants_host() -> None:
    texts = {
        "/sys/class/iscsi_session/session1/targetname": f"{OURS}.t1\n",
        "/sys/class/iscsi_session/session1/state": "LOGGED_IN\n",
        "/sys/class/iscsi_session/session2/targetname": f"{OURS}.t1\n",
        "/sys/class/iscsi_session/session2/state": "FAILED\n",
        "/sys/class/nvme/nvme0/transport": "pcie\n",
        "/sys/class/nvme/nvme1/transport": "tcp\n",
        "/sys/class/nvme/nvme1/subsysnqn": f"{NQN}:t2\n",
        "/sys/class/nvme/nvme1/address": "traddr=10.0.0.1,trsvcid=4421,src_addr=10.0.0.9\n",
        "/sys/class/nvme/nvme1/state": "live\n",
        "/sys/block/rflash0/nqn": f"{NQN}:t3\n",
    }
    for number in (1, 2):
        base = f"/sys/class/iscsi_connection/connection{number}:0"
        texts |= {f"{base}/persistent_address": "10.0.0.1\n", f"{base}/persistent_port": "3260\n"}
    assert targets.read_tenants(machine(texts)) == (
        Tenant("t1", "iscsi", f"{OURS}.t1", "10.0.0.1", 3260, "", 1),
        Tenant("t2", "nvmet-tcp", f"{NQN}:t2", "10.0.0.1", 4421, "", 1),
        Tenant("t3", "rflashd", f"{NQN}:t3", "", 4422, "/dev/rflash0", 1),
    )


def test_a_host_that_is_logged_in_to_itself_has_no_tenant_twice() -> None:
    base = "/sys/class/iscsi_session/session1"
    texts = {f"{targets.LIO}/{OURS}.t1/tpgt_1/np/127.0.0.1:3260/iser": "0\n", f"{base}/targetname": f"{OURS}.t1\n",
             f"{base}/state": "LOGGED_IN\n"}  # fmt: skip
    assert [tenant.name for tenant in targets.read_tenants(machine(texts))] == ["t1"]


def test_a_target_that_is_not_ours_keeps_its_name() -> None:
    assert targets.name_of("iqn.2003-01.org.linux-iscsi.host:sn.1") == "iqn.2003-01.org.linux-iscsi.host:sn.1"
    assert targets.name_of(f"{NQN}:t12") == "t12"


def test_sessions_are_counted_by_connections_where_configfs_is_silent() -> None:
    tenants = (
        Tenant("t1", "nvmet-tcp", "a", "0.0.0.0", 4420),
        Tenant("t2", "nvmet-tcp", "b", "10.0.0.2", 4420),
        Tenant("t3", "iscsi", "c", "10.0.0.1", 3260),
    )
    known = [Connection("10.0.0.1", 4420, f"10.0.0.{host}", port) for host in (8, 9) for port in (1, 2, 3)]
    known += [Connection("10.0.0.1", 3260, "10.0.0.8", port) for port in (1, 2)]
    assert [tenant.sessions for tenant in targets.count_sessions(tenants, known)] == [2, 0, 2]


# Threads


def lio(starts: list[int], ran: list[float]) -> tuple[SnapshotSystem, tuple[Tenant, ...], tuple[Task, ...]]:
    """Tenants t1.. with one session each; pairs that began at these ticks; login threads that last ran at these ms."""
    tasks, texts = [], {}
    for place, moment in enumerate(ran):
        tasks.append(Task(10 + place, 10 + place, "iscsi_np", 5, frozenset({0}), True, False))
        texts[f"/proc/{10 + place}/sched"] = f"iscsi_np (1, #threads: 1)\nse.exec_start  :  {moment}\nse.vruntime : 1\n"
    for place, start in enumerate(starts):
        for kind, name in enumerate(("iscsi_ttx", "iscsi_trx")):
            tid = 100 + 2 * place + kind
            tasks.append(Task(tid, tid, name, start, frozenset({0}), True, False))
    tenants = tuple(
        Tenant(f"t{place + 1}", "iscsi", f"{OURS}.t{place + 1}", "10.0.0.1", 3260 + place, "", 1)
        for place in range(len(ran))
    )
    texts |= {f"{targets.LIO}/{tenant.identity}/tpgt_1/enable": "1\n" for tenant in tenants}
    return machine(texts), tenants, tuple(tasks)


def test_pairs_are_of_neighbours_and_a_lone_thread_is_none() -> None:
    _, _, tasks = lio([600, 600, 700], [1.0])
    lone = Task(99, 99, "iscsi_trx", 500, frozenset({0}), True, False)
    assert [(a.tid, b.tid) for a, b in threads.pairs((lone, *tasks))] == [(100, 101), (102, 103), (104, 105)]


def test_a_tenant_that_is_alone_has_all_threads() -> None:
    system, tenants, tasks = lio([600], [1.0])
    assert threads.attribute(system, tenants, tasks)[0].tasks == (100, 101)


def test_tenants_get_the_threads_that_were_made_when_they_logged_in() -> None:
    system, tenants, tasks = lio([600, 700, 800], [8003.0, 6002.5, 7001.0])
    assert [tenant.tasks for tenant in threads.attribute(system, tenants, tasks)] == [
        (104, 105),
        (100, 101),
        (102, 103),
    ]


def test_sessions_with_other_hosts_do_not_confuse() -> None:
    system, tenants, tasks = lio([600, 700], [6002.0, 7001.0])
    elsewhere = Tenant("x", "iscsi", "iqn.2000-01.org.example:x", "10.0.0.7", 3260, "", 1)
    found = threads.attribute(system, (*tenants, elsewhere), tasks)
    assert [tenant.tasks for tenant in found] == [(100, 101), (102, 103), ()]


def test_no_guess_is_handed_on() -> None:
    for starts, ran in (
        ([600, 700], [6002.0, 6013.0]),  # two logins at the same time
        ([600, 601], [6002.0, 7003.0]),
        ([600, 700], [6002.0, 9003.0]),  # a discovery later
        ([600, 700, 800], [6000.0, 7000.0]),  # more pairs than sessions
    ):
        system, tenants, tasks = lio(starts, ran)
        assert all(tenant.tasks == () for tenant in threads.attribute(system, tenants, tasks))
    system, tenants, tasks = lio([600, 700], [6002.0, 7002.0])
    system.tree.remove("/proc/10/sched")
    assert all(tenant.tasks == () for tenant in threads.attribute(system, tenants, tasks))


def test_load_tells_pairs_apart_where_it_differs() -> None:
    names, pairs = ["a", "b", "c"], [(1, 2), (3, 4), (5, 6)]
    done = [[100.0, 0.0, 100.0], [0.0, 300.0, 0.0], [0.0, 0.0, 0.0]]
    ran = [[1.0, 310.0, 2.0], [3.0, 2.0, 1.0], [110.0, 5.0, 95.0]]
    assert threads.matches(names, done, pairs, ran) == {"a": (5, 6), "b": (1, 2)}


def test_equal_loads_are_not_told_apart() -> None:
    done = [[100.0, 100.0], [100.0, 100.0]]
    ran = [[101.0, 99.0], [99.0, 101.0]]
    assert threads.matches(["a", "b"], done, [(1, 2), (3, 4)], ran) == {}


def test_load_is_sampled_of_configfs_and_proc() -> None:
    system, tenants, tasks = lio([600, 700], [6002.0, 6003.0])
    for tenant in tenants:
        system.tree.put(f"{targets.LIO}/{tenant.identity}/tpgt_1/lun/lun_0/statistics/scsi_tgt_port/in_cmds", "5\n")
    system.tree.put("/proc/101/status", "Name:\tiscsi_trx\nvoluntary_ctxt_switches:\t7\n")
    assert threads.by_load(system, tenants, tasks, seconds=0, windows=1) == {}


def test_who_has_time_asks_the_load(monkeypatch) -> None:
    system, tenants, tasks = lio([600, 600], [6002.0, 6003.0])
    host = replace(probe(system), tenants=tenants, tasks=tasks)
    monkeypatch.setattr(threads, "by_load", lambda *_: {tenants[1].identity: (100, 101)})
    assert [tenant.tasks for tenant in threads.resolve(system, host).tenants] == [(), (100, 101)]
    known = replace(host, tenants=tuple(replace(tenant, tasks=(1, 2)) for tenant in tenants))
    assert threads.resolve(system, known) is known
