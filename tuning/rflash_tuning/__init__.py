# SPDX-License-Identifier: GPL-2.0
"""Setting up and tuning flash servers and their tenants' hosts."""

__version__ = "0.1.0"
