"""The page in a real browser, headless: all sections, hovering, keys; narrow and wide, light and dark; no network."""

import html
import json
import os
import re
import subprocess
from dataclasses import replace
from pathlib import Path

import browser
import pytest
from browser import BROWSER, in_browser, needs_browser
from calling import call_stage
from markupsafe import escape

from magcli.report import page
from magcli.report.discovery import discover

FLAGS = [*browser.FLAGS, "--allow-file-access-from-files", "--virtual-time-budget=2000"]
THEMES = {"light": "--blink-settings=preferredColorScheme=1", "dark": "--blink-settings=preferredColorScheme=0"}
WIDTHS = (400, 700, 1600)
SECTIONS = ["data", "run-1", "rollouts", "evaluation", "landscape", "provenance"]


@pytest.fixture(scope="module")
def written(pipeline, tmp_path_factory):
    path = tmp_path_factory.mktemp("page") / "report.html"
    call_stage("report", positional=[str(pipeline)], out=path)
    return path


def browse(address, folder, *flags):
    """What the browser prints of a page after its scripts have run, and what it logged."""
    profile = f"--user-data-dir={folder / 'browser'}"
    log = ["--enable-logging=stderr", "--log-level=0"]
    done = subprocess.run(
        [BROWSER, *FLAGS, *log, profile, *flags, address],
        capture_output=True,
        text=True,
        timeout=240,
        check=True,
        env={**os.environ, "HOME": str(folder)},
    )
    return done.stdout, re.findall(r"INFO:CONSOLE.*", done.stderr)


def reported(content):
    """What a page's script left in the element ``report``."""
    found = re.search(r'<pre id="report">(.*?)</pre>', content, re.S)
    assert found, content[-2000:]
    return json.loads(html.unescape(found[1]))


USE = """
const all = query => [...document.querySelectorAll(query)], result = {};
const shown = () => [tip.style.display, tip.innerText];
const send = (node, kind, type, more) => node.dispatchEvent(new kind(type, {bubbles: true, ...more}));
result.sections = all('main > section').map(node => node.id);
result.links = all('nav a').map(node => document.querySelector(node.getAttribute('href')) !== null);
result.title = document.title;
scrollTo(0, 1500);
result.top = document.getElementById('sections').getBoundingClientRect().top;
scrollTo(0, 0);
const asked = performance.getEntriesByType('resource').map(entry => entry.name);
result.requests = asked.filter(name => !name.startsWith('data:'));
result.maps = all("svg.map").length;
result.text = document.body.textContent;
result.scripts = all('script').length;
const chart = all('svg.chart')[0], box = chart.getBoundingClientRect();
const middle = {clientX: box.left + box.width / 2, clientY: box.top + 20};
send(chart, PointerEvent, 'pointermove', middle);
result.hover = [...shown(), getComputedStyle(chart.querySelector('.cursor')).visibility];
send(chart, PointerEvent, 'pointerleave');
result.left = [...shown(), getComputedStyle(chart.querySelector('.cursor')).visibility];
chart.focus();
result.focus = shown();
send(chart, KeyboardEvent, 'keydown', {key: 'Home'});
result.home = shown();
send(chart, KeyboardEvent, 'keydown', {key: 'ArrowRight'});
result.right = shown();
send(chart, KeyboardEvent, 'keydown', {key: 'ArrowLeft'});
send(chart, KeyboardEvent, 'keydown', {key: 'ArrowLeft'});
result.before = shown();
send(all('.bar i')[1], PointerEvent, 'pointermove', {clientX: 5, clientY: 5});
result.bar = shown();
const place = tip.getBoundingClientRect();
result.inside = place.left >= 0 && place.right <= innerWidth && place.bottom <= innerHeight;
const report = document.createElement('pre'); report.id = 'report'; report.textContent = JSON.stringify(result);
document.body.append(report);
"""


@pytest.fixture(scope="module")
def used(written):
    """What happens in the page when it is pointed at and used from the keyboard; what it logs must be nothing."""
    copy = written.with_name("used.html")
    copy.write_text(written.read_text().replace("</body>", f"<script>{{{USE}}}</script></body>"))
    content, logged = browse(copy.as_uri(), written.parent, "--dump-dom")
    assert logged == []
    return reported(content)


def test_the_page_names_no_address_but_that_of_the_rollouts_beside_it(written):
    text = re.sub(r'src="data:[^"]*"', "", written.read_text()).replace('href="report-rollouts.html"', "")
    assert not re.findall(r"""src\s*=|href="(?!#)|@import|url\(|fetch\(|XMLHttpRequest""", text)
    assert "https://" not in text
    assert "http://" not in text
    assert "default-src 'none'" in text


def test_the_page_is_small(written):
    assert written.stat().st_size < 2_000_000


def test_equal_inputs_give_an_equal_page(pipeline, written, tmp_path):
    call_stage("report", positional=[str(pipeline)], out=tmp_path / "report.html")
    for name in ("report.html", "report-rollouts.html"):
        assert (tmp_path / name).read_bytes() == written.with_name(name).read_bytes()


def test_untrusted_text_is_escaped(pipeline, written):
    hostile = "</script><script>document.title='broken'</script><b>&amp;"
    assert hostile not in written.read_text()
    assert str(escape(hostile)) in written.read_text()


