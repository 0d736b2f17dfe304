# SPDX-License-Identifier: GPL-2.0
# shellcheck shell=bash
#
# What every selftest shares: TAP output, undo of everything that was set up,
# waiting by polling, and one way to load the module and connect.
#
# A script sources this file, calls need_* and needs_met, then plan N, then
# check/ok/not_ok N times, then finish. Exit status: 0 all passed, 1 something
# failed, 4 skipped (with every missing requirement listed).
#
# Environment:
#   RFLASH_KO         module to load (default: modprobe rflash)
#   RFLASH_OUT        directory for logs (default: a temporary one)
#   RFLASH_TARGETS    "server": the target runs in the second guest
#   RFLASH_INITIATOR  "nvme": run against the kernel's own nvme-tcp instead; a
#                     case that fails there too is wrong about the target

SELFTESTS=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
# shellcheck source=./nvmet.sh
source "$SELFTESTS/nvmet.sh"

KSFT_SKIP=4
INITIATOR=${RFLASH_INITIATOR:-rflash}
OUT=${RFLASH_OUT:-}
NQN=nqn.2026-11.org.rflash.test:$(basename "$0" .sh)

planned=0 counted=0 failed=0 finished=
missing=()

# ---- TAP -------------------------------------------------------------------

note() { printf '# %s\n' "$@"; }

# Prints a file or standard input as comments, the last 40 lines of it.
note_file() { tail -n 40 "${1:--}" | sed 's/^/#   /'; }

# plan N: N tests, and the one that finish adds.
plan() {
	planned=$(($1 + 1))
	echo "TAP version 13"
	echo "1..$planned"
}

ok() {
	counted=$((counted + 1))
	echo "ok $counted $*"
}

not_ok() {
	counted=$((counted + 1))
	failed=$((failed + 1))
	echo "not ok $counted $*"
}

# check DESCRIPTION COMMAND...: one test; the command's output is shown only if
# it fails.
check() {
	local what=$1 log rc
	shift
	log=$(mktemp "$OUT/check.XXXXXX")
	"$@" >"$log" 2>&1
	rc=$?
	if [ $rc -eq 0 ]; then
		ok "$what"
	else
		not_ok "$what"
		note "exit status $rc from: $*"
		note_file "$log"
	fi
	rm -f "$log"
	return $rc
}

# fails COMMAND...: success if the command fails with an ordinary status. A
# command that is killed or not found has not refused anything.
fails() {
	local rc=0
	"$@" || rc=$?
	[ $rc -gt 0 ] && [ $rc -lt 126 ]
}

die() {
	echo "Bail out! $*"
	exit 1
}

finish() {
	local trouble
	finished=1
	trouble=$(kernel_log_trouble)
	if [ -n "$trouble" ]; then
		not_ok "the kernel log is clean"
		note_file <<<"$trouble"
	else
		ok "the kernel log is clean"
	fi
	if [ $counted -ne $planned ]; then
		note "$planned tests planned, $counted run"
		failed=$((failed + 1))
	fi
	exit $((failed > 0))
}

# ---- requirements ----------------------------------------------------------

need_root() { [ "$(id -u)" = 0 ] || missing+=("root"); }

need_cmd() {
	local c
	for c; do
		command -v "$c" >/dev/null || missing+=("the command $c")
	done
}

need_module() {
	local m
	for m; do
		[ -d "/sys/module/${m//-/_}" ] || modprobe -qn "$m" ||
			missing+=("the kernel module $m")
	done
}

need_server() {
	[ "${RFLASH_TARGETS:-}" = server ] || command -v on-server >/dev/null ||
		missing+=("a second guest (command on-server)")
	RFLASH_TARGETS=server
}

