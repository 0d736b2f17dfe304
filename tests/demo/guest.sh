#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
#
# What the demo does, as seen by the datastore host; the flash is in the other
# guest. Lines that start with "> " tell the story; the files in $RFLASH_OUT
# are what the page is made of.

cd "$(dirname "$0")/../selftests" || exit 1
# shellcheck source=../selftests/lib.sh
source ./lib.sh

need_server
need_cmd mkfs.ext4 fsck.ext4 sfdisk lsblk
needs_met
plan 1
results=$RFLASH_OUT
MNT=/mnt
AWAY=4

say() { echo "> $*"; }
show() { # prints a command like a terminal would, and what it says
	echo "> # $*"
	"$@" 2>&1 | sed 's/^/>   /'
	return "${PIPESTATUS[0]}"
}
event() { echo "$(now_ms) $*" >>"$results/events"; }

# ---- a remote disk ----

say "The server exports its flash, here a RAM-backed device, with the kernel's NVMe target:"
flash=$(tgt backing_null demo 256) || die "no flash"
target_up "$flash"
say "  $flash as $NQN at $ADDR:$PORT"
say "The host loads the module and connects:"
say "# insmod rflash.ko"
host_load || die "the module does not load"
show rflash connect -t tcp -a "$ADDR" -s "$PORT" -n "$NQN" -k 2 -c 1 || die "no connection"
undo host_disconnect_all
DEV=/dev/rflash0
DISK=${DEV#/dev/}
[ -b "$DEV" ] || die "there is no $DEV"
show rflash list

say "It is a disk like any other: a partition, ext4, files"
echo 'label: gpt
size=192MiB, type=linux' | sfdisk -q "$DEV" || die "no partition"
wait_until 10 test -b "${DEV}p1" || die "no ${DEV}p1"
show mkfs.ext4 -q "${DEV}p1" || die "no ext4"
mount "${DEV}p1" $MNT && undo sh -c "! mountpoint -q $MNT || umount $MNT"
head -c 24000000 /dev/urandom >$MNT/photo
sum=$(sha256sum <$MNT/photo)
umount $MNT
blockdev --flushbufs "$DEV"
mount "${DEV}p1" $MNT
[ "$(sha256sum <$MNT/photo)" = "$sum" ] || die "the file does not read back the same"
show lsblk -o NAME,SIZE,TYPE,MOUNTPOINT "$DEV"
say "24 MB written, unmounted, mounted again, and read back: the same"

# ---- the target goes away ----

say "fio writes and verifies; the target will be taken away for $AWAY s in the midst of it"
fio --output-format=json --output="$results/outage.json" --eta=never --thread --verify_state_save=0 \
	--name=outage --directory=$MNT --size=16m --rw=randwrite --bs=4k --direct=1 \
	--ioengine=libaio --iodepth=4 --rate_iops=400 --verify=crc32c --verify_fatal=1 \
	--verify_backlog=64 --write_lat_log="$results/outage" --log_unix_epoch=1 \
	>"$results/outage.err" 2>&1 &
load=$!
background+=("$load")
sleep 3
before=$(host_reconnects)
tgt nvmet_unlink 1 "$NQN" || die "the target does not go away"
event away
wait_until 10 not_live || die "the host has not noticed that the target is away"
say "  target away; $DISK is $(host_state), and the program waits"
sleep "$AWAY"
ended "$load" && die "fio did not wait: $(cat "$results/outage.err")"
tgt nvmet_link 1 "$NQN" || die "the target does not come back"
event back
wait_until 30 is_live || die "the host is not connected again"
say "  target back; $DISK is $(host_state), $(($(host_reconnects) - before)) reconnect"
if ! reap "$load" 240; then
	note_file "$results/outage.err"
	die "fio found an error"
fi
umount $MNT
blockdev --flushbufs "$DEV"
fsck.ext4 -f -n "${DEV}p1" >"$results/fsck" 2>&1 || die "fsck: $(cat "$results/fsck")"
mount "${DEV}p1" $MNT
[ "$(sha256sum <$MNT/photo)" = "$sum" ] || die "the first file has changed"
umount $MNT
say "Every block verified, fsck is content, the first file unchanged: nothing was lost"
show rflash list
show rflash stats "$DISK"
say "# rflash disconnect -n $NQN"
host_disconnect || die "no disconnect"

{
	uname -r
	fio --version
	echo "$(nproc) CPUs: $(sed -n 's/^model name[^:]*: *//p' /proc/cpuinfo | head -n 1)"
} >"$results/provenance"
ok "demo"
finish
