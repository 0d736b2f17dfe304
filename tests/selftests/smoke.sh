#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
#
# The first five minutes with rflash: load, connect, partition, format, mount,
# write, read back, disconnect, unload.

source "$(dirname "$0")/lib.sh"

need_cmd mkfs.ext4 fsck.ext4 sfdisk sha256sum
needs_met
plan 14

MNT=$OUT/mnt
MB=192

size_is() { between "size in bytes" "$(blockdev --getsize64 "$1")" "$2" "$2"; }
block_size_is() { between "logical block size" "$(blockdev --getss "$1")" "$2" "$2"; }

wwid_is_the_uuid() {
	local uuid
	uuid=$(tgt cat "$NVMET/subsystems/$NQN/namespaces/1/device_uuid")
	echo "wwid $(wwid_of "$DISK"), the target's UUID $uuid"
	[ "$(wwid_of "$DISK")" = "uuid.$uuid" ]
}

partition() {
	echo 'label: gpt
start=1MiB, type=linux' | sfdisk -q "$DEV" && wait_until 10 test -b "$PART"
}

mount_part() {
	mkdir -p "$MNT"
	mount "$PART" "$MNT"
}

write_files() {
	mount_part || return 1
	undo sh -c "! mountpoint -q $MNT || umount $MNT"
	local i
	for i in 1 2 3 4; do
		head -c $((i * 3000001)) /dev/urandom >"$MNT/file$i" || return 1
	done
	mkdir "$MNT/dir" && echo small >"$MNT/dir/small" || return 1
	(cd "$MNT" && find . -type f -exec sha256sum {} +) >"$OUT/sums" || return 1
	umount "$MNT"
}

read_files() {
	blockdev --flushbufs "$DEV"
	mount_part && (cd "$MNT" && sha256sum --quiet -c "$OUT/sums") &&
		[ "$(wc -l <"$OUT/sums")" = 5 ] && umount "$MNT"
}

backing=$(tgt backing_null smoke $MB) || die "no null_blk device"
target_up "$backing"

check "the module loads" host_load || die "nothing works without the module"
check "connect" host_connect || die "nothing works without a connection"
check "the device has the namespace's size" size_is "$DEV" $((MB << 20))
check "the device has the namespace's block size" block_size_is "$DEV" 512
check "wwid is the namespace's UUID" wwid_is_the_uuid
check "there is a by-id link" wait_until 10 has_link "$(link_of "$DISK")" "$DISK"
PART=${DEV}p1
check "the device can be partitioned" partition
check "the partition has a by-id link" \
	wait_until 10 has_link "$(link_of "$DISK")-part1" "${DISK}p1"
check "mkfs.ext4" mkfs.ext4 -q -F "$PART"
check "files can be written" write_files
check "the files read back the same" read_files
check "fsck finds nothing" fsck.ext4 -f -n "$PART"
check "disconnect removes the device" eval 'host_disconnect && [ ! -e "$DEV" ]'
check "the module unloads" host_unload

finish
