# SPDX-License-Identifier: GPL-2.0
# shellcheck shell=bash
#
# What the tuner's selftests share, on top of lib.sh. This guest is the flash
# server, or what the script makes of it; the other one, where there is one, has
# the tenants:
#
#	peer 10.99.0.1 --- data0, MTU 9000 --- 10.99.0.2 this guest
#	nvme-cli, open-iscsi                   rflash-target, rflash-tune, NVMe drive
#
# The driver under test elsewhere is not needed: tenants use the kernel's own.

RFLASH_INITIATOR=nvme
unset RFLASH_TARGETS
# shellcheck source=./lib.sh
source "$(dirname "${BASH_SOURCE[0]}")/lib.sh"

# Tenants are elsewhere: what this guest's own initiator is like does not matter.
nvme_at_its_best() { :; }

NIC=data0
FLASH=/dev/nvme0n1
HERE=10.99.0.2
STATE_DIR=/run/tune-state
export RFLASH_TUNE_STATE=$STATE_DIR PYTHONPYCACHEPREFIX=/run/pycache

# The commands, from the tree, with the compiled modules kept: the tree is
# read-only, and compiling takes longer than anything they do here.
in_tree() { # MODULE ARGUMENT...
	python3 -c "import sys
sys.path.insert(0, '$SELFTESTS/../../tuning')
from rflash_tuning.$1 import main
sys.exit(main())" "${@:2}"
}
tune() { in_tree tune.commands "$@"; }
target() { in_tree targets.commands --state-dir /run/target-state "$@"; }

need_peer() {
	command -v on-peer >/dev/null && on-peer true 2>/dev/null ||
		missing+=("a second guest (command on-peer)")
}

need_nic_queues() { # AT-LEAST
	local queues=("/sys/class/net/$NIC/queues"/rx-*)
	[ ${#queues[@]} -ge "$1" ] || missing+=("$1 queues of $NIC")
}

need_flash() { [ -b $FLASH ] || missing+=("a drive $FLASH"); }

# state FILE [PART...]: everything that a tuner can change, without its help.
state() { "$SELFTESTS/tunestate.py" "${@:2}" >"$1"; }

# same_state FILE FILE: byte for byte.
same_state() {
	[ -s "$1" ] && diff "$1" "$2" | head -n 30
	cmp "$1" "$2"
}

# status_is STATUS COMMAND...: 3 stands for "done, but for what this host does
# not allow", and counts as 0 where STATUS is done.
status_is() {
	local rc=0
	"${@:2}" || rc=$?
	echo "exit status $rc (expected $1)"
	case $1 in
	done) [ $rc = 0 ] || [ $rc = 3 ] ;;
	*) [ $rc = "$1" ] ;;
	esac
}

# of_plan FILE EXPRESSION: prints the value of a Python expression over a plan
# in JSON (p), lists as words.
of_plan() {
	python3 - "$1" "$2" <<-'end'
		import json, sys
		p = json.load(open(sys.argv[1]))["plan"]
		share = {s["tenant"]: s for s in p["allocation"]["shares"]}
		value = eval(sys.argv[2])
		print(*value) if isinstance(value, (list, tuple)) else print(value)
	end
}

# ---- tenants -----------------------------------------------------------------

# tenants_up KIND N: targets here.
tenants_up() {
	modprobe null_blk nr_devices=0
	target create --kind "$1" --device $FLASH --tenants "$2" --addr $HERE >"$OUT/create.log" 2>&1 || {
		note_file "$OUT/create.log"
		return 1
	}
	undo target delete --force >/dev/null
}

# name_of_tenant N: its NQN or IQN.
name_of_tenant() { grep -oE "(nqn|iqn)[.:A-Za-z0-9-]*[.:]t$1\b" "$OUT/create.log" | head -n 1; }

nvme_login() { # N...
	local n
	on-peer modprobe nvme-tcp
	for n; do
		on-peer nvme connect -t tcp -a $HERE -s $((4419 + n)) -n "$(name_of_tenant "$n")" -i 1 || return 1
	done
	on-peer udevadm settle
}

