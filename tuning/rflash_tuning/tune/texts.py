# SPDX-License-Identifier: GPL-2.0
"""What rflash-tune says about itself."""

from __future__ import annotations

from dataclasses import dataclass

STATUS = """\
Exit status:
  0  done, or as it should be
  1  it was tried and did not work, or verify found a difference
  2  what was asked for makes no sense here; nothing was changed
  3  done, but for changes that this host does not allow or --max-disruption refuses
  4  done, and waiting for `rflash-tune confirm`
"""

SUMMARY = "Make a flash server, or its tenant, fast for the tenants it has, provably and reversibly"

OVERVIEW = """\
rflash-tune turns what this host is (cores, NUMA nodes, network cards and their queues, flash, who
else tunes) and what it should do (role, kind of target, number of tenants, goal) into a plan: which
tenant runs on which core, and what has to be changed for that, each line with its reason. It shows
the plan as a diff, applies it with a journal, verifies it, and puts everything back.

plan, explain, capture, knobs, and verify of what can be read, need no root.
"""

EXAMPLES = """\
Example: an iSCSI server with six tenants
  rflash-tune plan --target iscsi --nic eth0 --tenants 6        look at it; nothing is changed
  rflash-tune apply --target iscsi --nic eth0 --tenants 6 --max-disruption link
  rflash-tune confirm                                           I am still here: keep it
  rflash-tune verify                                            read it all back
  rflash-tune revert                                            as if nothing had been
"""


@dataclass(frozen=True)
class Verb:
    """A verb's one-line summary, its explanation and its examples."""

    summary: str
    text: str
    examples: str


VERBS = {
    "plan": Verb(
        "Show what would be changed, and why; change nothing",
        "The allocation first (which tenant gets which cores, queues and interrupts), then the differences between\n"
        "what is and what should be, then what can't be done here and what to know. Needs no root; --from plans for\n"
        "a host that was captured elsewhere. -o script prints a shell script (--undo: its inverse), -o tuned writes\n"
        "a profile for tuned, -o json is for programs.",
        "  rflash-tune plan --target iscsi --nic eth0 --tenants 6\n"
        "  rflash-tune plan --target nvmet-tcp --nic bond0 --tenants 3 --goal latency --peer 192.0.2.20\n"
        "  rflash-tune plan --profile paper --nic eth0 -o script > tune.sh\n"
        "  rflash-tune plan --target iscsi --nic eth0 --tenants 6 --from server7.tar.zst\n",
    ),
    "apply": Verb(
        "Carry the plan out, with a journal",
        "Each old value is on disk before the new one is written, so `rflash-tune revert` works after a crash and\n"
        "after a reboot. If a change fails, those before it are put back. Changes worse than --max-disruption are\n"
        "not made. If one of them could cut you off, everything is put back after --confirm-within seconds, unless\n"
        "you say `rflash-tune confirm`. Repeating it changes nothing. On a terminal it shows the plan and asks\n"
        "first; --yes doesn't. With --from it is a rehearsal: the captured host is changed, in memory only.",
        "  rflash-tune apply --target iscsi --nic eth0 --tenants 6\n"
        "  rflash-tune apply --profile paper --nic eth0 --max-disruption link --confirm-within 120\n",
    ),
    "confirm": Verb(
        "Keep what was applied: you are still connected",
        "Ends the time limit of an apply that could have cut you off.",
        "  rflash-tune confirm\n",
    ),
    "verify": Verb(
        "Read everything back and compare; write nothing",
        "Without options, what was applied is compared with what is. With the options of plan, that plan is: what\n"
        "it would change differs. Interrupts that the kernel manages count as unchangeable, not as different.",
        "  rflash-tune verify\n  rflash-tune verify --target iscsi --nic eth0 --tenants 6 -o json\n",
    ),
    "status": Verb(
        "Say what is applied, since when, and what waits for confirm",
        "From the journal; nothing is written.",
        "  rflash-tune status\n",
    ),
    "revert": Verb(
        "Put everything back as it was before the first apply",
        "From the journal, last change first; also what has drifted since, which is reported. What a reboot has\n"
        "undone already is left alone.",
        "  rflash-tune revert\n  rflash-tune revert --unconfirmed         at boot, after an apply that was cut short\n",
    ),
    "explain": Verb(
        "Explain a knob, one change of the plan, or the allocation",
        "With a knob's name, what it is and why it is turned; with a change's key (plan -o json prints them) or a\n"
        "part of one, that change in full: reason, source, disruption, how to undo it by hand. Without either, the\n"
        "plan's allocation and its rules.",
        "  rflash-tune explain interrupts\n  rflash-tune explain mtu --target iscsi --nic eth0 --tenants 6\n",
    ),
    "watch": Verb(
        "Apply again whenever something logs in, appears or drifts",
        "Until interrupted. Says what it found changed and who may have done it. rflash-tune-watch.service runs it.",
        "  rflash-tune watch --profile /etc/rflash/tune/server.toml\n"
        "  rflash-tune watch --target iscsi --nic eth0 --tenants 6 --once\n",
    ),
    "capture": Verb(
        "Pack what plan reads of this host into a file",
        "For a bug report, or to plan elsewhere with --from. Addresses, serial numbers and names are replaced,\n"
        "equal ones by equal ones, unless --raw is given. It is text: look at it before you send it. As root it sees\n"
        "more. The name says the format: .tar.zst, .tar.gz, .json, or a directory.",
        "  rflash-tune capture server7.tar.zst\n",
    ),
    "knobs": Verb(
        "List the knobs",
        "What can be turned, for --only and --skip. `rflash-tune explain KNOB` says more.",
        "  rflash-tune knobs\n",
    ),
}

RULES = """\
How N tenants get C cores (those of the network card's NUMA node first):
  spread     1 tenant: interrupts and threads over all cores
  two-cores  C/N of 2 and more: one half of a tenant's cores for its connections and NIC queues,
             the other for its I/O threads and the flash's interrupts
  one-core   C/N of 1: everything of a tenant on its core (on both hardware threads of it)
  shared     C/N below 1: tenants dealt evenly; more than three on a core is warned of
Cores that are left over go to the first tenants, one each.
"""
