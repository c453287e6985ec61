"""The tracker TensorBoard."""

import json
from collections.abc import Mapping, Sequence
from textwrap import indent

from tensorboard.backend.event_processing.event_accumulator import SCALARS, TENSORS, EventAccumulator
from tensorboard.compat.proto.summary_pb2 import Summary
from torch.utils.tensorboard.summary import text
from torch.utils.tensorboard.writer import FileWriter, SummaryWriter

from magcli.run.trackers.types import SAMPLES, Run, Sample


class OpenRun:
    """Event files in the run's folder. An update is one event, so a kill leaves all of it or nothing."""

    def __init__(self, run: Run) -> None:
        folder = run.folder / "tensorboard"
        folder.mkdir(exist_ok=True)
        events = EventAccumulator(str(folder), size_guidance={SCALARS: 1}).Reload()  # the last value of each is enough
        tags = events.Tags()
        last_steps = [events.Scalars(name)[-1].step for name in tags[SCALARS]]
        self.last_step = max(last_steps, default=-1)
        self.location = str(folder)
        if "config/text_summary" not in tags[TENSORS]:  # a run that is resumed has it
            with SummaryWriter(self.location) as writer:
                writer.add_text("config", f"```\n{json.dumps(run.config, indent=1)}\n```", 0)
        self._writer = FileWriter(self.location)

    def log(self, step: int, values: Mapping[str, float], samples: Sequence[Sample]) -> None:
        """Write one event and flush it."""
        summary = Summary(value=[Summary.Value(tag=name, simple_value=value) for name, value in values.items()])
        if samples:
            shown = "\n\n".join(map(as_markdown, samples))
            summary.MergeFrom(text(SAMPLES, shown))  # type: ignore[no-untyped-call]
        self._writer.add_summary(summary, step)
        self._writer.flush()

    def amend(self, step: int, values: Mapping[str, float]) -> None:
        """Write another event of the update."""
        self.log(step, values, ())

    def finish(self, *, completed: bool) -> None:
        """Close the file."""
        self._writer.close()


def as_markdown(sample: Sample) -> str:
    """A completion as Markdown in which nothing of its text is markup."""
    # A block that is indented is code; empty lines are indented too, so that none ends it.
    prompt = indent(sample.prompt, "    ", lambda line: True)
    completion = indent(sample.completion, "    ", lambda line: True)
    verdict = f"**Reward {sample.reward:.4g}: {sample.reason}**"
    return f"{verdict}\n\nPrompt\n\n{prompt}\n\nCompletion\n\n{completion}"
