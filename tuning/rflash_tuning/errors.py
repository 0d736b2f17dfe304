# SPDX-License-Identifier: GPL-2.0
"""What can go wrong, as the commands' exit statuses and one sentence each."""

from __future__ import annotations

OK = 0
FAILED = 1  # it was tried and did not work; or verify found a difference
USAGE = 2  # what was asked for makes no sense here; nothing was changed
PARTIAL = 3  # done, but for changes that this host does not allow
UNCONFIRMED = 4  # done, and waiting for `rflash-tune confirm`


class TuneError(Exception):
    """One sentence: what was wrong, and what would be right."""

    status = FAILED


class UsageError(TuneError):
    """The request, a file of the user's or a journal is wrong; nothing was changed."""

    status = USAGE


class Unsupported(Exception):
    """This kernel, driver or device does not have the setting at all."""


class Unchangeable(Exception):
    """The setting is there, and the kernel does not let it be changed (a managed interrupt, a fixed feature)."""
