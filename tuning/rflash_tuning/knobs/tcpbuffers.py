# SPDX-License-Identifier: GPL-2.0
"""TCP buffers that a fast path fills.

:What: The largest value of ``tcp_rmem`` and ``tcp_wmem``, and ``rmem_max`` and
    ``wmem_max``, at least 16 MiB. Only raised.
:Why: A window smaller than rate times round-trip time leaves the path idle. 16 MiB
    is a choice: 100 Gb/s at 1 ms are 12.5 MB.
:Source: Documentation/networking/ip-sysctl.rst (tcp_rmem); Documentation/admin-guide/sysctl/net.rst.
:Disruption: none; it counts for connections made afterwards.
:Undo: The former values.
"""

from __future__ import annotations

from rflash_tuning.knobs.draft import Draft

NAME = "tcp-buffers"
TITLE = "TCP buffers that a fast path fills"
SOURCE = "Documentation/networking/ip-sysctl.rst"
LEAST = 16 << 20
REASON = "a window of 16 MiB holds 1 ms of 100 Gb/s"


def draw(draft: Draft) -> None:
    for name in ("rmem_max", "wmem_max"):
        draft.raise_file(f"/proc/sys/net/core/{name}", LEAST, REASON, SOURCE)
    for name in ("tcp_rmem", "tcp_wmem"):
        path = f"/proc/sys/net/ipv4/{name}"
        words = draft.host.files.get(path, "").split()
        if len(words) == 3 and words[2].isdigit():
            wanted = [words[0], words[1], str(max(LEAST, int(words[2])))]
            draft.want_file(path, "text", "\t".join(wanted), REASON, SOURCE)
