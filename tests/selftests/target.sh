#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
#
# rflash-target on a real kernel: tenants get their flash by iSCSI and NVMe/TCP
# with real initiators, see their own data only, and delete leaves configfs and
# the device as they were, after a kill -9, too.

source "$(dirname "$0")/lib.sh"

need_cmd python3 sfdisk wipefs nvme iscsiadm iscsid socat jq
need_module target_core_iblock iscsi_target_mod iscsi_tcp sd_mod
python3 -c 'import rtslib_fb' 2>/dev/null || missing+=("the Python library rtslib-fb")
[ "$INITIATOR" = rflash ] || missing+=("rflash: this is a test of its targets")
needs_met
plan 34

TUNING=$(cd "$SELFTESTS/../../tuning" && pwd)
# The launcher never writes compiled modules; a guest has no time to compile
# them for each call.
export PYTHONPYCACHEPREFIX=$STATE/python
PYTHONPATH=$TUNING python3 -c 'import rflash_tuning.live, rflash_tuning.targets.commands'
TARGET=$TUNING/rflash-target
export RFLASH_TARGET_STATE=$STATE/target
ADDR=127.0.0.1
ME=iqn.2026-11.org.rflash.test:initiator

disk=$(backing_null target 8) || die "no null_blk device"
undo eval "$TARGET --state-dir $RFLASH_TARGET_STATE delete --all --force >/dev/null"
nvmet_load && modprobe -a nvmet-tcp nvme-tcp target_core_iblock iscsi_target_mod iscsi_tcp sd_mod ||
	die "no modules"

# Bytes that are no signature, where the partition table will be.
yes 'former content' | dd of="$disk" bs=4k count=4 iflag=fullblock status=none
yes 'former content' | dd of="$disk" bs=4k count=2 seek=$(((8 << 8) - 2)) iflag=fullblock status=none
sync

# Both kernel targets by configfs, and the device.
config() { (cd /sys/kernel/config && find nvmet/{hosts,ports,subsystems} target -mindepth 1 | sort); }
ends() { { head -c 1M "$disk" && tail -c 1M "$disk"; } | sha256sum; }
device() { sha256sum <"$disk"; }
config >"$OUT/config"
ends_before=$(ends)
device_before=$(device)

as_before() {
	config | diff "$OUT/config" - && [ "$(ends)" = "$ends_before" ] &&
		! ls /sys/block/"${disk#/dev/}"/*/partition 2>/dev/null &&
		! ls "$RFLASH_TARGET_STATE"/*.json 2>/dev/null
}
unchanged() { as_before && [ "$(device)" = "$device_before" ]; }

declare -A made=()

create() { # KIND TENANTS OPTION...
	local kind=$1 tenants=$2 key value
	shift 2
	"$TARGET" create --kind "$kind" --device "$disk" --tenants "$tenants" --addr "$ADDR" -o json "$@" >"$OUT/made" ||
		return
	while IFS=$'\t' read -r key value; do
		made[$key]=$value
	done < <(jq -r '.tenants[] | . as $t | "identity", "device", "size_bytes", "uuid" |
		["\($t.name) \(.)", $t[.]] | @tsv' "$OUT/made")
}

# connect TENANT PROGRAM: runs the commands that create printed.
connect() {
	local line
	while read -r line; do
		echo "+ $line"
		# shellcheck disable=SC2086
		$line || return 1
	done < <(jq -r ".tenants[] | select(.name == \"$1\") | .connect.\"$2\"[]" "$OUT/made")
}

# disk_for TENANT: the disk whose identity create announced. The target's own
# partitions have no such files, and a path of a multipath disk has no device.
disk_for() {
	local file
	while read -r file; do
		file=${file#/sys/block/}
		[ -b "/dev/${file%%/*}" ] && echo "/dev/${file%%/*}" && return
	done < <(grep -laF "${made[$1 uuid]}" /sys/block/*/wwid /sys/block/sd*/device/vpd_pg80 2>/dev/null)
	return 1
}

pattern() { yes "data of $1" | head -c 65536; }
same() { cmp "$1" <(pattern "$2"); }

