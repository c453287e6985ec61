"""What `magcli sft` shows of a run while it trains."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from magcli.console import duration

if TYPE_CHECKING:
    from magcli.console import Console, Progress


def say_steps(steps: int, *, step_tokens: int, epochs: int, traces: int, max_steps: int, console: Console) -> None:
    """Say before the first step how many there are, and of how many tokens."""
    # With fewer steps it is the epochs that end the run.
    limit = f", up to --max-steps {max_steps}" if steps == max_steps else ""
    text = f"sft: {steps:,} steps of about {step_tokens:,} tokens: {epochs} epochs of {traces:,} traces{limit}"
    console.say(text, event="steps", steps=steps, step_tokens=step_tokens, traces=traces)


def report_step(bar: Progress, console: Console, first: int, total: int, line: dict[str, Any]) -> None:
    """Show the metrics of a step; after ``first``, the first one of this process, how long the run goes on."""
    bar.advance(note=note(line))
    # Once: later the bar says it.
    if line["step"] == first and first < total:
        left = (total - first) * line["seconds"]
        text = (
            f"sft: step {first} took {line['seconds']:.1f} s; the other {total - first:,} take about {duration(left)}"
        )
        console.say(text, event="first-step", seconds=line["seconds"], seconds_left=left)


def note(line: dict[str, Any]) -> str:
    """The metrics of a step beside a progress bar."""
    rate = line["tokens"] / max(line["seconds"], 1e-9)
    held_out = f" held-out {line['held_out_loss']:.3f}" if "held_out_loss" in line else ""
    accuracy = f" accuracy {line['accuracy']:.1%}" if "accuracy" in line else ""
    return f"loss {line['loss']:.3f}{held_out}{accuracy} {rate:,.0f} tokens/s"


def say_saved(console: Console, step: int) -> None:
    """Say that a checkpoint was written before a signal ends the run."""
    console.say(f"sft: checkpoint of step {step} written before the end", event="saved-first", step=step)
