# SPDX-License-Identifier: Apache-2.0
"""The user of a system daemon, which does not start as root."""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path

SERVICE = 64_003  # kService in daemon_users.hpp
SIGNER = 64_004


def as_service(command: Iterable[object], *folders: Path, user: int = SERVICE) -> list[str]:
    """The command, by root run as the service's user, or another one. It may write in root's scratch folders; access(2) heeds no
    capability, so it must also be able to enter these."""
    words = [str(word) for word in command]
    if os.geteuid() != 0:
        return words
    for folder in folders:
        folder.chmod(0o711)
    return ["setpriv", f"--reuid={user}", f"--regid={user}", "--clear-groups",
            "--inh-caps=+dac_override", "--ambient-caps=+dac_override", "--", *words]  # fmt: skip
