"""The page in a real browser, headless: it draws, tells, opens samples, fits narrow and wide, asks no network."""

import html
import json
import os
import re
import subprocess
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from browser import BROWSER, FLAGS, in_browser

from magcli.landscape import results
from magcli.landscape.results import script_json, write_page
from magcli.landscape.surface import grid
from magcli.report.page import Contents, render

PATH = np.column_stack([np.linspace(4, 0, 6), 0.5 * np.sin(np.linspace(0, np.pi, 6))])
PATH[-1] = 0
HOSTILE = '</script><script>document.title="broken"</script><b>&amp;'
TOLD = {
    "name": "rl",
    "facts": "6 checkpoints in bfloat16, drift 1.0e-03.",
    "origin": "The final weights again at the end: 8 of 8 completions equal.",
    "warnings": ["rounding alone bends a straight path so", "explained variance is what a random walk gives"],
    "checkpoints": [f"step-{number:06d}" for number in range(6)],
    "explained": [0.7, 0.2, 0.05, 0.05],
    "random_walk": [0.62, 0.16, 0.08],
    "trajectory": PATH.tolist(),
    "off_plane": [0.1, 0.2, 0.3, 0.2, 0.1, 0.0],
    "distance": [4.0, 3.2, 2.4, 1.6, 0.8, 0.0],
    "tensors": [
        {"name": f"layer.{k}.weight", "variance": k / 10, "drift": k / 100 or None, "changed": 0.5, "explained": e}
        for k, e in enumerate([(0.5, 0.2), (), (0.1, 0.1), (0.3, 0.3)])
    ],
}


def evaluated():
    """A table of points on a hill, with its samples, and the regression of reward on length."""
    rows, samples = [], []
    for number, (a1, a2) in enumerate(grid(PATH, points=19).tolist()):
        reward, length = 0.9 * np.exp(-((a1 - 1) ** 2) / 8 - a2**2), 1500 * 2 ** (a1 / 2)
        row = dict.fromkeys(results.POINT.names, reward)
        row |= {"point": number, "phase": "grid", "samples": 4, "a1": a1, "a2": a2, "off_plane": 0.0, "length": length}
        row |= {"length_low": 0.9 * length, "length_high": 1.1 * length, "truncated": 0.25}
        prompts = np.linspace(-0.1, 0.1, 8)
        row |= {"rewards": reward + prompts, "raw_rewards": reward + prompts, "lengths": length * (1 + prompts)}
        rows.append(row)
        samples += [sample(number, a1, a2, k) for k in range(2)]
    points = pa.Table.from_pylist(rows, results.POINT)
    return points, pa.Table.from_pylist(samples, results.SAMPLE), results.fit_length(points, shortest=0, longest=0)


def sample(number, a1, a2, k):
    texts = {"prompt": f"Question {k}: {HOSTILE}", "completion": answer(number, k)}
    parts = {"reward": 1.0, "reward_format": 0.1, "reward_correct": 0.9, "reward_length": 0.0, "reward_language": 0.0}
    where = {"point": number, "a1": a1, "a2": a2, "off_plane": 0.0, "id": f"p{k}", "sample": 0}
    result = {"num_tokens": 12, "finish": "length" if k else "stop", "reason": "correct", "correct": True}
    return dict.fromkeys(results.SAMPLE.names) | texts | parts | where | result


def answer(number, k):
    return f"Thoughts of point {number}, {k}. {HOSTILE} \\boxed{{3}}"


@pytest.fixture(scope="module")
def page(tmp_path_factory):
    path = tmp_path_factory.mktemp("page") / "index.html"
    points, samples, fit = evaluated()
    write_page(path, TOLD | results.drawn_figures(points, fit), points, samples)
    return path


def browse(address, folder, *flags):
    """What the browser prints of a page after its scripts have run."""
    profile = f"--user-data-dir={folder / 'browser'}"
    done = subprocess.run(
        [BROWSER, *FLAGS, profile, "--virtual-time-budget=2000", *flags, address],
        capture_output=True,
        text=True,
        timeout=240,
        check=True,
        env={**os.environ, "HOME": str(folder)},
    )
    return done.stdout


def reported(content):
    """What a page's script left in the element ``report``."""
    found = re.search(r'<pre id="report">(.*?)</pre>', content, re.S)
    assert found, content[-2000:]
    return json.loads(html.unescape(found[1]))