# its_own TENANT: its disk has its partition's size; what is written to the
# first and last 64 KiB arrives there.
its_own() {
	local dev part blocks
	dev=$(wait_for disk_for "$1") || return 1
	part=${made[$1 device]}
	[ "$(blockdev --getsize64 "$dev")" = "${made[$1 size_bytes]}" ] || return 1
	blocks=$((${made[$1 size_bytes]} >> 16))
	pattern "$1" | dd of="$dev" bs=64k iflag=fullblock oflag=direct status=none &&
		pattern "$1" | dd of="$dev" bs=64k iflag=fullblock oflag=direct seek=$((blocks - 1)) status=none || return 1
	blockdev --flushbufs "$part"
	same <(dd if="$part" bs=64k count=1 status=none) "$1" &&
		same <(dd if="$part" bs=64k skip=$((blocks - 1)) count=1 status=none) "$1"
}

# still_its_own TENANT...: read through the tenant's disk, after all have written.
still_its_own() {
	local tenant dev
	for tenant; do
		dev=$(disk_for "$tenant") && same <(dd if="$dev" bs=64k count=1 iflag=direct status=none) "$tenant" ||
			return 1
	done
}

wait_for() {
	wait_until 10 "$@"
	"$@"
}

sessions() { "$TARGET" show -o json | jq -c '[.tenants[] | .sessions]'; }
sessions_are() {
	local now
	now=$(sessions)
	echo "sessions: $now, expected $1"
	[ "$now" = "$1" ]
}

# refused WORDS COMMAND...: status 2, one line on stderr with these words, no
# output, nothing changed.
refused() {
	local words=$1 rc
	shift
	"$@" >"$OUT/stdout" 2>"$OUT/stderr"
	rc=$?
	echo "status $rc; stderr: $(cat "$OUT/stderr")"
	[ "$rc" -eq 2 ] && [ ! -s "$OUT/stdout" ] && [ "$(wc -l <"$OUT/stderr")" = 1 ] &&
		grep -qE -- "$words" "$OUT/stderr"
}

# ---- NVMe/TCP ----------------------------------------------------------------

check "dry-run of nvmet-tcp" create nvmet-tcp 3 --dry-run
check "it changes nothing" unchanged
check "create for nvmet-tcp" create nvmet-tcp 3 || die "no target"
three_up() { [ "$("$TARGET" show -o json | jq -c '[.tenants[] | [.name, .state, .port, .sessions]]')" = \
	'[["t1","up",4420,0],["t2","up",4421,0],["t3","up",4422,0]]' ]; }
config >"$OUT/three"
check "show lists three tenants that are up" three_up
good_table() { sfdisk --verify "$disk" && sfdisk -l "$disk" && ! sfdisk -l "$disk" 2>&1 | grep -qi 'not start'; }
check "sfdisk finds nothing wrong with the table" good_table
host_load || die "the module does not load"
undo host_disconnect_all
for tenant in t2 t3; do
	undo eval "nvme disconnect -n ${made[$tenant identity]} >/dev/null || true"
done
check "t1 connects with rflash" connect t1 rflash
check "t2 connects with nvme-cli" connect t2 nvme-cli
check "t3 connects with nvme-cli" connect t3 nvme-cli
for tenant in t1 t2 t3; do
	check "$tenant has its partition" its_own $tenant
