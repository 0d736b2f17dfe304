# SPDX-License-Identifier: GPL-2.0
"""Each kind of setting over a machine in memory: read, write, what is refused, how it is printed."""

from __future__ import annotations

import errno

import pytest

from rflash_tuning.errors import Unchangeable, Unsupported, UsageError
from rflash_tuning.system import Completed, System
from rflash_tuning.tune import settings
from rflash_tuning.tune.settings import (
    ChannelsSetting,
    ConfigSetting,
    EthtoolSetting,
    FileSetting,
    IrqSetting,
    RssSetting,
    RuleSetting,
    TaskSetting,
    from_json,
)


class Machine(System):
    """Files, links, ethtool sections and threads in dictionaries; records what was done."""

    def __init__(self, files=(), links=(), sections=(), tasks=()):
        self.files = dict(files)
        self.links = dict(links)
        self.sections = dict(sections)
        self.tasks = dict(tasks)
        self.refuse: dict[str, int] = {}
        self.done: list = []

    def read(self, path):
        if path not in self.files:
            raise FileNotFoundError(errno.ENOENT, path)
        return self.files[path]

    def listdir(self, path):
        inside = {
            name[len(path) + 1 :].split("/")[0] for name in [*self.files, *self.links] if name.startswith(path + "/")
        }
        return sorted(inside)

    def exists(self, path):
        return path in self.files

    def resolve(self, path):
        if path not in self.links:
            raise FileNotFoundError(errno.ENOENT, path)
        return self.links[path]

    def ethtool(self, nic, section):
        if (nic, section) not in self.sections:
            raise Unsupported(section)
        return self.sections[nic, section]

    def affinity(self, tid):
        return self.tasks[tid]

    def write(self, path, text):
        if path in self.refuse:
            raise OSError(self.refuse[path], path)
        if path not in self.files:
            raise FileNotFoundError(errno.ENOENT, path)
        self.done.append((path, text))
        self.files[path] = text + "\n"

    def replace(self, path, text):
        self.done.append(("replace", path))
        self.files.pop(path, None)
        if text is not None:
            self.files[path] = text

    def ethtool_set(self, nic, section, values):
        self.done.append((nic, section, values))
        self.sections[nic, section] = {**self.sections[nic, section], **values}

    def set_affinity(self, tid, cpus):
        self.tasks[tid] = frozenset(cpus)

    def run(self, argv, timeout=60):
        self.done.append(argv)
        return Completed(0, "")


BUS = "0000:03:00.0"
DEVICE = {"/sys/class/net/lan/device": f"/sys/devices/pci0000:00/{BUS}"}


@pytest.mark.parametrize(
    ("form", "raw", "value", "written"),
    [
        ("number", "9000\n", 9000, "9000"),
        ("cpulist", "0-3,8\n", "0-3,8", "0-3,8"),
        ("cpumask", "00000001,00000000\n", "32", "1,00000000"),
        ("cpumask", "00000000\n", "", "0"),
        ("choice", "none [mq-deadline] kyber\n", "mq-deadline", "mq-deadline"),
        ("choice", "[none] \n", "none", "none"),
        ("text", "4096\t87380\t6291456\n", "4096\t87380\t6291456", "4096\t87380\t6291456"),
    ],
)
def test_a_file_is_read_as_its_format_and_written_as_the_kernel_wants_it(form, raw, value, written):
    machine = Machine({"/sys/x": raw})
    setting = FileSetting("/sys/x", form)
    assert setting.read(machine) == value
    setting.write(machine, value)
    assert machine.done == [("/sys/x", written)]
    assert setting.read(machine) == value


def test_a_file_that_is_missing_or_unwritable_is_told_apart_from_a_failure():
    machine = Machine({"/sys/ro": "1", "/sys/bad": "1", "/sys/odd": "?"})
    machine.refuse = {"/sys/ro": errno.EROFS, "/sys/bad": errno.EINVAL}
    with pytest.raises(Unsupported, match="/sys/none does not exist"):
        FileSetting("/sys/none").read(machine)
    with pytest.raises(Unchangeable, match="read-only"):
        FileSetting("/sys/ro").write(machine, "2")
    with pytest.raises(OSError):
        FileSetting("/sys/bad").write(machine, "2")
    with pytest.raises(OSError, match="holds '\\?', which is no number"):
        FileSetting("/sys/odd", "number").read(machine)


