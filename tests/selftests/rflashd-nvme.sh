#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
#
# rflashd serves the kernel's own nvme-tcp with nvme-cli, and rflash.ko:
# discovery, what nvme-cli shows, verified I/O with and without digests,
# filesystems, namespaces that come and go, and a server that is killed under
# verified writes and comes back: nothing that it acknowledged is lost.
#
#	one guest: nvme-tcp, rflash.ko --- lo --- rflashd: a file on ext4, RAM

source "$(dirname "$0")/lib.sh"

RFLASHD=${RFLASHD:-$SELFTESTS/../../userspace/target/release/rflashd}
[ -x "$RFLASHD" ] || missing+=("rflashd ($RFLASHD: make userspace)")
need_cmd nvme rflash mkfs.ext4 fsck.ext4 fio jq
need_module nvme-tcp
needs_met
plan 43

ADDR=127.0.0.1 PORT=4420 DISC=8009
KATO=5 DELAY=1
UUID2=2b1e6a52-6f00-4d5e-9d0c-0f1a2b3c4d5e
MNT=$OUT/mnt STORE=$OUT/store CONFIG=$OUT/rflashd.toml
mkdir -p "$MNT" "$STORE"

# ---- the server --------------------------------------------------------------

backing=$(tgt backing_null rflashd 192) || die "no null_blk device"
mkfs.ext4 -q -F "$backing" && mount "$backing" "$STORE" || die "no filesystem for the file backend"
undo umount "$STORE"
fallocate -l 128M "$STORE/blocks" || die "no file for the file backend"