needs_met() {
	need_root
	need_cmd fio ss udevadm
	case $INITIATOR in
	rflash)
		need_cmd rflash
		if [ -n "${RFLASH_KO:-}" ]; then
			[ -r "$RFLASH_KO" ] || missing+=("the module $RFLASH_KO")
		else
			need_module rflash
		fi
		;;
	nvme)
		need_cmd nvme
		need_module nvme-tcp
		;;
	esac
	need_module nvmet-tcp null_blk
	if [ ${#missing[@]} -gt 0 ]; then
		finished=1
		echo "TAP version 13"
		echo "1..0 # SKIP needs $(printf '%s; ' "${missing[@]}" | sed 's/; $//')"
		exit $KSFT_SKIP
	fi
	[ -n "$OUT" ] || OUT=$(mktemp -d /tmp/rflash-selftest.XXXXXX)
	OUT=$OUT/$(basename "$0" .sh)
	mkdir -p "$OUT"
	if [ "$INITIATOR" = rflash ] && [ -d /sys/module/rflash ] &&
		ls /sys/block/rflash* >/dev/null 2>&1; then
		die "rflash devices are in use on this machine; disconnect them first"
	fi
	[ "$INITIATOR" = rflash ] || nvme_at_its_best
	undo_all
	tgt undo_all
	log_mark="rflash selftest $(basename "$0") $$"
	echo "$log_mark" >/dev/kmsg
}

# ---- cleaning up -----------------------------------------------------------

background=()

on_exit() {
	local rc=$?
	trap '' INT TERM
	local p
	for p in "${background[@]}"; do
		kill -KILL "$p" 2>/dev/null && wait "$p" 2>/dev/null
	done
	undo_all || note "the clean-up failed"
	tgt undo_all || note "the target's clean-up failed"
	if [ -z "$finished" ]; then
		[ $rc -ne 0 ] || rc=1
		echo "Bail out! $(basename "$0") ended early, after test $counted of $planned, status $rc"
	fi
	exit $rc
}
trap on_exit EXIT
trap 'exit 130' INT
trap 'exit 143' TERM

# spawn COMMAND...: in the background, killed at exit; its id is in $spawned.
spawn() {
	"$@" &
	spawned=$!
	background+=("$spawned")
}

# ---- waiting and measuring -------------------------------------------------

# wait_until SECONDS COMMAND...: polls until the command succeeds. Only the
# command's own failure is waited out; the time limit is wall clock.
wait_until() {
	local end=$((SECONDS + $1))
	shift
	until "$@" >/dev/null 2>&1; do
		[ $SECONDS -lt $end ] || return 1
		sleep 0.1
	done
}

now_ms() {
	local t=${EPOCHREALTIME/[.,]/}
	echo $((t / 1000))
}

# between WHAT VALUE LOW HIGH
between() {
	echo "$1: $2 (expected $3 to $4)"
	[ "$2" -ge "$3" ] && [ "$2" -le "$4" ]
}

# ended PID: the process is gone or a zombie.
ended() {
	local state
	state=$(sed -n 's/^State:[[:space:]]*\(.\).*/\1/p' "/proc/$1/status" 2>/dev/null)
	[ -z "$state" ] || [ "$state" = Z ]
}

# reap PID SECONDS: waits for a background process and returns its status; a
# process still there after that time is killed and counts as failed.
reap() {
	if ! wait_until "$2" ended "$1"; then
		echo "process $1 has not ended after $2 s:"
		cat "/proc/$1/wchan" "/proc/$1/stack" 2>/dev/null
		kill -KILL "$1"
		return 1
	fi
	wait "$1"
}

# ---- kernel log ------------------------------------------------------------

TROUBLE='BUG:|WARNING:|Oops|general protection fault|refcount_t:|possible recursive locking|circular locking|suspicious RCU|blocked for more than|KASAN:|UBSAN:|kmemleak:|list_(add|del) corruption|use-after-free|stack-out-of-bounds|scheduling while atomic|sleeping function called|hung_task|soft lockup|rcu.*stall'

log_since_start() {
	dmesg | awk -v mark="$log_mark" 'found { print } index($0, mark) { found = 1 }'
}

# What in the kernel log since the start of the script is a defect. Losing the
# mark (the ring buffer was overrun) is one, too: nothing could be said then.
kernel_log_trouble() {
	if ! dmesg | grep -qF "$log_mark"; then
		echo "the kernel log has overrun: the start of this script is not in it any more"
		return
	fi
	log_since_start | grep -E "$TROUBLE"
}

# ---- the target ------------------------------------------------------------

# tgt COMMAND...: a command of nvmet.sh, on the machine that has the target.
tgt() {
	if [ "${RFLASH_TARGETS:-}" = server ]; then
		on-server "$SELFTESTS/nvmet.sh" "$@"
	else
		"$@"
	fi
}

target_addr() {
	if [ "${RFLASH_TARGETS:-}" = server ]; then
		echo 10.99.0.1
	else
		echo 127.0.0.1
	fi
}

# target_up DEVICE-OR-FILE...: one subsystem $NQN with these namespaces, on
# port $PORT of $ADDR.
target_up() {
	local nsid=0 backing
	ADDR=$(target_addr)
	PORT=${PORT:-4420}
	tgt nvmet_subsys "$NQN" attr_allow_any_host=1 || die "no subsystem $NQN"
	for backing; do
		nsid=$((nsid + 1))
		tgt nvmet_ns "$NQN" $nsid "$backing" || die "no namespace over $backing"
	done
	tgt nvmet_port 1 "$ADDR" "$PORT" || die "no port $ADDR:$PORT"
	tgt nvmet_link 1 "$NQN" || die "no port for $NQN"
}

# ---- the host --------------------------------------------------------------

module_name() { [ "$INITIATOR" = nvme ] && echo nvme_tcp || echo rflash; }

# nvme-tcp without the multipath layer, which costs it time. To be called before
# anything else loads nvme-core, and that is every NVMe module.
nvme_at_its_best() {
	modprobe nvme-core multipath=N
	[ "$(cat /sys/module/nvme_core/parameters/multipath)" = N ] ||
		die "nvme-core is loaded with multipath; unload it or boot with nvme_core.multipath=N"
	modprobe nvme-tcp
}

host_load() {
	case $INITIATOR in
	nvme) modprobe nvme-tcp ;;
	rflash)
		[ ! -d /sys/module/rflash ] || return 0
		if [ -n "${RFLASH_KO:-}" ]; then
			local dep
			for dep in $(modinfo -F depends "$RFLASH_KO" | tr , ' '); do
				modprobe "$dep" || return 1
			done
			insmod "$RFLASH_KO"
		else
			modprobe rflash
		fi && undo host_unload
		;;
	esac
}