def test_a_renamed_nic_is_found_by_its_bus_address():
    machine = Machine({"/sys/class/net/lan/mtu": "1500\n"}, DEVICE)
    setting = FileSetting("/sys/class/net/eth0/mtu", "number", "eth0", BUS)
    assert setting.read(machine) == 1500
    setting.write(machine, 9000)
    assert machine.files["/sys/class/net/lan/mtu"] == "9000\n"
    assert BUS in setting.key and "eth0" not in setting.key
    with pytest.raises(Unsupported, match="no network interface at"):
        FileSetting("/sys/class/net/eth0/mtu", "number", "eth0", "0000:09:00.0").read(machine)


@pytest.mark.parametrize("number", [errno.EIO, errno.EPERM])
def test_a_managed_interrupt_is_unchangeable_on_old_and_new_kernels(number):
    machine = Machine({"/proc/irq/45/smp_affinity_list": "0-3\n"})
    machine.refuse = {"/proc/irq/45/smp_affinity_list": number}
    with pytest.raises(Unchangeable, match="interrupt 45"):
        IrqSetting(45).write(machine, "2")


def test_out_of_vectors_is_a_failure_with_a_hint():
    machine = Machine({"/proc/irq/45/smp_affinity_list": "0-3\n"})
    machine.refuse = {"/proc/irq/45/smp_affinity_list": errno.ENOSPC}
    with pytest.raises(OSError, match="fewer queues"):
        IrqSetting(45).write(machine, "2")


def test_ethtool_tells_a_driver_only_what_differs():
    machine = Machine(
        sections={
            ("eth0", "rings"): {"rx": 512, "tx": 512, "rx-max": 4096, "tx-max": 4096},
            ("eth0", "features"): {"rx-lro": {"active": True, "changeable": True}},
        }
    )
    rings = EthtoolSetting("eth0", "", "rings", ("rx", "tx"))
    assert rings.read(machine) == {"rx": 512, "tx": 512}
    rings.write(machine, {"rx": 4096, "tx": 512})
    rings.write(machine, {"rx": 4096, "tx": 512})
    assert machine.done == [("eth0", "rings", {"rx": 4096})]
    lro = EthtoolSetting("eth0", "", "features", ("rx-lro",))
    assert lro.read(machine) == {"rx-lro": True}
    assert lro.show({"rx-lro": False}) == "off"
    assert lro.script({"rx-lro": False}) == ["ethtool -K eth0 rx-lro off"]
    with pytest.raises(Unsupported, match="no rings setting rx-mini"):
        EthtoolSetting("eth0", "", "rings", ("rx-mini",)).read(machine)


def channels_machine():
    files = {f"/sys/devices/pci0000:00/{BUS}/msi_irqs/{number}": "msix\n" for number in (40, 41, 42)}
    files |= {f"/proc/irq/{number}/smp_affinity_list": "0-3\n" for number in (40, 41, 42)}
    files |= {f"/sys/class/net/lan/queues/rx-{number}/rps_cpus": "0\n" for number in range(4)}
    sections = {
        ("lan", "channels"): {"rx": 0, "tx": 0, "other": 1, "combined": 4, "combined-max": 8},
        ("lan", "rss"): {"table": [0, 1, 2, 3] * 2, "key": "6d:5a", "function": "toeplitz"},
    }
    return Machine(files, DEVICE, sections)


def test_channels_bring_back_what_the_driver_forgot():
    machine = channels_machine()
    setting = ChannelsSetting("lan", BUS)
    before = setting.read(machine)
    assert before["channels"] == {"rx": 0, "tx": 0, "other": 1, "combined": 4}
    assert before["dependents"]["irqs"] == ["0-3"] * 3
    setting.write(machine, {"channels": {"combined": 8}})
    assert machine.done == [("lan", "channels", {"combined": 8})]
    machine.sections["lan", "rss"] = {"table": list(range(8)), "key": "6d:5a"}
    machine.files["/proc/irq/41/smp_affinity_list"] = "2\n"
    machine.files["/sys/class/net/lan/queues/rx-1/rps_cpus"] = "f\n"
    setting.write(machine, before)
    assert setting.same(setting.read(machine), before)
    assert setting.read(machine) == before


