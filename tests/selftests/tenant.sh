#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
#
# A host asks for its promise when it connects: granted, refused, asked for
# again by every reconnect, lost and got back; and targets that know nothing of
# it are used without.
#
#	one guest: rflash.ko --- lo --- rflashd, nvmet

source "$(dirname "$0")/lib.sh"

RFLASHD=${RFLASHD:-$SELFTESTS/../../userspace/target/release/rflashd}
[ "$INITIATOR" = rflash ] || missing+=("rflash: this is a test of its tenants")
[ -x "$RFLASHD" ] || missing+=("rflashd ($RFLASHD: make userspace)")
need_cmd jq
needs_met
plan 17

ADDR=127.0.0.1 PORT=4420 OTHER=4430
# The results may be on a file system without sockets.
CONFIG=$OUT/rflashd.toml SOCKET=/run/rflash-tenant-test.sock
undo rm -f "$SOCKET"
LC=(--class lc --slo-p95 500 --slo-iops 20000 --slo-read-pct 90)

# ---- the server --------------------------------------------------------------

config() { # [COST-MODEL]
	cat >"$CONFIG" <<-TOML
		[server]
		threads = 1
		buffers = "16 MiB"
		admin-socket = "$SOCKET"
		[discovery]
		listen = []
		[[device]]
		name = "ram"
		ram = "32 MiB"
		${1:+cost-model = \"$1\"}
		[[subsystem]]
		nqn = "$NQN"
		listen = ["$ADDR:$PORT"]
		[[subsystem.namespace]]
		device = "ram"
	TOML
}

server_answers() { (exec 3<>"/dev/tcp/$ADDR/$PORT") 2>/dev/null; }

server_start() {
	spawn "$RFLASHD" --config "$CONFIG" >>"$OUT/rflashd.log" 2>&1
	server=$spawned
	wait_until 20 server_answers || {
		note_file "$OUT/rflashd.log"
		return 1
	}
}

server_kill() { kill -KILL "$server" && wait_until 10 ended "$server"; }

# restarts [COST-MODEL]: and the host is connected again.
restarts() {
	local before
	before=$(host_reconnects)
	server_kill && wait_until 20 not_live && config "$@" && server_start || return 1
	wait_until 30 is_live && [ "$(host_reconnects)" -gt "$before" ] || {
		echo "state $(host_state), reconnects $(host_reconnects)"
		return 1
	}
}

# ---- the host ----------------------------------------------------------------

# connects [OPTION...]: what it says on stderr is in $OUT/said.
connects() {
	host_connect -k 5 -c 1 "$@" 2>"$OUT/said"
	local rc=$?
	cat "$OUT/said"
	return "$rc"
}

# tenant FILTER: of what list shows, the filter is true.
tenant() {
	rflash list -o json >"$OUT/list.json" || return 1
	cat "$OUT/list.json"
	jq -e ".[0] | $1" "$OUT/list.json" >/dev/null
}
sysfs_is() {
	echo "sysfs: $(cat "/sys/block/$DISK/tenant")"
	[ "$(cat "/sys/block/$DISK/tenant")" = "$1" ]
}
logged() { log_since_start | grep -E "rflash: .*$1"; }
reads() { dd if="$DEV" of=/dev/null bs=64k count=16 iflag=direct status=none; }

config million
server_start || die "no server"
host_load || die "the module does not load"

unasked() {
	connects && [ ! -s "$OUT/said" ] &&
		tenant '.tenant.outcome == "unasked" and .tenant.asked == null and .class == "best-effort"' &&
		host_disconnect
}
check "a host that asks for nothing is shown what it has" unasked

granted='.class == "latency-critical" and .tenant.outcome == "granted" and
	.tenant.granted == {class: "latency-critical", p95_us: 500, iops: 20000, read_pct: 90, block: 4096}'
check "a promise is granted" connects "${LC[@]}" || die "no connection"
check "list -o json shows it" tenant "$granted"
check "so does sysfs" sysfs_is "latency-critical p95_us=500 iops=20000 read_pct=90 block=4096"
check "so does list -v" eval 'rflash list -v | grep -F "p95 500 us, 20000 IOPS of 4096 bytes, 90 % reads"'
check "I/O goes on" reads
other_class() {
	connects --class be && grep 'connected already, as latency-critical.*disconnect' "$OUT/said" && tenant "$granted"
}
check "another class than that of the connection is said to need a new one" other_class

check "the server is killed and comes back" restarts million
check "and the promise is made again" tenant "$granted"

lost() {
	restarts && tenant '.tenant.outcome == "refused" and .tenant.asked.iops == 20000 and .class != "latency-critical"' &&
		logged 'now refuses the promise .*I/O goes on without latency-critical p95_us=500' && reads
}
check "a promise refused at a reconnect is lost, and I/O goes on" lost
back() { restarts million && tenant "$granted" && logged 'promises latency-critical .* again'; }
check "it is asked for again, and made" back
check "disconnect" host_disconnect

refused() {
	! connects --class lc --slo-p95 100 --slo-iops 90000000 --slo-read-pct 50 &&
		grep -E 'refused to promise latency-critical .*90000000 IOPS.*: its log says' "$OUT/said" &&
		grep -E "can't be latency-critical" "$OUT/rflashd.log" && [ "$(rflash list -o json)" = '[]' ]
}
check "a promise refused at the first connect ends it" refused

best() {
	connects --class be --weight 7 --slo-bs 4k && return 1
	grep -- '--slo-bs: this is for --class lc' "$OUT/said" && connects --class be --weight 7 &&
		tenant '.tenant.granted == {class: "best-effort", weight: 7}' && sysfs_is "best-effort weight=7"
}
check "best-effort, by weight" best
check "it leaves" host_disconnect

# ---- a target that knows no tenants -------------------------------------------

backing=$(tgt backing_null tenant 32) || die "no null_blk device"
PORT=$OTHER
target_up "$backing"
unsupported() {
	connects "${LC[@]}" && grep 'does not know tenants, so it does not promise latency-critical' "$OUT/said" &&
		tenant '.class == null and .tenant.outcome == "unsupported" and .tenant.granted == null' &&
		sysfs_is none && reads && [ "$(logged 'does not know tenants' | wc -l)" = 1 ]
}
check "the kernel's target is used without, and that is said once" unsupported
not_twice() {
	connects && [ ! -s "$OUT/said" ] && [ "$(logged 'does not know tenants' | wc -l)" = 1 ]
}
check "who does not ask is not told" not_twice

finish
