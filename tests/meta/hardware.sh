#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
# Has the guest the hardware that the lab was asked for, and does it work as
# tests of the tuner need it?
#
# usage: hardware.sh virtio|vmxnet3|igb
set -u

fail() {
	echo "hardware: $*"
	cat /proc/interrupts
	exit 1
}

# arrived QUEUE: packets that a receive queue has had, or interrupts where the
# driver counts no packets
arrived() {
	if [ "$driver" = igb ]; then
		ethtool -S data0 | awk -v name="rx_queue_$1_packets:" '$1 == name { print $2 }'
	else
		awk -v cpus="$(nproc)" -v name="$device-input.$1" \
			'$NF == name { for (i = 2; i < 2 + cpus; i++) n += $i } END { print n + 0 }' /proc/interrupts
	fi
}

# send BYTES: from the other guest to this one
send() {
	socat -u tcp-listen:5201,reuseaddr open:/dev/null &
	on-peer "for try in 1 2 3 4 5 6; do
			head -c $1 /dev/zero | socat -u - tcp:10.99.0.2:5201 && exit
			sleep 0.3
		done 2>/dev/null
		exit 1" || fail "nothing came from the other guest"
	wait
}

# follows QUEUE: the table sends everything to a queue; does it arrive there?
follows() {
	local queue before=() after=() weights=()

	for ((queue = 0; queue < 6; queue++)); do
		weights+=($((queue == $1)))
		before+=("$(arrived $queue)")
	done
	ethtool -X data0 weight "${weights[@]}" || fail "the RSS table can't be set"
	send 1000000
	for ((queue = 0; queue < 6; queue++)); do
		after+=("$(($(arrived $queue) - before[queue]))")
	done
	echo "table to queue $1: ${after[*]}"
	for ((queue = 0; queue < 6; queue++)); do
		if [ $queue = "$1" ]; then
			[ "${after[queue]}" -ge 5 ] || fail "queue $1 received nothing"
		else
			[ "${after[queue]}" -lt 5 ] || fail "queue $queue received what belongs to $1"
		fi
	done
}

# feature NAME on|off
feature() { ethtool -k data0 | grep -q "^$1: $2\$"; }

driver=$1
device=$(readlink -f /sys/class/net/data0/device)
device=${device##*/}
[ "$(nproc)" = 6 ] || fail "$(nproc) CPUs"
[ "$(on-peer nproc)" = 1 ] || fail "the other guest has not 1 CPU"
ethtool -i data0 | grep -qx "driver: ${driver/virtio/virtio_net}" || fail "another driver: $(ethtool -i data0)"
ping -q -c 2 -W 2 -M 'do' -s 8972 10.99.0.1 || fail "no jumbo frames"
queues=(/sys/block/nvme0n1/mq/*)
[ ${#queues[@]} = 6 ] || fail "the drive has not 6 queues"
dd if=/dev/zero of=/dev/nvme0n1 bs=64k count=1 oflag=direct status=none || fail "the drive does not write"
channels=$(ethtool -l data0 | awk '/^Combined/ { print $2 }' | tail -n 1)

case $driver in
virtio)
	[ "$channels" = 6 ] || fail "$channels queues"
	follows 4
	follows 1
	;;
igb)
	[ "$channels" = 6 ] || fail "$channels queues"
	[ "$(cat /sys/devices/system/node/online)" = 0-1 ] || fail "not two nodes"
	[ "$(cat /sys/devices/system/node/node1/cpulist)" = 3-5 ] || fail "node 1 has other CPUs"
	[ "$(cat /sys/class/net/data0/device/numa_node)" = 1 ] || fail "the card is not of node 1"
	[ "$(cat /sys/class/nvme/nvme0/device/numa_node)" = 1 ] || fail "the drive is not of node 1"
	follows 4
	follows 1
	;;
vmxnet3)
	[ "$channels" = 4 ] || fail "$channels queues"
	feature large-receive-offload on || fail "no LRO"
	ethtool -K data0 lro off || fail "LRO can't be switched off"
	feature large-receive-offload off || fail "LRO does not go off"
	ethtool -K data0 lro on || fail "LRO can't be switched on"
	feature large-receive-offload on || fail "LRO does not go on"
	send 1000000
	merged=$(ethtool -S data0 | awk '/LRO pkts rx/ { n += $NF } END { print n + 0 }')
	echo "$merged packets by LRO"
	[ "$merged" -gt 0 ] || fail "nothing was received in one piece"
	;;
esac
echo "all there"
