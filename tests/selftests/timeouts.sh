#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
#
# kato, reconnect_delay, fast_io_fail_tmo and ctrl_loss_tmo: what they say, by
# the clock. Lower bounds are exact; upper ones leave room for a slow machine.

source "$(dirname "$0")/lib.sh"

need_cmd python3
needs_met
plan 15

SLACK_MS=${RFLASH_SLACK_MS:-3000}

backing=$(tgt backing_null timeouts 32) || die "no null_blk device"
target_up "$backing"
host_load || die "the module does not load"

target_stop() { tgt nvmet_unlink 1 "$NQN"; }
target_start() { tgt nvmet_link 1 "$NQN"; }
read_one() { dd if="$DEV" of=/dev/null bs=4k count=1 iflag=direct status=none; }
gone() { [ ! -e "$DEV" ]; }

# timed LOW-MS HIGH-MS COMMAND...: the command's status is not judged.
timed() {
	local low=$1 high=$2 from took
	shift 2
	from=$(now_ms)
	"$@"
	took=$(($(now_ms) - from))
	between "milliseconds for $*" "$took" "$low" "$high"
}

# ---- reconnect_delay ----

check "connect with reconnect_delay 3" host_connect -c 3
delay_kept() {
	target_stop
	wait_until 10 not_live || return 1
	local from
	from=$(now_ms)
	target_start
	wait_until 20 is_live || return 1
	between "ms until live again" $(($(now_ms) - from)) 1000 $((3000 + SLACK_MS))
}
check "the target is tried again after reconnect_delay" delay_kept
io_waited() {
	target_stop
	wait_until 10 not_live || return 1
	spawn read_one
	local pid=$spawned from
	from=$(now_ms)
	sleep 2
	! ended "$pid" || {
		echo "the read did not wait"
		return 1
	}
	target_start
	reap "$pid" 20 || return 1
	between "ms the read waited" $(($(now_ms) - from)) 2000 $((5000 + SLACK_MS))
}
check "without fast_io_fail_tmo I/O waits" io_waited
host_disconnect

# ---- fast_io_fail_tmo ----

check "connect with fast_io_fail_tmo 3" host_connect -c 1 -F 3
held_io_fails() {
	target_stop
	wait_until 10 not_live || return 1
	# It became known as lost a moment ago; the clock runs from there.
	timed 1500 $((3000 + SLACK_MS)) read_one || return 1
	! read_one
}
check "held I/O fails after fast_io_fail_tmo" held_io_fails
new_io_fails() {
	fails read_one || return 1
	timed 0 $((500 + SLACK_MS / 3)) read_one
}
check "then new I/O fails at once" new_io_fails
check "the device is still there" test -b "$DEV"
back_in_use() {
	target_start
	wait_until 20 is_live && read_one
}
check "when the target is back, I/O works" back_in_use
errors_counted() { rflash stats "$DISK" -o json | tr -d '\n ' | grep -q '"errors":[1-9]'; }
if [ "$INITIATOR" = rflash ]; then
	check "the failed requests are counted" errors_counted
else
	ok "the failed requests are counted # SKIP only rflash counts"
fi
host_disconnect

# ---- ctrl_loss_tmo ----

check "connect with ctrl_loss_tmo 5" host_connect -c 1 -l 5
removed_in_time() {
	target_stop
	wait_until 10 not_live || return 1
	spawn read_one
	local pid=$spawned from
	from=$(now_ms)
	wait_until 30 gone || return 1
	between "ms until the device was removed" $(($(now_ms) - from)) 3500 $((6000 + SLACK_MS)) || return 1
	! reap "$pid" 5
}
check "the controller is removed after ctrl_loss_tmo, its I/O fails" removed_in_time
nothing_left() {
	[ -z "$(ls -d /sys/block/rflash* 2>/dev/null)" ] &&
		[ -z "$(ss -Htn "dport = :$PORT" state established)" ]
}
check "and nothing is left of it" wait_until 5 nothing_left
target_start

no_reconnect() {
	host_connect -l 0 || return 1
	target_stop
	wait_until 10 gone
}
check "ctrl_loss_tmo 0 removes it at once" no_reconnect
target_start

# ---- kato ----

proxy_start
PORT=$PROXY_PORT
silent_target_found() {
	host_connect -k 2 -c 1 || return 1
	sleep 3
	is_live || {
		echo "an idle connection was lost: state $(host_state)"
		return 1
	}
	proxy hole on
	local from
	from=$(now_ms)
	wait_until 20 not_live || return 1
	between "ms until the silence was noticed" $(($(now_ms) - from)) 500 $((4000 + SLACK_MS))
}
check "an idle, silent target is found by keep-alive" silent_target_found
silence_ends() {
	proxy hole off
	wait_until 20 is_live && read_one
}
check "and used again when it answers" silence_ends

finish
