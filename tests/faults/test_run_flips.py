"""One flipped bit in any file of a run's folder: whoever reads it refuses it by name in one line, or nothing changes.

A command that accepts the damaged folder must give the results of the whole one: the same weights, rollouts, samples,
plane. ``FLIPS`` is the number of flips of each test, spread evenly over the kinds of files.
"""

import os
import random
import shutil
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import cycle, islice
from pathlib import Path
from typing import Any

import pytest
from calling import TRAINED, flags_of, quiet, run_command_line, start_stage
from kills import fresh_seed
from safetensors.torch import load_file
from training_ranks import killed_once

from magcli.data import table
from magcli.rl import ledger

FLIPS = int(os.environ.get("FLIPS", "24"))
REFUSALS = (2, 3, 4)
"""Exit codes for a damaged file: settings that differ, a table or record, a model."""
OPTIONS = {**TRAINED, "updates": 6, "checkpoint_every": 2}
RANKS = {**OPTIONS, "updates": 4, "n_batch": 32, "n_mini": 32, "micro_tokens": 256, "trajectory_every": 0, "workers": 1}

pytestmark = [pytest.mark.faults, pytest.mark.timeout(3600)]


@dataclass(frozen=True)
class Command:
    """A command line on a run's folder, and what it makes: a value that is equal for equal results."""

    arguments: Callable[[Path], list[object]]
    result: Callable[[Path], object]


@dataclass(frozen=True)
class Flip:
    """A flipped bit of a file in a folder, and how a command ended on it."""

    name: str
    bit: int
    code: int
    stderr: str

    def __str__(self) -> str:
        return f"{self.name}, bit {self.bit}: exit code {self.code}\n{self.stderr}"


def kind_of(name: str) -> str:
    """The kind of a file by its path in a run's folder: one for each record, folder of weights and file in it."""
    folder, _, rest = name.partition("/")
    if folder in ("checkpoints", "trajectory"):
        return f"{folder}/{rest.partition('/')[2]}"
    return name if folder == "model" else folder


def kinds_of(run: Path, names: Sequence[str]) -> dict[str, list[Path]]:
    """The files below folders or names of a run that are not empty, by their kinds."""
    kinds: dict[str, list[Path]] = {}
    for path in sorted(run.rglob("*")):
        name = path.relative_to(run).as_posix()
        is_chosen = not names or name.partition("/")[0] in names
        if is_chosen and path.is_file() and path.stat().st_size and not name.endswith(".lock"):
            kinds.setdefault(kind_of(name), []).append(path.relative_to(run))
    return kinds


