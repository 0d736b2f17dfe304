#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
#
# A server with three nvmet-tcp tenants on six CPUs, tuned and put back: are the
# tenants' packets and requests where the plan says, by the kernel's counters?

source "$(dirname "$0")/tunelib.sh"

need_cmd ethtool irqbalance on-peer
need_peer
need_nic_queues 6
need_flash
needs_met
plan 14

WANTED=(--role server --target nvmet-tcp --nic "$NIC" --tenants 3)

tenants_up nvmet-tcp 3 || die "no targets"
nvme_login 1 2 3 || die "the tenants can't connect"
undo on-peer nvme disconnect-all

# The plan, and that making it changes nothing.
state "$OUT/before"
plan_made() {
	tune plan "${WANTED[@]}" -o json >"$OUT/plan.json" || return 1
	[ "$(of_plan "$OUT/plan.json" 'sorted(share)')" = "t1 t2 t3" ]
}
check "a plan for three tenants" plan_made || die "no plan"
cpus_of() { of_plan "$OUT/plan.json" "sorted({*share['t$1']['connection_cpus'], *share['t$1']['io_cpus']})"; }
queues_of() { of_plan "$OUT/plan.json" "share['t$1']['queues']"; }
connection_cpus_of() { of_plan "$OUT/plan.json" "share['t$1']['connection_cpus']"; }
for n in 1 2 3; do
	cpus[n]=$(cpus_of $n) queues[n]=$(queues_of $n) connection[n]=$(connection_cpus_of $n)
	note "t$n: CPUs ${cpus[n]}, queues ${queues[n]}"
done
apart() {
	[ "$(tr ' ' '\n' <<<"${cpus[*]}" | sort | uniq | wc -l)" = 6 ] &&
		[ "$(tr ' ' '\n' <<<"${queues[*]}" | sort | uniq -d)" = "" ]
}
check "no CPU and no queue has two tenants" apart

check "apply" status_is 'done' tune apply --yes "${WANTED[@]}" --max-disruption link --confirm-within 0
check "verify finds all as applied" status_is 0 tune verify

# The kernel's own word on it.
interrupts_placed() {
	local n queue irq cpu
	for n in 1 2 3; do
		for queue in ${queues[n]}; do
			for irq in $(queue_irqs "$queue"); do
				cpu=$(cat "/proc/irq/$irq/smp_affinity_list")
				echo "t$n queue $queue interrupt $irq: CPU $cpu, one of ${connection[n]}"
				[[ " ${connection[n]} " == *" $cpu "* ]] || return 1
			done
		done
	done
}
check "the kernel has the interrupts of each tenant's queues on its cores" interrupts_placed

# While one tenant works, its queues receive and its CPUs submit.
arrives() { # TENANT
	local got served ran
	packets_by_queue >"$OUT/packets.before"
	irq_counts >"$OUT/irqs.before"
	load_of_tenant "$1" 24 || return 1
	packets_by_queue >"$OUT/packets.after"
	irq_counts >"$OUT/irqs.after"
	# shellcheck disable=SC2086
	got=$(share_of "$OUT/packets.before" "$OUT/packets.after" ${queues[$1]}) || return 1
	echo "$got % of what was received came to queues ${queues[$1]}"
	# A drive's interrupt comes to the CPU that submitted.
	# shellcheck disable=SC2086
	served=$(share_of <(by_cpu '^nvme0q[1-9]' <"$OUT/irqs.before") <(by_cpu '^nvme0q[1-9]' <"$OUT/irqs.after") \
		${cpus[$1]}) || return 1
	echo "$served % of the drive's interrupts came to CPUs ${cpus[$1]}"
	# shellcheck disable=SC2086
	ran=$(share_of <(by_cpu '-(input|TxRx|rx)' <"$OUT/irqs.before") <(by_cpu '-(input|TxRx|rx)' <"$OUT/irqs.after") \
		${cpus[$1]}) || return 1
	echo "$ran % of the card's interrupts came to CPUs ${cpus[$1]}"
	cp "$OUT/packets.before" "$OUT/packets.before.$1"
	cp "$OUT/packets.after" "$OUT/packets.after.$1"
	note "t$1: $got % of the packets, $ran % of the card's and $served % of the drive's interrupts at its place"
	# The other tenants' connections are alive meanwhile. Their drives are idle.
	[ "$got" -ge 70 ] && [ "$ran" -ge 70 ] && [ "$served" -ge 90 ]
}
for n in 1 2 3; do
	check "t$n's packets and requests are on its queues and cores" arrives $n
done

again() {
	status_is 'done' tune apply --yes "${WANTED[@]}" --max-disruption link -o json >"$OUT/again.json" || return 1
	grep '"outcome": "changed"' -B 5 "$OUT/again.json" && return 1
	grep -q '"outcomes":' "$OUT/again.json"
}
check "to apply again changes nothing" again
check "revert" status_is 0 tune revert
state "$OUT/after"
check "the machine is as it was, byte for byte" same_state "$OUT/before" "$OUT/after"

# With irqbalance at work, every two seconds.
balanced() {
	cp /etc/default/irqbalance "$OUT/irqbalance.default"
	echo 'IRQBALANCE_ARGS="--interval=2"' >>/etc/default/irqbalance
	undo cp "$OUT/irqbalance.default" /etc/default/irqbalance
	/etc/init.d/irqbalance start && undo /etc/init.d/irqbalance stop
	wait_until 20 pidof irqbalance
}
placed() {
	local queue irq
	for queue in 0 1 2 3 4 5; do
		for irq in $(queue_irqs "$queue"); do
			cat "/proc/irq/$irq/smp_affinity_list"
		done
	done
}
left_alone() {
	local first
	state "$OUT/etc.before" configuration
	status_is 'done' tune apply --yes "${WANTED[@]}" --max-disruption link --confirm-within 0 || return 1
	pidof irqbalance || { echo "irqbalance is gone"; return 1; }
	tr '\0' ' ' <"/proc/$(pidof irqbalance)/cmdline"
	grep -qz -- --banirq "/proc/$(pidof irqbalance)/cmdline" || return 1
	grep -qz -- --interval=2 "/proc/$(pidof irqbalance)/cmdline" || return 1
	first=$(placed)
	load_of_tenant 2 40 && sleep 4
	[ "$(placed)" = "$first" ] && interrupts_placed
}
balanced || die "irqbalance does not start"
check "irqbalance leaves the placed interrupts alone and goes on" left_alone
let_go() {
	status_is 0 tune revert || return 1
	state "$OUT/etc.after" configuration
	same_state "$OUT/etc.before" "$OUT/etc.after" || return 1
	wait_until 10 pidof irqbalance && ! grep -qz -- --banirq "/proc/$(pidof irqbalance)/cmdline"
}
check "after a revert irqbalance has all of them again" let_go
no_complaint() { ! log_since_start | grep -iE 'affinity|irq.*(fail|error)'; }
check "nothing was tried that the kernel refuses" no_complaint

finish
