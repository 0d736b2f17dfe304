# SPDX-License-Identifier: GPL-2.0
"""Every settable file that a knob may want to know: one table of where they are.

A `*` stands for one name of a directory. What is not there, or can't be read,
is left out of Host.files.
"""

from __future__ import annotations

import re

from rflash_tuning.system import System

_CORE = (
    "busy_poll busy_read rmem_max wmem_max rmem_default wmem_default netdev_max_backlog netdev_budget"
    " netdev_budget_usecs rps_sock_flow_entries default_qdisc netdev_rss_key somaxconn optmem_max dev_weight"
)
_TCP = (
    "tcp_rmem tcp_wmem tcp_mem tcp_window_scaling tcp_timestamps tcp_sack tcp_congestion_control"
    " tcp_available_congestion_control tcp_slow_start_after_idle tcp_autocorking tcp_mtu_probing tcp_notsent_lowat"
    " tcp_limit_output_bytes tcp_low_latency tcp_no_metrics_save tcp_max_syn_backlog tcp_base_mss"
)
_KERNEL = "numa_balancing sched_* nmi_watchdog timer_migration"
_VM = "dirty_ratio dirty_background_ratio swappiness zone_reclaim_mode stat_interval"
_NIC = "mtu gro_flush_timeout napi_defer_hard_irqs threaded tx_queue_len"
_BLOCK = (
    "scheduler nomerges rq_affinity nr_requests io_poll io_poll_delay wbt_lat_usec add_random read_ahead_kb"
    " write_cache max_sectors_kb max_hw_sectors_kb iostats"
)
_POLICY = (
    "scaling_governor scaling_available_governors scaling_driver energy_performance_preference"
    " energy_performance_available_preferences scaling_min_freq scaling_max_freq cpuinfo_max_freq affected_cpus"
)
_CPU = "/sys/devices/system/cpu"


def _each(base: str, names: str) -> tuple[str, ...]:
    return tuple(f"{base}/{name}" for name in names.split())


PATTERNS: tuple[str, ...] = (
    *_each("/proc/sys/net/core", _CORE),
    *_each("/proc/sys/net/ipv4", _TCP),
    *_each("/proc/sys/kernel", _KERNEL),
    *_each("/proc/sys/vm", _VM),
    *_each("/sys/class/net/*", _NIC),
    *_each("/sys/class/net/*/queues/*", "rps_cpus rps_flow_cnt xps_cpus"),
    "/sys/class/net/*/bonding/mode",
    "/sys/class/net/*/bonding/xmit_hash_policy",
    *_each("/sys/block/*/queue", _BLOCK),
    *_each(f"{_CPU}/cpufreq/*", _POLICY),
    *_each(f"{_CPU}/cpu*/cpuidle/*", "disable latency name"),
    f"{_CPU}/smt/control",
    f"{_CPU}/smt/active",
    f"{_CPU}/cpufreq/boost",
    f"{_CPU}/intel_pstate/no_turbo",
    f"{_CPU}/isolated",
    f"{_CPU}/nohz_full",
    # What a file of parameters holds is up to the module; all that there are.
    "/sys/module/nvmet_tcp/parameters/*",
    "/sys/module/nvmet/parameters/*",
    "/sys/module/nvme/parameters/*",
    "/sys/module/nvme_core/parameters/*",
    "/sys/module/nvme_tcp/parameters/*",
    "/sys/module/nvme_rdma/parameters/*",
    "/sys/module/rflash/parameters/*",
    "/sys/module/rflash_tcp/parameters/*",
    # LIO: one list for all connections (iscsi_target_configfs.c: lio_target_wwn_cpus_allowed_list).
    "/sys/kernel/config/target/iscsi/cpus_allowed_list",
    "/sys/kernel/config/nvmet/ports/*/param_inline_data_size",
    "/sys/devices/virtual/workqueue/cpumask",
    "/sys/devices/virtual/workqueue/*/cpumask",
    "/sys/module/workqueue/parameters/*",
    "/proc/irq/default_smp_affinity",
    "/proc/cmdline",
    "/etc/default/irqbalance",
    "/etc/sysconfig/irqbalance",
    "/etc/irqbalance.env",
    "/etc/conf.d/irqbalance",
    "/etc/tuned/active_profile",
    "/etc/rflash/rflashd.toml",
    "/etc/rflash/rflashd.d/*.toml",
    "/sys/module/pcie_aspm/parameters/policy",
    "/sys/kernel/mm/transparent_hugepage/enabled",
)
# Device files of which there are many and none is tuned.
_SKIPPED = re.compile(r"/sys/block/(loop|sr|fd|zram|ram)\d+/")


def read(system: System) -> dict[str, str]:
    """Path -> text without surrounding blanks, of every file of the table that is there and readable."""
    found = {}
    listed: dict[str, list[str]] = {}
    for pattern in PATTERNS:
        for path in _expand(system, pattern, listed):
            if _SKIPPED.match(path):
                continue
            text = system.text(path)
            if text is not None:
                found[path] = text
    return found


def _expand(system: System, pattern: str, listed: dict[str, list[str]]) -> list[str]:
    """The paths that a pattern may stand for; those without a `*` are not looked up."""
    paths = [""]
    for part in pattern.lstrip("/").split("/"):
        if "*" not in part:
            paths = [f"{path}/{part}" for path in paths]
            continue
        wanted = re.compile(re.escape(part).replace(r"\*", ".*"))
        paths = [f"{path}/{name}" for path in paths for name in _names(system, path, listed) if wanted.fullmatch(name)]
    return paths


def _names(system: System, path: str, listed: dict[str, list[str]]) -> list[str]:
    if path not in listed:
        listed[path] = system.names(path)
    return listed[path]
