#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
#
# A change that cuts the operator off is put back by itself. The operator works
# from the other guest, over the link whose MTU is raised; the link is cut and
# his shell killed. Then a path whose middle takes 1500 bytes only:
#
#	this guest 10.99.0.2 --- data0, MTU 9000 --- 10.99.0.1 peer
#	                         10.77.0.2 far --- veth, MTU 1500 ---'

source "$(dirname "$0")/tunelib.sh"

need_cmd ethtool nft socat ping
need_peer
needs_met
plan 9

SHELL_PORT=2323
RAISE=(apply --yes --role server --target nvmet-tcp --nic "$NIC" --tenants 1 --only mtu --max-disruption link)

mtu() { cat "/sys/class/net/$NIC/mtu"; }
mtu_is() { [ "$(mtu)" = "$1" ]; }
ip link set $NIC mtu 1500
undo ip link set $NIC mtu 9000
tune knobs >"$OUT/knobs" || die "the tuner does not start"

# What the operator runs, in a terminal of his own at the other end of the link:
# it hangs up, as sshd does, when its connection has gone.
cat >"$OUT/session" <<-end
	cd /
	export RFLASH_TUNE_STATE=$STATE_DIR PYTHONPYCACHEPREFIX=$PYTHONPYCACHEPREFIX
	python3 /rflash/tuning/rflash-tune ${RAISE[*]} --peer 10.99.0.1 --confirm-within 12 -o json >$OUT/applied.json
	echo \$? >$OUT/applied.status
	sleep 1000
end
spawn socat tcp-listen:$SHELL_PORT,bind=$HERE,reuseaddr exec:"bash $OUT/session",pty,setsid,ctty,stderr,sighup,sigint
shell_server=$spawned
operator() { on-peer -i "sleep 1000 | socat - tcp:$HERE:$SHELL_PORT,retry=60,interval=0.5" </dev/null >"$OUT/screen" 2>&1; }
spawn operator
applied_over_the_link() {
	wait_until 90 test -s "$OUT/applied.status"
	tail -n 20 "$OUT/screen" "$OUT/applied.json" "$OUT/applied.status"
	[ "$(cat "$OUT/applied.status")" = 4 ] && mtu_is 9000
}
check "the MTU is raised over the link, and waits for a confirm" applied_over_the_link
cut_off() {
	on-peer ip link set data0 down
	undo on-peer ip link set data0 up
	# All of the operator's session, as when its terminal's server ends it.
	local session
	session=$(pgrep -P "$shell_server" | head -n 1)
	[ -n "$session" ] && pkill -KILL -s "$session"
	kill -KILL "$shell_server"
	! ping -q -c 1 -W 1 10.99.0.1
}
check "the link is cut and the operator's session is killed" cut_off
check "in time all is put back" wait_until 45 mtu_is 1500
too_late() { status_is 2 tune confirm; }
check "to confirm then is too late" too_late
on-peer 'ip link set data0 up'
wait_until 20 ping -q -c 1 -W 1 10.99.0.1

confirmed() {
	status_is 4 tune "${RAISE[@]}" --peer 10.99.0.1 --confirm-within 20 || return 1
	status_is 0 tune confirm || return 1
	sleep 21
	mtu_is 9000
}
check "what is confirmed stays" confirmed
lowered() { status_is 0 tune revert && mtu_is 1500; }
check "revert" lowered

# A narrow middle.
on-peer 'ip netns add far && ip link add near type veth peer name far0 netns far &&
	ip addr add 10.77.0.1/24 dev near && ip link set near up &&
	ip -n far addr add 10.77.0.2/24 dev far0 && ip -n far link set far0 up &&
	ip -n far route add default via 10.77.0.1 && sysctl -qw net.ipv4.ip_forward=1' || die "no path through the peer"
undo on-peer 'ip netns del far; sysctl -qw net.ipv4.ip_forward=0'
ip route add 10.77.0.0/24 via 10.99.0.1
undo ip route del 10.77.0.0/24
wait_until 10 ping -q -c 1 -W 1 10.77.0.2 || die "the far end does not answer"
refused() { # PATTERN...
	local pattern
	status_is 1 tune "${RAISE[@]}" --peer 10.77.0.2 >"$OUT/refused" 2>&1
	cat "$OUT/refused"
	mtu_is 1500 || return 1
	for pattern; do
		tr '\n' ' ' <"$OUT/refused" | grep -q -- "$pattern" || { echo "it does not say '$pattern'"; return 1; }
	done
}
check "a hop that takes less is named with its limit, and the MTU is put back" refused 10.99.0.1 1500
on-peer 'nft add table ip hole && nft add chain ip hole out "{ type filter hook output priority 0; }" &&
	nft add rule ip hole out icmp type destination-unreachable drop' || die "no hole"
undo on-peer nft delete table ip hole
check "so is a hole that swallows large packets without a word" refused 1500
clean() { status_is 0 tune status >"$OUT/status" && ip route get 10.77.0.2 | grep -v 'mtu 9000'; }
check "nothing of it is left" clean

finish
