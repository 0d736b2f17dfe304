# SPDX-License-Identifier: GPL-2.0
"""Boots Debian kernels in QEMU and runs a script there."""
