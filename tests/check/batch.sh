#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
# Runs several selftests in one guest, one after the other: a boot costs as much
# as a short test. Stops when a test has hung or the kernel has complained, since
# what comes after would say little; guests.py then takes a fresh guest.
#
# usage: batch.sh SCRIPT:SECONDS...
set -u

# taint: the kernel's taint bits that tell trouble: bad page, died, warned, soft
# lockup. An out-of-tree module's own bits do not count.
taint() {
	echo $(($(</proc/sys/kernel/tainted) & (1 << 5 | 1 << 7 | 1 << 9 | 1 << 14)))
}

for entry; do
	script=${entry%:*}
	seconds=${entry##*:}
	name=${script##*/}
	out=/out/$name
	mkdir -p "$out"
	before=$(taint)
	echo "batch: begin $name"
	echo "batch: begin $name" >/dev/kmsg
	SECONDS=0
	RFLASH_OUT=$out timeout --kill-after=15 "$seconds" "$RFLASH_ROOT/$script"
	status=$?
	echo "batch: end $name $status $SECONDS"
	[ $status = 124 ] || [ $status = 137 ] && exit 0
	[ "$(taint)" = "$before" ] || exit 0
done
