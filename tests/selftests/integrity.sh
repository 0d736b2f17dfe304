#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
#
# What is written is read: all request sizes, 512 and 4096-byte blocks, several
# namespaces at once, in-capsule and R2T writes; limits, read-only, flush, FUA.

source "$(dirname "$0")/lib.sh"

need_cmd nvme python3 cmp
need_module nvme-tcp
needs_met
plan 20

FIO=$SELFTESTS/../fio

verify_load() { # NAME DEVICE BLOCK-SIZE
	DEV=$2 BS=$3 fio_run "$1" "$FIO/verify.fio"
}

# The data must be on the target, not only in the host's caches: what the host
# reads from the device is what the target reads from its own.
same_on_target() { # DEVICE BACKING BYTES
	local host target
	sync "$1" && blockdev --flushbufs "$1"
	host=$(head -c "$3" "$1" | sha256sum) || return 1
	tgt blockdev --flushbufs "$2"
	target=$(tgt sh -c "head -c $3 $2 | sha256sum") || return 1
	echo "host $host target $target"
	[ "$host" = "$target" ]
}

null512=$(tgt backing_null int512 64) || die "no null_blk device"
null4k=$(tgt backing_null int4k 64 blocksize=4096) || die "no null_blk device"
file=$(tgt backing_file intfile 64) || die "no file"
target_up "$null512" "$null4k" "$file"
host_load || die "the module does not load"
check "connect to three namespaces" host_connect || die "no connection"
check "each namespace has its device" between devices ${#DEVS[@]} 3 3
check "block sizes are the namespaces'" eval \
	'[ "$(blockdev --getss "${DEVS[0]}"),$(blockdev --getss "${DEVS[1]}"),$(blockdev --getss "${DEVS[2]}")" = 512,4096,4096 ]'

check "512-byte blocks: all sizes verify" verify_load v512 "${DEVS[0]}" 512
check "4096-byte blocks: all sizes verify" verify_load v4096 "${DEVS[1]}" 4k
check "512-byte blocks: the target has the same data" same_on_target "${DEVS[0]}" "$null512" $((60 << 20))
check "4096-byte blocks: the target has the same data" same_on_target "${DEVS[1]}" "$null4k" $((60 << 20))

three_at_once() {
	fio_run three --rw=randwrite --bsrange=4k-128k --blockalign=4k --size=6m \
		--iodepth=8 --ioengine=libaio --direct=1 --verify=crc32c --verify_fatal=1 \
		--name=a --filename="${DEVS[0]}" --name=b --filename="${DEVS[1]}" \
		--name=c --filename="${DEVS[2]}"
}
check "three namespaces at once verify" three_at_once

# Requests that may not be split by a wrong limit, or merged past a right one.
mixed_read_write() {
	fio_run mixed --name=mixed --filename="${DEVS[0]}" --rw=randrw --bsrange=512-64k \
		--blockalign=512 --size=4m --iodepth=16 --ioengine=io_uring --direct=1 \
		--verify=crc32c --verify_fatal=1 --verify_backlog=64
}
check "reads among writes verify" mixed_read_write

# ---- flush and FUA, seen by the target ----

trace_start_ok() { tgt trace_start; }
flush_reaches_target() {
	local n
	trace_start_ok || return 1
	dd if=/dev/zero of="${DEVS[0]}" bs=4k count=4 conv=fsync status=none || return 1
	n=$(tgt trace_count 'nvme_cmd_flush')
	between "flushes at the target" "$n" 1 100
}
check "fsync is a flush at the target" flush_reaches_target

fua_reaches_target() {
	local n
	trace_start_ok || return 1
	echo "write cache: $(cat "/sys/block/$DISK/queue/write_cache"), fua: $(cat "/sys/block/$DISK/queue/fua")"
	dd if=/dev/zero of="${DEVS[0]}" bs=4k count=5 oflag=direct,dsync status=none || return 1
	n=$(tgt trace_count 'nvme_cmd_write, .*ctrl=0x4000')
	between "FUA writes at the target" "$n" 5 5
}
check "O_DSYNC is FUA at the target" fua_reaches_target

# ---- read-only ----

# The target's write protection is set by another host: the kernel's own.
write_protect() {
	local ctrl
	modprobe nvme-tcp || return 1
	nvme connect -t tcp -a "$ADDR" -s "$PORT" -n "$NQN" -q "$NQN:writer" \
		-I "$(cat /proc/sys/kernel/random/uuid)" >/dev/null || return 1
	ctrl=$(grep -lx "$NQN" /sys/class/nvme/nvme*/subsysnqn | tail -n 1)
	ctrl=${ctrl%/subsysnqn}
	nvme set-feature "/dev/${ctrl##*/}" -n 1 -f 0x84 --value="$1"
	local rc=$?
	nvme disconnect -d "${ctrl##*/}" >/dev/null
	return "$rc"
}

ro_is() { [ "$(blockdev --getro "${DEVS[0]}")" = "$1" ]; }
becomes_read_only() {
	write_protect 1 && wait_until 10 ro_is 1
}
refuses_write() {
	fails dd if=/dev/zero of="${DEVS[0]}" bs=4k count=1 oflag=direct
}
becomes_writable() {
	write_protect 0 && wait_until 10 ro_is 0 &&
		dd if=/dev/zero of="${DEVS[0]}" bs=4k count=1 oflag=direct
}
check "a write-protected namespace becomes read-only" becomes_read_only
check "a read-only namespace refuses a write" refuses_write
check "it becomes writable again" becomes_writable

host_disconnect

# ---- on the wire: in-capsule, R2T, transfer limit ----

proxy_start
PORT=$PROXY_PORT
proxy mdts 3
check "connect with a transfer limit of 32 KiB" host_connect
both_kinds_of_write() {
	dd if=/dev/urandom of="$OUT/data" bs=1M count=2 status=none
	proxy clear
	dd if="$OUT/data" of="$DEV" bs=4k count=16 oflag=direct status=none || return 1
	between "in-capsule writes" "$(proxy_stat in_capsule)" 16 16 || return 1
	between "R2Ts" "$(proxy_stat r2t)" 0 0 || return 1
	dd if="$OUT/data" of="$DEV" bs=1M oflag=direct status=none || return 1
	between "R2Ts" "$(proxy_stat r2t)" 64 128 || return 1
	dd if="$DEV" bs=1M count=2 iflag=direct status=none | cmp - "$OUT/data"
}
check "small writes go in the capsule, large ones by R2T" both_kinds_of_write
limit_kept() {
	between "largest write in blocks" "$(proxy_stat max_write_blocks)" 64 64 &&
		between "largest read in blocks" "$(proxy_stat max_read_blocks)" 1 64
}
check "no request exceeds the controller's limit" limit_kept

reads_end_by() { # the number of SUCCESS flags, that of responses
	proxy clear
	dd if="$DEV" bs=4k count=16 iflag=direct status=none |
		cmp -n 65536 - "$OUT/data" || return 1
	between "reads ended by the SUCCESS flag" "$(proxy_stat success)" "$1" "$1" &&
		between "responses on all queues" "$(proxy_stat rsp)" "$2" $(($2 + 4))
}
check "reads end with the SUCCESS flag" reads_end_by 16 0
host_disconnect
proxy sqflow on
check "connect to a target that does not use the flag" host_connect
check "reads end with a response" reads_end_by 0 16

finish
