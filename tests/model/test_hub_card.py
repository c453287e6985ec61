from dataclasses import replace

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
    text = render(CARD)
    front = text.split("---\n")[1]
    assert "license: apache-2.0\n" in front
    assert "base_model: owner/base\n" in front
    assert "grpo" not in front
    assert "`sft` (40 steps)" in text
    assert "| lr | 1e-05 |\n| ks | 1, 4 |\n| system | - |" in text
    assert "| clean-math | 2,060 | 1,934 | missing-answer 96, proof 30 |" in text
    assert "| this model | avg@n | 50.0 [25.0, 75.0] | 30 | 120 |" in text
    assert "| this model | tokens | 12.3 | 1 | 4 |" in text
    assert f"| input of clean-math | raw.jsonl | 2,060 | `{'ab' * 32}` |" in text
    assert "| this model, as trained | - | - | `cd` |" in text


def test_missing_information_is_stated():
    bare = Card("toy", "", "", "1.0", [Training("rl", 3, "model", {})], (), [], [])
    text = render(bare)
    assert "license:" not in text
    assert "base_model:" not in text
    assert "No licence is stated." in text
    assert "No evaluation was given." in text
    assert "have no history" in text
    assert "- grpo\n" in text


def test_cells_cannot_break_a_table():
    assert table(("a",), [("x|y\nz\\",)]) == "| a |\n| --- |\n| x\\|y z\\\\ |"


def test_a_model_that_reads_images_is_loaded_with_its_processor():
    card = render(replace(CARD, reads_images=True))
    assert "pipeline_tag: image-text-to-text" in card
    assert "AutoModelForImageTextToText" in card
    assert "AutoModelForCausalLM" not in card
