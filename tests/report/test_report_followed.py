"""The report in a real browser, driven by the DevTools protocol: sections that fold, and the page of a watched run."""

import os
import re
from pathlib import Path

import browser
import pytest
from browser import BROWSER, in_browser
from calling import call_stage
from watching import contents, finish, followed, training, update

from magcli.report.server import PageServer
from magcli.report.watch import Watched

THEMES = ("light", "dark")
WIDTHS = (1280, 390)
IS_OPEN = "document.querySelector('#{} > details').open"
TOP_OF = "Math.round(document.querySelector('#{}').getBoundingClientRect().top)"
LIVE = "document.getElementById('live-text').textContent"
FACTS = "document.querySelector('#run-1 .facts').textContent"
POINT = """
(() => {{
  const chart = document.querySelector('svg.chart'), box = chart.getBoundingClientRect();
  const place = {{clientX: box.left + box.width * {share}, clientY: box.top + 20, bubbles: true}};
  chart.dispatchEvent(new PointerEvent('pointermove', place));
  return tip.innerText;
}})()
"""


@pytest.fixture(scope="module")
def tab(tmp_path_factory):
    if BROWSER is None:
        pytest.skip("no Chromium")
    with browser.tab(tmp_path_factory.mktemp("browser")) as opened:
        yield opened


@pytest.fixture(scope="module")
def written(pipeline, tmp_path_factory):
    path = tmp_path_factory.mktemp("page") / "report.html"
    call_stage("report", positional=[str(pipeline)], out=path)
    return path


def visit(tab, address, width=1280, theme="light"):
    tab.look(width, 900, theme)
    tab.logged.clear()
    tab.call("Page.navigate", url="about:blank")
    tab.call("Page.navigate", url=address)
    tab.until("document.readyState === 'complete' && location.href !== 'about:blank'")
    return tab


def colour(tab, query, name="color"):
    return tab.run(f"getComputedStyle(document.querySelector('{query}')).getPropertyValue('{name}')")


# ---- sections that fold ----


@in_browser
def test_a_link_opens_the_section_that_it_leads_to(tab, written):
    visit(tab, written.as_uri())
    assert tab.run(IS_OPEN.format("run-1"))
    tab.run("document.querySelector('#run-1 > details > summary').click()")
    assert not tab.run(IS_OPEN.format("run-1"))
    for _ in range(2):  # the second time the address already names it
        tab.run("document.querySelector('#sections a[href=\"#run-1\"]').click()")
        tab.until(IS_OPEN.format("run-1"))
        tab.until(f"0 <= {TOP_OF.format('run-1')} && {TOP_OF.format('run-1')} < 100", 10)
        tab.run("document.querySelector('#run-1 > details').open = false")


@in_browser
def test_an_address_with_a_section_opens_it(tab, written):
    visit(tab, written.as_uri())
    assert not tab.run(IS_OPEN.format("provenance"))
    visit(tab, f"{written.as_uri()}#provenance")
    assert tab.run(IS_OPEN.format("provenance"))


@in_browser
def test_nothing_is_folded_on_paper(tab, written):
    visit(tab, written.as_uri())
    folded = "document.querySelectorAll('details:not([open])').length"
    tab.run(f"addEventListener('beforeprint', () => {{ window.atPrint = {folded}; }})")
    closed = tab.run(folded)
    assert closed > 3
    tab.call("Page.printToPDF")
    assert tab.run("window.atPrint") == 0
    assert tab.run(folded) == closed


# ---- widths and themes ----


@in_browser
@pytest.mark.parametrize("theme", THEMES)
@pytest.mark.parametrize("width", WIDTHS)
def test_the_whole_report_fits_and_follows_the_theme(tab, written, tmp_path, width, theme):
    visit(tab, written.as_uri(), width, theme)
    tab.run("document.querySelectorAll('details').forEach(node => { node.open = true; })")
    assert tab.run("document.documentElement.scrollWidth") == width
    cut = "[...document.querySelectorAll('.card')].filter(node => node.getBoundingClientRect().right > innerWidth)"
    assert tab.run(f"{cut}.length") == 0
    back = [int(part) for part in re.findall(r"\d+", colour(tab, "body", "background-color"))]
    assert min(back) > 240 if theme == "light" else max(back) < 40
    assert tab.logged == []
    tab.run("document.getElementById('landscape').scrollIntoView()")
    tab.picture(Path(os.environ.get("SCREENSHOTS", tmp_path)) / f"report-{width}-{theme}.png")


