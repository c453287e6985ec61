"""Options of `magcli evaluate` and their checks; how suites are sampled."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from magcli.config import check_bounds, is_url, opt
from magcli.errors import usage
from magcli.evaluation.suite import load
from magcli.stages.shared import options
from magcli.stages.shared.environment_check import check_environment

if TYPE_CHECKING:
    from magcli.evaluation.suite import Suite

SUITE_OPTIONS = ("samples", "max_tokens", "temperature", "top_p")
"""Sampling options whose defaults are the suite's."""


@dataclass(frozen=True)
class Config(options.GraderOptions, options.EnvironmentOptions, options.EngineOptions, options.ClusterEngineOptions):
    """Options of `magcli evaluate`."""

    suite: tuple[str, ...] = opt((), "Suites to evaluate instead of a table: names, or .toml files of your own.")
    data: tuple[str, ...] = opt(
        (),
        "Folders with the suites' data (default: that of the suite and the current one); hub downloads it.",
        affects_rows=False,
    )
    ks: tuple[int, ...] = opt(
        (1,), "Values of k for pass@k and maj@k; values above the number of samples are skipped.", gt=0
    )
    against: Path | None = opt(None, "Graded completions of another run for a paired comparison by problem.")
    before: str = opt("", "Another model, such as the one before training: its metrics and the differences.")
    anywhere: bool = opt(
        False,
        "Count right answers anywhere in the text, for models that do not know the format: avg@n, pass@k and maj@k.",
    )
    compare: bool = opt(False, "Compare tables of metrics or of graded completions, one per model.", always_run=True)
    markdown: Path | None = opt(None, "With --compare: also write the table as Markdown.", affects_rows=False)
    completions: Path | None = opt(
        None,
        "With --model: store graded completions in this table (a folder for suites), and reuse existing ones.",
        affects_rows=False,
    )
    language: bool = opt(
        False, "With --model: also report the share of samples with question, thoughts and answer in one language."
    )
    samples: int | None = opt(
        None, "Number of samples per problem; default: the suite's, or 4 for a table.", panel=options.SAMPLING, gt=0
    )
    max_tokens: int | None = opt(
        None, "Maximum new tokens per completion; default: the suite's, or 1024 for a table.", panel=options.SAMPLING
    )
    temperature: float | None = opt(
        None, "Sampling temperature; default: the suite's, or 0.7 for a table.", panel=options.SAMPLING, ge=0
    )
    top_p: float | None = opt(
        None, "Nucleus sampling probability; default: the suite's, or 1.0 for a table.", panel=options.SAMPLING
    )
    system: Path | None = options.system()
    seed: int = options.seed()


def reads(config: Config) -> tuple[str, ...] | None:
    """The required columns; suites have their own problems."""
    if config.suite:
        return None
    if config.compare:
        return ()
    if not config.model:
        return ("id", "correct")
    judges = options.environment_judges(config.environment)
    return ("id", "prompt") if judges else ("id", "prompt", "answer|tests")


def check(config: Config) -> None:
    """Refuse options that contradict each other, and suites whose sampling is out of range."""
    usage(bool(config.model) or config.completions is None, "evaluate: --completions requires --model")
    usage(not (config.compare and config.model), "evaluate: --compare reads finished tables; omit --model")
    usage(bool(config.model) or not config.environment, "evaluate: --environment requires --model")
    check_environment("evaluate", config, config.environment)
    usage(bool(config.model) or not config.before, "evaluate: --before requires --model")
    usage(not (config.before and config.against), "evaluate: --before and --against exclude each other")
    _check_cluster(config)
    usage(not (config.compare and config.anywhere), "evaluate: --anywhere does not apply to --compare; omit one")
    usage(config.compare or config.markdown is None, "evaluate: --markdown requires --compare")
    # A suite needs a model, which ``check_engine`` asks for.
    if config.model or config.suite:
        options.check_engine("evaluate", config)
        if config.before:
            # The same engine must be able to run the other model too.
            options.check_engine("evaluate", baseline(config))
        for suite in load(config.suite):
            # The file of a suite may have values out of bounds.
            check_bounds(f"evaluate: suite {suite.name}", sampling_options(config, suite))


def _check_cluster(config: Config) -> None:
    """Refuse engines on a cluster without a model whose weights they could load."""
    if config.cluster:
        text = f"evaluate: --cluster {config.cluster} places engines"
        usage(bool(config.model), f"{text}, so it needs --model; omit it")
        usage(not is_url(config.model), f"{text}, and --model is a server; omit it")


def sampling_options(config: Config, suite: Suite | None = None) -> options.SamplingOptions:
    """How the problems of a suite, or of a table, are sampled: the command's options, else the suite's."""
    # The defaults for a table; a suite has its own.
    default = options.SamplingOptions(samples=4, temperature=0.7)
    system = config.system
    if suite is not None:
        default = replace(default, **{name: getattr(suite.sampling, name) for name in SUITE_OPTIONS})
        system = system or _system(suite)
    overrides = {name: getattr(config, name) for name in SUITE_OPTIONS if getattr(config, name) is not None}
    return replace(default, **overrides, system=system, seed=config.seed)


def _system(suite: Suite) -> Path | None:
    """The system prompt of a suite; None for the model's own, and the path ``none`` for no prompt at all."""
    if suite.system == "default":
        return None
    if suite.system == "none":
        return Path("none")
    return suite.folder / suite.system


def baseline(config: Config) -> Config:
    """The options that evaluate the --before model; its completions are stored next to the model's."""
    path = config.completions
    if path is not None:
        # Never in the place of the other model's, which has other samples.
        path = path / "before" if config.suite else path.with_name(f"before-{path.name}")
    return replace(config, model=config.before, before="", completions=path)


def side_outputs(config: Config) -> tuple[Path, ...]:
    """The stored completions, or the Markdown of a comparison."""
    if config.completions is None:
        return () if config.markdown is None else (config.markdown,)
    # A table of problems has one task without a name.
    names = [suite.name for suite in load(config.suite)] if config.suite else [""]
    sides = [config, baseline(config)] if config.before else [config]
    tables = [completions_table(side.completions, name) for side in sides for name in names]
    return tuple(table for table in tables if table is not None)


def completions_table(completions: Path | None, name: str) -> Path | None:
    """The table that stores a task's completions: in a folder, one table a suite."""
    if completions is None or not name:
        return completions
    return completions / f"{name}.arrow"
