#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
#
# The kernel's NVMe target by configfs, and the devices behind it. Sourced by
# lib.sh; as a command it runs one of its functions, which is how a test
# reaches the target in another machine.
#
# Everything made here is entered in an undo log, and only that is undone:
# this runs on real hosts, too.

NVMET=/sys/kernel/config/nvmet
NULLB=/sys/kernel/config/nullb
STATE=/run/rflash-selftest

# ---- undo log --------------------------------------------------------------

# undo COMMAND...: to be run by undo_all, last first.
undo() {
	mkdir -p "$STATE"
	printf '%q ' "$@" >>"$STATE/undo"
	echo >>"$STATE/undo"
}

undo_all() {
	[ -e "$STATE/undo" ] || return 0
	local line rc=0
	while read -r line; do
		eval "$line" || {
			echo "# undo failed: $line" >&2
			rc=1
		}
	done < <(tac "$STATE/undo")
	rm -f "$STATE/undo"
	return $rc
}

# set_attrs DIRECTORY NAME=VALUE...
set_attrs() {
	local dir=$1 pair
	shift
	for pair; do
		echo "${pair#*=}" >"$dir/${pair%%=*}" || {
			echo "cannot set ${pair%%=*} of $dir to ${pair#*=}" >&2
			return 1
		}
	done
}

# ---- what is behind a namespace --------------------------------------------

# backing_null NAME MEGABYTES [ATTRIBUTE=VALUE...]: a null_blk device that
# keeps what is written; prints its path.
backing_null() {
	local dir=$NULLB/rft-$1 mb=$2
	shift 2
	modprobe null_blk nr_devices=0 && mkdir "$dir" || return 1
	undo rmdir "$dir"
	set_attrs "$dir" size="$mb" memory_backed=1 discard=1 "$@" power=1 || return 1
	# 6.1 names the device by its index whatever the directory is called.
	if [ -b "/dev/${dir##*/}" ]; then
		echo "/dev/${dir##*/}"
	else
		echo "/dev/nullb$(cat "$dir/index")"
	fi
}

# backing_file NAME MEGABYTES: a sparse file in memory; prints its path.
backing_file() {
	local dir=$STATE/files
	mkdir -p "$dir"
	if ! mountpoint -q "$dir"; then
		mount -t tmpfs -o size=512m rflash-selftest "$dir" || return 1
		undo umount "$dir"
	fi
	truncate -s "$2M" "$dir/$1" || return 1
	undo rm -f "$dir/$1"
	echo "$dir/$1"
}

# backing_loop NAME MEGABYTES [BLOCK-SIZE]: a loop device over such a file.
backing_loop() {
	local file dev
	modprobe loop
	file=$(backing_file "$1" "$2") || return 1
	dev=$(losetup --show -f -b "${3:-512}" "$file") || return 1
	undo losetup -d "$dev"
	echo "$dev"
}

# ---- the target ------------------------------------------------------------

nvmet_load() {
	modprobe nvmet && modprobe nvmet-tcp || return 1
	[ -d $NVMET ] || mount -t configfs none /sys/kernel/config
}

# nvmet_subsys NQN [ATTRIBUTE=VALUE...]
nvmet_subsys() {
	local dir=$NVMET/subsystems/$1
	shift
	nvmet_load && mkdir "$dir" || return 1
	undo rmdir "$dir"
	set_attrs "$dir" "$@"
}

# nvmet_ns NQN NSID PATH [ATTRIBUTE=VALUE...]
nvmet_ns() {
	local dir=$NVMET/subsystems/$1/namespaces/$2 path=$3
	shift 3
	mkdir "$dir" || return 1
	undo nvmet_ns_remove "$dir"
	set_attrs "$dir" device_path="$path" "$@" enable=1
}

nvmet_ns_remove() {
	local dir=$1
	[ $# -eq 1 ] || dir=$NVMET/subsystems/$1/namespaces/$2
	[ ! -d "$dir" ] || { echo 0 >"$dir/enable" && rmdir "$dir"; }
}

# nvmet_host NQN HOSTNQN: only hosts named this way may connect.
nvmet_host() {
	local host=$NVMET/hosts/$2
	[ -d "$host" ] || { mkdir "$host" && undo rmdir "$host"; } || return 1
	echo 0 >"$NVMET/subsystems/$1/attr_allow_any_host"
	ln -s "$host" "$NVMET/subsystems/$1/allowed_hosts/$2" || return 1
	undo rm -f "$NVMET/subsystems/$1/allowed_hosts/$2"
}

# nvmet_port ID ADDRESS SERVICE [ATTRIBUTE=VALUE...]
nvmet_port() {
	local dir=$NVMET/ports/$1 addr=$2 svc=$3 fam=ipv4
	shift 3
	case $addr in *:*) fam=ipv6 ;; esac
	nvmet_load && mkdir "$dir" || return 1
	undo rmdir "$dir"
	set_attrs "$dir" addr_trtype=tcp addr_adrfam=$fam addr_traddr="$addr" \
		addr_trsvcid="$svc" "$@"
}

nvmet_link() {
	local link=$NVMET/ports/$1/subsystems/$2
	ln -s "$NVMET/subsystems/$2" "$link" || return 1
	undo rm -f "$link"
}

# nvmet_unlink ID NQN: the port lets go of the subsystem, which ends its
# connections; without a subsystem left the port does not listen any more.
nvmet_unlink() { rm -f "$NVMET/ports/$1/subsystems/$2"; }

# ---- watching the target ---------------------------------------------------

TRACE=/sys/kernel/tracing

# trace_start: every command that reaches the target from here on.
trace_start() {
	[ -d $TRACE/events ] || mount -t tracefs none $TRACE || return 1
	echo 0 >$TRACE/events/nvmet/nvmet_req_init/enable
	echo >$TRACE/trace
	echo 8192 >$TRACE/buffer_size_kb
	echo 1 >$TRACE/events/nvmet/nvmet_req_init/enable
	undo trace_stop
}

trace_stop() { echo 0 >$TRACE/events/nvmet/nvmet_req_init/enable; }

# trace_count PATTERN: commands seen so far that match the regular expression.
trace_count() { grep -cE -- "$1" $TRACE/trace; }

if [ "${BASH_SOURCE[0]}" = "$0" ]; then
	"$@"
fi