def test_fewer_channels_first_make_room_in_a_table_that_was_set():
    machine = channels_machine()
    ChannelsSetting("lan", BUS).write(machine, {"channels": {"combined": 2}})
    assert machine.done[0] == ("lan", "rss", {"table": [0, 1] * 4})
    assert machine.done[1] == ("lan", "channels", {"combined": 2})


def test_the_hash_key_may_be_written_either_way():
    machine = channels_machine()
    setting = RssSetting("lan", BUS)
    assert setting.read(machine) == {"table": [0, 1, 2, 3] * 2, "key": "6d5a"}
    assert setting.same({"key": "6D:5A"}, setting.read(machine))
    setting.write(machine, {"table": [0] * 8, "key": "6d5a"})
    assert machine.done == [("lan", "rss", {"table": [0] * 8})]
    assert setting.script({"table": [0, 1, 0, 1]}) == ["ethtool -X lan equal 2"]
    assert all(line.startswith("#") for line in setting.script({"table": [1, 1, 0]}))
    assert setting.show({"table": [0, 0, 1]}) == "3 entries over queues 0-1 (0:2, 1:1)"


def test_a_default_table_is_reset_so_that_the_kernel_forgets_that_somebody_set_it():
    machine = channels_machine()
    machine.sections["lan", "rss"]["table"] = [0] * 8
    RssSetting("lan", BUS).write(machine, {"table": [0, 1, 2, 3] * 2})
    assert machine.done[0] == ("lan", "rss", {"table": []})
    assert RssSetting("lan", BUS).read(machine)["table"] == [0, 1, 2, 3] * 2  # this driver did nothing at the reset


def test_a_rule_is_added_and_taken_away():
    machine = Machine(sections={("eth0", "rules"): {}})
    setting = RuleSetting("eth0", "", 7)
    rule = {"flow": "tcp4", "dst_port": 3260, "queue": 2}
    assert setting.read(machine) is None
    setting.write(machine, None)
    assert machine.done == []
    setting.write(machine, rule)
    assert setting.same(setting.read(machine), {**rule, "src_port": None, "other": "", "location": 7})
    assert setting.script(rule) == ["ethtool -N eth0 flow-type tcp4 dst-port 3260 action 2 loc 7"]
    assert setting.script(None) == ["ethtool -N eth0 delete 7"]


class ChoosyMachine(Machine):
    """Its driver chooses the locations of rules itself, as sfc's and bnxt's do."""

    def ethtool_set(self, nic, section, values):
        rules = self.sections[nic, section]
        for location, rule in values.items():
            if rule is None:
                del rules[location]
            elif location != str(settings.ANY_LOCATION):
                raise OSError(errno.EINVAL, "location")
            else:
                rules[str(1000 + len(rules))] = rule


def test_a_rule_is_found_by_what_it_matches_where_the_driver_chooses_its_place():
    machine = ChoosyMachine(sections={("eth0", "rules"): {"9": {"flow": "tcp4", "dst_port": 22, "queue": 0}}})
    setting = RuleSetting("eth0", "", 0, "tcp4", 3260)
    rule = {"flow": "tcp4", "dst_port": 3260, "queue": 2}
    setting.write(machine, rule)
    assert setting.same(setting.read(machine), rule)
    setting.write(machine, {**rule, "queue": 3})
    assert setting.read(machine)["queue"] == 3
    setting.write(machine, None)
    assert machine.sections["eth0", "rules"] == {"9": {"flow": "tcp4", "dst_port": 22, "queue": 0}}


