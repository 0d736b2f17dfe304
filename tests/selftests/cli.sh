#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
#
# The command rflash: each verb, each error as one sentence on stderr with the
# right exit status, JSON with the keys that were promised.

source "$(dirname "$0")/lib.sh"

need_cmd python3
[ "$INITIATOR" = rflash ] || missing+=("rflash: this is a test of its command")
needs_met
plan 44

ONE=$NQN.one TWO=$NQN.two CLOSED=$NQN.closed
NONE=$NQN.none
ADDR=127.0.0.1 PORT=4420 DISC=8009

one=$(tgt backing_null cli1 32) || die "no null_blk device"
two=$(tgt backing_null cli2 48 blocksize=4096) || die "no null_blk device"
tgt nvmet_subsys "$ONE" attr_allow_any_host=1 || die "no subsystem"
tgt nvmet_ns "$ONE" 1 "$one" && tgt nvmet_ns "$ONE" 2 "$two" || die "no namespaces"
tgt nvmet_subsys "$TWO" attr_allow_any_host=1 || die "no subsystem"
tgt nvmet_subsys "$CLOSED" attr_allow_any_host=0 || die "no subsystem"
tgt nvmet_host "$CLOSED" "$NQN:friend" || die "no host"
tgt nvmet_port 1 $ADDR $PORT && tgt nvmet_port 2 ::1 $PORT && tgt nvmet_port 3 $ADDR $DISC || die "no ports"
for nqn in "$ONE" "$TWO" "$CLOSED"; do tgt nvmet_link 1 "$nqn"; done
tgt nvmet_link 2 "$ONE" && tgt nvmet_link 3 "$ONE" || die "no links"

CONNECT=(rflash connect -t tcp -a "$ADDR" -s "$PORT")

# refused STATUS WORDS COMMAND...: ends with the status, prints nothing on
# stdout, and on stderr one line, in which these words (a regular expression)
# are found.
refused() {
	local status=$1 words=$2 rc
	shift 2
	"$@" >"$OUT/stdout" 2>"$OUT/stderr"
	rc=$?
	echo "status $rc, wanted $status; stdout: $(cat "$OUT/stdout")"
	echo "stderr: $(cat "$OUT/stderr")"
	[ "$rc" -eq "$status" ] && [ ! -s "$OUT/stdout" ] &&
		[ "$(wc -l <"$OUT/stderr")" = 1 ] && grep -qiE -- "$words" "$OUT/stderr"
}

# json EXPRESSION COMMAND...: the command's output is JSON, of which the Python
# expression, where it is called "v", is true.
json() {
	local expression=$1
	shift
	"$@" >"$OUT/json" || return 1
	head -c 2000 "$OUT/json"
	python3 -c '
import json, sys
v = json.load(open(sys.argv[1]))
keys = set("device nqn transport traddr trsvcid state nsid wwid size_bytes block_size queues poll_queues reconnects class tenant".split())
sides = set("ios bytes errors latency_us".split())
latency = set("mean p50 p95 p99 p999 max".split())
sys.exit(not eval(sys.argv[2]))' "$OUT/json" "$expression"
}

within() { # SECONDS COMMAND...
	local limit=$1 from rc
	shift
	from=$(now_ms)
	"$@"
	rc=$?
	between "milliseconds" $(($(now_ms) - from)) 0 $((limit * 1000)) && return "$rc"
}

# ---- without the driver ----

[ ! -d /sys/module/rflash ] || die "the module is loaded"
check "without the module: says to load it" refused 1 'modprobe rflash' rflash list
host_load || die "the module does not load"

# ---- usage: status 2 ----

check "no verb is a usage error" refused 2 . rflash frobnicate
check "a missing NQN is a usage error" refused 2 'nqn' rflash connect -t tcp -a "$ADDR"
check "a missing address is a usage error" refused 2 'traddr' rflash connect -t tcp -n "$ONE"
check "disconnect of nothing in particular is a usage error" refused 2 'all' rflash disconnect
check "a word for a number is a usage error" refused 2 'many' "${CONNECT[@]}" -n "$ONE" -i many

# ---- connect: what can go wrong, each its own sentence ----

