#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
#
# Namespaces come, go, grow and shrink on the live target. The host sees it by
# asynchronous events, without a new connection.

source "$(dirname "$0")/lib.sh"

needs_met
plan 15

one=$(tgt backing_file nsone 32) || die "no file"
two=$(tgt backing_file nstwo 48) || die "no file"
target_up "$one"
NS=$NVMET/subsystems/$NQN/namespaces
host_load || die "the module does not load"
check "connect to one namespace" host_connect -c 1 || die "no connection"
FIRST=$DISK

disk_of() { # NSID: the disk that shows this namespace
	local f
	for f in /sys/block/"${DISK%%[0-9]*}"*/nsid; do
		[ "$(cat "$f" 2>/dev/null)" = "$1" ] && basename "$(dirname "$f")" && return
	done
	return 1
}
has_ns() { [ -b "/dev/$(disk_of "$1")" ]; }
has_no_ns() { ! disk_of "$1"; }
mb_is() { [ "$(blockdev --getsize64 "/dev/$(disk_of "$1")")" = $(($2 << 20)) ]; }

added() { tgt nvmet_ns "$NQN" 2 "$two" && wait_until 10 has_ns 2; }
check "an added namespace appears" added
check "it has its size" wait_until 5 mb_is 2 48
SECOND=$(disk_of 2)
check "it has a by-id link" wait_until 10 has_link "$(link_of "$SECOND")" "$SECOND"
usable() {
	fio_run usable --name=usable --filename="/dev/$SECOND" --rw=randwrite --bs=4k \
		--size=1m --direct=1 --ioengine=libaio --iodepth=8 --verify=crc32c --verify_fatal=1
}
check "it can be used" usable

resize() { # NSID FILE MEGABYTES
	tgt truncate -s "$3M" "$2" && tgt set_attrs "$NS/$1" revalidate_size=1 &&
		wait_until 10 mb_is "$1" "$3"
}
check "a grown namespace grows" resize 2 "$two" 64
end_of_device() { dd if=/dev/urandom of="/dev/$SECOND" bs=1M seek=63 count=1 oflag=direct status=none; }
check "its new end can be written" end_of_device
check "a shrunk namespace shrinks" resize 2 "$two" 16
beyond_the_end() {
	fails dd if=/dev/zero of="/dev/$SECOND" bs=1M seek=16 count=1 oflag=direct status=none
}
check "nothing can be written beyond the new end" beyond_the_end

resized_under_load() {
	fio_run resized --name=resized --filename="/dev/$FIRST" --rw=randwrite --bs=4k-16k \
		--size=8m --direct=1 --ioengine=libaio --iodepth=8 --verify=crc32c --verify_fatal=1 &
	local pid=$! mb
	for mb in 40 36 44; do
		resize 1 "$one" "$mb" || return 1
	done
	wait "$pid"
}
check "a namespace is resized under load" resized_under_load

link_before=$(link_of "$SECOND")
removed() {
	tgt nvmet_ns_remove "$NQN" 2
	wait_until 10 has_no_ns 2 && wait_until 10 test ! -e "/dev/$SECOND"
}
check "a removed namespace disappears" removed
check "its by-id link goes with it" wait_until 10 test ! -e "/dev/disk/by-id/$link_before"
check "the other one is still in use" dd if="/dev/$FIRST" of=/dev/null bs=4k count=1 iflag=direct

replaced() { # another namespace under the same number is another disk
	local uuid=2f9c1d34-7a5b-4c1e-9d1f-0a1b2c3d4e5f
	tgt nvmet_ns_remove "$NQN" 1
	tgt nvmet_ns "$NQN" 1 "$two" device_uuid="$uuid" || return 1
	wait_until 10 eval "has_ns 1 && [ \"\$(wwid_of \"\$(disk_of 1)\")\" = uuid.$uuid ]"
}
check "another namespace under the same number is another disk" replaced

no_reconnect() {
	DISK=$(disk_of 1)
	between reconnects "$(host_reconnects)" 0 0
}
if [ "$INITIATOR" = rflash ]; then
	check "all without a new connection" no_reconnect
else
	ok "all without a new connection # SKIP only rflash counts"
fi

finish
