"""With how many trainer ranks a run goes on when there is no room for all."""

import pytest

from magcli.errors import UsageError
from magcli.stages.rl.config import Config
from magcli.stages.shared import rank_options
from magcli.stages.shared.trainer_ranks import RankSpec


@pytest.mark.parametrize(
    ("options", "places", "ranks"),
    [
        ({"trainers": 8}, 7, 7),
        ({"trainers": 8}, 1, 0),
        ({"trainers": 8, "min_trainers": 6}, 5, 0),
        ({"trainers": 8, "min_trainers": 8}, 7, 0),
        ({"trainers": 16, "fsdp_size": 4}, 14, 12),
        ({"trainers": 16, "fsdp_size": 4}, 3, 0),
    ],
)
def test_the_most_ranks_that_have_room(options: dict[str, int], places: int, ranks: int) -> None:
    assert RankSpec.of("rl", Config(**options)).largest(places, lambda number: True) == ranks


def test_ranks_that_the_model_does_not_fit_are_not_tried() -> None:
    assert RankSpec.of("rl", Config(trainers=8)).largest(7, lambda number: number in (5, 3)) == 5


@pytest.mark.parametrize("fewest", [1, 9])
def test_the_fewest_ranks_must_be_some_of_them(fewest: int) -> None:
    with pytest.raises(UsageError, match=r"rl\.min_trainers"):
        rank_options.check("rl", Config(trainers=8, min_trainers=fewest))
