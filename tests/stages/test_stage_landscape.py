import json
import os
import shutil
from pathlib import Path

import numpy as np
import pytest
from calling import call_stage, journaled, kill_and_resume, seconds_of
from safetensors.torch import load_file

from magcli.data import table
from magcli.errors import DataError, EnvironmentFault, UsageError
from magcli.landscape.components import perturbed
from magcli.model.weights.sums import _check_once

ASK = {
    "points": 7,
    "samples": 4,
    "max_tokens": 24,
    "system": Path("none"),
    "language": False,
    "deterministic": True,
    "seed": 3,
}


def rows_of(path):
    return [row for batch in table.read(str(path)).rows for row in batch.to_pylist()]


@pytest.fixture(scope="module")
def problems(tmp_path_factory):
    rows = [{"id": f"p{i}", "prompt": f"{letter}?", "answer": "3"} for i, letter in enumerate("abcd")]
    path = tmp_path_factory.mktemp("problems") / "problems.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


@pytest.fixture(scope="module")
def trained(finished_run, tmp_path_factory):
    return shutil.copytree(finished_run, tmp_path_factory.mktemp("landscape") / "rl")


@pytest.fixture(scope="module")
def drawn(trained, problems):
    call_stage("landscape", problems, run=trained, output=trained / "points.arrow", **ASK)
    return trained / "landscape", rows_of(trained / "points.arrow")


def test_plots_points_and_figures_are_written(drawn):
    out, rows = drawn
    for name in ("landscape", "reward", "length", "regression"):
        assert (out / f"{name}.png").read_bytes().startswith(b"\x89PNG")
        assert (out / f"{name}.pdf").read_bytes().startswith(b"%PDF")
        assert b"<svg" in (out / f"{name}.svg").read_bytes()
    figures = json.loads((out / "landscape.json").read_text())
    assert figures["checkpoints"] == [f"step-{step:06d}" for step in range(7)]
    assert 0.5 < sum(figures["explained"][:2]) <= 1 + 1e-9
    assert len(figures["trajectory"]) == 7
    assert figures["trajectory"][-1] == [0, 0]
    assert figures["random_walk"][:2] == pytest.approx([0.62, 0.16], abs=0.02)
    assert sum(tensor["variance"] for tensor in figures["tensors"]) == pytest.approx(1)
    assert {row["name"] for row in rows_of(out / "tensors.csv")} == {each["name"] for each in figures["tensors"]}
    assert len(rows) >= 7
    csv = rows_of(out / "points.csv")
    assert [float(row["reward"]) for row in csv] == pytest.approx([row["reward"] for row in rows])


def test_points_describe_the_weights_that_were_loaded(drawn):
    _, rows = drawn
    for row in rows:
        assert len(row["rewards"]) == len(row["lengths"]) == 4
        assert row["reward"] == pytest.approx(np.mean(row["rewards"]))
        assert row["length"] == pytest.approx(np.mean(row["lengths"]))
        assert row["reward_low"] <= row["reward"] <= row["reward_high"]
        assert row["raw_reward"] == pytest.approx(row["reward"]), "there is no length penalty here"
        assert row["difference_low"] <= row["difference"] <= row["difference_high"]
        assert 0 <= row["truncated"] <= 1
        assert (row["phase"], row["samples"]) == ("grid", 4)
        assert row["off_plane"] < 1e-3 * (1 + abs(row["a1"]) + abs(row["a2"]))
    assert len({(row["a1"], row["a2"]) for row in rows}) == len(rows)
    assert len({row["reward"] for row in rows}) > 2


