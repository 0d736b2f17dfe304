# SPDX-License-Identifier: GPL-2.0
#
# Verbs for people. What is compiled into the module says Kbuild, what into the
# tools userspace/Cargo.toml.

# The guests' kernel series: 6.1, 6.12 or 7.2.
KERNEL ?= 6.12
# The running kernel's build directory, for a real host.
KDIR ?= /lib/modules/$(shell uname -r)/build
PREFIX ?= /usr
DESTDIR ?=

CARGO ?= cargo
RUN = tests/guest/run
LAB_SERIES = 6.1 6.12 7.2

# Passed on to the kernel's build when given.
KBUILD_OPTIONS = $(foreach v,W C V CF,$(if $($(v)),$(v)="$($(v))"))

.PHONY: all
all: module userspace ## the module for the running kernel, and the tools

.PHONY: module
module: ## rflash.ko for the running kernel (KDIR=)
	@scripts/kernel-headers "$(KDIR)"
	$(MAKE) -C "$(KDIR)" M="$(CURDIR)" modules

.PHONY: userspace
userspace: ## rflash and rflashd, in userspace/target/release
	$(CARGO) build --release --locked --manifest-path userspace/Cargo.toml

.PHONY: install
install: ## install module, tools, udev rules, units, man pages (DESTDIR=, PREFIX=)
	@scripts/install --kdir "$(KDIR)" --destdir "$(DESTDIR)" --prefix "$(PREFIX)"

.PHONY: install-tools
install-tools: ## the same without the module
	@scripts/install --tools-only --destdir "$(DESTDIR)" --prefix "$(PREFIX)"

.PHONY: dkms-install
dkms-install: install-tools ## the same, with DKMS building the module for each kernel
	@scripts/dkms-install

.PHONY: setup
setup: ## install what building and testing needs (root, Debian 12 or 13)
	@scripts/setup

.PHONY: demo
demo: setup ## see it work: two commands' worth of remote flash in a guest
	@$(MAKE) --no-print-directory module-guest KERNEL=6.12
	@$(MAKE) --no-print-directory userspace
	@tests/demo/run

.PHONY: check
check: setup ## every test; ends with "N passed, N failed, N skipped"
	@tests/check/run

.PHONY: check-unit
check-unit: ## tests of the Rust and Python code, no privileges
	@tests/check/run unit

.PHONY: check-kunit
check-kunit: ## the driver's KUnit tests
	@tests/check/run kunit

.PHONY: check-guest
check-guest: ## the selftests, in guests
	@tests/check/run guest

.PHONY: check-nightly
check-nightly: ## the selftests that take too long for every check, in guests
	@TESTS="$$(sed -n 's/^\([^#][^ 	]*\).*/\1/p' tests/selftests/nightly.txt | tr '\n' ' ')" tests/check/run guest

.PHONY: check-meta
check-meta: ## the guest lab's own tests
	@tests/check/run meta

.PHONY: lint
lint: ## checkpatch, sparse, rustfmt, clippy, ruff, shellcheck
	@tests/check/run lint

.PHONY: bench-driver
bench-driver: setup ## rflash against nvme-tcp, instructions counted
	@$(MAKE) --no-print-directory module-guest KERNEL=$(KERNEL)
	@$(MAKE) --no-print-directory userspace
	@tests/bench/run

.PHONY: bench-rflashd
bench-rflashd: ## rflashd against a raw TCP echo, both ends pinned (ARGS=--quick)
	$(CARGO) build --release --locked --manifest-path userspace/Cargo.toml \
		-p rflash --bin rflash --example floor -p rflashd --example ram_server
	@tests/bench/rflashd/run $(ARGS)

.PHONY: module-guest
module-guest: ## rflash.ko for a guest's kernel (KERNEL=6.1, 6.12 or 7.2; W=1 C=1)
	@tests/guest/build-module --kernel "$(KERNEL)" -- $(KBUILD_OPTIONS)

.PHONY: guest-shell
guest-shell: ## a root shell in a guest (KERNEL=)
	@$(RUN) --kernel "$(KERNEL)" --shell

.PHONY: clean
clean: ## remove what was built here (not the cache in ~/.cache/rflash)
	rm -rf build userspace/target
	@find . -path ./.git -prune -o -path ./.venv -prune -o \
		\( -name '*.o' -o -name '*.ko' -o -name '*.mod' -o -name '*.mod.c' -o -name '.*.cmd' \) \
		-type f -exec rm -f {} +
	rm -rf driver/compat/generated Module.symvers modules.order

.PHONY: help
help: ## this list
	@sed -n 's/^\([a-z-]*\):.* ## /\1\t/p' $(firstword $(MAKEFILE_LIST)) | \
		while IFS="$$(printf '\t')" read -r verb what; do printf '  make %-13s %s\n' "$$verb" "$$what"; done
