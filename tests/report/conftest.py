"""A small pipeline made by the real stages: problems, two filters, SFT, RL in two stages, evaluation, landscape."""

import json
from pathlib import Path

import pytest
from calling import call_stage, made_once

HOSTILE = "</script><script>document.title='broken'</script><b>&amp;"
"""What would end a script or open an element, were it not escaped; it goes all the way from prompt to page."""
SAMPLING = {"max_tokens": 24, "system": Path("none"), "dtype": "fp32"}
RL = SAMPLING | {
    "updates": 6,
    "group_size": 4,
    "n_async": 16,
    "n_batch": 16,
    "n_mini": 16,
    "lr": 1e-3,
    "bf16": "no",
    "language": False,
    "schedule": "sync",
    "trajectory_every": 2,
}
STAGES = "[[rl.stage]]\nupdates = 2\n[[rl.stage]]\n"


def write_lines(path, rows):
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


@pytest.fixture(scope="session")
def pipeline(guesser, tmp_path_factory):
    """The folder of a finished pipeline: what `magcli report` takes whole."""
    return made_once(tmp_path_factory, "pipeline", lambda folder: make_pipeline(folder / "out", guesser)) / "out"


def make_pipeline(out, guesser):
    out.mkdir()
    letters = [{"id": f"p{i}", "prompt": f"{letter}?", "answer": "3"} for i, letter in enumerate("abcde")]
    easy = write_lines(out / "letters.jsonl", [*letters, {"id": "p5", "prompt": HOSTILE, "answer": "3"}])
    good = [{"id": f"q{i}", "prompt": f"What is {i} + 1?", "answer": str(i + 1)} for i in range(6)]
    bad = [{"id": f"bad {i}", "prompt": f"What is {i} + 2? {HOSTILE}", "answer": ""} for i in range(3)]
    (out / "stages.toml").write_text(STAGES)
    call_stage("clean-math", write_lines(out / "problems.jsonl", [*good, *bad]), output=out / "clean.arrow",
               dropped=out / "clean-dropped.jsonl")  # fmt: skip
    call_stage("convert", easy, output=out / "all.arrow")
    call_stage("convert", out / "all.arrow", limit=6, output=out / "kept.parquet")
    call_stage(
        "rl", out / "kept.parquet", model=str(guesser), run=out / "rl", recipe=out / "stages.toml",
        output=out / "rollouts.arrow", **RL,
    )  # fmt: skip
    for name, model in (("eval-start", guesser), ("eval-rl", out / "rl" / "model")):
        asked = {"model": str(model), "samples": 4, "output": out / f"{name}.arrow"}
        call_stage("evaluate", out / "kept.parquet", completions=out / f"{name}-completions.arrow", **asked, **SAMPLING)
    call_stage(
        "landscape", out / "kept.parquet", run=out / "rl", points=4, samples=2, language=False, deterministic=True,
        output=out / "points.arrow", **SAMPLING,
    )  # fmt: skip