done
check "none has overwritten another's data" still_its_own t1 t2 t3
check "show counts a session each" sessions_are '[1,1,1]'
check "delete refuses while they are connected" refused 't1 has 1 session' "$TARGET" delete
disconnect() {
	rflash disconnect -n "${made[t1 identity]}" && nvme disconnect -n "${made[t2 identity]}" &&
		nvme disconnect -n "${made[t3 identity]}"
}
check "they disconnect" disconnect
take_down() { # as a reboot does
	local port
	for port in 4420 4421; do
		rm /sys/kernel/config/nvmet/ports/"$port"/subsystems/* && rmdir /sys/kernel/config/nvmet/ports/"$port" || return 1
	done
}
restored() { take_down && "$TARGET" restore && config | diff "$OUT/three" -; }
check "restore brings back what went" restored
check "delete" "$TARGET" delete
check "configfs and the table's place are as before" as_before
kept() { create nvmet-tcp 3 && same <(dd if="${made[t2 device]}" bs=64k count=1 status=none) t2 && "$TARGET" delete; }
check "the same create finds the tenants' data again" kept
device_before=$(device)

# ---- iSCSI -------------------------------------------------------------------

mkdir -p /run/lock/iscsi /etc/iscsi
name=/etc/iscsi/initiatorname.iscsi
if [ -e $name ]; then
	cp $name "$STATE/initiatorname" && undo mv "$STATE/initiatorname" $name
else
	undo rm -f $name
fi
echo "InitiatorName=$ME" >$name
pgrep -x iscsid >/dev/null || {
	iscsid && undo pkill -x iscsid
}

check "create for iscsi, for named hosts" create iscsi 3 --allow-host t1=$ME --allow-host t2=$ME \
	--allow-host t3=iqn.2026-11.org.rflash.test:other || die "no target"
for tenant in t1 t2 t3; do
	iqn=${made[$tenant identity]}
	undo eval "iscsiadm -m node -T $iqn -o delete >/dev/null 2>&1 || true"
	undo eval "iscsiadm -m node -T $iqn --logout >/dev/null 2>&1 || true"
done
check "t1 logs in with open-iscsi" connect t1 open-iscsi
check "t2 logs in with open-iscsi" connect t2 open-iscsi
check "a host without permission does not" fails connect t3 open-iscsi
for tenant in t1 t2; do
	check "$tenant has its partition by iscsi" its_own $tenant
done
check "none has overwritten another's data by iscsi" still_its_own t1 t2
check "show counts the sessions of iscsi" sessions_are '[1,1,0]'
leave() {
	iscsiadm -m node -T "${made[t1 identity]}" --logout && iscsiadm -m node -T "${made[t2 identity]}" --logout
}
check "they log out" leave
check "delete of iscsi" "$TARGET" delete
check "configfs and the table's place are as before iscsi" as_before
device_before=$(device)

# ---- kill -9, and what is refused ----------------------------------------------

# killed KIND EVENT NUMBER: the process kills itself before it makes its NUMBERth
# directory or link in configfs.
killed() {
	python3 -c '
import os, runpy, signal, sys
event, number, command = sys.argv[1], int(sys.argv[2]), sys.argv[3]
seen = 0
def hook(name, arguments):
    global seen
    if name == event and any(str(word).startswith("/sys/kernel/config/") for word in arguments):
        seen += 1
        if seen == number:
            os.kill(os.getpid(), signal.SIGKILL)
sys.addaudithook(hook)
sys.argv = sys.argv[3:]
runpy.run_path(command, run_name="__main__")
' "$2" "$3" "$TARGET" create --kind "$1" --device "$disk" --tenants 3 --addr "$ADDR"
	[ $? -eq 137 ] || return 1
	fails unchanged && "$TARGET" delete && unchanged
}
check "delete after kill -9 amid a create for nvmet" killed nvmet-tcp os.symlink 2
check "delete after kill -9 amid a backstore of iscsi" killed iscsi os.mkdir 9
check "delete after kill -9 amid a target of iscsi" killed iscsi os.mkdir 13

other=$(backing_null mounted 16) || die "no null_blk device"
mkfs.ext4 -q "$other" && mkdir -p "$OUT/mnt" && mount "$other" "$OUT/mnt" && undo umount "$OUT/mnt"
spawn socat tcp-listen:4421,bind=$ADDR,reuseaddr /dev/null
wait_until 10 eval "ss -Hltn 'sport = :4421' | grep -q ."
refusals() {
	refused 'is mounted at' "$TARGET" create --kind iscsi --device "$other" --tenants 2 --addr "$ADDR" &&
		refused "port 4421 of $ADDR, which would be t2's, is taken" create nvmet-tcp 3 &&
		refused 'there is no device /dev/none' \
			"$TARGET" create --kind iscsi --device /dev/none --tenants 2 --addr "$ADDR" &&
		refused '0 tenants make no target' create iscsi 0 &&
		unchanged
}
check "what makes no sense is refused in one sentence" refusals

finish
