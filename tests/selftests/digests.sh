#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
#
# Header and data digests: on the wire when asked for, and nothing that was
# damaged on its way is ever handed to the reader or kept by the target.

source "$(dirname "$0")/lib.sh"

need_cmd python3 flock
needs_met
plan 20

load() { # NAME [FIO ARGUMENT...]
	local name=$1
	shift
	fio_run "$name" --name=load --filename="$DEV" --rw=randwrite --bsrange=4k-96k \
		--blockalign=4k --size=6m --iodepth=16 --ioengine=libaio --direct=1 \
		--verify=crc32c --verify_fatal=1 "$@"
}

backing=$(tgt backing_null dgst 64) || die "no null_blk device"
target_up "$backing"
host_load || die "the module does not load"
proxy_start
PORT=$PROXY_PORT

# with_digests NAME HEADER DATA [OPTION...]: which of them are on the wire.
with_digests() {
	local name=$1 header=$2 data=$3
	shift 3
	proxy clear
	host_connect "$@" || return 1
	load "$name" || return 1
	echo "PDUs with header digest: $(proxy_stat header_digests), data digest: $(proxy_stat data_digests)"
	[ $(($(proxy_stat header_digests) > 0)) -eq "$header" ] &&
		[ $(($(proxy_stat data_digests) > 0)) -eq "$data" ] &&
		host_disconnect
}

check "no digests" with_digests none 0 0
check "header digests" with_digests header 1 0 -g
check "data digests" with_digests data 0 1 -G
check "both digests" with_digests both 1 1 -g -G

# udev reads a device whenever a writer has closed it, and fio does so between
# writing and verifying. The faults are for fio: udev leaves alone a disk that
# is locked, and looks at it later.
alone() { # COMMAND...
	local lock rc
	exec {lock}<"$DEV"
	if ! flock -x -w 30 "$lock"; then
		echo "$DEV stays locked by someone else"
		rc=1
	else
		"$@"
		rc=$?
	fi
	exec {lock}<&-
	return "$rc"
}

# damaged FAULT...: the load goes on while the fault strikes; the host
# sees it, drops the connection, connects again and repeats what was lost.
damaged() { alone damaged_load "$@"; }
damaged_load() {
	local before after at_least=1
	# A damaged payload concerns one request: the kernel's initiator repeats
	# only that.
	[ "$INITIATOR" = rflash ] || at_least=0
	proxy clear
	before=$(host_reconnects)
	# The load has some hundred PDUs of each kind; strike in the middle.
	proxy "$@" || return 1
	load damaged || return 1
	[ "$(proxy_stat faults)" = 1 ] || {
		echo "the fault did not strike: $(proxy stats)"
		return 1
	}
	wait_until 20 is_live || return 1
	after=$(host_reconnects)
	between "reconnects" "$after" $((before + at_least)) $((before + 3))
}

noticed_digest() { log_since_start | grep -i 'digest'; }

check "connect with both digests" host_connect -g -G -c 1
check "damaged read data is found and read again" damaged corrupt c2h-data 40
check "a damaged data digest is found" damaged corrupt c2h-digest 40
check "a damaged response header is found" damaged corrupt c2h-header 60
check "damaged write data is found by the target and written again" damaged corrupt h2c-data 40
check "a damaged PDU length is found" damaged corrupt c2h-length 60
check "the kernel log names the digest" noticed_digest
host_disconnect

check "connect with data digests" host_connect -G -c 1
check "data digests alone: damaged read data is found" damaged corrupt c2h-data 25
host_disconnect

# Without digests, what can be seen must be: impossible lengths and tags.
check "connect without digests" host_connect -c 1
check "without digests: an impossible PDU length is found" damaged corrupt c2h-length 60
check "without digests: a wrong tag is found" damaged corrupt c2h-header 60
survives_duplicate() {
	proxy clear
	proxy duplicate 30
	load duplicate || return 1
	[ "$(proxy_stat faults)" = 1 ] && wait_until 20 is_live
}
check "a response that comes twice harms nothing" alone survives_duplicate

# The test itself: without a data digest, damaged read data goes unseen by the
# host, and fio has to see it. Were it not so, the checks above could not fail.
fio_sees_damage() {
	proxy clear
	proxy corrupt c2h-data 40
	fails load seen
}
check "without digests damaged data reaches fio, which notices" alone fio_sees_damage

media_error() {
	proxy clear
	proxy status 1 281
	fails dd if=/dev/zero of="$DEV" bs=4k count=1 oflag=direct || return 1
	dd if=/dev/zero of="$DEV" bs=4k count=1 oflag=direct
}
check "an error status fails the request, and only that" alone media_error
check "disconnect" host_disconnect

finish
