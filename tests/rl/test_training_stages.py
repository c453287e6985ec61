"""Stages of a run: how a recipe's tables are read, what is refused, and when the next stage begins."""

import dataclasses
import json
import math
import random
import tomllib
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from magcli.config import as_json, read_recipe, resolve
from magcli.errors import UsageError
from magcli.rl.training_stages import (
    EASY_WINDOW,
    LENGTH_WINDOW,
    STAGE_OPTIONS,
    TrainingStages,
    data_easy,
    length_stalled,
    starts,
)
from magcli.rl.training_stages import StageOptions as Stage
from magcli.stages import rl
from magcli.stages.rl.config import Config, check
from magcli.stages.shared.run_sizes import options_in

RECIPES = Path(__file__).parents[2] / "recipes" / "magistral-small"


SMALL = {
    "model": "some/model",
    "group_size": 4,
    "n_async": 16,
    "n_batch": 8,
    "n_mini": 8,
    "max_tokens": 64,
    "penalty_end": 64,
    "penalty_width": 16,
}


def config_of(**options: Any) -> Config:
    return Config(**SMALL | options)


RECIPE = """
[rl]
updates = 300
[[rl.stage]]
penalty-end = 32
penalty_width = 8
updates = 10
[[rl.stage]]
penalty_end = 48
n_batch = 4
n_mini = 4
temperature = 1
data = "harder.arrow"
band = [0.1, 0.8]
until = "length-stalled"
updates = 200
[[rl.stage]]
"""


def read(tmp_path: Path, text: str) -> Config:
    (tmp_path / "recipe.toml").write_text(text)
    return resolve(Config, "rl", read_recipe(tmp_path / "recipe.toml", ["rl"])["rl"], SMALL)


def line(length: float = 100.0, trained: int = 8, right: int = 0, wrong: int = 0) -> dict[str, object]:
    dropped = {"all-right": right, "all-wrong": wrong}
    return {
        "length_mean": length,
        "groups_trained": trained,
        "groups_dropped": {reason: count for reason, count in dropped.items() if count},
    }


def test_tables_of_a_recipe_are_stages(tmp_path: Path) -> None:
    config = read(tmp_path, RECIPE)
    first, second, third = config.stage
    assert first == Stage(penalty_end=32, penalty_width=8, updates=10)
    assert (second.data, second.band, second.until) == (Path("harder.arrow"), (0.1, 0.8), "length-stalled")
    assert second.temperature == 1.0
    assert third == Stage()
    check(config)


def test_stages_are_read_back_from_the_history(tmp_path: Path) -> None:
    config = read(tmp_path, RECIPE)
    kept = json.loads(json.dumps(as_json(config)))
    assert kept["stage"][0] == {"penalty_end": 32, "penalty_width": 8, "updates": 10}
    assert resolve(Config, "rl", kept, {}) == config


@pytest.mark.parametrize(
    ("tables", "message"),
    [
        ("[[rl.stage]]\n[[rl.stage]]\nn_bach = 3", r"rl\.stage 2: unknown key 'n_bach'; did you mean 'n_batch'\?"),
        ("[[rl.stages]]\nn_batch = 3", r"\[rl\]: unknown key 'stages'; did you mean 'stage'\?"),
        ("[[rl.stage]]\nn_batch = '16k'", r"rl\.stage 1\.n_batch: expected int, got '16k'"),
        ("[[rl.stage]]\nuntil = 'stalled'", r"rl\.stage 1\.until: 'stalled' is not one of length-stalled, data-easy"),
        ("[rl.stage]\nn_batch = 3", r"rl\.stage: expected tables, each under a line \[\[rl\.stage\]\]"),
        ("[rl]\nstage = 'one, two'", r"rl\.stage: expected tables"),
        ("[[stage]]\nn_batch = 3", r"unknown table \[stage\]"),
    ],
)
def test_a_table_that_cannot_be_read_is_named_with_its_number_and_key(
    tmp_path: Path, tables: str, message: str
) -> None:
    with pytest.raises(UsageError, match=message):
        read(tmp_path, tables)


