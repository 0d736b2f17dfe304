#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
#
# kill -9 at every step of an apply, then revert: is the machine as it was? The
# apply has two stages: it makes queues first. One guest is enough; nobody is
# connected.

source "$(dirname "$0")/tunelib.sh"

need_cmd ethtool
need_nic_queues 4
need_flash
needs_met
plan 4

WANTED=(--role server --target iscsi --nic "$NIC" --tenants 2 --max-disruption target --confirm-within 0 --yes)

ethtool -L $NIC combined 1 || die "the card keeps its queues"
undo ethtool -L $NIC combined 4
state "$OUT/before"
kill_everywhere() {
	PYTHONDONTWRITEBYTECODE='' "$SELFTESTS/tunekill.py" "$STATE_DIR" "${WANTED[@]}" | tee "$OUT/kills"
	return "${PIPESTATUS[0]}"
}
check "killed at each step, put back each time" kill_everywhere
enough() {
	cat "$OUT/kills"
	[ "$(sed -n 's/^killed \([0-9]*\) times.*/\1/p' "$OUT/kills")" -ge 10 ]
}
check "there were steps enough" enough
check "nothing is left to put back" eval 'tune status | tee /dev/stderr | grep -qi nothing'
state "$OUT/after"
check "the machine is as it was, byte for byte" same_state "$OUT/before" "$OUT/after"

finish
