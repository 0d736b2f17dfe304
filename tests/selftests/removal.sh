#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
#
# Disconnect and rmmod at any moment, with the target alive, dead or silent,
# the device open or mounted; and fifty connections that leave nothing behind.

source "$(dirname "$0")/lib.sh"

need_cmd python3 mkfs.ext4
needs_met
plan 15

seed=${RFLASH_SEED:-$RANDOM}
RANDOM=$seed
note "RFLASH_SEED=$seed repeats the same moments"

backing=$(tgt backing_null removal 32) || die "no null_blk device"
target_up "$backing"
host_load || die "the module does not load"
TARGET_PORT=$PORT
proxy_start

start_load() {
	spawn fio --output="$OUT/load.out" --eta=never --verify_state_save=0 --thread --name=load --filename="$DEV" \
		--rw=randrw --bsrange=4k-64k --size=32m --time_based --runtime=60 \
		--iodepth=16 --ioengine=libaio --direct=1 >"$OUT/load.err" 2>&1
	load_pid=$spawned
	# Until fio does I/O, the moment would not be in its midst.
	wait_until 20 io_done
}
io_done() { awk '{ exit !($1 + $5 > ios + 50) }' ios="$ios_before" "/sys/block/$DISK/stat"; }

pause() { sleep "0.$(printf %03d $((RANDOM % 900)))"; }

gone() { [ ! -e "$DEV" ]; }

# at_a_moment TIMES LIMIT-MS PREPARE REMOVE AFTER: under load, at a random
# moment, PREPARE, and at another REMOVE, which must return within the limit.
at_a_moment() {
	local times=$1 limit=$2 i from took
	for ((i = 1; i <= times; i++)); do
		host_load || return 1
		host_connect -k 2 -c 1 || return 1
		ios_before=0
		start_load || return 1
		pause
		$3
		[ "$3" = : ] || pause
		from=$(now_ms)
		$4 || return 1
		took=$(($(now_ms) - from))
		between "round $i: ms to remove" "$took" 0 "$limit" || return 1
		gone || return 1
		wait_until 20 ended "$load_pid" || {
			echo "the load still waits for its device"
			return 1
		}
		wait "$load_pid"
		$5
	done
}

PORT=$PROXY_PORT
target_dies() {
	proxy refuse on >/dev/null
	proxy reset >/dev/null
}
target_lives() { proxy refuse off >/dev/null; }
hole_on() { proxy hole on >/dev/null; }
hole_off() { proxy hole off >/dev/null; }

PORT=$TARGET_PORT
check "disconnect under load, target alive" at_a_moment 4 5000 : host_disconnect :
PORT=$PROXY_PORT
check "disconnect under load, target dead" at_a_moment 2 8000 target_dies host_disconnect target_lives
check "disconnect under load, target silent" at_a_moment 2 15000 hole_on host_disconnect hole_off

# A module whose device is open is refused to rmmod, like that of any disk.
# After a disconnect the load has ended, and it goes.
refused_then_removed() {
	fails rmmod rflash || {
		echo "the module went away under an open device"
		return 1
	}
	host_disconnect && wait_until 20 ended "$load_pid" && rmmod rflash
}

# With nobody using the devices rmmod disconnects by itself.
idle_rmmod() { # LIMIT-MS PREPARE AFTER
	local from took
	host_load && host_connect -k 2 -c 1 && udevadm settle || return 1
	$2
	pause
	from=$(now_ms)
	wait_until 10 rmmod rflash || {
		echo "$(cat /sys/module/rflash/refcnt) users of the module"
		return 1
	}
	took=$(($(now_ms) - from))
	$3
	between "ms to unload" "$took" 0 "$1" && gone
}

if [ "$INITIATOR" = rflash ]; then
	PORT=$TARGET_PORT
	check "rmmod under load, target alive" at_a_moment 2 10000 : refused_then_removed :
	check "rmmod while connected, target alive" idle_rmmod 5000 : :
	PORT=$PROXY_PORT
	check "rmmod under load, target dead" at_a_moment 1 15000 target_dies refused_then_removed target_lives
	check "rmmod while connected, target dead" idle_rmmod 8000 target_dies target_lives
	check "rmmod under load, target silent" at_a_moment 1 20000 hole_on refused_then_removed hole_off
	check "rmmod while connected, target silent" idle_rmmod 15000 hole_on hole_off
else
	for how in alive dead silent; do
		ok "rmmod under load, target $how # SKIP only for rflash"
		ok "rmmod while connected, target $how # SKIP only for rflash"
	done
fi
host_load
PORT=$TARGET_PORT ADDR=$(target_addr)

# ---- in use while it goes ----

