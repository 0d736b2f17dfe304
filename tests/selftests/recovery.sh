#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
#
# The target goes away in the middle of verified I/O and comes back: restarted,
# unplugged, reset, silent. I/O waits, nothing is lost, nothing fails.
#
#	host guest 10.99.0.2 --- data0, MTU 9000 --- 10.99.0.1 server guest
#	           rflash                                      nvmet, null_blk

source "$(dirname "$0")/lib.sh"

need_server
need_cmd nft on-server blkdiscard
needs_met
plan 14

KATO=2 DELAY=1
LOAD_SECONDS=12
OUTAGE=3

backing=$(tgt backing_null recovery 64) || die "no null_blk device"
target_up "$backing"
host_load || die "the module does not load"
check "connect" host_connect -k $KATO -c $DELAY || die "no connection"

# Writes and, a little later, verifies, at a rate that makes it last; then the
# whole area is verified once more, from the target, with the host's caches
# out of it (direct I/O).
start_load() { # NAME
	# What an earlier load has left would pass for what this one lost.
	blkdiscard -z "$DEV" || return 1
	spawn fio --output-format=json --output="$OUT/$1.json" --eta=never --verify_state_save=0 --thread \
		--group_reporting --filename="$DEV" --ioengine=libaio --direct=1 \
		--rw=randwrite --bsrange=4k-64k --blockalign=4k --iodepth=8 \
		--verify=crc32c --verify_fatal=1 --verify_backlog=16 \
		--size=12m --rate_iops=$((12 * 1024 * 2 / 34 / LOAD_SECONDS)) \
		--randrepeat=1 --name=one --name=two --offset=24m \
		>"$OUT/$1.err" 2>&1
	load_pid=$spawned
	load_name=$1
	load_from=$(now_ms)
}

# The load has ended well, and had to wait: it was there during the outage.
load_ended_well() {
	if ! reap "$load_pid" 240; then
		note_file "$OUT/$load_name.err"
		return 1
	fi
	echo "load took $(($(now_ms) - load_from)) ms"
	local longest
	longest=$(grep -o '"max" : [0-9]*' "$OUT/$load_name.json" | awk '{ if ($3 > m) m = $3 } END { printf "%.0f", m / 1000000 }')
	between "longest I/O in ms" "$longest" "$waited_ms" 60000
}

# outage NAME BREAK REPAIR [WAITED-MS]: under load, BREAK, wait until the host
# has noticed, REPAIR, wait until it is back.
outage() {
	local before after
	waited_ms=${4:-1000}
	before=$(host_reconnects)
	start_load "$1" || return 1
	sleep 2
	ended "$load_pid" && { load_ended_well; echo "the load was over too early"; return 1; }
	$2 || return 1
	if ! wait_until 20 not_live; then
		echo "the host has not noticed"
		$3
		return 1
	fi
	echo "noticed after $(($(now_ms) - load_from - 2000)) ms"
	[ "$4" = 0 ] || sleep "$OUTAGE"
	$3 || return 1
	wait_until 30 is_live || {
		echo "not connected again: state $(host_state)"
		return 1
	}
	load_ended_well || return 1
	after=$(host_reconnects)
	between reconnects "$after" $((before + 1)) $((before + 10))
}

# Once more, all of it: what was acknowledged is there.
all_there() {
	fio_run again --filename="$DEV" --ioengine=libaio --direct=1 --rw=randwrite \
		--bsrange=4k-64k --blockalign=4k --iodepth=8 --verify=crc32c \
		--verify_fatal=1 --verify_only=1 --size=12m --randrepeat=1 \
		--name=one --name=two --offset=24m
}

target_stop() { tgt nvmet_unlink 1 "$NQN"; }
target_start() { tgt nvmet_link 1 "$NQN"; }
check "target restart: I/O waits and verifies" outage restart target_stop target_start
check "target restart: nothing is lost" all_there

link_down() { ip link set data0 down; }
link_up() { ip link set data0 up; }
undo ip link set data0 up
check "link down and up at the host" outage link link_down link_up
check "link down and up: nothing is lost" all_there

server_link_down() { on-server ip link set data0 down; }
server_link_up() { on-server ip link set data0 up; }
check "link down and up at the target" outage serverlink server_link_down server_link_up
check "link down and up at the target: nothing is lost" all_there

# Nothing gets through and nobody says so: keep-alive or I/O timeout must tell.
hole_dig() {
	nft -f - <<-RULES
		table inet rflash_selftest {
			chain in { type filter hook input priority 0; ip saddr 10.99.0.1 tcp sport $PORT drop; }
			chain out { type filter hook output priority 0; ip daddr 10.99.0.1 tcp dport $PORT drop; }
		}
	RULES
	undo hole_fill
}
hole_fill() { ! nft list table inet rflash_selftest >/dev/null 2>&1 || nft delete table inet rflash_selftest; }
check "black-holed traffic is found" outage hole hole_dig hole_fill 2000
check "black-holed traffic: nothing is lost" all_there

# Reset: each connection of the host gets an RST, as from a firewall or a
# target whose kernel has forgotten it. There is nothing to repair.
reset_all() { ss -K "dport = :$PORT" | grep -c ESTAB; }
reset_noticed() {
	local before
	before=$(host_reconnects)
	start_load reset || return 1
	sleep 2
	reset_all || return 1
	wait_until 20 eval "[ \"\$(host_reconnects)\" -gt $before ]" || return 1
	sleep 1
	reset_all || return 1
	wait_until 20 eval "[ \"\$(host_reconnects)\" -gt $((before + 1)) ]" || return 1
	waited_ms=0
	load_ended_well
}
check "reset connections are made again" reset_noticed
check "reset connections: nothing is lost" all_there

# The target restarts three times in quick succession.
flapping() {
	start_load flapping || return 1
	local i
	for i in 1 2 3; do
		sleep 0.$((i * 3))
		target_stop
		sleep 0.$((9 - i * 2))
		target_start
	done
	waited_ms=0
	wait_until 30 is_live && load_ended_well
}
check "a target that comes and goes" flapping
check "a target that comes and goes: nothing is lost" all_there
check "disconnect" host_disconnect

finish