def test_every_file_has_its_origin(pipeline, written):
    names = re.findall(r'<details class="card origin"><summary><b>(.*?)</b>', written.read_text())
    made = ["clean.arrow", "clean-dropped.jsonl", "kept.parquet", "rollouts.arrow", "eval-rl.arrow", "points.arrow"]
    assert {str(pipeline / name) for name in [*made, "rl", "rl/landscape/points.csv"]} <= set(names)


def test_sections_without_content_are_left_out(pipeline):
    result = page.contents(discover([pipeline / "clean.arrow"]), "One table", lambda _: {}, samples_at=(), groups=0)
    text = page.render(replace(result, unread=["x.arrow is cut"]))
    assert re.findall(r'<section id="([\w-]+)"', text) == ["data", "provenance"]
    assert "Not in this report: x.arrow is cut" in text


@needs_browser
def test_every_section_is_there_and_linked(used):
    assert used["sections"] == SECTIONS
    assert all(used["links"])
    assert len(used["links"]) == len(SECTIONS)
    assert used["top"] == 0, "it stays while the page scrolls"


@needs_browser
def test_no_request_is_made_and_the_landscape_is_drawn(used):
    assert used["requests"] == []
    assert used["maps"] == 3


@needs_browser
def test_no_text_of_a_sample_becomes_a_script(used):
    assert used["title"] == "Report on out"
    assert used["scripts"] == 2
    assert "<b>&amp;" in used["text"]


@needs_browser
def test_pointing_at_a_chart_shows_its_values(used):
    display, text, cursor = used["hover"]
    assert (display, cursor) == ("block", "visible")
    assert re.fullmatch(r"update [34]\nreward [\d.]+ \[-?[\d.e-]+, [\d.]+\]", text.strip())
    assert (used["left"][0], used["left"][2]) == ("none", "hidden")
    assert used["inside"]


@needs_browser
def test_a_chart_can_be_read_with_the_keyboard(used):
    updates = [used[key][1].split("\n")[0] for key in ("focus", "home", "right", "before")]
    assert updates[1:] == ["update 1", "update 2", "update 1"]
    assert updates[0] in ("update 3", "update 4"), "where the pointer was"


@needs_browser
def test_a_segment_of_a_bar_shows_its_rows(used):
    assert used["bar"] == ["block", "missing-answer 3 (33.3 %)"]


@in_browser
@pytest.mark.parametrize("opened", [False, True])
def test_nothing_is_wider_than_the_window(written, opened):
    """Frames of a width stand for windows, which headless Chromium keeps above 500 pixels."""
    inner = written.with_name(f"inner-{opened}.html")
    inner.write_text(written.read_text().replace("<details", "<details open") if opened else written.read_text())
    frames = "".join(f'<iframe src="{inner.name}" width="{width}" style="border:0"></iframe>' for width in WIDTHS)
    script = """onload = () => {
      const result = document.createElement('pre');
      result.id = 'report';
      result.textContent = JSON.stringify([...Array(frames.length).keys()].map(i => {
        const d = frames[i].document.documentElement;
        return [d.scrollWidth, d.clientWidth];
      }));
      document.body.append(result);
    }"""
    outer = written.with_name("outer.html")
    outer.write_text(f"<body>{frames}<script>{script}</script></body>")
    content, _ = browse(outer.as_uri(), written.parent, "--window-size=1800,1000", "--dump-dom")
    for width, (inside, window) in zip(WIDTHS, reported(content), strict=True):
        assert inside <= window == width


def luminance(colour):
    """Relative luminance of #rrggbb (WCAG 2)."""
    parts = [int(colour[k : k + 2], 16) / 255 for k in (1, 3, 5)]
    linear = [part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts]
    return sum(weight * part for weight, part in zip((0.2126, 0.7152, 0.0722), linear, strict=True))


def contrast(one, other):
    high, low = sorted((luminance(one), luminance(other)), reverse=True)
    return (high + 0.05) / (low + 0.05)


@pytest.mark.parametrize("theme", [0, 1])
def test_colours_have_enough_contrast(written, theme):
    """Text 4.5 to 1 and marks 3 to 1, which WCAG 2 asks for, on the page and on its cards."""
    sets = re.findall(r":root \{(.*?)\}", written.read_text(), re.S)
    colours = dict(re.findall(r"--(\w+): (#\w{6})", sets[theme]))
    for ground in ("back", "card"):
        for name in ("text", "soft", "warn", "link"):
            assert contrast(colours[name], colours[ground]) >= 4.5, (name, ground)
        for number in range(8):
            assert contrast(colours[f"c{number}"], colours[ground]) >= 3, (number, ground)


@in_browser
@pytest.mark.parametrize("theme", list(THEMES))
def test_the_page_follows_the_colour_scheme_of_the_system(written, tmp_path, theme):
    """The corner of the picture is the page's own background."""
    from matplotlib.image import imread

    shot = Path(os.environ.get("SCREENSHOTS", tmp_path)) / f"report-{theme}.png"
    browse(written.as_uri(), written.parent, THEMES[theme], "--window-size=1600,1300", f"--screenshot={shot}")
    picture = imread(shot)
    assert picture.shape[:2] == (1300, 1600)
    corner = picture[2, 2, :3]
    assert corner.min() > 0.95 if theme == "light" else corner.max() < 0.2
