#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
#
# ext4 and xfs with their checkers; discard and write zeroes, proved by content
# and by what the target has allocated.

source "$(dirname "$0")/lib.sh"

need_cmd mkfs.ext4 fsck.ext4 mkfs.xfs xfs_repair blkdiscard fstrim fio cmp
needs_met
plan 16

MNT=$OUT/mnt
mkdir -p "$MNT"

null=$(tgt backing_null fs 384) || die "no null_blk device"
file=$(tgt backing_file fsfile 48) || die "no file"
target_up "$null" "$file"
host_load || die "the module does not load"
check "connect" host_connect || die "no connection"
FILE_DEV=${DEVS[1]}

mounted() { mount -o "${1:-defaults}" "$DEV" "$MNT" && undo sh -c "! mountpoint -q $MNT || umount $MNT"; }

churn() { # NAME: files come, are verified, and half of them go
	fio_run "$1" --directory="$MNT" --name="$1" --nrfiles=16 --size=16m --numjobs=2 \
		--rw=randwrite --bsrange=1k-64k --bs_unaligned=1 --ioengine=psync \
		--fsync=32 --verify=crc32c --verify_fatal=1 || return 1
	rm -f "$MNT/$1".0.* && sync -f "$MNT"
}

survives_remount() {
	head -c 5000001 /dev/urandom >"$MNT/kept" || return 1
	cp "$MNT/kept" "$OUT/kept"
	umount "$MNT" && blockdev --flushbufs "$DEV" && mounted defaults && cmp "$MNT/kept" "$OUT/kept"
}

trim() {
	local before after
	before=$(tgt trace_count 'nvme_cmd_dsm')
	fstrim -v "$MNT" || return 1
	after=$(tgt trace_count 'nvme_cmd_dsm')
	echo "deallocate commands: $before, then $after"
	[ "$after" -gt "$before" ]
}

tgt trace_start || die "no trace"

check "mkfs.ext4" mkfs.ext4 -q -F "$DEV"
check "ext4: mount with discard" mounted discard
check "ext4: files verify" churn ext4
check "ext4: fstrim reaches the target" trim
check "ext4: a file survives a remount" survives_remount
umount "$MNT"
check "ext4: fsck finds nothing" fsck.ext4 -f -n "$DEV"

check "mkfs.xfs" mkfs.xfs -q -f "$DEV"
check "xfs: mount" mounted defaults
check "xfs: files verify" churn xfs
check "xfs: fstrim reaches the target" trim
check "xfs: a file survives a remount" survives_remount
umount "$MNT"
check "xfs: xfs_repair finds nothing" xfs_repair -n "$DEV"

# ---- discard and write zeroes ----

# A model of the device's contents is kept in a file, and every operation is
# done to both; then they must be the same.
MODEL_MB=16

fill() {
	head -c $((MODEL_MB << 20)) /dev/urandom >"$OUT/model"
	dd if="$OUT/model" of="$1" bs=1M oflag=direct status=none
}

punch_model() { # OFFSET LENGTH
	dd if=/dev/zero of="$OUT/model" bs=512 seek=$(($1 / 512)) count=$(($2 / 512)) \
		conv=notrunc status=none
}

like_model() {
	blockdev --flushbufs "$1"
	dd if="$1" bs=1M count="$MODEL_MB" iflag=direct status=none | cmp - "$OUT/model"
}

allocated() { tgt stat -c %b "$1"; }

discard_frees() {
	local before after
	fill "$FILE_DEV" || return 1
	sync "$FILE_DEV"
	before=$(allocated "$file")
	blkdiscard -o $((4 << 20)) -l $((8 << 20)) "$FILE_DEV" || return 1
	punch_model $((4 << 20)) $((8 << 20))
	after=$(allocated "$file")
	echo "512-byte blocks allocated by the target: $before, then $after"
	[ $((before - after)) -ge 16384 ] && like_model "$FILE_DEV"
}
check "discard frees what was named and nothing else" discard_frees

write_zeroes() {
	local commands
	fill "$DEV" || return 1
	tgt trace_start || return 1
	# Odd lengths and places, and one larger than a command can carry data.
	local range
	for range in "512 512" "1536 3584" "69632 1049088" "4194304 9437184"; do
		# shellcheck disable=SC2086 # two words
		set -- $range
		blkdiscard -z -o "$1" -l "$2" "$DEV" || return 1
		punch_model "$1" "$2"
	done
	commands=$(tgt trace_count 'nvme_cmd_write_zeroes')
	between "write zeroes commands" "$commands" 4 64 && like_model "$DEV"
}
check "write zeroes zeroes what was named and nothing else" write_zeroes

# A file in memory has no fallocate for zeroes: the target refuses the command,
# and the host has to fall back to writing them.
zeroes_refused() {
	fill "$FILE_DEV" || return 1
	blkdiscard -z -o 8192 -l 1052672 "$FILE_DEV" || return 1
	punch_model 8192 1052672
	like_model "$FILE_DEV"
}
check "where the target refuses write zeroes, zeroes are written" zeroes_refused

finish
