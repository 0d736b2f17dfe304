#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
#
# Guest side of the driver benchmark: one machine that is host and target.
# Runs what $RFLASH_OUT/runs lists, a line each: NAME SUBJECT FIO-ARGUMENTS.
# Leaves NAME.json, NAME.prerun.txt and NAME.postrun.txt (context switches of
# the whole machine before and after the job), and a file "provenance".

cd "$(dirname "$0")/../selftests" || exit 1
# shellcheck source=../selftests/lib.sh
source ./lib.sh

need_cmd nvme
need_module nvme-tcp
runs=$RFLASH_OUT/runs
results=$RFLASH_OUT
needs_met
plan 1

nvme_at_its_best

# Completes at once, in the submitter's context, and keeps nothing: what is
# left is the way there.
device=$(backing_null bench 4096 memory_backed=0 discard=0 irqmode=0 queue_mode=2 \
	submit_queues="$(nproc)" hw_queue_depth=1024) || die "no null_blk device"
echo none >"/sys/block/${device#/dev/}/queue/scheduler"
target_up "$device"

declare -A subject=([null_blk]=$device)

connect_nvme() {
	INITIATOR=nvme host_connect -q "$NQN:nvme" -I "$(cat /proc/sys/kernel/random/uuid)" --disable-sqflow --queue-size=128 || die "nvme-tcp does not connect"
	subject[nvme-tcp]=$DEV
	# One queue gets mq-deadline, which would cost it a tenth.
	echo none >"/sys/block/$DISK/queue/scheduler"
}
connect_rflash() {
	host_load || die "rflash does not load"
	INITIATOR=rflash host_connect -q "$NQN:rflash" || die "rflash does not connect"
	subject[rflash]=$DEV
}
undo nvme disconnect -n "$NQN"
mapfile -t wanted < <(cut -d' ' -f2 "$runs" | sort -u)
for s in "${wanted[@]}"; do
	case $s in
	nvme-tcp) connect_nvme ;;
	rflash) connect_rflash ;;
	esac
done
for s in "${!subject[@]}"; do
	scheduler=$(cat "/sys/block/${subject[$s]#/dev/}/queue/scheduler")
	[[ $scheduler = *"[none]"* ]] || die "$s has a scheduler: $scheduler"
done

{
	echo "kernel $(uname -rv)"
	fio --version
	nvme version | head -n 1
	echo "cpus $(nproc)"
	grep -m1 'model name' /proc/cpuinfo
	cat /proc/cmdline
} >"$results/provenance"

cd "$results" || exit 1 # fio leaves the hooks' output where it is
total=$(wc -l <"$runs")
count=0
while read -r name which args; do
	count=$((count + 1))
	[ -b "${subject[$which]:-}" ] || die "there is no subject $which"
	# shellcheck disable=SC2086 # words
	fio --name="$name" --filename="${subject[$which]}" --eta=never \
		--output-format=json+ --output="$results/$name.json" \
		--exec_prerun="grep ctxt /proc/stat" --exec_postrun="grep ctxt /proc/stat" \
		$args </dev/null >"$results/$name.err" 2>&1 || {
		note_file "$results/$name.err"
		die "fio failed in $name"
	}
	echo "# $count/$total $name"
done <"$runs"
ok "$total runs"
finish