iscsi_login() { # N...
	local n
	on-peer 'pidof iscsid >/dev/null || iscsid'
	for n; do
		on-peer iscsiadm -m node -o new -T "$(name_of_tenant "$n")" -p $HERE:$((3259 + n)) || return 1
		on-peer iscsiadm -m node -T "$(name_of_tenant "$n")" -p $HERE:$((3259 + n)) -l || return 1
	done
	on-peer udevadm settle
}

iscsi_logout() { # N...
	local n
	for n; do
		on-peer iscsiadm -m node -T "$(name_of_tenant "$n")" -p $HERE:$((3259 + n)) -u || return 1
	done
}

# disk_of_tenant N: its block device on the peer.
disk_of_tenant() {
	local name
	name=$(name_of_tenant "$1")
	case $name in
	nqn*) on-peer "for d in /sys/block/nvme*n*; do
			[ \"\$(cat \$d/device/subsysnqn)\" = $name ] && [ -b /dev/\${d##*/} ] && echo /dev/\${d##*/}
		done" | head -n 1 ;;
	iqn*) on-peer "readlink -f /dev/disk/by-path/*$name-lun-0" ;;
	esac
}

# load_of_tenant N MEGABYTES: reads and writes of this tenant alone. So much, not
# so long: what a slow machine does in some seconds drowns in the others' keep-alives.
load_of_tenant() {
	local disk
	disk=$(disk_of_tenant "$1")
	on-peer test -b "$disk" || { echo "tenant $1 has no disk: '$disk'"; return 1; }
	on-peer fio --name=load --filename="$disk" --rw=randrw --rwmixread=70 --bs=4k --iodepth=8 --ioengine=libaio \
		--direct=1 --io_size="$2m" --thread --minimal >/dev/null
}

# ---- what the kernel counts ----------------------------------------------------

# queue_irqs QUEUE: interrupts of a queue of $NIC, receiving first.
queue_irqs() {
	local device
	device=$(readlink -f /sys/class/net/$NIC/device)
	awk -v queue="$1" -v device="${device##*/}" -v nic=$NIC '
		$NF ~ "^(" device "-(input|output)[.]" queue "|" nic "-(TxRx|rx|tx|rxtx)-" queue ")$" { sub(":", "", $1); print $1 }' \
		/proc/interrupts
}

# irq_counts: for each interrupt of the NIC and the drive its name, and its
# count on each CPU.
irq_counts() {
	local device
	device=$(readlink -f /sys/class/net/$NIC/device)
	awk -v cpus="$(nproc)" -v device="${device##*/}" -v nic=$NIC '
		$NF ~ "^(" device "-(input|output)|" nic "-|nvme0q)" {
			printf "%s", $NF
			for (i = 2; i < 2 + cpus; i++) printf " %s", $i
			print ""
		}' /proc/interrupts
}

# packets_by_queue: "QUEUE PACKETS" for each receive queue; interrupts where the
# driver counts no packets.
packets_by_queue() {
	if ethtool -S $NIC | grep -q 'rx_queue_0_packets:'; then
		ethtool -S $NIC | sed -n 's/ *rx_queue_\([0-9]*\)_packets: */\1 /p'
	else
		irq_counts | awk '{ name = $1; if (sub(".*-(input[.]|rxtx-|TxRx-|rx-)", "", name)) { n = 0; for (i = 2; i <= NF; i++) n += $i; print name, n } }'
	fi
}

# share_of BEFORE AFTER NUMBER...: of what was counted between two "KEY COUNT"
# files, how many per cent, rounded down, have one of these keys. 0 and failure
# if nothing was counted.
share_of() {
	local before=$1 after=$2
	shift 2
	awk -v keys=" $* " '
		NR == FNR { before[$1] = $2; next }
		{ n = $2 - before[$1]; all += n; if (index(keys, " " $1 " ")) ours += n }
		END { print all ? int(100 * ours / all) : 0; exit all < 20 }' "$before" "$after"
}

# by_cpu PATTERN: from irq_counts, "CPU COUNT" of the interrupts whose names match.
by_cpu() {
	awk -v pattern="$1" '
		$1 ~ pattern { for (i = 2; i <= NF; i++) n[i - 2] += $i }
		END { for (c in n) print c, n[c] }'
}
