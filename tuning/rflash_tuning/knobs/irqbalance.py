# SPDX-License-Identifier: GPL-2.0
"""irqbalance is told which interrupts are placed, and goes on with the others.

:What: A marked block at the end of irqbalance's configuration with IRQBALANCE_ARGS:
    the administrator's own arguments and ``--banirq`` for each interrupt that
    the plan places. The service is restarted when it runs (systemd or its init
    script); without either the file counts from its next start.
:Why: irqbalance would move the interrupts within seconds. The paper switched it
    off, which leaves all other interrupts on one core.
:Source: Flash Storage Disaggregation, section 4; irqbalance(1).
:Disruption: none.
:Undo: The former file; the service is restarted with it.
"""

from __future__ import annotations

import re

from rflash_tuning.knobs.draft import Draft
from rflash_tuning.tune.settings import ConfigSetting

NAME = "irqbalance"
TITLE = "irqbalance is told which interrupts are placed"
SOURCE = "irqbalance(1), --banirq"
MARK = "# rflash-tune placed these interrupts; `rflash-tune revert` takes the line away."
VARIABLE = "IRQBALANCE_ARGS"
VARIABLES = {"/etc/conf.d/irqbalance": "IRQBALANCE_OPTS"}  # OpenRC's
_BLOCK = re.compile(rf"\n*^{re.escape(MARK)}\n.*\n?", re.MULTILINE)
_BANNED = re.compile(r"(?:--banirq[= ]|-i ?)(\d+)")


def draw(draft: Draft) -> None:
    tuner = next((one for one in draft.host.tuners if one.name == "irqbalance" and one.active), None)
    irqs = placed(draft)
    if tuner is None or not irqs:
        return
    if not tuner.config:
        draft.warn(
            "irqbalance is active and it is not known where its configuration is, so it may move the interrupts back:"
            f" run it with {' '.join(f'--banirq={irq}' for irq in irqs)}"
        )
        return
    text = draft.host.files.get(tuner.config)
    draft.want(
        ConfigSetting(tuner.config, "irqbalance"),
        text,
        with_banned(text or "", irqs, VARIABLES.get(tuner.config, VARIABLE)),
        f"it would move {len(irqs)} interrupts back; it goes on with all others",
        SOURCE,
    )


def placed(draft: Draft) -> list[int]:
    """The interrupts that the plan places, changed or not; irqbalance itself leaves managed ones alone."""
    found = set()
    if draft.enabled("interrupts"):
        for port in draft.ports:
            known = {irq.number for irq in port.irqs if not irq.managed}
            found |= known & {number for queue in port.queues for number in (queue.irq, queue.tx_irq)}
    if draft.enabled("disk-interrupts"):
        for disk in draft.disks:
            known = {irq.number for irq in disk.irqs if not irq.managed}
            found |= known & {queue.irq for queue in disk.queues}
    return sorted(number for number in found if number is not None)


def with_banned(text: str, irqs: list[int], variable: str = VARIABLE) -> str:
    """A configuration that bans these interrupts; what the administrator had stays, the last line counts.

    Samples of an administrator's line: IRQBALANCE_ARGS="--hintpolicy=exact",
    IRQBALANCE_ARGS= and none at all.
    """
    own = _BLOCK.sub("\n", text.rstrip() + "\n").rstrip()
    lines = re.finditer(rf"""^[ \t]*{variable}=(["']?)(.*?)\1[ \t]*$""", own, re.MULTILINE)
    given = [match[2].strip() for match in lines]
    arguments = given[-1] if given else ""
    banned = {int(number) for number in _BANNED.findall(arguments)}
    words = [arguments, *(f"--banirq={irq}" for irq in irqs if irq not in banned)]
    line = f'{variable}="{" ".join(word for word in words if word)}"'
    return (own + "\n\n" if own else "") + f"{MARK}\n{line}\n"
