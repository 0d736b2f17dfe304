#!/usr/bin/python3
# SPDX-License-Identifier: GPL-2.0
"""Ansible module: rflash-tune on a managed host. Check mode is `plan`, and the plan is the diff."""

from __future__ import annotations

import json

from ansible.module_utils.basic import AnsibleModule

DOCUMENTATION = r"""
module: rflash_tune
short_description: Tune a flash server or its tenant with rflash-tune
description:
  - Plans, applies, verifies or reverts. In check mode nothing is changed, and the plan is the diff.
options:
  state:
    description: What to do. C(planned) never changes anything and reports the plan's disruption.
    type: str
    choices: [planned, applied, confirmed, verified, reverted]
    default: applied
  request:
    description: What is wanted, by the long options of C(rflash-tune plan); lists are joined by commas.
    type: dict
    default: {}
  max_disruption:
    description: The worst that a change may do to traffic.
    type: str
    choices: [none, packets, link, target]
    default: packets
  confirm_within:
    description: Seconds until everything is put back without a confirm. Left out, rflash-tune decides.
    type: int
  command:
    description: The program.
    type: str
    default: rflash-tune
  snapshot:
    description: A captured host on the managed host, instead of itself; to try things.
    type: path
author: rflash
"""

EXAMPLES = r"""
- name: Six iSCSI tenants
  rflash_tune:
    request: {target: iscsi, nic: [eth0], tenants: 6}
    max_disruption: link
"""

RETURN = r"""
disruption: {description: The worst that what is allowed does to traffic, type: str, returned: planned}
message: {description: What came of it, in one sentence, type: str, returned: success}
unconfirmed: {description: Everything is put back unless it is confirmed in time, type: bool, returned: applied}
report: {description: The plan or report as rflash-tune prints it, type: dict, returned: success}
"""

DISRUPTIONS = ("none", "packets", "link", "target")
# Exit statuses of rflash-tune.
OK, FAILED, USAGE, PARTIAL, UNCONFIRMED = range(5)


def options(module):
    """The request as command-line options."""
    words = []
    for name, value in sorted(module.params["request"].items()):
        items = value if isinstance(value, list) else [value]
        words += [f"--{name.replace('_', '-')}", ",".join(str(item) for item in items)]
    if module.params["snapshot"]:
        words += ["--from", module.params["snapshot"]]
    return words


def run(module, verb, *words, good=(OK, PARTIAL, UNCONFIRMED)):
    """The status and what rflash-tune says, as a dictionary. Fails the task with its one sentence."""
    command = [module.params["command"], verb, *words, "-o", "json"]
    status, out, err = module.run_command(command)
    if status not in good:
        module.fail_json(msg=err.strip() or message(out) or f"{' '.join(command)} failed", rc=status, stdout=out)
    try:
        document = json.loads(out)
    except ValueError:
        module.fail_json(msg=f"{' '.join(command)} did not print JSON", stdout=out, stderr=err)
    if document.get("schema") != 1:
        module.fail_json(msg=f"rflash-tune's schema is {document.get('schema')}; this module reads 1")
    return status, document


def message(out):
    try:
        return json.loads(out)["report"]["message"]
    except (ValueError, KeyError, TypeError):
        return ""


def planned(module):
    """What apply would do, as far as it may."""
    plan = run(module, "plan", *options(module))[1]["plan"]
    allowed = DISRUPTIONS.index(module.params["max_disruption"])
    doable = [change for change in plan["changes"] if not change["foreseen"]]
    mine = [change for change in doable if DISRUPTIONS.index(change["disruption"]) <= allowed]
    before, after = ("".join(f"{c['label']}: {c['shown'][which]}\n" for c in mine) for which in (0, 1))
    return {
        "changed": bool(mine),
        "disruption": max((c["disruption"] for c in mine), key=DISRUPTIONS.index, default="none"),
        "refused": [change["label"] for change in doable if change not in mine],
        "message": f"{len(mine)} changes, {len(doable) - len(mine)} more disruptive than allowed",
        "report": plan,
        "diff": {"before_header": "now", "after_header": "rflash-tune", "before": before, "after": after},
    }


def applied(module):
    if module.check_mode:
        return planned(module)
    before = planned(module)
    words = ["--yes", "--max-disruption", module.params["max_disruption"]]
    if module.params["confirm_within"] is not None:
        words += ["--confirm-within", str(module.params["confirm_within"])]
    status, document = run(module, "apply", *words, *options(module))
    report = document["report"]
    return {
        "changed": report["changed"],
        "unconfirmed": status == UNCONFIRMED,
        "disruption": before["disruption"],
        "message": report["message"],
        "report": report,
        "diff": before["diff"],
    }


def confirmed(module):
    if module.check_mode:
        return {"changed": False, "message": "nothing is confirmed in check mode"}
    report = run(module, "confirm")[1]["report"]
    return {"changed": False, "message": report["message"], "report": report}


def verified(module):
    report = run(module, "verify", *options(module), good=(OK, FAILED, PARTIAL))[1]["report"]
    if report["status"] == FAILED and not module.check_mode:
        differing = [outcome["label"] for outcome in report["outcomes"] if outcome["outcome"] == "differs"]
        module.fail_json(msg=f"{report['message']} ({', '.join(differing[:5])})", report=report)
    return {"changed": False, "message": report["message"], "report": report}


def reverted(module):
    if module.check_mode:
        report = run(module, "status")[1]["report"]
        return {"changed": bool(report["applied"]), "message": report["message"], "report": report}
    report = run(module, "revert")[1]["report"]
    return {"changed": report["changed"], "message": report["message"], "report": report}


STATES = {"planned": planned, "applied": applied, "confirmed": confirmed, "verified": verified, "reverted": reverted}


def main():
    module = AnsibleModule(
        argument_spec={
            "state": {"type": "str", "choices": list(STATES), "default": "applied"},
            "request": {"type": "dict", "default": {}},
            "max_disruption": {"type": "str", "choices": list(DISRUPTIONS), "default": "packets"},
            "confirm_within": {"type": "int"},
            "command": {"type": "str", "default": "rflash-tune"},
            "snapshot": {"type": "path"},
        },
        supports_check_mode=True,
    )
    found = STATES[module.params["state"]](module)
    if module.params["state"] == "planned":
        # It is a question, not a change: what it would change is for whoever asks.
        found["changed"] = False
    module.exit_json(**found)


if __name__ == "__main__":
    main()