# config [EXTRA]: two namespaces on a file and what is added to them; RAM.
config() {
	cat >"$CONFIG" <<-TOML
		[server]
		threads = 1
		buffers = "16 MiB"
		admin-socket = "$STORE/rflashd.sock"
		[discovery]
		listen = ["$ADDR:$DISC"]
		[[device]]
		name = "ram"
		ram = "48 MiB"
		[[device]]
		name = "file"
		path = "$STORE/blocks"
		[[subsystem]]
		nqn = "$NQN"
		serial = "RFLASHD0001"
		listen = ["$ADDR:$PORT"]
		[[subsystem.namespace]]
		id = 1
		device = "file"
		size = "48 MiB"
		[[subsystem.namespace]]
		id = 2
		device = "file"
		offset = "48 MiB"
		size = "48 MiB"
		block-size = 512
		uuid = "$UUID2"
		$1
		[[subsystem]]
		nqn = "$NQN.ram"
		listen = ["$ADDR:$PORT"]
		[[subsystem.namespace]]
		device = "ram"
		size = "32 MiB"
		[[subsystem]]
		nqn = "$NQN.closed"
		listen = ["$ADDR:$PORT"]
		allowed-hosts = ["$NQN:friend"]
		[[subsystem.namespace]]
		device = "ram"
		offset = "32 MiB"
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
server_reload() { kill -HUP "$server"; }

config
check "the configuration is good" "$RFLASHD" --check --config "$CONFIG"
check "rflashd starts" server_start || die "no server"

# ---- the hosts ----------------------------------------------------------------

disk_of() { # NSID
	local f
	for f in /sys/block/"${DISK%%[0-9]*}"*/nsid; do
		[ "$(cat "$f" 2>/dev/null)" = "$1" ] && basename "$(dirname "$f")" && return
	done
	return 1
}
has_ns() { [ -b "/dev/$(disk_of "$1")" ]; }
has_no_ns() { ! disk_of "$1"; }
mb_is() { [ "$(blockdev --getsize64 "/dev/$(disk_of "$1")")" = $(($2 << 20)) ]; }

# connects [OPTION...]: and sees both namespaces.
connects() {
	host_connect -k "$KATO" -c "$DELAY" "$@" && wait_until 10 has_ns 1 && wait_until 10 has_ns 2 || return 1
	DEVS=("/dev/$(disk_of 1)" "/dev/$(disk_of 2)")
	DEV=${DEVS[0]}
}

# ---- what nvme-cli sees ------------------------------------------------------

INITIATOR=nvme
nvme_at_its_best

discovers() {
	nvme discover -t tcp -a "$ADDR" -s "$DISC" -o json >"$OUT/discover.json" || return 1
	cat "$OUT/discover.json"
	jq -e --arg nqn "$NQN" '[.records[] | select(.subnqn == $nqn)] |
		length == 1 and .[0].trtype == "tcp" and .[0].trsvcid == "4420"' "$OUT/discover.json" &&
		jq -e --arg nqn "$NQN.closed" 'all(.records[]; .subnqn != $nqn)' "$OUT/discover.json"
}
check "nvme discover lists what this host may use, and only that" discovers
check "a host that is not admitted is refused" fails \
	nvme connect -t tcp -a "$ADDR" -s "$PORT" -n "$NQN.closed"
check "an admitted host is let in" \
	nvme connect -t tcp -a "$ADDR" -s "$PORT" -n "$NQN.closed" \
	--hostnqn "$NQN:friend" --hostid 5d1f8c0e-7a64-4b0c-9c55-0123456789ab
check "and leaves" nvme disconnect -n "$NQN.closed"
check "nvme connects" connects || die "no connection"
CTRL=/dev/$(basename "$(readlink -f "/sys/block/$DISK/device")")

# shows FILTER COMMAND...: JSON of which the filter is true.
shows() {
	local filter=$1
	shift
	"$@" -o json >"$OUT/shown.json" || return 1
	head -c 1500 "$OUT/shown.json"
	jq -e "$filter" "$OUT/shown.json"
}
check "id-ctrl" shows '(.sn | startswith("RFLASHD0001")) and (.mn | startswith("rflash"))
	and .mdts == 8 and .kas == 1 and .ioccsz == 516 and .cntrltype == 1' nvme id-ctrl "$CTRL"
check "id-ns of the namespace with blocks of 4 KiB" shows '.nsze == 12288 and .lbafs[0].ds == 12' nvme id-ns "$CTRL" -n 1
check "id-ns of the one with blocks of 512 bytes" shows '.nsze == 98304 and .lbafs[0].ds == 9' nvme id-ns "$CTRL" -n 2
check "list" shows '.. | strings | select(startswith("RFLASHD0001"))' nvme list
check "list-ns" shows '[.. | .nsid? | numbers] == [1, 2]' nvme list-ns "$CTRL"
check "smart-log" shows '.avail_spare == 100' nvme smart-log "$CTRL"
check "error-log" shows '.errors | type == "array"' nvme error-log "$CTRL"
check "effects-log" nvme effects-log "$CTRL"
check "show-regs" nvme show-regs "$CTRL"
uuid_is() { [ "$(cat "/sys/block/$1/uuid")" = "$UUID2" ]; }
check "the namespace has its UUID" uuid_is "${DEVS[1]#/dev/}"

# ---- I/O, by both hosts ------------------------------------------------------

# Blocks of one size: those that overlap could land in any order.
load() { # NAME DEVICE BLOCK-SIZE
	fio_run "$1" --name=load --filename="$2" --rw=randwrite --bs="$3" --size=24m \
		--iodepth=32 --ioengine=libaio --direct=1 --verify=crc32c --verify_fatal=1
}

sizes() { # in the capsule, by one R2T, and by several; both namespaces
	local i=0 size
	for size in 4k 8k 12k 64k 256k 1m; do
		load "$INITIATOR-$size" "${DEVS[$((i++ % 2))]}" "$size" || return 1
	done
}

in_ram() {
	local NQN=$NQN.ram DEV DEVS DISK rc=0
	host_connect -k "$KATO" -c "$DELAY" || return 1
	load "$INITIATOR-ram-4k" "$DEV" 4k && load "$INITIATOR-ram-1m" "$DEV" 1m || rc=1
	host_disconnect && return "$rc"
}

with_digests() { # OPTION...
	host_disconnect
	connects "$@" && sizes
}

filesystem() {
	mkfs.ext4 -q -F "$DEV" && mount -o discard "$DEV" "$MNT" || return 1
	head -c 5000001 /dev/urandom >"$OUT/kept" && cp "$OUT/kept" "$MNT/kept" &&
		fio_run "$INITIATOR-fs" --directory="$MNT" --name=fs --size=8m --numjobs=2 --rw=randwrite \
			--bsrange=1k-64k --bs_unaligned=1 --ioengine=psync --fsync=32 \
			--verify=crc32c --verify_fatal=1 && rm -f "$MNT"/fs.0.* && fstrim "$MNT"
	local rc=$?
	umount "$MNT" && [ "$rc" = 0 ] && blockdev --flushbufs "$DEV" && mount "$DEV" "$MNT" || return 1
	cmp "$OUT/kept" "$MNT/kept"
	rc=$?
	umount "$MNT" && [ "$rc" = 0 ] && fsck.ext4 -f -n "$DEV"
}

third() { # MEGABYTES
	config "$(printf '[[subsystem.namespace]]\nid = 3\ndevice = "file"\noffset = "96 MiB"\nsize = "%d MiB"' "$1")"
	server_reload
}
comes() { third 16 && wait_until 10 has_ns 3 && mb_is 3 16; }
grows() { third 32 && wait_until 10 mb_is 3 32; }
goes() { config && server_reload && wait_until 10 has_no_ns 3; }

# Writes and, a little later, verifies, at a rate that makes it last.
start_load() {
	blkdiscard -z "${DEVS[1]}" || return 1
	spawn fio --output-format=json --output="$OUT/$INITIATOR-kill.json" --eta=never \
		--verify_state_save=0 --thread --group_reporting --filename="${DEVS[1]}" \
		--ioengine=libaio --direct=1 --rw=randwrite --bsrange=4k-64k --blockalign=4k \
		--iodepth=8 --verify=crc32c --verify_fatal=1 --verify_backlog=16 --size=12m \
		--rate_iops=40 --serialize_overlap=1 --randrepeat=1 --name=one --name=two --offset=24m \
		>"$OUT/$INITIATOR-kill.err" 2>&1
	load_pid=$spawned
}

killed_under_load() {
	local before
	before=$(host_reconnects)
	start_load || return 1
	sleep 3
	ended "$load_pid" && { echo "the load was over too early"; return 1; }
	server_kill && wait_until 20 not_live || return 1
	sleep 1
	server_start && wait_until 30 is_live || {
		echo "not connected again: state $(host_state)"
		return 1
	}
	reap "$load_pid" 120 || {
		note_file "$OUT/$INITIATOR-kill.err"
		return 1
	}
	between reconnects "$(host_reconnects)" $((before + 1)) $((before + 10))
}

# Once more, all of it: what was acknowledged is there.
all_there() {
	fio_run "$INITIATOR-again" --filename="${DEVS[1]}" --ioengine=libaio --direct=1 \
		--rw=randwrite --bsrange=4k-64k --blockalign=4k --iodepth=8 --verify=crc32c \
		--verify_fatal=1 --verify_only=1 --size=12m --randrepeat=1 \
		--name=one --name=two --offset=24m
}

both_hosts_do() {
	local host=$1
	check "$host: blocks of all sizes verify" sizes
	check "$host: blocks of all sizes verify in RAM" in_ram
	check "$host: with header digests" with_digests -g
	check "$host: with data digests" with_digests -G
	check "$host: with both digests" with_digests -g -G
	check "$host: a filesystem is made, kept, trimmed and clean" filesystem
	check "$host: a namespace comes" comes
	check "$host: it grows" grows
	check "$host: it goes" goes
	check "$host: the server is killed under load and comes back" killed_under_load
	check "$host: nothing that was acknowledged is lost" all_there
	check "$host: disconnects" host_disconnect
}

both_hosts_do nvme-tcp

INITIATOR=rflash
connected=
host_load || die "the module does not load"
check "rflash.ko connects" connects || die "no connection"
both_hosts_do rflash.ko

server_stop() { kill -TERM "$server" && reap "$server" 20; }
check "rflashd stops when it is told to" server_stop

finish