check "unknown NQN" refused 1 "no subsystem .*$NONE" "${CONNECT[@]}" -n "$NONE"
check "refused host" refused 1 "admit.*$CLOSED" "${CONNECT[@]}" -n "$CLOSED" -q "$NQN:stranger"
undo ip route del unreachable 198.51.100.0/24
ip route add unreachable 198.51.100.0/24 || die "no unreachable route"
check "no route" refused 1 'route to 198\.51\.100\.7' \
	rflash connect -t tcp -a 198.51.100.7 -n "$ONE"
check "connection refused" refused 1 'refused the connection' rflash connect -t tcp -a "$ADDR" -s 4999 -n "$ONE"
check "port 0" refused 1 'trsvcid.*1 to 65535' rflash connect -t tcp -a "$ADDR" -s 0 -n "$ONE"
check "port 65536" refused 1 'trsvcid.*1 to 65535' rflash connect -t tcp -a "$ADDR" -s 65536 -n "$ONE"
check "malformed IPv6: too many colons" refused 1 'traddr' rflash connect -t tcp -a 1::2::3 -n "$ONE"
check "malformed IPv6: open bracket" refused 1 'traddr' rflash connect -t tcp -a '[::1' -n "$ONE"
check "link-local IPv6 without its interface" refused 1 'fe80::1%' rflash connect -t tcp -a fe80::1 -n "$ONE"
check "more queues than CPUs" refused 1 "nr-io-queues.*1 to $(nproc)" \
	"${CONNECT[@]}" -n "$ONE" -i $(($(nproc) + 1))
check "0 queues" refused 1 'nr-io-queues' "${CONNECT[@]}" -n "$ONE" -i 0
check "queue size out of range" refused 1 'queue-size.*16 to 1024' "${CONNECT[@]}" -n "$ONE" -Q 8
check "fast_io_fail_tmo beyond ctrl_loss_tmo" refused 1 'fast-io-fail-tmo' "${CONNECT[@]}" -n "$ONE" -l 5 -F 10
check "an NQN that is too long" refused 1 'NQN' "${CONNECT[@]}" -n "nqn.2026-11.org.x:$(printf '%0300d' 0)"
check "another transport" refused 1 'tcp' rflash connect -t carrier-pigeon -a "$ADDR" -n "$ONE"
check "a bad host id" refused 1 'hostid' "${CONNECT[@]}" -n "$ONE" -I 1234

proxy_start
proxy hole on
silent() {
	within 6 refused 1 'never answered in 3 s' rflash connect -t tcp -a "$ADDR" \
		-s "$PROXY_PORT" -n "$ONE" -k 3
}
check "a target that accepts and never answers, within kato" silent
proxy hole off
proxy reset >/dev/null

nothing_yet() { [ -z "$(find /sys/block -name 'rflash*')" ] && json 'v == []' rflash list -o json; }
check "none of them has left anything" nothing_yet

# ---- connect and what it prints ----

connect_prints() {
	local out
	out=$("${CONNECT[@]}" -n "$ONE") || return 1
	echo "$out"
	[ "$out" = $'/dev/rflash0\n/dev/rflash1' ] && [ -b /dev/rflash0 ] && [ -b /dev/rflash1 ]
}
check "connect prints the devices, which are there" connect_prints
connect_again() {
	local out
	out=$("${CONNECT[@]}" -n "$ONE") || return 1
	[ "$out" = $'/dev/rflash0\n/dev/rflash1' ] && json 'len(v) == 2' rflash list -o json
}
check "connect is safe to repeat" connect_again
connect_twice_at_once() {
	local one two
	rflash disconnect --all || return 1
	"${CONNECT[@]}" -n "$ONE" >"$OUT/first" &
	one=$!
	"${CONNECT[@]}" -n "$ONE" >"$OUT/second" &
	two=$!
	wait "$one" && wait "$two" || return 1
	echo "first: $(cat "$OUT/first"); second: $(cat "$OUT/second")"
	cmp "$OUT/first" "$OUT/second" && grep -qx /dev/rflash1 "$OUT/first"
}
check "two connects at once both print the devices" connect_twice_at_once
check "list" eval 'rflash list | grep -E "rflash0.*live" && rflash list | grep rflash1'
check "list as JSON has the promised keys" json \
	"set(v[0]) == keys and [d['device'] for d in v] == ['rflash0', 'rflash1'] and v[0]['nqn'] == '$ONE' and v[0]['state'] == 'live' and v[1]['block_size'] == 4096 and v[1]['size_bytes'] == 48 << 20 and v[0]['trsvcid'] == '$PORT' and v[0]['reconnects'] == 0 and v[0]['queues'] == $(nproc)" \
	rflash list -o json