open_device() {
	host_connect || return 1
	exec {held}<"$DEV"
	host_disconnect || return 1
	gone || return 1
	# What is open is an empty shell: an error, or the end of the device.
	[ "$(dd bs=4k count=1 status=none <&"$held" | wc -c)" = 0 ] || return 1
	exec {held}<&-
	host_connect && dd if="$DEV" bs=4k count=1 of=/dev/null status=none && host_disconnect
}
check "disconnect with the device open" open_device

mounted_device() {
	local mnt=$OUT/mnt
	mkdir -p "$mnt"
	host_connect && mkfs.ext4 -q -F "$DEV" && mount "$DEV" "$mnt" || return 1
	head -c 1000000 /dev/urandom >"$mnt/file"
	host_disconnect && gone || return 1
	fails sh -c "head -c 1000000 /dev/urandom >$mnt/more && sync -f $mnt" || {
		echo "the file system still takes data, which has nowhere to go"
		return 1
	}
	umount "$mnt" && host_connect || return 1
	# The journal makes up for the sudden end.
	fsck.ext4 -p "$DEV"
	echo "fsck -p ended with $?"
	fsck.ext4 -f -n "$DEV" && host_disconnect
}
check "disconnect with the device mounted" mounted_device

two_at_once() {
	host_connect || return 1
	spawn host_disconnect
	local other=$spawned
	host_disconnect
	reap "$other" 20
	wait_until 10 gone && host_connect && host_disconnect
}
check "two disconnects at once" two_at_once

interrupted_connect() {
	ADDR=127.0.0.1
	local saved=$PORT i
	PORT=$PROXY_PORT
	proxy hole on
	for i in 1 2 3; do
		spawn rflash connect -t tcp -a "$ADDR" -s "$PORT" -n "$NQN" -k 5
		pause
		kill -KILL "$spawned"
		wait "$spawned" 2>/dev/null
	done
	proxy hole off
	proxy reset
	PORT=$saved ADDR=$(target_addr)
	wait_until 20 nothing_left || {
		ss -tn "dport = :$PORT or dport = :$PROXY_PORT"
		rflash list
		return 1
	}
}
nothing_left() {
	[ -z "$(ls -d /sys/block/rflash* 2>/dev/null)" ] &&
		[ -z "$(ss -Htn state established "dport = :$PORT or dport = :$PROXY_PORT")" ]
}
if [ "$INITIATOR" = rflash ]; then
	check "a connect that is killed leaves nothing" interrupted_connect
else
	ok "a connect that is killed leaves nothing # SKIP only for rflash"
fi

# ---- fifty times, and nothing left ----

# Memory in KiB that the kernel holds and can't give back.
kernel_kib() {
	sync
	echo 3 >/proc/sys/vm/drop_caches
	awk '/^(SUnreclaim|KernelStack|VmallocUsed|Percpu|PageTables):/ { sum += $2 } END { print sum }' /proc/meminfo
}
sockets() { awk '/^TCP:/ { print $3 + 0 }' /proc/net/sockstat; }
tasks() { find /proc -maxdepth 1 -name '[0-9]*' | wc -l; }
users() { cat "/sys/module/$(module_name)/refcnt"; }

cycles() {
	local i
	for ((i = 0; i < $1; i++)); do
		{ host_connect && host_disconnect; } || {
			echo "in round $i"
			return 1
		}
	done
}

# A leak of one page a connection shows: 50 of them are 200 KiB. What the
# kernel's caches move by themselves is less than that once they are warm.
LEAK_KIB=${RFLASH_LEAK_KIB:-400}
no_leak() {
	local kib sock task user
	cycles 10 || return 1
	sleep 1
	kib=$(kernel_kib) sock=$(sockets) task=$(tasks) user=$(users)
	cycles 50 || return 1
	sleep 1
	echo "before: $kib KiB, $sock TCP sockets, $task tasks, $user module users"
	echo "after:  $(kernel_kib) KiB, $(sockets) TCP sockets, $(tasks) tasks, $(users) module users"
	[ $(($(kernel_kib) - kib)) -le "$LEAK_KIB" ] && [ "$(sockets)" -le $((sock + 1)) ] &&
		[ "$(tasks)" -le $((task + 4)) ] && [ "$(users)" -eq "$user" ]
}
check "50 connections leave no memory, sockets, threads or references" no_leak

kmemleak() {
	local f=/sys/kernel/debug/kmemleak
	if [ ! -e $f ]; then
		ok "kmemleak finds nothing # SKIP this kernel has no kmemleak"
		return
	fi
	check "kmemleak finds nothing" eval "echo scan >$f; sleep 6; echo scan >$f; ! grep -B1 -A20 rflash $f"
}
kmemleak

finish
