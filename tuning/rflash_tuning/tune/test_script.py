# SPDX-License-Identifier: GPL-2.0
import shutil
import subprocess

import pytest

from rflash_tuning.errors import UsageError
from rflash_tuning.tune import script, testdata, tunedprofile


def check(text, shell="sh"):
    """The shell itself says whether it can read it, and shellcheck where it is installed."""
    subprocess.run([shell, "-n"], input=text, text=True, check=True)
    if shutil.which("shellcheck"):
        done = subprocess.run(["shellcheck", "-s", shell, "-"], input=text, text=True, capture_output=True, check=False)
        assert done.returncode == 0, done.stdout


def test_both_scripts_are_good_shell():
    for plan in (testdata.plan(), testdata.plan(without_channels=False)):
        check(script.apply_script(plan))
        check(script.undo_script(plan))


def test_a_script_says_why():
    text = script.apply_script(testdata.plan())
    before = text[: text.index("echo 9000 > /sys/class/net/eth0/mtu")]
    assert before.splitlines()[-3:] == [
        "# eth0 mtu: 1500 -> 9000",
        "# fewer packets for the same data (EuroSys'16 figure 3)",
        "# Disruption: link; it could cut you off",
    ]
    assert "set -eu" in before


def test_what_cannot_be_changed_is_a_comment():
    text = script.apply_script(testdata.plan())
    assert "# Not done: nvme0n1 queue 1 interrupt 60 affinity (unchangeable)." in text
    assert "/proc/irq/60" not in text


def test_undo_is_the_inverse_in_reverse_order():
    lines = [line for line in script.undo_script(testdata.plan()).splitlines() if line.startswith(("echo", "ethtool"))]
    assert lines[0] == "echo 0 > /proc/sys/net/core/busy_read"
    assert lines[-2:] == ["ethtool -K eth0 rx-lro on", "echo 1500 > /sys/class/net/eth0/mtu"]


def test_commands_are_looked_for_before_the_first_change():
    text = script.apply_script(testdata.plan())
    assert text.index("for command in ethtool taskset systemctl; do") < text.index("cat > /etc/default/irqbalance")


def test_new_queues_end_a_script():
    """Interrupts that the driver will give new numbers must not be set by their old ones."""
    text = script.apply_script(testdata.plan(without_channels=False))
    assert "ethtool -L eth0 combined 6" in text
    assert "/proc/irq/" not in text
    assert "ethtool -X" not in text
    assert "3 more changes belong to queues" in text
    assert "taskset -pc 0 811" in text


def test_tuned_profile_uses_plugins_where_they_fit(tmp_path):
    made = tunedprofile.write(testdata.plan(testdata.channels()), str(tmp_path / "rflash"))
    assert [path.name for path in made] == ["tuned.conf", "script.sh"]
    conf = made[0].read_text()
    assert "[net_eth0]\ntype=net\ndevices=eth0\n" in conf
    for line in ("channels=combined 6", "mtu=9000", "features=rx-lro off", "net.core.busy_read=50",
                 "script=${i:PROFILE_DIR}/script.sh"):  # fmt: skip
        assert line in conf.splitlines()
    body = made[1].read_text()
    check(body, "bash")
    assert "taskset -pc 0 811" in body
    assert "mtu" not in body
    assert made[1].stat().st_mode & 0o111


def test_tuned_script_undoes_at_stop(tmp_path):
    body = tunedprofile.files(testdata.plan())["script.sh"]
    start, stop = body.split("stop() {")
    assert "echo 0 > /proc/irq/40/smp_affinity_list" in start
    assert "echo 0-5 > /proc/irq/40/smp_affinity_list" in stop
    check(body, "bash")


def test_somebody_elses_tuned_profile_is_left_alone(tmp_path):
    (tmp_path / "tuned.conf").write_text("[main]\nsummary=mine\n")
    with pytest.raises(UsageError, match="left alone"):
        tunedprofile.write(testdata.plan(), str(tmp_path))
    assert (tmp_path / "tuned.conf").read_text() == "[main]\nsummary=mine\n"