host_unload() {
	[ "$INITIATOR" = rflash ] || return 0
	[ ! -d /sys/module/rflash ] || rmmod rflash
}

connected=

# host_connect [OPTION...]: connects to $NQN at $ADDR:$PORT; option letters are
# those that rflash and nvme-cli share, later ones override. Sets DEVS to the
# devices in namespace order, DEV to the first, DISK to its name.
host_connect() {
	local out
	case $INITIATOR in
	rflash)
		out=$(rflash connect -t tcp -a "$ADDR" -s "$PORT" -n "$NQN" "$@") || return 1
		mapfile -t DEVS < <(grep -o '/dev/rflash[0-9]*' <<<"$out")
		;;
	nvme)
		nvme connect -t tcp -a "$ADDR" -s "$PORT" -n "$NQN" "$@" || return 1
		wait_until 10 nvme_devs || return 1
		mapfile -t DEVS < <(nvme_devs)
		;;
	esac
	[ -n "$connected" ] || undo host_disconnect_all
	connected=1
	mapfile -t DEVS < <(by_nsid "${DEVS[@]}")
	DEV=${DEVS[0]:-}
	DISK=${DEV#/dev/}
	[ -b "$DEV" ] || {
		echo "connect printed no block device: $out"
		return 1
	}
}

by_nsid() {
	local dev
	for dev; do
		echo "$(cat "/sys/block/${dev#/dev/}/nsid") $dev"
	done | sort -n | cut -d' ' -f2
}

nvme_devs() {
	local c d
	for c in /sys/class/nvme/nvme*; do
		[ "$(cat "$c/subsysnqn" 2>/dev/null)" = "$NQN" ] || continue
		for d in "$c"/nvme*n*; do
			[ ! -b "/dev/${d##*/}" ] || echo "/dev/${d##*/}"
		done
	done | grep .
}

host_disconnect() {
	case $INITIATOR in
	rflash) rflash disconnect -n "$NQN" >/dev/null ;;
	nvme) nvme disconnect -n "$NQN" >/dev/null ;;
	esac
}