@pytest.mark.parametrize(
    ("stages", "message"),
    [
        (
            [Stage(penalty_width=65), Stage()],
            r"rl\.stage 1\.penalty_width: 65 is not between 0 and penalty_end 64",
        ),
        (
            [Stage(penalty_end=8), Stage()],
            r"rl\.stage 1\.penalty_width: 16 is not between 0 and penalty_end 8",
        ),
        ([Stage(updates=1), Stage(n_batch=6)], r"rl\.stage 2\.n_batch: 6 is not a multiple of group_size 4"),
        ([Stage(n_async=0)], r"rl\.stage 1\.n_async: 0 is not a multiple"),
        ([Stage(n_batch=12)], r"rl\.stage 1\.n_mini: 8 does not divide n_batch 12"),
        ([Stage(max_tokens=0)], r"rl\.stage 1\.max_tokens: 0 is not positive"),
        ([Stage(temperature=0.0)], r"rl\.stage 1\.temperature: 0\.0 is not positive"),
        ([Stage(clip_high=-1.0)], r"rl\.stage 1\.clip_high"),
        ([Stage(band=(0.5, 1.5))], r"rl\.stage 1\.band: \[0\.5, 1\.5\] is not a lowest and a highest pass rate"),
        ([Stage(band=(0.5, 0.4))], r"rl\.stage 1\.band"),
        ([Stage(band=(0.5,))], r"rl\.stage 1\.band"),
        ([Stage(updates=0), Stage()], r"rl\.stage 1\.updates: 0 is not positive"),
        ([Stage(), Stage()], "rl.stage 1 has no end; give updates or until"),
        ([Stage(updates=5), Stage(updates=5)], "rl.stage 2 is the last and ends with the run"),
        (
            [Stage(updates=60), Stage(updates=40), Stage()],
            r"rl\.updates: 100 ends the run .* starts after at least 100",
        ),
    ],
)
def test_stages_that_contradict_themselves_or_the_run_are_refused(stages: list[Stage], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        check(config_of(stage=tuple(stages)))


def test_the_easy_data_rule_needs_diversity_by_outcome() -> None:
    stages = (Stage(until="data-easy"), Stage())
    check(config_of(stage=stages))
    with pytest.raises(UsageError, match=r"rl\.stage 1\.until: .* 'reward'"):
        check(config_of(stage=stages, diverse_by="reward"))


def test_a_rule_counts_with_its_minimum_number_of_updates() -> None:
    stages = (Stage(until="length-stalled"), Stage(until="data-easy", updates=4), Stage())
    check(config_of(stage=stages, updates=2 * LENGTH_WINDOW + 5))
    with pytest.raises(UsageError, match=f"starts after at least {2 * LENGTH_WINDOW + 4}"):
        check(config_of(stage=stages, updates=2 * LENGTH_WINDOW + 4))


def test_the_sizes_of_a_run_are_checked_under_their_own_name() -> None:
    check(config_of(penalty_end=0))
    with pytest.raises(UsageError, match=r"^rl\.n_mini: 12 does not divide n_batch 8$"):
        check(config_of(n_mini=12))


def test_options_that_a_stage_omits_are_those_of_the_run() -> None:
    config = config_of()
    assert options_in(Stage(), config) == config
    changed = options_in(Stage(n_batch=4, temperature=0.7, updates=3, band=(0.0, 1.0)), config)
    assert changed == dataclasses.replace(config, n_batch=4, temperature=0.7)
    assert changed.updates == 100, "of the run, not of the stage"


def test_every_option_of_a_stage_is_an_option_of_the_run() -> None:
    own = {"data", "band", "updates", "until"}
    assert {field.name for field in dataclasses.fields(Stage)} == {*STAGE_OPTIONS, *own}
    assert {*STAGE_OPTIONS} <= {field.name for field in dataclasses.fields(Config)}


def test_stages_with_updates_follow_each_other() -> None:
    stages = [Stage(updates=3), Stage(updates=2), Stage()]
    lines = [line() for _ in range(9)]
    assert [TrainingStages(stages, ()).stage_at(lines[:done]) for done in range(9)] == [0, 0, 0, 1, 1, 2, 2, 2, 2]
    assert starts(stages, lines) == [0, 3, 5]


def test_a_run_without_stages_is_a_single_stage() -> None:
    assert starts([], [line()] * 50) == [0]
    assert TrainingStages([], ()).stage_at([]) == 0


def test_a_rule_or_the_number_of_updates_ends_a_stage() -> None:
    flat, growing = [line() for _ in range(100)], [line(100 * 1.01**done) for done in range(100)]
    stages = [Stage(until="length-stalled", updates=70), Stage()]
    assert starts(stages, flat) == [0, 2 * LENGTH_WINDOW]
    assert starts(stages, growing) == [0, 70]


def test_a_rule_considers_only_updates_of_its_stage() -> None:
    flat = [line() for _ in range(100)]
    stages = [Stage(updates=30), Stage(until="length-stalled"), Stage()]
    assert starts(stages, flat) == [0, 30, 30 + 2 * LENGTH_WINDOW]


@pytest.mark.parametrize(("share", "stalled"), [(-0.1, True), (0.0, True), (0.015, True), (0.025, False), (1.0, False)])
def test_length_has_stalled_if_a_window_is_hardly_above_the_previous_one(share: float, stalled: bool) -> None:
    before, after = [line(200.0)] * LENGTH_WINDOW, [line(200 * (1 + share))] * LENGTH_WINDOW
    assert length_stalled([line(1.0)] * 30 + before + after) is stalled
    assert not length_stalled((before + after)[1:]), "too few updates to tell"


def test_the_length_rule_distinguishes_growth_from_noise() -> None:
    """15% of noise an update, as in means of 16 groups of very different lengths; 0.7% doubles it in 100 updates."""
    found = {0.0: 0, 0.007: 0}
    for growth in found:
        for seed in range(200):
            noise = random.Random(seed)
            lengths = [1000 * (1 + growth) ** step * noise.lognormvariate(0, 0.15) for step in range(60)]
            found[growth] += len(starts([Stage(until="length-stalled"), Stage()], list(map(line, lengths)))) == 2
    assert found[0.0] > 180, "lengths that stay are noticed within 60 updates"
    assert found[0.007] < 20, "lengths that grow go on"


def test_data_are_easy_if_most_groups_are_entirely_correct() -> None:
    easy, even, hard = line(trained=4, right=5), line(trained=4, right=4), line(trained=4, wrong=50)
    assert data_easy([hard] * 5 + [easy] * EASY_WINDOW)
    assert not data_easy([even] * EASY_WINDOW)
    assert not data_easy([hard] * EASY_WINDOW)
    assert not data_easy([easy] * (EASY_WINDOW - 1)), "too few updates to tell"
    assert starts([Stage(until="data-easy"), Stage()], [line(trained=4)] * 7 + [easy] * 20) == [0, 16]


def test_the_rule_of_the_last_stage_ends_the_run() -> None:
    hard, easy = line(trained=4, wrong=50), line(trained=4, right=5)
    stages = TrainingStages([Stage(updates=3), Stage(until="data-easy")], ())
    lines = [hard] * 3 + [easy] * EASY_WINDOW
    assert stages.end_of_run(lines[:-1]) is None
    assert stages.end_of_run(lines) == "data-easy; ended after 13 updates"
    assert stages.end_of_run([easy] * 3) is None, "the first stage has rules of its own"
    assert TrainingStages([Stage()], ()).end_of_run(lines) is None
    bounded = TrainingStages([Stage(updates=12, until="data-easy")], ())
    ended = "the last stage has made its 12 updates without reaching data-easy; ended after 12 updates"
    assert bounded.end_of_run([hard] * 12) == ended
    assert bounded.end_of_run([easy] * 10) == "data-easy; ended after 10 updates"


@pytest.mark.parametrize("until", ["length-stalled", "data-easy", "saturated"])
def test_no_rule_ends_a_run_before_its_first_update(until: str) -> None:
    assert TrainingStages([Stage(until=until)], ()).end_of_run([]) is None


def test_the_message_of_a_saturated_run_says_the_share_of_its_gain() -> None:
    rewards = [0.6 - 0.3 * math.exp(-update / 10) for update in range(100)]
    end = TrainingStages([Stage(until="saturated")], ()).end_of_run([{"reward": reward} for reward in rewards])
    assert end is not None
    assert end.startswith("saturated: the reward has risen from 0.30 and reached 100% of the gain")


ENDS = st.tuples(st.integers(1, 60) | st.none(), st.sampled_from(["length-stalled", "data-easy"]) | st.none())
LINES = st.builds(line, st.floats(50, 150), right=st.integers(0, 20))


@given(st.lists(ENDS.filter(any), max_size=3), st.lists(LINES, max_size=150))
def test_the_stage_depends_only_on_the_past_and_never_decreases(ends: list, lines: list) -> None:
    stages = [*(Stage(updates=updates, until=until) for updates, until in ends), Stage()]
    begun = starts(stages, lines)
    assert begun == sorted(set(begun))
    for done in range(len(lines) + 1):
        assert starts(stages, lines[:done]) == [start for start in begun if start <= done]
        assert TrainingStages(stages, ()).stage_at(lines[:done]) == sum(start <= done for start in begun) - 1


@pytest.mark.parametrize(("file", "count"), [("recipe.toml", 0), ("recipe-medium.toml", 3)])
def test_the_shipped_recipes_of_the_papers_sizes_pass_their_checks(file: str, count: int) -> None:
    table = tomllib.loads((RECIPES / file).read_text(encoding="utf-8"))["rl"]
    options = resolve(rl.Config, "rl", table, {"model": "some/model"})
    rl.check(options)
    assert len(options.stage) == count


def test_the_schedule_of_the_paper_grows_completions_and_shrinks_batches() -> None:
    table = tomllib.loads((RECIPES / "recipe-medium.toml").read_text(encoding="utf-8"))["rl"]
    config = resolve(rl.Config, "rl", table, {})
    stages = [options_in(stage, config) for stage in config.stage]
    assert [stage.n_batch for stage in stages] == [8192, 4096, 2048]
    assert [stage.penalty_end for stage in stages] == [16384, 24576, 32768]
    cache = [stage.n_async * stage.max_tokens for stage in stages]
    assert cache == sorted(cache, reverse=True)
    flat = [line() for _ in range(100)]
    assert starts(config.stage, flat) == [0, 2 * LENGTH_WINDOW, 4 * LENGTH_WINDOW]
