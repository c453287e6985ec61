"""What a run writes after each update, and how it resumes when its folder is opened again, with a small model."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
import torch
from test_store import group

from magcli.errors import DataError
from magcli.model.load import load_model, load_tokenizer
from magcli.rl import ledger
from magcli.rl.checkpointing import Checkpointing
from magcli.rl.ledger import Ledger
from magcli.rl.store import RolloutStore
from magcli.rl.trainer import Trainer
from magcli.rl.types import Batch, Numerics
from magcli.run.rundir import RunDir
from magcli.train import optim
from magcli.train.commands import RankState
from magcli.train.controller import OneProcess, RankController
from magcli.train.shard import ShardedModel

Open = Callable[[], Checkpointing]


@pytest.fixture
def path(tmp_path: Path) -> Path:
    (tmp_path / "run").mkdir()
    return tmp_path / "run"


@pytest.fixture
def opened(path: Path) -> Iterator[Open]:
    """Opens the folder of a run as each of its processes does: checkpoints every 2 updates, weights every 3."""
    ledgers = []

    def open_records() -> Checkpointing:
        ledgers.append(Ledger(path / "ledger.jsonl"))
        return Checkpointing(RunDir(path), ledgers[-1], RolloutStore(path), 2, 1, 3)

    yield open_records
    for each in ledgers:
        each.close()


@pytest.fixture
def new_trainer(tiny_model_dir: Path) -> Callable[[], Trainer]:
    """Makes the trainer of a run of 5 updates before its first update."""

    def make() -> Trainer:
        model, tokenizer = load_model(str(tiny_model_dir), dtype=torch.float32), load_tokenizer(str(tiny_model_dir))
        optimizer = optim.adamw(model, lr=1e-3, weight_decay=0.0)
        controller = RankController(OneProcess())
        controller.open(lambda ranks, bf16: RankState(ranks, ShardedModel(model), optimizer, tokenizer))
        numerics = Numerics(micro_tokens=64, max_norm=1.0, bf16=False)
        return Trainer(controller, updates=5, lr=1e-3, warmup=0, shuffle_rewards=False, seed=0, numerics=numerics)

    return make


def begin(records: Checkpointing, step: int) -> Batch:
    """Begin an update: its group, of number ``step``, is on disk and in the ledger."""
    while (number := records.ledger.next_number) <= step:
        records.ledger.record(number, "reserved", problem=f"p{number}", version=step - 1)
    batch = Batch([records.store.add(group(step))], [])
    records.ledger.record(step, "admitted", right=1, graded=2)
    records.ledger.record_batch([step], "taken", step=step)
    return batch


@dataclass(frozen=True)
class Move:
    """Add a number to all weights."""

    by: int

    def run(self, state: RankState) -> None:
        with torch.no_grad():
            for parameter in state.model.parameters():
                parameter += self.by


def update(records: Checkpointing, trainer: Trainer) -> Batch:
    """An update from its beginning to its record, which moves all weights by its number."""
    step = trainer.done + 1
    batch = begin(records, step)
    trainer.controller.run([Move(step)])
    trainer.done = step
    records.record(step, batch, {step: [0.5, -0.5]}, {"step": step, "reward": 0.5})
    return batch


def weights(trainer: Trainer) -> dict[str, torch.Tensor]:
    return {name: value.clone() for name, value in trainer.controller.weights().items()}


def same(left: dict[str, torch.Tensor], right: dict[str, torch.Tensor]) -> bool:
    return left.keys() == right.keys() and all(torch.equal(left[name], right[name]) for name in left)


def files(path: Path) -> dict[str, bytes]:
    return {str(file.relative_to(path)): file.read_bytes() for file in path.rglob("*") if file.is_file()}


def test_an_update_is_recorded_once_however_often_it_is_repeated(path: Path, opened: Open, new_trainer) -> None:
    records = opened()
    batch = update(records, new_trainer())
    before = files(path)
    assert {"rollouts/step-000001.arrow", "metrics.jsonl", "ledger.jsonl"} <= before.keys()
    again = opened()
    again.lines.append({"step": 1})
    for each in (records, again):
        each.record(1, batch, {1: [9.0, 9.0]}, {"step": 1, "reward": 9.0})
        assert files(path) == before
    assert [event["event"] for event in ledger.read(path / "ledger.jsonl")].count("trained") == 1


@pytest.mark.parametrize("lost", ["rollouts/step-000001.arrow", "metrics.jsonl"])
def test_a_record_that_a_kill_cut_short_is_completed(path: Path, opened: Open, new_trainer, lost: str) -> None:
    batch = update(opened(), new_trainer())
    before = files(path)
    (path / lost).unlink()
    opened().record(1, batch, {1: [0.5, -0.5]}, {"step": 1, "reward": 0.5})
    assert files(path)[lost] == before[lost]
    assert files(path)["ledger.jsonl"] == before["ledger.jsonl"]


def test_a_begun_update_is_found_with_its_groups(opened: Open, new_trainer) -> None:
    records = opened()
    done, begun = update(records, new_trainer()), begin(records, 2)
    dropped = records.store.add(group(0, "all-wrong"))
    again = opened()
    assert again.begun_batch(1) == done, "from its table"
    assert again.begun_batch(2) == Batch(begun.trained, [dropped]), "from the files of its groups"
    assert again.begun_batch(3) is None


def test_files_of_groups_that_their_table_holds_already_are_removed(opened: Open, new_trainer) -> None:
    """A kill between the two leaves both."""
    records = opened()
    update(records, new_trainer())
    records.store.add(group(1))
    again = opened()
    assert again.begun_batch(1) is not None
    assert again.store.numbers() == []


def test_a_lost_group_of_a_begun_update_stops_the_run(opened: Open) -> None:
    records = opened()
    begin(records, 1)
    records.store.remove([1])
    with pytest.raises(DataError, match=r"update 1 cannot be repeated without it; give --restart"):
        opened().begun_batch(1)


def test_weights_are_saved_when_due(path: Path, opened: Open, new_trainer) -> None:
    records, trainer = opened(), new_trainer()
    records.save_trajectory(trainer)
    kept = []
    while trainer.done < trainer.updates:
        update(records, trainer)
        records.save_due(trainer)
        kept.append([folder.name for folder in (path / "checkpoints").glob("*")])
    assert kept == [[], ["step-000002"], ["step-000002"], ["step-000004"], ["step-000004"]], "only the newest stays"
    stored = [folder.name for folder in RunDir(path).stored_weights()]
    assert stored == ["step-000000", "step-000003", "step-000005"], "at the start, at intervals and at the end"


def test_a_run_resumes_from_its_newest_checkpoint(opened: Open, new_trainer) -> None:
    records, trainer = opened(), new_trainer()
    saved = {}
    for _ in range(3):
        trainer.bad_updates = trainer.done
        update(records, trainer)
        records.save_due(trainer)
        saved[trainer.done] = weights(trainer)
    again, resumed = opened(), new_trainer()
    assert not same(weights(resumed), saved[2])
    again.resume(resumed)
    assert (resumed.done, resumed.bad_updates) == (2, 1)
    assert same(weights(resumed), saved[2])
    assert [line["step"] for line in again.lines] == [1, 2, 3], "also of the update that is repeated"


def test_a_new_run_resumes_at_its_beginning(opened: Open, new_trainer) -> None:
    records, trainer = opened(), new_trainer()
    before = weights(trainer)
    records.resume(trainer)
    assert (trainer.done, records.lines) == (0, [])
    assert same(weights(trainer), before)


def test_what_the_ledger_does_not_know_is_removed(path: Path, opened: Open, new_trainer) -> None:
    """A power cut may take the end of the ledger, but not a group's file."""
    records = opened()
    update(records, new_trainer())
    records.store.add(group(7))
    records.folder.log({"step": 2})
    again = opened()
    again.resume(new_trainer())
    assert again.store.numbers() == []
    assert [line["step"] for line in again.folder.metrics()] == [1], "no update 2 has begun"


