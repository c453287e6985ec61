"""The page of rollouts in a real browser: search, filters, groups, tokens, links, two themes, two widths."""

import os
from pathlib import Path

import browser
import pytest
from browser import BROWSER, in_browser

THEMES = ("light", "dark")
VIEWS = {
    "list": "#",
    "filtered": "#q=needle&f.reward=1..&sort=-num_tokens",
    "rollout": "#view=rollout&id=5&colour=logprobs",
    "versions": "#view=rollout&id=6&colour=version",
    "group": "#view=group&id=3&colour=advantage",
    "problem": "#view=problem&id=1",
}


@pytest.fixture(scope="module")
def tab(tmp_path_factory):
    if BROWSER is None:
        pytest.skip("no Chromium")
    with browser.tab(tmp_path_factory.mktemp("browser")) as opened:
        yield opened


@pytest.fixture
def opened(tab, written):
    """Opens a view of the page, and waits until it is there."""

    def open_view(address="", width=1280, theme="light"):
        tab.look(width, 900, theme)
        tab.call("Page.navigate", url="about:blank")
        tab.call("Page.navigate", url=written.as_uri() + address)
        tab.until("document.documentElement?.dataset.searchable")
        return tab

    return open_view


def summary(tab):
    return tab.run("document.getElementById('summary').textContent")


def fill(tab, name, value):
    """Type into a filter, or choose of it, and wait for the rows."""
    tab.run(f"""(async () => {{
      const field = document.querySelector('[data-filter="{name}"], #{name.replace(" ", "-")}');
      field.value = {value!r};
      field.dispatchEvent(new Event(field.tagName === 'SELECT' ? 'change' : 'input', {{bubbles: true}}));
      await pause(100);
    }})()""")


def texts(tab, query):
    return tab.run(f"[...document.querySelectorAll('{query}')].map(node => node.textContent)")


@in_browser
def test_the_first_view_has_all_rollouts_and_their_figures(opened, rows):
    tab = opened()
    assert summary(tab).startswith("240 rollouts, mean reward 0.")
    assert len(texts(tab, "a.row")) == 50
    assert "page 1 of 5" in texts(tab, "#pages")[0]
    assert texts(tab, "a.row .excerpt")[0].startswith("needle0 </script><script>")
    assert tab.logged == []


@in_browser
def test_texts_are_searched(opened, rows):
    tab = opened()
    fill(tab, "text", "NEEDLE117")
    assert summary(tab).startswith("1 of 240 rollouts")
    assert texts(tab, "mark") == ["needle117"]
    assert tab.run("location.hash") == "#q=NEEDLE117"
    fill(tab, "text", "tool says")
    assert summary(tab).startswith("120 of 240 rollouts"), "turns are searched too"
    fill(tab, "text", "question 0")
    assert summary(tab).startswith("120 of 240 rollouts"), "and prompts"
    fill(tab, "text", "nowhere")
    assert summary(tab) == "None of 240 rollouts"


@in_browser
@pytest.mark.parametrize(
    ("name", "value", "keeps"),
    [
        ("reward from", "0.5", lambda row: row["reward"] >= 0.5),
        ("parts.correct to", "0", lambda row: row["reward"] <= 0),
        ("reason", "wrong", lambda row: row["reason"] == "wrong"),
        ("num_tokens from", "11", lambda row: row["num_tokens"] >= 11),
        ("step to", "7", lambda row: row["step"] <= 7),
        ("problem", "P1", lambda row: row["id"] == "p1"),
        ("languages", "en fr", lambda row: row["languages"] == "en fr"),
        ("dropped", "all-wrong", lambda row: row["dropped"] is not None),
        ("dropped", "-", lambda row: row["dropped"] is None),
        ("version from", "30", lambda row: row["versions"][-1]["version"] >= 30),
    ],
)
def test_rows_are_filtered(opened, rows, name, value, keeps):
    tab = opened()
    fill(tab, name, value)
    kept = sum(map(keeps, rows))
    assert summary(tab).startswith(f"{kept} of 240 rollouts")
    address = tab.run("location.hash")
    assert summary(opened(address)).startswith(f"{kept} of 240 rollouts"), "the address has the filter"


@in_browser
def test_rows_are_sorted(opened, rows):
    tab = opened()
    fill(tab, "sort", "-num_tokens")
    lengths = [int(text.removeprefix("tokens ")) for text in texts(tab, "a.row > span:nth-child(5)")]
    assert lengths == sorted((row["num_tokens"] for row in rows), reverse=True)[:50]


@in_browser
def test_a_group_is_side_by_side_and_one_below_the_other_on_a_phone(opened):
    places = "[...document.querySelectorAll('.side .card')].map(node => node.getBoundingClientRect().top)"
    wide = opened("#view=group&id=3").run(places)
    assert len(wide) == 4
    assert len(set(wide)) < 4
    narrow = opened("#view=group&id=3", 390).run(places)
    assert len(set(narrow)) == 4