check "show" eval 'rflash show rflash1 | grep -F "$ONE" && rflash show /dev/rflash1 | grep -i "live"'
check "show as JSON has the promised keys" json \
	"keys <= set(v) and v['nsid'] == 2 and v['wwid'] == '$(wwid_of rflash1)'" \
	rflash show rflash1 -o json
check "show of a device that is not there" refused 1 'rflash77' rflash show rflash77
check "show of another driver's device" refused 1 'not the name of an rflash device' rflash show loop0

stats_count() {
	dd if=/dev/rflash0 of=/dev/null bs=64k count=20 iflag=direct status=none
	dd if=/dev/zero of=/dev/rflash0 bs=4k count=7 oflag=direct status=none
	udevadm settle
	json "set(v) >= {'read', 'write'} and all(set(v[s]) == sides and set(v[s]['latency_us']) == latency for s in ('read', 'write')) and v['write']['ios'] >= 7 and v['read']['bytes'] >= 20 << 16 and v['read']['errors'] == 0 and 0 < v['read']['latency_us']['p50'] <= v['read']['latency_us']['p99'] <= v['read']['latency_us']['max']" \
		rflash stats rflash0 -o json
}
check "stats as JSON counts what was done" stats_count
check "stats" eval 'rflash stats rflash0 | grep -E "write +[0-9]+"'
stats_watch() {
	local load
	dd if=/dev/rflash0 of=/dev/null bs=4k iflag=direct status=none &
	load=$!
	rflash stats rflash0 -o json --watch=1 --count 2 >"$OUT/watch" || return 1
	wait "$load"
	[ "$(wc -l <"$OUT/watch")" = 2 ] && head -n 1 "$OUT/watch" >"$OUT/first" &&
		json "v['read']['ios'] > 0" cat "$OUT/first"
}
check "stats --watch shows each interval" stats_watch

# ---- other ways to connect ----

check "IPv6" eval 'rflash disconnect --all && rflash connect -t tcp -a ::1 -n "$ONE" | grep -x /dev/rflash0 && rflash connect -t tcp -a "[::1]" -n "$ONE" | grep -x /dev/rflash0'
queues_granted() {
	rflash disconnect --all && rflash connect -t tcp -a "$ADDR" -n "$ONE" -i 1 -Q 32 -k 7 -c 3 -l 70 -F 20 || return 1
	json "v['queues'] == 1 and v['queue_size'] == 32 and v['kato'] == 7 and v['reconnect_delay'] == 3 and v['ctrl_loss_tmo'] == 70 and v['fast_io_fail_tmo'] == 20" \
		rflash show rflash0 -o json
}
check "options arrive" queues_granted

no_namespaces() {
	rflash disconnect --all && "${CONNECT[@]}" -n "$TWO" || return 1
	json "len(v) == 1 and v[0]['device'] is None and v[0]['state'] == 'live'" rflash list -o json &&
		rflash disconnect -n "$TWO"
}
check "a subsystem without namespaces" no_namespaces

check "discover" eval 'rflash discover -t tcp -a "$ADDR" | grep -F "$ONE"'
check "discover as JSON" json \
	"'$ONE' in [r['subnqn'] for r in v['records']]" rflash discover -t tcp -a "$ADDR" -o json
check "discover where nothing listens" refused 1 'refused the connection' rflash discover -t tcp -a "$ADDR" -s 4999

connect_all() {
	mkdir -p "$OUT/etc"
	cat >"$OUT/etc/one.toml" <<-TOML
		[[connect]]
		traddr = "$ADDR"
		nqn = "$ONE"
		reconnect-delay = 4
	TOML
	rflash connect-all -C "$OUT/etc" | grep -x /dev/rflash0 && json "v['reconnect_delay'] == 4" rflash show rflash0 -o json
}
check "connect-all" connect_all

disconnect_ways() {
	rflash disconnect -d rflash0 && [ ! -e /dev/rflash0 ] && [ ! -e /dev/rflash1 ] || return 1
	refused 1 "not connected to $ONE" rflash disconnect -n "$ONE" || return 1
	rflash disconnect --all
}
check "disconnect by device, by NQN, of all" disconnect_ways

finish
