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
need_cmd nvme mkfs.ext4 fsck.ext4 sfdisk lsblk
need_module nvme-tcp
needs_met
plan 1
results=$RFLASH_OUT
MNT=/mnt
ROUNDS=${1:-3}
RUN_SECONDS=${2:-2}
AWAY=4

say() { echo "> $*"; }
show() { # prints a command like a terminal would, and what it says
	echo "> # $*"
	"$@" 2>&1 | sed 's/^/>   /'
	return "${PIPESTATUS[0]}"
}
event() { echo "$(now_ms) $*" >>"$results/events"; }

# ---- a remote disk ----

nvme_at_its_best
say "The server exports its flash, here a RAM-backed device, with the kernel's NVMe target:"
flash=$(tgt backing_null demo 256) || die "no flash"
target_up "$flash"
say "  $flash as $NQN at $ADDR:$PORT"
say "The host loads the module and connects:"
show host_load || die "the module does not load"
show rflash connect -t tcp -a "$ADDR" -s "$PORT" -n "$NQN" -k 2 -c 1 || die "no connection"
undo host_disconnect_all
DEV=$(rflash list -o json | grep -om1 '/dev/rflash[0-9]*')
[ -b "$DEV" ] || DEV=/dev/rflash0
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
event away
tgt nvmet_unlink 1 "$NQN" || die "the target does not go away"
wait_until 10 not_live || die "the host has not noticed that the target is away"
say "  target away; $DISK is $(host_state), and the program waits"
sleep "$AWAY"
ended "$load" && die "fio did not wait: $(cat "$results/outage.err")"
event back
tgt nvmet_link 1 "$NQN" || die "the target does not come back"
wait_until 30 is_live || die "the host is not connected again"
event live
say "  target back; $DISK is $(host_state), $(($(host_reconnects) - before)) reconnect"
if ! reap "$load" 90; then
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
show rflash show "$DISK"
host_disconnect || die "no disconnect"

# ---- how fast ----

say "fio on the server's own device, by nvme-tcp, and by rflash; $ROUNDS rounds, alternating"
INITIATOR=nvme host_connect -q "$NQN:nvme" -I "$(cat /proc/sys/kernel/random/uuid)" --disable-sqflow || die "nvme-tcp does not connect"
undo nvme disconnect -n "$NQN"
nvme_dev=$DEV
connected=
INITIATOR=rflash host_connect -q "$NQN:rflash" || die "rflash does not connect"

run_fio() { # NAME COMMAND-PREFIX DEVICE ARGUMENT...
	local name=$1 prefix=$2 dev=$3
	shift 3
	# Through standard output: the server has no way into this directory.
	$prefix fio --name="$name" --filename="$dev" --output-format=json+ --eta=never \
		--ioengine=io_uring --direct=1 --thread --norandommap --randrepeat=1 \
		--group_reporting --lat_percentiles=1 --clat_percentiles=0 \
		--slat_percentiles=0 --percentile_list=50:95:99:99.9 --time_based \
		--runtime="$RUN_SECONDS" "$@" </dev/null \
		>"$results/$name.json" 2>"$results/$name.err" || {
		note_file "$results/$name.err"
		die "fio failed in $name"
	}
}

for ((round = 0; round < ROUNDS; round++)); do
	for case in randread-1 randread-32 randwrite-1 randwrite-32; do
		rw=${case%-*} qd=${case#*-}
		batch=$((qd < 8 ? qd : 8))
		args="--rw=$rw --bs=4k --iodepth=$qd --iodepth_batch_submit=$batch --iodepth_batch_complete_min=$batch"
		# shellcheck disable=SC2086 # words
		run_fio "perf.$case.local.$round" on-server "$flash" $args
		# shellcheck disable=SC2086 # words
		run_fio "perf.$case.nvme-tcp.$round" '' "$nvme_dev" $args
		# shellcheck disable=SC2086 # words
		run_fio "perf.$case.rflash.$round" '' "$DEV" $args
	done
	say "  round $((round + 1)) of $ROUNDS done"
done
{
	uname -r
	fio --version
	nvme version | head -n 1
	echo "$(nproc) CPUs: $(sed -n 's/^model name[^:]*: *//p' /proc/cpuinfo | head -n 1)"
} >"$results/provenance"
ok "demo"
finish