def test_a_place_that_somebody_took_since_is_left_to_them():
    machine = Machine(sections={("eth0", "rules"): {"0": {"flow": "tcp4", "dst_port": 22, "queue": 0}}})
    RuleSetting("eth0", "", 0, "tcp4", 3260).write(machine, {"flow": "tcp4", "dst_port": 3260, "queue": 2})
    assert machine.sections["eth0", "rules"]["1"]["dst_port"] == 3260
    assert machine.sections["eth0", "rules"]["0"]["dst_port"] == 22


STAT = "811 (a) b) S 2 0 0 0 -1 69238880 0 0 0 0 0 0 0 0 20 0 1 0 4711 0 0\n"


def test_a_thread_is_known_by_its_start():
    machine = Machine({"/proc/811/stat": STAT}, tasks={811: frozenset({0, 1})})
    setting = TaskSetting(811, "a) b", 4711)
    assert setting.read(machine) == "0-1"
    setting.write(machine, "3")
    assert machine.tasks[811] == {3}
    with pytest.raises(Unsupported, match="another one"):
        TaskSetting(811, "a) b", 4712).read(machine)
    with pytest.raises(Unsupported, match="ended"):
        TaskSetting(812, "x", 1).read(machine)


def test_a_configuration_restarts_its_service_only_where_one_can():
    machine = Machine()
    setting = ConfigSetting("/etc/default/irqbalance", "irqbalance")
    assert setting.read(machine) is None
    setting.write(machine, "A=1\n")
    assert machine.done == [("replace", "/etc/default/irqbalance")]
    machine.files["/run/systemd/system"] = ""
    setting.write(machine, "A=1\n")
    assert len(machine.done) == 1
    setting.write(machine, None)
    assert machine.done[-1] == ["systemctl", "try-restart", "irqbalance.service"]
    assert setting.read(machine) is None
    assert not setting.volatile


def test_without_systemd_the_init_script_restarts_what_runs():
    machine = Machine({"/etc/init.d/irqbalance": "", "/proc/70/comm": "sh\n"})
    setting = ConfigSetting("/etc/default/irqbalance", "irqbalance")
    setting.write(machine, "A=1\n")
    assert machine.done == [("replace", "/etc/default/irqbalance")]
    machine.files["/proc/71/comm"] = "irqbalance\n"
    setting.write(machine, "A=2\n")
    assert machine.done[-1] == ["/etc/init.d/irqbalance", "restart"]


def test_settings_survive_json():
    for setting in (
        FileSetting("/sys/class/net/eth0/mtu", "number", "eth0", BUS),
        IrqSetting(45, "eth0", "rx-3"),
        EthtoolSetting("eth0", BUS, "rings", ("rx", "tx")),
        ChannelsSetting("eth0", BUS),
        RssSetting("eth0", BUS),
        RuleSetting("eth0", BUS, 3),
        RuleSetting("eth0", BUS, 3, "tcp4", 3260),
        TaskSetting(1, "x", 2),
        ConfigSetting("/etc/x"),
    ):
        assert from_json(setting.to_json()) == setting
        assert setting.label() and setting.key
    assert len(settings.KINDS) == 8
    with pytest.raises(UsageError, match="'fan' is not a kind"):
        from_json({"kind": "fan"})
    with pytest.raises(UsageError, match="lacks something"):
        from_json({"kind": "irq"})
    with pytest.raises(UsageError, match="has no 'extra'"):
        from_json({"kind": "irq", "number": 1, "extra": 1})


@pytest.mark.parametrize(
    ("setting", "label"),
    [
        (FileSetting("/sys/class/net/eth0/queues/rx-0/rps_cpus", "cpumask", "eth0", BUS), "eth0 rx-0 rps_cpus"),
        (FileSetting("/proc/sys/net/core/rmem_max"), "net.core.rmem_max"),
        (FileSetting("/sys/block/nvme0n1/queue/scheduler"), "nvme0n1 queue scheduler"),
        (IrqSetting(45, "eth0", "rx-3"), "eth0 rx-3 interrupt 45 affinity"),
        (IrqSetting(45), "interrupt 45 affinity"),
        (EthtoolSetting("eth0", "", "features", ("rx-lro",)), "eth0 offload rx-lro"),
    ],
)
def test_labels_are_for_people(setting, label):
    assert setting.label() == label
