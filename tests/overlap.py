"""How long generation and training overlap in a run, from its ledger."""

from collections.abc import Iterable, Mapping
from typing import Any

from magcli.rl.ledger import by_group


def overlap(events: Iterable[Mapping[str, Any]]) -> float:
    """Seconds in which groups were generated during updates; 0 in a synchronous run.

    An update lasts from the moment its groups are taken until they are trained; a group is generated from its start
    to its last token.
    """
    generated: list[tuple[float, float]] = []
    updates: dict[int, tuple[float, float]] = {}
    begun: dict[int, float] = {}
    for group, event in by_group(events):
        now = event["time"]
        if event["event"] in ("reserved", "again"):
            begun[group] = now
        elif event["event"] == "generated":
            generated.append((begun[group], now))
        elif event["event"] in ("taken", "trained"):
            updates[event["step"]] = (updates.get(event["step"], (now, now))[0], now)
    return sum(_covered(start, end, generated) for start, end in updates.values())


def _covered(start: float, end: float, spans: Iterable[tuple[float, float]]) -> float:
    """Seconds of ``start`` to ``end`` that some span covers."""
    covered, reached = 0.0, start
    for first, last in sorted(spans):
        covered += max(0.0, min(last, end) - max(first, reached))
        reached = max(reached, min(last, end))
    return covered