host_disconnect_all() {
	case $INITIATOR in
	rflash) [ ! -d /sys/module/rflash ] || rflash disconnect --all >/dev/null ;;
	nvme) nvme disconnect -n "$NQN" >/dev/null ;;
	esac
}

# dev_field DISK KEY: one value out of `rflash show`.
dev_field() {
	rflash show "$1" -o json | tr -d '\n' |
		sed -n "s/.*\"$2\": *\"\\{0,1\\}\\([^\",}]*\\).*/\\1/p"
}

host_state() {
	case $INITIATOR in
	rflash) dev_field "$DISK" state ;;
	nvme) cat "/sys/block/$DISK/device/state" ;;
	esac
}

is_live() { [ "$(host_state)" = live ]; }
not_live() { ! is_live; }

host_reconnects() {
	case $INITIATOR in
	rflash) dev_field "$DISK" reconnects ;;
	nvme) log_since_start | grep -c 'Successfully reconnected' ;;
	esac
}

# has_link WWID-LINK DISK: the by-id link points at the disk.
has_link() { [ "$(readlink -f "/dev/disk/by-id/$1")" = "/dev/$2" ]; }

wwid_of() { cat "/sys/block/$1/wwid" 2>/dev/null; }

link_of() {
	case $INITIATOR in
	rflash) echo "rflash-$(wwid_of "$1")" ;;
	nvme) echo "nvme-$(wwid_of "$1")" ;;
	esac
}

# ---- I/O -------------------------------------------------------------------

# fio_run NAME ARGUMENT...: fio with its report in $OUT/NAME.json; a failure
# shows what fio said.
fio_run() {
	local name=$1
	shift
	if ! fio --output-format=json --output="$OUT/$name.json" \
		--eta=never --verify_state_save=0 --thread --group_reporting "$@" >"$OUT/$name.err" 2>&1; then
		note_file "$OUT/$name.err"
		grep -E '"error"|verify' "$OUT/$name.json" | head -n 5 | note_file
		return 1
	fi
	# fio reports I/O errors in its exit status, but not "nothing was done".
	if ! grep -qE '"(read|write|trim)_?ios?"|"total_ios" : [1-9]' "$OUT/$name.json"; then
		echo "fio did no I/O"
		return 1
	fi
}

# ---- the harmful proxy -----------------------------------------------------

PROXY_PORT=4499
PROXY_CONTROL=4498

# proxy_start: between this host and $ADDR:$PORT, at $ADDR... of this machine.
proxy_start() {
	need_free=$(ss -Hltn "sport = :$PROXY_PORT or sport = :$PROXY_CONTROL")
	[ -z "$need_free" ] || die "ports $PROXY_PORT and $PROXY_CONTROL must be free"
	spawn python3 "$SELFTESTS/proxy.py" --listen "127.0.0.1:$PROXY_PORT" \
		--target "$ADDR:$PORT" --control $PROXY_CONTROL >"$OUT/proxy.log" 2>&1
	proxy_pid=$spawned
	wait_until 30 grep -qx ready "$OUT/proxy.log" || {
		note_file "$OUT/proxy.log"
		die "the proxy does not start"
	}
	ADDR=127.0.0.1
	exec {proxy_fd}<>"/dev/tcp/127.0.0.1/$PROXY_CONTROL"
}

proxy_stop() {
	exec {proxy_fd}>&-
	kill "$proxy_pid"
	wait "$proxy_pid" 2>/dev/null
}

# proxy COMMAND...: prints the answer without its "ok".
proxy() {
	local answer
	echo "$*" >&"$proxy_fd"
	read -r -t 30 -u "$proxy_fd" answer || die "the proxy does not answer: $*"
	[ "${answer%% *}" = ok ] || die "proxy: $* gave $answer"
	[ "$answer" = ok ] || echo "${answer#ok }"
}

# proxy_stat NAME: one counter, 0 if it was never counted.
proxy_stat() {
	local word
	for word in $(proxy stats); do
		if [ "${word%%=*}" = "$1" ]; then
			echo "${word#*=}"
			return
		fi
	done
	echo 0
}
