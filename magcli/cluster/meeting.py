"""The store of torch at which processes meet, on one address of the machine that holds it."""

import socket
from datetime import timedelta
from typing import Any

import torch.distributed

dist: Any = torch.distributed
"""Untyped: torch's types lack what is used here."""


def listening_store(host: str, port: int = 0, *, timeout: timedelta) -> Any:
    """A store at a port of this address only, by default a free one; torch would listen on all of the machine's.

    Raises:
        OSError: the address is not this machine's, or the port is taken.
    """
    listener = socket.create_server((host, port))
    # The socket that listens is handed over open, so no other process can take the port in between.
    return dist.TCPStore(
        host,
        listener.getsockname()[1],
        is_master=True,
        wait_for_workers=False,
        timeout=timeout,
        master_listen_fd=listener.detach(),
    )


def free_port(host: str) -> int:
    """A port of this machine that nobody uses now."""
    with socket.socket() as bound:
        bound.bind((host, 0))
        port: int = bound.getsockname()[1]
        return port


def joined_store(host: str, port: int, *, timeout: timedelta) -> Any:
    """The store that another process holds at this address.

    Raises:
        RuntimeError: there is none before the timeout.
    """
    return dist.TCPStore(host, port, is_master=False, timeout=timeout)