def test_the_origin_is_bit_for_bit_the_final_weights(drawn, trained, problems):
    out, rows = drawn
    (origin,) = (row for row in rows if row["a1"] == row["a2"] == 0)
    assert origin["off_plane"] == 0
    assert (origin["difference"], origin["difference_low"], origin["difference_high"]) == (0, 0, 0)
    final = load_file(trained / "model" / "model.safetensors")
    for name, tensor in perturbed(trained / "trajectory" / "step-000006", out / "components", 0.0, 0.0):
        assert tensor.equal(final[name])
    kept = trained / "origin.arrow"
    options = {key: ASK[key] for key in ("samples", "max_tokens", "system", "deterministic", "seed")}
    call_stage("evaluate", problems, model=str(trained / "model"), completions=kept, temperature=1.0, **options)
    assert origin["reward"] == pytest.approx(np.mean([row["reward"] for row in rows_of(kept)]), abs=1e-6)
    assert origin["length"] == np.mean([row["num_tokens"] for row in rows_of(kept)])


@pytest.mark.faults
def test_a_killed_and_resumed_landscape_has_the_same_points(trained, problems, tmp_path):
    runs = {}
    for name in ("whole", "broken"):
        runs[name] = tmp_path / name
        runs[name].mkdir()
        shutil.copytree(trained / "trajectory", runs[name] / "trajectory")
    outputs = {name: {"run": run, "output": run / "points.arrow"} for name, run in runs.items()}
    took = seconds_of("landscape", problems, **outputs["whole"], **ASK)
    kill_and_resume(2, 0.7 * took, "landscape", problems, **outputs["broken"], **ASK)
    assert rows_of(runs["broken"] / "points.arrow") == rows_of(runs["whole"] / "points.arrow")
    one, other = (json.loads((run / "landscape" / "landscape.json").read_text()) for run in runs.values())
    assert one == other
    for run in runs.values():
        keys = journaled(run / "landscape")
        assert len(keys) == len(set(keys)) == len(rows_of(run / "points.arrow")) + 1


def test_the_final_weights_give_the_same_completions_at_the_end(drawn):
    out, _ = drawn
    figures = json.loads((out / "landscape.json").read_text())["origin_again"]
    assert figures == {
        "completions": 16,
        "equal": 16,
        "difference": 0.0,
        "difference_low": 0.0,
        "difference_high": 0.0,
    }


def test_samples_are_stored_and_shown_on_the_page(drawn):
    out, rows = drawn
    kept = rows_of(out / "samples.arrow")
    assert [row["point"] for row in kept] == [number for number in range(len(rows)) for _ in range(4)]
    for row in kept:
        parts = row["reward_format"] + row["reward_correct"] + row["reward_length"] + row["reward_language"]
        assert row["reward"] == pytest.approx(parts)
        assert row["prompt"] in {f"{letter}?" for letter in "abcd"}
        assert row["completion"] is not None
        assert rows[row["point"]]["a1"] == row["a1"]
    page = (out / "index.html").read_text()
    assert all(json.dumps(row["completion"])[1:-1].replace("<", "\\u003c") in page for row in kept)


def test_more_points_and_samples_are_added_to_existing_ones(drawn, trained, problems, tmp_path):
    shutil.copytree(trained / "trajectory", tmp_path / "rl" / "trajectory", copy_function=os.link)
    shutil.copytree(drawn[0], tmp_path / "rl" / "landscape")
    before, earlier = journaled(drawn[0]), drawn[1]
    more = {"run": tmp_path / "rl", "output": tmp_path / "more.arrow"} | ASK | {"refine": 2, "more_samples": 2}
    call_stage("landscape", problems, **more)
    rows, keys = rows_of(tmp_path / "more.arrow"), journaled(tmp_path / "rl" / "landscape")
    assert [row["phase"] for row in rows] == ["grid"] * len(earlier) + ["refined"] * 2
    assert {row["samples"] for row in rows} == {4, 6}
    assert [(row["a1"], row["a2"]) for row in rows[:-2]] == [(row["a1"], row["a2"]) for row in earlier]
    assert [row["reward"] for row, old in zip(rows, earlier, strict=False) if row["samples"] == 4] == [
        old["reward"] for row, old in zip(rows, earlier, strict=False) if row["samples"] == 4
    ]
    assert keys[: len(before)] == before
    assert len(keys) == len(set(keys)) == len(before) + 2 + sum(row["samples"] == 6 for row in rows)
    call_stage("landscape", problems, **more | {"samples": 6, "refine": 0, "more_samples": 0})
    assert {row["samples"] for row in rows_of(tmp_path / "more.arrow")} == {6}
    keys, finer = journaled(tmp_path / "rl" / "landscape"), [row["samples"] for row in rows[-2:]]
    assert len(keys) == len(set(keys))
    assert sum(json.loads(key)[2:4] == [4, 6] for key in keys) == len(earlier) + 1 + finer.count(6)


