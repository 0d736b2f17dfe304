# SPDX-License-Identifier: GPL-2.0
"""KVM where a guest really runs under it, TCG otherwise."""

from __future__ import annotations

import os
import shutil
import subprocess
import time
from pathlib import Path

from . import cache, emulator, kernels, machine

PROBE_SECONDS = 20
TCG = ["-accel", "tcg,thread=multi", "-cpu", "max"]
KVM = ["-accel", "kvm", "-cpu", "host"]
# One guest nanosecond is one instruction, whatever the host does meanwhile.
COUNTED = ["-accel", "tcg,thread=single", "-icount", "shift=0,sleep=off", "-cpu", "max"]


def _boots(kernel: kernels.Kernel) -> bool:
    """Boot as far as the first process under KVM: a device that opens proves nothing."""
    sockets = machine.socket_directory()
    try:
        guest = machine.Machine(
            machine.Spec("probe", kernel, KVM, sockets, sockets, smp=2, memory=512, arguments=["lab.probe=1"])
        )
        try:
            deadline = time.monotonic() + PROBE_SECONDS
            while time.monotonic() < deadline and not guest.ended():
                if guest.reached("probe"):
                    return True
                time.sleep(0.05)
            return guest.reached("probe")
        finally:
            guest.stop()
    finally:
        shutil.rmtree(sockets, ignore_errors=True)


def kvm_works(kernel: kernels.Kernel) -> bool:
    """Does a guest run under KVM? Tried once per boot of this machine."""
    if not os.access("/dev/kvm", os.R_OK | os.W_OK):
        return False
    boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    version = subprocess.run([emulator.system().binary, "--version"], capture_output=True, text=True, check=True).stdout
    answer = cache.root() / "kvm" / cache.digest(boot, version, os.getuid())
    if not answer.exists():
        with cache.lock("kvm"):
            if not answer.exists():
                cache.say("trying whether a guest runs under KVM (once)")
                works = _boots(kernel)
                cache.say("guests run under KVM" if works else "no guest runs under KVM here; using TCG")
                answer.parent.mkdir(exist_ok=True)
                answer.write_text("yes\n" if works else "no\n")
    return answer.read_text().strip() == "yes"


def choose(kernel: kernels.Kernel, counted: bool) -> list[str]:
    """QEMU's options for the best accelerator of this machine.

    RFLASH_ACCEL=kvm or tcg decides instead.
    """
    if counted:
        return COUNTED
    wanted = os.environ.get("RFLASH_ACCEL", "")
    if wanted not in ("", "kvm", "tcg"):
        raise cache.LabError(f"RFLASH_ACCEL is '{wanted}'; it can be kvm or tcg")
    if wanted:
        return KVM if wanted == "kvm" else TCG
    return KVM if kvm_works(kernel) else TCG
