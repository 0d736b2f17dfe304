#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
# What the guest lab's own tests run in a guest: one way for a run to end each.
set -u

# trouble KIND: load the module that makes trouble.
trouble() {
	insmod "$RFLASH_ROOT/build/meta/module/lab_trouble.ko" "kind=$1"
}

case $1 in
pass)
	echo "kernel $(uname -r) series $RFLASH_KERNEL colour $COLOUR"
	printf 'argument <%s>\n' "${@:2}"
	echo "to standard error" >&2
	echo "to /dev/stderr" >/dev/stderr
	echo "stdin has $(wc -c) bytes"
	echo "witness" >"$RFLASH_OUT/witness"
	touch "$RFLASH_ROOT/witness" 2>/dev/null && echo "the source tree is writable"
	# Something left behind that holds standard output open ends nothing.
	sleep 1000 &
	;;
fail) exit 3 ;;
skip)
	echo "# SKIP nothing to test here"
	exit 4
	;;
hang)
	echo "about to hang"
	sleep 1000
	;;
panic) echo c >/proc/sysrq-trigger ;;
oops) trouble oops || true ;;
warn) trouble warn ;;
leak)
	# What kmemleak of a debug kernel would say.
	echo "kmemleak: 2 new suspected memory leaks (see /sys/kernel/debug/kmemleak)" >/dev/kmsg
	;;
power-off)
	echo o >/proc/sysrq-trigger
	sleep 1000
	;;
pair)
	[ "$(on-server hostname)" = server ] || exit 10
	[ "$(on-server 'echo out; echo err >&2' 2>/dev/null)" = out ] || exit 11
	[ "$(on-server 'echo out; echo err >&2' 2>&1 >/dev/null)" = err ] || exit 12
	[ "$(echo text | on-server -i cat)" = text ] || exit 13
	on-server sh -c 'kill -9 $$'
	[ $? = 137 ] || exit 14
	on-server 'sleep 1000 &' || exit 15
	ping -q -c 1 -M 'do' -s 8972 10.99.0.1 || exit 16
	on-server ip link set data0 down || exit 17
	ping -q -c 1 -W 1 10.99.0.1 && exit 18
	# The last word has the command in the other guest.
	on-server "exit 7"
	;;
server-power-off)
	on-server 'echo o >/proc/sysrq-trigger' || true
	sleep 1000
	;;
server-warn)
	on-server insmod "$RFLASH_ROOT/build/meta/module/lab_trouble.ko" kind=warn
	;;
*)
	echo "no scenario '$1'" >&2
	exit 2
	;;
esac