def flips(run: Path, command: Command, scratch: Path, names: Sequence[str] = ()) -> Iterator[Flip]:
    """Run a command on copies of a folder with one flipped bit each, and check how it ends.

    A file that is damaged must not crash the command. If it is accepted, the result must be that of the whole folder;
    a refusal must name the file or its folder.
    """
    expected = whole_result(run, command, scratch)
    choose = random.Random(fresh_seed())
    kinds = kinds_of(run, names)
    for number, kind in enumerate(islice(cycle(kinds), FLIPS)):
        target = choose.choice(kinds[kind])
        damaged = scratch / f"flip-{number}"
        shutil.copytree(run, damaged)
        content = bytearray((damaged / target).read_bytes())
        bit = choose.randrange(8 * len(content))
        content[bit // 8] ^= 1 << bit % 8
        (damaged / target).write_bytes(content)
        flip = ended(target.as_posix(), bit, command.arguments(damaged))
        assert "Traceback" not in flip.stderr, flip
        assert flip.code in (0, *REFUSALS), flip
        if flip.code:
            error = flip.stderr.splitlines()[-1]
            assert error.startswith("error: "), flip
            assert any(part in error for part in (target.name, target.parent.name or str(damaged))), flip
        else:
            assert command.result(damaged) == expected, f"other results: {flip}"
        yield flip
        shutil.rmtree(damaged)


def whole_result(run: Path, command: Command, scratch: Path) -> object:
    """The result of a command on an undamaged copy of a folder."""
    whole = scratch / "whole"
    shutil.copytree(run, whole)
    done = ended("", 0, command.arguments(whole))
    assert done.code == 0, done
    return command.result(whole)


def ended(name: str, bit: int, arguments: Sequence[object]) -> Flip:
    """A command that ran to its end."""
    done = run_command_line(arguments, env=quiet())
    return Flip(name, bit, done.returncode, done.stderr.decode())


def summary(found: Sequence[Flip]) -> dict[str, Counter[str]]:
    """How many flips of each kind were refused or harmless; printed as the figures of the run."""
    counts: dict[str, Counter[str]] = {}
    for flip in found:
        outcome = "refused" if flip.code else "harmless"
        counts.setdefault(kind_of(flip.name), Counter())[outcome] += 1
    for kind, outcomes in sorted(counts.items()):
        print(f"{kind}: {outcomes['refused']} refused, {outcomes['harmless']} harmless")
    return counts


def resumed(problems: Path, model: Path, options: dict[str, Any]) -> Command:
    """The command that goes on with a run, and writes all rollouts."""

    def arguments(run: Path) -> list[object]:
        output = run.with_name(f"{run.name}.jsonl")
        return ["rl", problems, "--model", model, "--run", run, "-o", output, *flags_of(options)]

    return Command(arguments, trained_result)


def trained_result(run: Path) -> object:
    """Weights, rollouts and account of a finished run."""
    account = ledger.account(ledger.read(run / "ledger.jsonl"))
    return weights(run / "model"), rows_of(run.with_name(f"{run.name}.jsonl")), str(account)


def weights(folder: Path) -> dict[str, list[Any]]:
    """The weights of a model folder as numbers."""
    return {name: tensor.tolist() for name, tensor in load_file(folder / "model.safetensors").items()}


def rows_of(path: Path) -> list[dict[str, Any]]:
    return [row for batch in table.read(str(path)).rows for row in batch.to_pylist()]


@pytest.fixture(scope="module")
def interrupted(guesser: Path, letters: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run that was killed during its fifth update, with groups that wait for it."""
    run = tmp_path_factory.mktemp("interrupted") / "run"
    deadline = time.monotonic() + 240
    while time.monotonic() < deadline:
        shutil.rmtree(run, ignore_errors=True)
        process = start_stage("rl", letters, model=str(guesser), run=run, **OPTIONS)
        while process.is_alive() and not waiting_groups(run):
            time.sleep(0.001)
        process.kill()
        process.join()
        if waiting_groups(run):
            return run
    raise AssertionError("no kill left groups that wait")


def waiting_groups(run: Path) -> list[Path]:
    """The groups on disk, once the second checkpoint is."""
    if not (run / "checkpoints" / "step-000004" / "checkpoint.json").exists():
        return []
    return list((run / "groups").glob("g-*.arrow"))


def test_a_damaged_run_is_not_resumed_to_other_weights(
    interrupted: Path, guesser: Path, letters: Path, tmp_path: Path
) -> None:
    found = list(flips(interrupted, resumed(letters, guesser, OPTIONS), tmp_path))
    counts = summary(found)
    assert {"groups", "ledger.jsonl", "metrics.jsonl", "run.json", "inputs.json", "rollouts"} <= set(counts) or (
        len(kinds_of(interrupted, ())) > FLIPS
    )
    checkpoints = [flip for flip in found if flip.name.startswith("checkpoints/step-000004/")]
    assert all(flip.code for flip in checkpoints)
    assert all("step-000004" in flip.stderr for flip in checkpoints)


def test_a_damaged_shard_is_not_resumed_from(guesser: Path, letters: Path, tmp_path: Path) -> None:
    """The checkpoint of two ranks; one goes on with it."""
    run = tmp_path / "run"
    command = ["rl", letters, "--model", guesser, "--run", run, "--trainers", 2, *flags_of(RANKS)]
    killed_once(command, run / "checkpoints" / "step-000002")
    found = list(flips(run, resumed(letters, guesser, RANKS), tmp_path, ["checkpoints"]))
    assert any(kind.startswith("checkpoints/shards/") for kind in summary(found))
    assert all(flip.code for flip in found)


def test_a_damaged_model_is_neither_sampled_nor_published(finished_run: Path, letters: Path, tmp_path: Path) -> None:
    sampled = Command(
        lambda run: [
            *("generate", letters, "--model", run / "model", "--max-tokens", "12", "--deterministic"),
            *("-o", run.with_name(f"{run.name}.arrow"), "--system", "none"),
        ],
        lambda run: rows_of(run.with_name(f"{run.name}.arrow")),
    )
    published = Command(
        lambda run: ["export", run, "-o", run.with_name(f"{run.name}-out")],
        lambda run: weights(run.with_name(f"{run.name}-out")),
    )
    for name, command in {"sampled": sampled, "published": published}.items():
        (tmp_path / name).mkdir()
        found = list(flips(finished_run, command, tmp_path / name, ["model"]))
        summary(found)
        of_weights = [flip for flip in found if flip.name.endswith(".safetensors")]
        assert of_weights
        assert all("SHA256SUMS" in flip.stderr for flip in of_weights)


def test_a_damaged_trajectory_has_no_plane(finished_run: Path, tmp_path: Path) -> None:
    command = Command(
        lambda run: ["landscape", "--run", run, "--plane-only"],
        lambda run: (run / "landscape" / "plane.json").read_bytes(),
    )
    found = list(flips(finished_run, command, tmp_path, ["trajectory"]))
    summary(found)
    assert all(flip.code for flip in found if flip.name.endswith(("model.safetensors", "config.json")))


def test_damaged_records_are_not_reported(finished_run: Path, tmp_path: Path) -> None:
    records = ["run.json", "inputs.json", "metrics.jsonl", "ledger.jsonl", "rollouts"]
    command = Command(
        lambda run: ["report", run, "-o", run.with_name(f"{run.name}.html")],
        lambda run: run.with_name(f"{run.name}.html").exists(),
    )
    summary(list(flips(finished_run, command, tmp_path, records)))
