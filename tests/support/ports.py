"""Ports of this machine that nobody listens on, and that stay free for the one who asked."""

from __future__ import annotations

import secrets
import socket
from typing import Final

_PORTS: Final = range(16_000, 26_000)
"""Below those that a system gives to each connection and to whoever listens on any port (Linux: 32768 to 60999)."""


def free_port() -> int:
    """Return a port that is free, and that no other process of these tests is given before this one ends.

    A node that listens there later, or again after its death, finds it free however long that takes.
    """
    while True:
        port = secrets.choice(_PORTS)
        with socket.socket(socket.AF_UNIX) as mark, socket.socket() as probe:
            try:
                mark.bind(f"\0verticil-test-port-{port}")  # a name of the machine's that goes with the process
                probe.bind(("127.0.0.1", port))
            except OSError:
                continue
            mark.detach()  # kept open
            return port