@in_browser
def test_charts_of_a_group_have_one_size_and_stand_side_by_side(tab, written):
    visit(tab, written.as_uri())
    boxes = tab.run("""[...document.querySelectorAll('#run-1 .small svg.chart')].map(node => {
      const box = node.getBoundingClientRect();
      return [Math.round(box.width), Math.round(box.height), Math.round(box.top)];
    })""")
    assert len({(width, height) for width, height, _ in boxes}) == 1
    assert len({top for _, _, top in boxes}) <= len(boxes) / 2


@in_browser
def test_the_landscape_is_in_the_page_in_the_colours_of_the_theme(tab, written):
    fills = {}
    for theme in THEMES:
        visit(tab, written.as_uri(), theme=theme)
        assert tab.run("document.querySelectorAll('#landscape svg.map').length") == 3
        fills[theme] = tab.run(
            "[...document.querySelectorAll('#landscape svg.map')[0].querySelectorAll('.level')]"
            ".map(node => getComputedStyle(node).fill)"
        )
        assert len(set(fills[theme])) == len(fills[theme]) > 2
    assert set(fills["light"]).isdisjoint(fills["dark"][1:-1])
    tab.run("""document.querySelector('#landscape .spot').dispatchEvent(
      new PointerEvent('pointermove', {clientX: 50, clientY: 50, bubbles: true}))""")
    said = tab.run("tip.innerText").split("\n")
    assert said[0].startswith("a1 ")
    assert said[1].startswith("reward ")


# ---- the page of a watched run ----


@in_browser
def test_an_open_page_follows_the_run_and_keeps_what_its_reader_did(tab, tmp_path, capsys, monkeypatch):
    path = tmp_path / "run"
    with followed(path, capsys, monkeypatch, last_seconds=15.0) as link:
        visit(tab, link)
        assert "does not go on yet" in tab.run(LIVE)
        with training(path) as folder:
            update(folder, 1)
            update(folder, 2)
            tab.until(f"{LIVE} === 'The run goes on.'")
            tab.until(f"{FACTS}.includes('2 of 3 updates')")
            tab.run("document.querySelector('#provenance > details').open = true")
            tab.run("window.kept = document.querySelector('svg.chart')")
            assert tab.run(POINT.format(share=0.3)).startswith("update 1\n")
            tab.run("scrollTo(0, 120)")
            before = tab.run("[scrollY, document.documentElement.scrollHeight]")
            update(folder, 3)
            tab.until(f"{FACTS}.includes('3 of 3 updates')")
            assert tab.run("kept === document.querySelector('svg.chart')"), "it is changed in place"
            assert tab.run("JSON.parse(kept.dataset.points).length") == 3
            assert tab.run("[tip.style.display, tip.innerText]")[0] == "block"
            assert tab.run("tip.innerText").startswith("update 1\n")
            assert tab.run("kept.classList.contains('pointed')")
            assert tab.run("[scrollY, document.documentElement.scrollHeight]") == before
            assert tab.run(IS_OPEN.format("provenance"))
            finish(folder)
        tab.until(f"{LIVE} === 'The run has finished.'")
        assert tab.logged == []


@in_browser
def test_a_page_whose_command_has_ended_says_so(tab, tmp_path):
    with training(tmp_path / "run") as folder:
        update(folder, 1)
        with PageServer(Watched(folder.path, "Watched", contents(folder.path)).answers) as server:
            visit(tab, server.link)
            assert tab.run(LIVE) == "The run goes on."
        tab.until(f"{LIVE}.startsWith('magcli does not answer any more')")
        assert tab.run(f"{FACTS}.includes('1 of 3 updates')")


@in_browser
@pytest.mark.parametrize("theme", THEMES)
@pytest.mark.parametrize("width", WIDTHS)
def test_a_watched_run_fits_and_follows_the_theme(tab, tmp_path, capsys, monkeypatch, width, theme):
    path = tmp_path / "run"
    with training(path) as folder, followed(path, capsys, monkeypatch) as link:
        for step in range(1, 4):
            update(folder, step)
        visit(tab, link, width, theme)
        assert tab.run("document.documentElement.scrollWidth") == width
        assert (
            tab.run("getComputedStyle(document.getElementById('live')).borderLeftColor")
            == {
                "light": "rgb(26, 127, 55)",
                "dark": "rgb(63, 185, 80)",
            }[theme]
        )
        tab.picture(Path(os.environ.get("SCREENSHOTS", tmp_path)) / f"watched-{width}-{theme}.png")
        finish(folder)
