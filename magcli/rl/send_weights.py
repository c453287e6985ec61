"""Weights that trainer ranks send to engines themselves, bucket by bucket: no process gathers them all."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from magcli.generate.weights.digest import renamed
from magcli.generate.weights.rank_sender import Engines, Transfer
from magcli.generate.weights.rank_transfer import Meeting, Sent, WeightPlan
from magcli.train.buckets import BUCKET_BYTES, gathered_buckets, open_gather_group, wait_for_all
from magcli.train.commands import RankState

GATHER_GROUP, ENGINES = "gather", "engines"
"""The names of what ``SendWeights`` keeps in a rank's state."""


@dataclass(frozen=True, slots=True)
class SendWeights:
    """Gather the weights of ``plan`` bucket by bucket on rank 0, which sends each bucket to the engines and frees it.

    An engine that is lost meanwhile does not disturb the others. ``version`` is that of the weights.
    """

    plan: WeightPlan
    meetings: Sequence[Meeting]
    version: int
    bucket_bytes: int = BUCKET_BYTES

    def run(self, state: RankState) -> Sent | None:
        """What was sent, of rank 0."""
        ranks = state.ranks
        group = _gather_group(state)
        if group is None:
            return None
        transfer = _engines(state).connect(self.meetings) if ranks.rank == 0 else None
        # Nobody gathers while rank 0 still connects: it would be waited for in two places at once.
        wait_for_all(ranks, group)
        # Shards: the whole of a weight exists only in its bucket.
        parameters = state.model.state_dict(keep_vars=True)
        tensors = {name: parameters[source] for name, source in self.plan.names.items()}
        # All ranks take part in gathering each bucket; only rank 0 has it whole.
        for bucket in gathered_buckets(tensors, ranks, group, dtype=self.plan.dtype, limit=self.bucket_bytes):
            if transfer is not None:
                transfer.send(bucket)
        return None if transfer is None else self._sent(transfer)

    def _sent(self, transfer: Transfer) -> Sent:
        return Sent(self.version, renamed(transfer.digests, self.plan.names), transfer.failures)


def _gather_group(state: RankState) -> Any:
    """The process group in which this rank gathers, opened by all ranks at the first update; None if it does not."""
    if GATHER_GROUP not in state.connections:
        state.connections[GATHER_GROUP] = open_gather_group(state.ranks)
    return state.connections[GATHER_GROUP]


def _engines(state: RankState) -> Engines:
    """Rank 0's connections to engines."""
    engines: Engines = state.connections.setdefault(ENGINES, Engines(state.ranks.device))
    return engines