def test_a_range_replaces_the_padded_box(drawn, trained, problems, tmp_path):
    box = {"range": "-0.2:0.3,-0.1:0.4", "points": 4, "samples": 1, "out": tmp_path / "out", "texts": 0}
    call_stage("landscape", problems, run=trained, output=tmp_path / "p.arrow", **ASK | box)
    rows = rows_of(tmp_path / "p.arrow")
    assert (min(row["a1"] for row in rows), max(row["a1"] for row in rows)) == pytest.approx((-0.2, 0.3), abs=1e-3)
    assert (min(row["a2"] for row in rows), max(row["a2"] for row in rows)) == pytest.approx((-0.1, 0.4), abs=1e-3)
    assert rows_of(tmp_path / "out" / "samples.arrow") == []


def test_the_plane_alone_needs_no_problems(drawn, trained, tmp_path, capsys):
    call_stage("landscape", run=trained, plane_only=True, out=tmp_path / "out", quiet=False)
    found_plane = json.loads((tmp_path / "out" / "plane.json").read_text())
    before = json.loads((drawn[0] / "plane.json").read_text())
    assert np.array(found_plane["trajectory"]) == pytest.approx(np.array(before["trajectory"]), rel=1e-4, abs=1e-5)
    assert {path.name for path in (tmp_path / "out" / "components").glob("c*")} == {"c1.safetensors", "c2.safetensors"}
    said = capsys.readouterr().err
    assert "3 x 1.31 MB read" in said
    assert "(random walk 63.1 / 16.6 / 8.0 %)" in said
    assert "fraction of each checkpoint's displacement outside the plane: step-000000" in said


@pytest.fixture
def copied(trained, tmp_path):
    shutil.copytree(trained / "trajectory", tmp_path / "run" / "trajectory")
    return tmp_path / "run"


def flip_bit(path, at):
    content = bytearray(path.read_bytes())
    content[at] ^= 1
    path.write_bytes(content)


