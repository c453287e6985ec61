"""What processes that train together say to each other, and how they find each other."""

import os
from pathlib import Path

import pytest
import torch
import torch.distributed as dist
from training_ranks import LOOPBACK, on_ranks

from magcli.errors import EnvironmentFault
from magcli.train.distributed import Ranks, join_ranks


def test_a_single_process_needs_no_process_group():
    ranks = Ranks()
    assert (ranks.rank, ranks.size, ranks.mesh) == (0, 1, None)
    assert (ranks.sum(2.5), ranks.gather("x"), ranks.broadcast("y")) == (2.5, ["x"], "y")
    assert not dist.is_initialized()


def test_a_rank_without_the_others_fails_to_connect(monkeypatch):
    store = dist.TCPStore(LOOPBACK, 0, is_master=True, wait_for_workers=False)
    monkeypatch.setenv("GLOO_SOCKET_IFNAME", "lo")
    with pytest.raises(EnvironmentFault, match="rank 1 could not connect to all 2 ranks"):
        join_ranks(1, 2, 1, (LOOPBACK, store.port), "cpu", timeout=1.0)


def talk(ranks):
    total = ranks.sum(0.1 * (ranks.rank + 1))
    return total, ranks.gather({"rank": ranks.rank}), ranks.broadcast(f"from {ranks.rank}")


def test_numbers_are_summed_and_objects_gathered_and_broadcast():
    first, second = on_ranks(talk)
    assert first == (pytest.approx(0.3), [{"rank": 0}, {"rank": 1}], "from 0")
    assert second == (first[0], [], "from 0")


def listening_addresses(_ranks):
    """The addresses on which this process listens, from the kernel's tables."""
    own = {os.readlink(link) for link in Path("/proc/self/fd").iterdir() if link.is_symlink()}
    listening = set()
    for table in ("tcp", "tcp6"):
        for line in Path(f"/proc/self/net/{table}").read_text().splitlines()[1:]:
            _, address, _, state, *rest = line.split()
            if state == "0A" and f"socket:[{rest[5]}]" in own:
                listening.add(address.partition(":")[0])
    return sorted(listening)


def test_ranks_listen_on_their_own_address_only():
    assert on_ranks(listening_addresses)[0] == ["0100007F"]


def test_ranks_compare_by_value():
    assert Ranks() == Ranks(0, 1, torch.device("cpu"), None)