USE = """
const all = query => [...document.querySelectorAll(query)];
const text = query => document.querySelector(query).textContent;
const next = (p, i) => p[(i + 1) % p.length], cross = ([x, y], [u, v]) => x * v - u * y;
const area = p => Math.abs(p.reduce((s, q, i) => s + cross(q, next(p, i)), 0));
const sum = v => v.reduce((a, b) => a + b);
const dot = (plot, n) => document.querySelector(`#${plot} circle[data-point="${n}"]`);
const corners = node => node.getAttribute('points').split(' ').map(t => t.split(',').map(Number));
const result = {};
const count = name => { result[name] = all('#map g polygon').length; };
for (const [name, query] of Object.entries(QUERIES)) result[name] = all(query).length;
result.areas = [sum(all('#map g polygon').map(corners).map(area)),
  sum(data.triangles.map(t => area(t.map(i => [X(points[i].a1), Y(points[i].a2)]))))];
result.fit = text('#fit'); result.first = text('#tensors tr:nth-child(2) td');
result.background = getComputedStyle(document.body).backgroundColor.match(/\\d+/g).map(Number);
for (const event of [new MouseEvent('mouseenter'), new FocusEvent('focus')]) {
  dot('map', 3).dispatchEvent(event);
  result[event.type] = [at('tip').innerText, getComputedStyle(at('tip')).display, at('current').textContent];
  dot('map', 3).dispatchEvent(new MouseEvent('mouseleave'));
}
result.hidden = getComputedStyle(at('tip')).display;
const texts = () => all('#samples pre').map(node => node.textContent);
const samples = () => [texts(), text('#samples .prompt'), at('samples').innerText];
dot('lengths', 5).dispatchEvent(new MouseEvent('click'));
result.click = [...samples(), location.hash];
dot('map', 2).dispatchEvent(new KeyboardEvent('keydown', {key: 'Enter'}));
result.enter = [...samples(), location.hash];
result.metrics = Object.keys(METRICS).map(name => {
  document.querySelector(`input[value=${name}]`).click();
  return [metric, all('#map g polygon').length];
});
result.title = document.title;
const report = document.createElement('pre'); report.id = 'report'; report.textContent = JSON.stringify(result);
document.body.append(report);
"""
QUERIES = {
    "dots": "#map circle",
    "lengths": "#lengths circle",
    "bands": "#map g polygon",
    "arrows": "#map line[marker-end]",
    "rows": "#checkpoints tr",
    "warnings": ".warn",
}


@pytest.fixture(scope="module")
def used(page):
    """What happens in the page when it is drawn, pointed at, clicked, and used from the keyboard."""
    script = USE.replace("QUERIES", json.dumps(QUERIES))
    copy = page.with_name("used.html")
    copy.write_text(page.read_text().replace("</body>", f"<script>{{{script}}}</script></body>"))
    return reported(browse(copy.as_uri(), page.parent, "--dump-dom"))


def test_the_page_loads_nothing_else(page):
    text = page.read_text()
    assert not re.findall(r"""(?:src|href)\s*=|@import|url\((?!#)|fetch\(|XMLHttpRequest""", text)
    assert set(re.findall(r"https?://[^\"' ]+", text)) <= {"http://www.w3.org/2000/svg"}


def test_the_page_has_the_policy_of_the_report(page):
    policy = re.search(r'<meta http-equiv="Content-Security-Policy" content="(.*?)">', page.read_text())[1]
    report = render(Contents("Report", [], [], [], [], [], [], []))
    assert policy == re.search(r'<meta http-equiv="Content-Security-Policy" content="(.*?)">', report)[1]
    assert policy.startswith("default-src 'none'; ")


@in_browser
def test_the_browser_refuses_requests_of_the_page(page):
    """A script in the page that asks for an image and sends data elsewhere."""
    script = """
      const refused = [];
      document.addEventListener('securitypolicyviolation', event => {
        refused.push(event.effectiveDirective);
        const report = document.createElement('pre'); report.id = 'report';
        report.textContent = JSON.stringify(refused.sort());
        document.getElementById('report')?.remove(); document.body.append(report);
      });
      new Image().src = 'http://127.0.0.1:9/x.png';
      fetch('http://127.0.0.1:9/').catch(() => {});
    """
    copy = page.with_name("asks.html")
    copy.write_text(page.read_text().replace("</body>", f"<script>{script}</script></body>"))
    assert reported(browse(copy.as_uri(), page.parent, "--dump-dom")) == ["connect-src", "img-src"]


