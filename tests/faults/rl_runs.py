"""Runs of `magcli rl` on a tiny model, and what must be true of each of them in the end."""

from collections import Counter
from pathlib import Path

from magcli.data import table
from magcli.rl import ledger
from magcli.run.rundir import RunDir

GROUP, BATCH = 8, 4
OPTIONS: dict[str, object] = {
    "group_size": GROUP,
    "n_async": 64,
    "n_batch": GROUP * BATCH,
    "n_mini": GROUP * BATCH,
    "max_tokens": 24,
    "lr": 1e-3,
    "bf16": "no",
    "dtype": "fp32",
    "system": "none",
    "language": False,
    "checkpoint_every": 4,
    "generators": 1,
    "workers": 1,
}


def rollouts(run: Path) -> list[dict[str, object]]:
    """The rows of all updates, in order."""
    paths = sorted((run / "rollouts").iterdir())
    return [row for path in paths for batch in table.read(str(path)).rows for row in batch.to_pylist()]


def check_account(run: Path, updates: int) -> None:
    """reserved = trained + dropped, each group once; every update had its batch; what is on disk says the same."""
    account = ledger.account(ledger.read(run / "ledger.jsonl"))
    assert account.faults == ()
    assert account.outstanding == 0
    assert account.trained == updates * BATCH
    assert set(account.dropped) <= {"all-right", "all-wrong"}
    rows = rollouts(run)
    assert Counter(row["group"] for row in rows) == dict.fromkeys(range(account.reserved), GROUP)
    trained = Counter(row["step"] for row in rows if row["dropped"] is None)
    assert trained == dict.fromkeys(range(1, updates + 1), GROUP * BATCH)
    assert not list((run / "groups").iterdir())


def check_metrics(run: Path, updates: int) -> None:
    """Each update has one line, and its weights reached the engines."""
    lines = RunDir(run).metrics()
    assert [line["step"] for line in lines] == list(range(1, updates + 1))
    for line in lines:
        assert line.get("weights_version", line["step"]) == line["step"]