@pytest.mark.parametrize("file", ["ledger", "metrics"])
def test_a_checkpoint_of_an_update_that_a_file_lacks_is_refused(path, opened: Open, new_trainer, file: str) -> None:
    records, trainer = opened(), new_trainer()
    update(records, trainer)
    records.save(trainer)
    (path / f"{file}.jsonl").write_text("")
    with pytest.raises(DataError, match=rf"{file}\.jsonl lacks update 1; give --restart"):
        opened().resume(new_trainer())


def test_a_damaged_checkpoint_is_refused(path: Path, opened: Open, new_trainer) -> None:
    records, trainer = opened(), new_trainer()
    update(records, trainer)
    records.save(trainer)
    (path / "checkpoints" / "step-000001" / "state.json").write_text("{}")
    with pytest.raises(DataError, match=r"state\.json"):
        opened().resume(new_trainer())


def test_a_finished_run_has_its_model_and_its_last_checkpoint(path: Path, opened: Open, new_trainer) -> None:
    records, trainer = opened(), new_trainer()
    update(records, trainer)
    records.save(trainer)
    assert not records.folder.finished
    update(records, trainer)
    records.finish(trainer)
    assert records.folder.finished
    assert [folder.name for folder in (path / "checkpoints").iterdir()] == ["step-000002"]
    stored = load_model(str(path / "model"), dtype=torch.float32).state_dict()
    assert all(torch.equal(stored[name], value) for name, value in weights(trainer).items())
