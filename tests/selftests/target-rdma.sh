#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
#
# rflash-target over RDMA: soft-RoCE on a dummy interface, the kernel's own
# initiator.

source "$(dirname "$0")/lib.sh"

need_cmd python3 sfdisk wipefs nvme rdma jq
need_module nvmet-rdma nvme-rdma rdma_rxe dummy
[ "$INITIATOR" = rflash ] || missing+=("rflash: this is a test of its targets")
needs_met
plan 6

TARGET=$(cd "$SELFTESTS/../../tuning" && pwd)/rflash-target
export RFLASH_TARGET_STATE=$STATE/target
ADDR=10.9.0.1

disk=$(backing_null rdma 8) || die "no null_blk device"
undo eval "$TARGET --state-dir $RFLASH_TARGET_STATE delete --all --force >/dev/null"
modprobe -a rdma_rxe nvme-rdma nvmet-rdma dummy && ip link add rft-rdma type dummy && undo ip link del rft-rdma &&
	ip addr add $ADDR/24 dev rft-rdma && ip link set rft-rdma mtu 4200 up &&
	rdma link add rft-rxe type rxe netdev rft-rdma && undo rdma link delete rft-rxe || die "no soft-RoCE"
nvmet_load || die "no nvmet"

config() { (cd /sys/kernel/config && find nvmet/{hosts,ports,subsystems} | sort); }
config >"$OUT/config"
before=$(sha256sum <"$disk")

create() {
	"$TARGET" create --kind nvmet-rdma --device "$disk" --tenants 2 --addr "$ADDR" -o json >"$OUT/made"
}
of() { jq -r ".tenants[$1] | $2" "$OUT/made"; }
check "create for nvmet-rdma" create || die "no target"
for tenant in 0 1; do
	undo eval "nvme disconnect -n $(of "$tenant" .identity) >/dev/null || true"
done
connect() {
	local tenant
	for tenant in 0 1; do
		eval "$(of "$tenant" '.connect."nvme-cli"[0]')" || return 1
	done
}
check "both tenants connect with nvme-cli" connect
# A path of a multipath disk has no device.
disk_for() {
	local file
	while read -r file; do
		file=${file#/sys/block/}
		[ -b "/dev/${file%%/*}" ] && echo "/dev/${file%%/*}" && return
	done < <(grep -lF "$(of "$1" .uuid)" /sys/block/nvme*/wwid)
	return 1
}
arrives() {
	local tenant
	for tenant in 0 1; do
		wait_until 10 disk_for "$tenant" || return 1
		yes "tenant $tenant" | dd of="$(disk_for "$tenant")" bs=64k count=1 iflag=fullblock oflag=direct status=none
	done
	for tenant in 0 1; do
		blockdev --flushbufs "$(of "$tenant" .device)"
		cmp <(dd if="$(of "$tenant" .device)" bs=64k count=1 status=none) <(yes "tenant $tenant" | head -c 65536) || return 1
	done
}
check "what each writes is in its own partition" arrives
sessions() {
	"$TARGET" show -o json | jq -c '[.tenants[] | .sessions]'
	[ "$("$TARGET" show -o json | jq -c '[.tenants[] | .sessions]')" = '[1,1]' ]
}
check "show counts a session each" sessions
removed() {
	nvme disconnect -n "$(of 0 .identity)" && nvme disconnect -n "$(of 1 .identity)" && "$TARGET" delete
}
check "they disconnect, and it is deleted" removed
as_before() {
	local tenant
	config | diff "$OUT/config" - || return 1
	# Without the tenants' data it is the device that it was.
	for tenant in 0 1; do
		dd if=/dev/zero of="$disk" bs=64k count=1 seek=$((16 + tenant * 48)) oflag=direct status=none
	done
	[ "$(sha256sum <"$disk")" = "$before" ]
}
check "configfs and the device are as before" as_before

finish