def test_no_text_in_the_data_breaks_the_page(page):
    data = re.search(r'<script type="application/json" id="data">(.*?)</script>', page.read_text(), re.S)[1]
    assert json.loads(data)["samples"][0]["prompt"] == f"Question 0: {HOSTILE}"
    assert "<" not in script_json({"text": HOSTILE})


@in_browser
def test_surface_points_arrows_and_tables_are_drawn(used):
    size = len(grid(PATH, points=19))
    assert used["dots"] == used["lengths"] == size
    assert used["bands"] > 40
    assert (used["arrows"], used["rows"], used["warnings"]) == (5, 7, 2)
    assert used["title"] == "Landscape of rl", "no text of a sample became a script"
    assert "per doubling of length" in used["fit"]
    assert used["first"] == "layer.3.weight"
    assert sum(used["background"]) > 700


@in_browser
def test_bands_fill_the_triangles(used):
    """Values are linear on a triangle, so its bands have the triangle's area together."""
    bands, triangles = used["areas"]
    assert bands == pytest.approx(triangles, rel=1e-3)


@in_browser
@pytest.mark.parametrize("event", ["mouseenter", "focus"])
def test_a_point_shows_reward_interval_length_and_truncation(used, event):
    tip, display, line = used[event]
    assert (display, used["hidden"]) == ("block", "none")
    row = evaluated()[0].to_pylist()[3]
    for part in (
        f"Reward {row['reward']:.3f} [{row['reward_low']:.3f}, {row['reward_high']:.3f}]",
        f"Length {row['length']:.0f} tokens",
        "truncated 25.0 %",
    ):
        assert part in tip
        assert part in line


@in_browser
@pytest.mark.parametrize(("event", "point"), [("click", 5), ("enter", 2)])
def test_a_point_opens_its_samples(used, event, point):
    texts, prompt, result, address = used[event]
    assert texts == [answer(point, 0), answer(point, 1)]
    assert prompt == f"Question 0: {HOSTILE}"
    assert "Reward 1.00 (format 0.10, correct 0.90, length 0.00, language 0.00): correct, 12 tokens" in result
    assert "truncated" in result
    assert address == f"#point={point}"


@in_browser
def test_other_figures_are_drawn_on_request(used):
    assert [name for name, _ in used["metrics"]] == ["reward", "difference", "length", "truncated", "correct"]
    assert all(bands >= len(grid(PATH, points=19)) / 2 for _, bands in used["metrics"])


WIDTHS = (400, 700, 1600)


@in_browser
def test_nothing_is_wider_than_the_window(page):
    """Frames of a width stand for windows, which headless Chromium keeps above 500 pixels. Drawings are not scaled."""
    frame = '<iframe src="{}#point=3" width="{}" style="border:0"></iframe>'
    frames = "".join(frame.format(page.name, width) for width in WIDTHS)
    script = """onload = () => {
      const inner = [...Array(frames.length).keys()].map(i => frames[i].document.documentElement);
      const result = document.createElement('pre');
      result.id = 'report';
      const drawings = d => ["map", "lengths"].map(id => d.querySelector("#" + id));
      const units = d => drawings(d).map(svg => svg.viewBox.baseVal.width / svg.clientWidth);
      result.textContent = JSON.stringify(inner.map(d => [d.scrollWidth, d.clientWidth, units(d)]));
      document.body.append(result);
    }"""
    outer = page.with_name("outer.html")
    outer.write_text(f"<body>{frames}<script>{script}</script></body>")
    flags = ("--allow-file-access-from-files", "--window-size=1800,1000", "--dump-dom")
    found = reported(browse(outer.as_uri(), page.parent, *flags))
    for width, (inner, window, units) in zip(WIDTHS, found, strict=True):
        assert inner <= window == width
        assert units == pytest.approx([1, 1], rel=0.01)


@in_browser
def test_a_dark_page_is_dark_in_a_screenshot(page, tmp_path):
    """The corner of the picture is the page's own background."""
    from matplotlib.image import imread

    shot = Path(os.environ.get("SCREENSHOTS", tmp_path)) / "landscape-dark.png"
    dark = "--blink-settings=preferredColorScheme=0"
    browse(page.as_uri() + "#point=3", page.parent, dark, "--window-size=1600,1300", f"--screenshot={shot}")
    picture = imread(shot)
    assert picture.shape[:2] == (1300, 1600)
    assert picture[2, 2, :3].max() < 0.2
    assert np.ptp(picture[:, :, 1]) > 0.7
