"""Select traces for the SFT cold start: correct rollouts, a teacher's completions, and some general instructions.

Tables may be rollouts or graded completions (column correct), completions without a verdict (prompt, completion),
conversations (messages), problems with worked solutions, or published traces: several samples per row, ShareGPT turns,
reasoning in a separate column. A worked solution (column solution beside answer, or ending in #### and the answer)
becomes the thoughts, the answer is boxed after them; it is dropped if the solution arrives at another answer.
Graded traces are selected if they are correct, not from an early step and not among the shortest: at most --per-problem
of each problem, one of near-identical ones, with harder problems up-sampled. Traces without a verdict are all selected:
grade them first (magcli grade) if their answers can be verified. Thoughts are written in the form of the model to train
(--thoughts). A trace is dropped if its verdict is neither true nor false (such as a score of 0.5). The composition of
the mix is reported by source, and how many traces break the format that the reward demands (see magcli grade): if most
do, they are refused unless --any-format allows them.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

from magcli.config import opt
from magcli.stages.shared import options

INPUTS = "Rollouts, completions, conversations or published traces; - is stdin."
EXAMPLE = "magcli cold-start examples/traces.jsonl --instructions examples/instructions.jsonl -o cold-start.arrow"


@dataclass(frozen=True)
class Config:
    """Options of `magcli cold-start`."""

    REMOVED: ClassVar[Mapping[str, str]] = {"upsample": "harder problems get more copies"}

    from_step: int = opt(0, "First update whose rollouts are selected; earlier ones have short chains of thought.")
    shortest: float = opt(0.0, "Share of the correct traces to skip, shortest first.", ge=0, lt=1)
    per_problem: int = opt(4, "Maximum number of graded traces per problem.", gt=0)
    near: float = opt(0.8, "Overlap of word 5-grams above which traces of a problem are near-identical.", gt=0, le=1)
    hardest: float = opt(1.0, "Average number of copies of traces of the hardest problems.", ge=1)
    instructions: Path | None = opt(None, "General conversations to mix in.")
    fraction: float = opt(0.1, "Share of --instructions in the mix.", ge=0, lt=1)
    system: Path | None = options.system("Options")
    thoughts: str = options.thoughts(
        "Options", "that of the model of --tokenizer, else from the table's history, else that of most traces"
    )
    tokenizer: str = opt(
        "", "Folder or hub id of a model whose tokenizer counts tokens; without it, lengths are in characters."
    )
    any_format: bool = opt(
        False, "Accept traces even if most of them break the format of the reward.", affects_rows=False
    )
    seed: int = opt(0, "Seed of the selection.")


def check(config: Config) -> None:
    """Refuse options that are out of range."""
    options.check_thoughts("cold-start", config.thoughts)