@pytest.mark.parametrize("name", ["model.safetensors", "config.json"])
def test_a_flipped_bit_of_the_trajectory_is_refused(copied, name):
    """The lowest bit of a weight's mantissa, and one of the configuration of a checkpoint in the middle."""
    damaged = copied / "trajectory" / "step-000003" / name
    flip_bit(damaged, damaged.stat().st_size // 2 // 4 * 4)
    with pytest.raises(DataError, match=f"{damaged} is damaged: it does not match SHA256SUMS"):
        call_stage("landscape", run=copied, plane_only=True)


def test_a_flipped_bit_of_the_components_is_refused(copied):
    call_stage("landscape", run=copied, plane_only=True)
    call_stage("landscape", run=copied, plane_only=True)
    damaged = copied / "landscape" / "components" / "c1.safetensors"
    flip_bit(damaged, damaged.stat().st_size - 4)
    with pytest.raises(DataError, match=f"{damaged} is damaged: it does not match SHA256SUMS"):
        call_stage("landscape", run=copied, plane_only=True)


def test_a_damaged_trajectory_is_not_read_for_the_components(copied):
    """The sums of the plane are cached, so that only the components need the weights."""
    call_stage("landscape", run=copied, plane_only=True)
    damaged = copied / "trajectory" / "step-000002" / "model.safetensors"
    times = damaged.stat()
    flip_bit(damaged, damaged.stat().st_size - 4)
    os.utime(damaged, ns=(times.st_atime_ns, times.st_mtime_ns))
    shutil.rmtree(copied / "landscape" / "components")
    _check_once.cache_clear()  # as in another process
    with pytest.raises(DataError, match=f"{damaged} is damaged"):
        call_stage("landscape", run=copied, plane_only=True)


def test_other_settings_do_not_mix_with_unfinished_points(drawn, trained, problems):
    with pytest.raises(UsageError, match=r"points\.journal holds unfinished work .* temperature 1\.0 \(now 0\.9\)"):
        call_stage("landscape", problems, run=trained, **ASK | {"temperature": 0.9})


def test_problems_that_cannot_be_sampled_or_graded_are_dropped(trained, tmp_path):
    rows = [{"id": f"p{i}", "prompt": f"{letter}?", "answer": "3"} for i, letter in enumerate("ab")]
    rows += [{"id": "long", "prompt": "x" * 600, "answer": "3"}]
    rows += [{"id": "prose", "prompt": "a?", "answer": "the answers vary a lot from one student to the next one"}]
    data, dropped = tmp_path / "p.jsonl", tmp_path / "dropped.jsonl"
    data.write_text("".join(json.dumps(row) + "\n" for row in rows))
    options = {**ASK, "out": tmp_path / "out", "output": tmp_path / "points.arrow", "points": 4, "samples": 1}
    call_stage("landscape", data, run=trained, dropped=dropped, **options)
    assert {row["id"]: row["drop_reason"] for row in rows_of(dropped)} == {
        "long": "prompt-too-long",
        "prose": "bad-gold",
    }


def test_ungraded_samples_are_not_counted_as_low_reward(trained, problems, tmp_path):
    own = tmp_path / "own.py"
    own.write_text("def own(completion, row):\n    return 1.0 if row['id'] != 'p1' else 1 / 0\n")
    options = ASK | {"out": tmp_path / "out", "run": trained, "reward": f"{own}:own", "points": 4, "samples": 1}
    with pytest.raises(
        EnvironmentFault, match=r"problem p1 cannot be graded \(reward-error: .*division by zero.*with --restart"
    ):
        call_stage("landscape", problems, **options)
    assert not (tmp_path / "out" / "landscape.json").exists()
    own.write_text("def own(completion, row):\n    return 1.0\n")
    call_stage("landscape", problems, restart=True, **options)
    assert (tmp_path / "out" / "landscape.json").exists()


def test_a_reward_gets_the_values_of_json_columns_as_in_the_run(trained, tmp_path):
    problems = tmp_path / "problems.jsonl"
    values = [{"least": 1}, [1, 2]]  # of two types, so the column stores JSON text
    rows = [{"id": f"p{i}", "prompt": "a?", "answer": "3", "accepted": value} for i, value in enumerate(values)]
    problems.write_text("".join(json.dumps(row) + "\n" for row in rows))
    own = tmp_path / "own.py"
    own.write_text("def own(completion, row):\n    return float(isinstance(row['accepted'], dict | list))\n")
    options = ASK | {"out": tmp_path / "out", "run": trained, "reward": f"{own}:own", "points": 4, "samples": 1}
    call_stage("landscape", problems, output=tmp_path / "points.arrow", **options)
    assert {reward for row in rows_of(tmp_path / "points.arrow") for reward in row["rewards"]} == {1.0}


FROM_RUN = {"max_tokens": 24, "system": None, "temperature": 0.7, "language": False, "penalty_end": 20}


def config_of(run, capsys, **options):
    call_stage("landscape", "p.jsonl", run=run, dry_run=True, **options)
    return json.loads(capsys.readouterr().out)["config"]


def test_reward_and_sampling_are_those_of_the_run(tmp_path, capsys):
    (tmp_path / "run.json").write_text(json.dumps({"command": "rl", **FROM_RUN, "stage": []}))
    found = config_of(tmp_path, capsys)
    assert {name: found[name] for name in FROM_RUN} == FROM_RUN
    recipe = tmp_path / "recipe.toml"
    recipe.write_text("[landscape]\ntemperature = 0.6\nmax-tokens = 7\n")
    found = config_of(tmp_path, capsys, recipe=recipe, max_tokens=9)
    assert (found["temperature"], found["max_tokens"], found["penalty_end"]) == (0.6, 9, 20)


def test_the_stage_of_the_last_update_counts(tmp_path, capsys):
    stages = [{"max_tokens": 10, "n_batch": 8, "updates": 1}, {"penalty_end": 22}]
    (tmp_path / "run.json").write_text(json.dumps({"command": "rl", **FROM_RUN, "stage": stages}))
    for updates, expected in ((1, (10, 20)), (2, (24, 22))):
        (tmp_path / "metrics.jsonl").write_text("".join(f'{{"step": {n + 1}}}\n' for n in range(updates)))
        found = config_of(tmp_path, capsys)
        assert (found["max_tokens"], found["penalty_end"]) == expected


def test_differences_from_the_run_are_reported(trained, problems, tmp_path, capsys):
    options = {
        "run": trained,
        "out": tmp_path / "out",
        "points": 4,
        "samples": 1,
        "deterministic": True,
        "quiet": False,
    }
    call_stage("landscape", problems, **options)
    assert "not as in the run" not in capsys.readouterr().err
    call_stage("landscape", problems, **options | {"out": tmp_path / "other", "temperature": 0.9})
    assert "not as in the run: temperature 1.0 (now 0.9)" in capsys.readouterr().err


def test_a_missing_run_is_not_created(problems, tmp_path):
    with pytest.raises(DataError, match=r"landscape: run folder .*/nowhere does not exist"):
        call_stage("landscape", problems, run=tmp_path / "nowhere", **ASK)
    assert not any(tmp_path.iterdir())


def test_too_few_checkpoints_are_refused(trained, problems, tmp_path):
    shutil.copytree(trained / "trajectory", tmp_path / "run" / "trajectory")
    for step in range(2, 7):
        shutil.rmtree(tmp_path / "run" / "trajectory" / f"step-{step:06d}")
    with pytest.raises(DataError, match=r"holds 2 checkpoints, but a plane needs at least 3; .*--trajectory-every"):
        call_stage("landscape", problems, run=tmp_path / "run", **ASK)


@pytest.mark.parametrize(
    ("every", "advice"),
    [
        (1, "at least 3; prolong the run by --updates$"),
        (4, "at least 3; prolong the run by --updates, or run another one with a --trajectory-every below 4$"),
        (0, "at least 3; run magcli rl with --trajectory-every$"),
    ],
)
def test_what_a_run_was_given_already_is_not_advised(tmp_path, every, advice):
    (tmp_path / "run.json").write_text(json.dumps({"command": "rl", "trajectory_every": every}))
    with pytest.raises(DataError, match=advice):
        call_stage("landscape", run=tmp_path, plane_only=True)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"points": 3}, "landscape.points: 3 is less than 4"),
        ({"refine": -1}, "landscape.refine: -1 is negative"),
        ({"more_samples": -1}, "landscape.more_samples: -1 is negative"),
        ({"texts": -1}, "landscape.texts: -1 is negative"),
        ({"range": "1:2,3"}, "range '1:2,3' is not of the form a1lo:a1hi,a2lo:a2hi"),
        ({"range": "1:2,-3:3"}, "must contain the final weights"),
        ({"deterministic": True, "dtype": "bf16"}, "needs --dtype fp32"),
    ],
)
def test_invalid_options_are_refused_first(options, message):
    with pytest.raises(UsageError, match=message):
        call_stage("landscape", "nothing.jsonl", **options)
