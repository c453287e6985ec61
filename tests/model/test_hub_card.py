from magcli.data.manifest import Input, Link
from magcli.model.hub import Card, Figure, Training, render, table

FIGURES = [
    Figure("this model", "avg@n", 0.5, 0.25, 0.75, 30, 120),
    Figure("this model", "tokens", 12.34, None, None, 1, 4),
]
CARD = Card(
    "toy",
    "apache-2.0",
    "owner/base",
    "1.0",
    [Training("sft", 40, "owner/base", {"lr": 1e-5, "ks": [1, 4], "system": None})],
    (Link("clean-math", "1.0", {}, [], 2060, 1934, {"proof": 30, "missing-answer": 96}),),
    FIGURES,
    [("input of clean-math", Input("raw.jsonl", "ab" * 32, 2060)), ("this model, as trained", Input("", "cd", 0))],
)


def test_a_card_has_recipe_data_metrics_and_origin():
    told = render(CARD)
    front = told.split("---\n")[1]
    assert "license: apache-2.0\n" in front
    assert "base_model: owner/base\n" in front
    assert "grpo" not in front
    assert "`sft` (40 steps)" in told
    assert "| lr | 1e-05 |\n| ks | 1, 4 |\n| system | - |" in told
    assert "| clean-math | 2,060 | 1,934 | missing-answer 96, proof 30 |" in told
    assert "| this model | avg@n | 50.0 [25.0, 75.0] | 30 | 120 |" in told
    assert "| this model | tokens | 12.3 | 1 | 4 |" in told
    assert f"| input of clean-math | raw.jsonl | 2,060 | `{'ab' * 32}` |" in told
    assert "| this model, as trained | - | - | `cd` |" in told


def test_missing_information_is_stated():
    bare = Card("toy", "", "", "1.0", [Training("rl", 3, "model", {})], (), [], [])
    told = render(bare)
    assert "license:" not in told
    assert "base_model:" not in told
    assert "No licence is stated." in told
    assert "No evaluation was given." in told
    assert "have no history" in told
    assert "- grpo\n" in told


def test_cells_cannot_break_a_table():
    assert table(("a",), [("x|y\nz\\",)]) == "| a |\n| --- |\n| x\\|y z\\\\ |"
