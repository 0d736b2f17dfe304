#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
#
# A server with three iSCSI tenants: the kernel's target runs a pair of threads
# for each connection. Are a tenant's own threads, by the CPU time that they use
# when it works, on its cores? And again, after it has logged in anew? Then this
# guest in the tenant's role: large receive offload off for latency, and back.

source "$(dirname "$0")/tunelib.sh"

need_cmd ethtool on-peer
need_module iscsi_target_mod
need_peer
need_nic_queues 3
need_flash
needs_met
plan 11

WANTED=(--role server --target iscsi --nic "$NIC" --tenants 3)
KEPT=(sysctls nics interrupts disks processors targets configuration) # all but the threads, which log-ins make anew

tenants_up iscsi 3 || die "no targets"
iscsi_login 1 2 3 || die "the tenants can't log in"
undo on-peer iscsiadm -m node -U all

state "$OUT/before" "${KEPT[@]}"
plan_made() {
	tune plan "${WANTED[@]}" -o json >"$OUT/plan.json" || return 1
	[ "$(of_plan "$OUT/plan.json" 'sorted(share)')" = "t1 t2 t3" ]
}
check "a plan for three tenants" plan_made || die "no plan"
for n in 1 2 3; do
	cpus[n]=$(of_plan "$OUT/plan.json" "sorted({*share['t$n']['connection_cpus'], *share['t$n']['io_cpus']})")
	note "t$n: CPUs ${cpus[n]}"
done
apply() {
	status_is 'done' tune apply --yes "${WANTED[@]}" --max-disruption link --confirm-within 0 >"$OUT/apply" 2>&1
	local rc=$?
	cat "$OUT/apply"
	return "$rc"
}
check "apply" apply
managed() {
	grep -i 'unchangeable .*nvme0n1' "$OUT/apply" && status_is 0 tune verify &&
		! log_since_start | grep -iE 'affinity|irq.*(fail|error)'
}
check "the drive's interrupts, which the kernel places, are said so and never tried" managed

# thread_times: "TID TICKS" of the target's threads.
thread_times() {
	local stat
	for stat in /proc/[0-9]*/stat; do
		awk '$2 == "(iscsi_trx)" || $2 == "(iscsi_ttx)" { print $1, $14 + $15 }' "$stat" 2>/dev/null
	done
}
# on_its_cores TENANT: the threads that work for it may run on its CPUs only.
on_its_cores() {
	local tid ticks cpu allowed most busy=0
	thread_times >"$OUT/ticks.before"
	load_of_tenant "$1" 24 || return 1
	thread_times >"$OUT/ticks.after"
	awk 'NR == FNR { b[$1] = $2; next } $1 in b { print $1, $2 - b[$1] }' "$OUT/ticks.before" "$OUT/ticks.after" \
		>"$OUT/ticks.used"
	most=$(sort -k 2 -n "$OUT/ticks.used" | awk 'END { print $2 }')
	while read -r tid ticks; do
		# The others' are not quite idle: connections are kept alive.
		[ "$ticks" -ge 5 ] && [ $((ticks * 4)) -ge "$most" ] || continue
		busy=$((busy + 1))
		allowed=$(taskset -pc "$tid" | sed 's/.*: //')
		echo "$(cat "/proc/$tid/comm") $tid used $ticks ticks, allowed on CPU $allowed; the tenant's are ${cpus[$1]}"
		for cpu in ${allowed//,/ }; do
			[[ " ${cpus[$1]} " == *" $cpu "* ]] || return 1
		done
	done <"$OUT/ticks.used"
	[ "$busy" -ge 1 ] || { echo "no thread worked"; return 1; }
}
for n in 1 2 3; do
	check "the threads that work for t$n run on its cores" on_its_cores $n
done

# In another order, and not all at once.
log_in_again() {
	iscsi_logout 1 3 || return 1
	iscsi_login_again 3 && iscsi_login_again 1 || return 1
	status_is 'done' tune watch --once "${WANTED[@]}" --max-disruption link || return 1
	on_its_cores 1 && on_its_cores 3
}
iscsi_login_again() {
	on-peer iscsiadm -m node -T "$(name_of_tenant "$1")" -p "$HERE:$((3259 + $1))" -l && on-peer udevadm settle
}
check "after logging in again, watch puts them there again" log_in_again
check "revert" status_is 0 tune revert
state "$OUT/after" "${KEPT[@]}"
check "the machine is as it was, byte for byte" same_state "$OUT/before" "$OUT/after"

lro() { ethtool -k "$NIC" | sed -n 's/^large-receive-offload: //p'; }
tenant_for_latency() {
	[ "$(lro)" = on ] || { echo "LRO is not on to begin with"; return 1; }
	status_is 'done' tune apply --yes --role tenant --target iscsi --nic "$NIC" --tenants 1 --goal latency \
		--only offloads --max-disruption link --confirm-within 0 || return 1
	[ "$(lro)" = off ]
}
check "in the tenant's role, LRO goes off for latency" tenant_for_latency
tenant_again() { status_is 0 tune revert && [ "$(lro)" = on ]; }
check "and comes back" tenant_again

finish
