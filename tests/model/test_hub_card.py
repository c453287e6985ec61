from dataclasses import replace
from html.parser import HTMLParser

from markdown_it import MarkdownIt

from magcli.data.manifest import Input, Link
from magcli.model.hub import Card, Figure, Training, code, plain, render, table

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
    rows = [(plain("x|y\nz\\"), code("x|y"))]
    assert table(("a", "b"), rows) == "| a | b |\n| --- | --- |\n| x\\|y z\\\\ | `x\\|y` |"


HOSTILE = "</code><script>alert(1)</script><img src=x onerror=alert(1)>|`` ![x](http://e.org/x.png)\n```\n# [x](y)"


class Shown(HTMLParser):
    """What a browser shows of a page: the elements that it has, and its text."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.tags: set[str] = set()
        self.text = ""
        self.feed(page)

    def handle_starttag(self, tag: str, attrs: object) -> None:
        self.tags.add(tag)

    def handle_data(self, data: str) -> None:
        self.text += data


def test_texts_of_others_are_shown_and_not_interpreted():
    """The card as a Markdown renderer makes it has every hostile text as it is, and no element of it."""
    link = Link(HOSTILE, "1.0", {}, [], 2, 1, {HOSTILE: 1})
    figure = Figure(HOSTILE, HOSTILE, 0.5, None, None, 1, 1)
    training = Training(HOSTILE, 1, HOSTILE, {HOSTILE: HOSTILE})
    origin = (HOSTILE, Input(HOSTILE, HOSTILE, 1))
    card = render(Card(HOSTILE, HOSTILE, HOSTILE, "1.0", [training], (link,), [figure], [origin]))
    body = card.split("---\n", 2)[2]
    renderer = MarkdownIt("commonmark").enable(["table", "strikethrough"])
    shown = Shown(renderer.render(body))
    table_tags = {"table", "thead", "tbody", "tr", "th", "td"}
    assert shown.tags == {"h1", "h2", "h3", "p", "pre", "code"} | table_tags
    line = " ".join(HOSTILE.split())
    # Title, licence, summary 2, training 2 and its option 2, data 2, figure 2, file 3.
    assert shown.text.count(line) == 15


def test_a_model_that_reads_images_is_loaded_with_its_processor():
    card = render(replace(CARD, reads_images=True))
    assert "pipeline_tag: image-text-to-text" in card
    assert "AutoModelForImageTextToText" in card
    assert "AutoModelForCausalLM" not in card
