# SPDX-License-Identifier: GPL-2.0
"""Interrupt moderation by goal and queue depth.

:What: Latency: adaptive moderation off, 10 us of waiting at most. Throughput and
    mixed: adaptive moderation on where the driver has it; otherwise a fixed wait
    by queue depth: 10 us to 8 requests in flight, 32 us below 64, 64 us from 64
    on. The figures are a choice (10 is the least that Intel's gigabit drivers
    take); where they change over is the paper's. Drivers in which a value of
    rx-usecs means adaptive get that value.
:Why: Moderation costs a little at 1 to 8 requests in flight and pays from 64 on:
    +42.5 % requests and -11 to -15 % tail latency against the local device,
    which had an interrupt per request.
:Source: NVMe-oF meets Arm, figures 12 to 16.
:Disruption: none.
:Undo: The former values.
"""

from __future__ import annotations

from rflash_tuning.host.model import Nic
from rflash_tuning.knobs.draft import ARM, Draft
from rflash_tuning.tune.settings import EthtoolSetting

NAME = "coalescing"
TITLE = "Interrupt moderation by goal and queue depth"
# igb_set_coalesce, igc_ethtool_set_coalesce, e1000_set_coalesce: 3 is "dynamic conservative"; ixgbe: 1 is dynamic.
ADAPTIVE_VALUES = {"igb": 3, "igc": 3, "e1000e": 3, "ixgbe": 1}
LOW_DEPTH, HIGH_DEPTH = 8, 64  # requests in flight; the paper's
SHORT, MIDDLE, LONG = 10, 32, 64  # microseconds


def draw(draft: Draft) -> None:
    for port in draft.ports:
        known = port.coalesce or {}
        wanted, reason = _wanted(draft, port, known)
        wanted = {name: value for name, value in wanted.items() if known.get(name) is not None}
        if wanted:
            draft.want(
                EthtoolSetting(port.name, port.bus, "coalesce", tuple(wanted)),
                {name: known[name] for name in wanted},
                wanted,
                reason,
                ARM,
            )


def _wanted(draft: Draft, port: Nic, known: dict[str, int]) -> tuple[dict[str, int], str]:
    depth = draft.request.queue_depth
    if draft.request.goal == "latency":
        return {
            "adaptive-rx": 0,
            "rx-usecs": SHORT,
        }, "for latency an interrupt waits little; it costs most at depth 1 to 8"
    if known.get("adaptive-rx") is not None:
        return {"adaptive-rx": 1}, "the driver weighs latency against interrupts itself, as the load changes"
    if port.driver in ADAPTIVE_VALUES:
        value = ADAPTIVE_VALUES[port.driver]
        return {"rx-usecs": value}, f"{port.driver} adapts by itself with {value}"
    if depth <= LOW_DEPTH:
        return {"rx-usecs": SHORT}, f"at {depth} requests in flight moderation costs a little"
    if depth < HIGH_DEPTH:
        return {"rx-usecs": MIDDLE}, f"at {depth} requests in flight some moderation saves interrupts"
    return {"rx-usecs": LONG}, f"at {depth} requests in flight moderation pays (+42.5 % requests, -11 % tail at 128)"