@in_browser
def test_tokens_are_coloured_and_tell_their_values(opened, rows):
    tab = opened("#view=rollout&id=5&colour=logprobs")
    colours = tab.run("[...document.querySelectorAll('.tokens span')].map(node => node.style.backgroundColor)")
    assert len(colours) == len(rows[5]["tokens"])
    assert [bool(colour) for colour in colours] == [not 3 <= place < 6 for place in range(len(colours))]
    assert len(set(colours)) > 5
    assert texts(tab, ".turn > b") == ["model", "environment", "model"]
    tab.run(
        "document.querySelectorAll('.tokens span')[1].dispatchEvent(new PointerEvent('pointerover', {bubbles: true}))"
    )
    (told,) = texts(tab, ".told")
    assert told.startswith("token 2 of 12 ")
    assert "log-prob −0.25 (probability 0.779), ratio 0.758, advantage" in told
    assert told.endswith("weight version 0")
    tab.run("document.querySelector('.tokens').focus()")
    for _ in range(3):
        tab.run(
            "document.activeElement.dispatchEvent(new KeyboardEvent('keydown', {key: 'ArrowRight', bubbles: true}))"
        )
    assert texts(tab, ".told")[0].endswith("written by the environment")


@in_browser
@pytest.mark.parametrize("colour", ["ratios", "advantage", "version"])
def test_tokens_are_coloured_by_other_values(opened, colour):
    tab = opened(f"#view=rollout&id=6&colour={colour}")
    colours = tab.run("[...document.querySelectorAll('.tokens span')].map(node => node.style.backgroundColor)")
    assert len({c for c in colours if c}) == {"ratios": 7, "advantage": 1, "version": 2}[colour]


@in_browser
def test_characters_in_several_tokens_are_shown_whole(opened, rows):
    tab = opened("#view=rollout&id=0&colour=logprobs")
    assert "".join(texts(tab, ".tokens span")).startswith("I think that the answer is \\boxed{3}↵\n")
    assert rows[0]["tokens"][10:] == []


@in_browser
def test_turns_are_turns(opened):
    tab = opened("#view=rollout&id=5")
    assert texts(tab, ".turn > b") == ["user", "assistant", "user", "assistant"]
    assert texts(tab, ".turn pre")[2] == "Tool says 3."


@in_browser
def test_a_problem_has_its_history(opened):
    tab = opened("#view=problem&id=1")
    assert len(texts(tab, "svg.history circle")) == 30
    assert texts(tab, "#view li")[1].endswith("dropped: all-wrong")


@in_browser
def test_links_lead_from_view_to_view_and_back(opened):
    tab = opened("#f.reason=wrong")
    tab.run("document.querySelector('a.row').click()")
    tab.until("document.querySelector('#view h2')?.textContent === 'Rollout 1'")
    assert "1 of" in texts(tab, "#view .steps")[0]
    tab.run("[...document.querySelectorAll('#view a')].find(node => node.textContent === 'Next').click()")
    tab.until("document.querySelector('#view h2')?.textContent !== 'Rollout 1'")
    tab.run("[...document.querySelectorAll('#view a')].find(node => node.textContent.startsWith('Group')).click()")
    tab.until("document.querySelector('.side') !== null")
    tab.run("[...document.querySelectorAll('#view a')].find(node => node.textContent.startsWith('Problem')).click()")
    tab.until("document.querySelector('svg.history') !== null")
    tab.run("[...document.querySelectorAll('#view a')].find(node => node.textContent.includes('All')).click()")
    tab.until("document.getElementById('view').hidden")
    assert "f.reason=wrong" in tab.run("location.hash")
    tab.run("history.back()")
    tab.until("location.hash.includes('view=problem') && !document.getElementById('view').hidden")
    assert texts(tab, "#view h2") == ["Problem p0"]


@in_browser
@pytest.mark.parametrize("view", VIEWS)
@pytest.mark.parametrize("width", [1280, 390])
def test_no_view_is_cut_or_runs_what_a_model_wrote(opened, view, width, tmp_path):
    for theme in THEMES:
        tab = opened(VIEWS[view], width, theme)
        inside, window = tab.run("[document.documentElement.scrollWidth, innerWidth]")
        assert inside <= window == width
        assert tab.run("document.title.startsWith('Rollouts </script>')")
        assert tab.run("performance.getEntriesByType('resource').length") == 0
        background = tab.run("getComputedStyle(document.body).backgroundColor")
        assert background == ("rgb(255, 255, 255)" if theme == "light" else "rgb(13, 17, 23)")
        tab.picture(Path(os.environ.get("SCREENSHOTS", tmp_path)) / f"rollouts-{view}-{width}-{theme}.png")
    assert tab.logged == []


@in_browser
def test_an_unknown_address_says_so(opened):
    assert "no such rollout" in texts(opened("#view=rollout&id=999"), "#view")[0]
    assert "no such view" in texts(opened("#view=what"), "#view")[0]
    assert "no such group" in texts(opened("#view=group&id=-1"), "#view")[0]
