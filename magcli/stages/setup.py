"""From a stage's options to what it works with: the engine, the question, the reward rule. No stage of its own."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, Protocol

if TYPE_CHECKING:
    from magcli.curate.sampling import Ask
    from magcli.generate.types import Generator
    from magcli.verify.pool import Pool
    from magcli.verify.reward import RewardRule


class EngineOptions(Protocol):
    """The options of a stage that runs a model."""

    @property
    def model(self) -> str: ...
    @property
    def engine(self) -> Literal["auto", "torch", "server"]: ...
    @property
    def dtype(self) -> Literal["auto", "bf16", "fp32"]: ...
    @property
    def slots(self) -> int: ...
    @property
    def deterministic(self) -> bool: ...
    @property
    def device(self) -> str: ...
    @property
    def deadline(self) -> float: ...


class AskOptions(Protocol):
    """The options of a stage that puts problems to a model."""

    @property
    def samples(self) -> int: ...
    @property
    def max_tokens(self) -> int: ...
    @property
    def temperature(self) -> float: ...
    @property
    def top_p(self) -> float: ...
    @property
    def system(self) -> Path | None: ...
    @property
    def seed(self) -> int: ...


class RewardOptions(Protocol):
    """The options of a stage that grades."""

    @property
    def max_length(self) -> int: ...
    @property
    def cache_length(self) -> int: ...
    @property
    def language(self) -> bool: ...
    @property
    def workers(self) -> int: ...
    @property
    def verify_deadline(self) -> float: ...


NO_LIMIT = 1 << 40
"""A length that no completion reaches: the penalty is off."""


def open_engine(config: EngineOptions) -> Generator:
    """The engine that a stage's options describe."""
    from magcli.generate.open import open_generator

    return open_generator(
        config.model,
        engine=config.engine,
        dtype="fp32" if config.deterministic and config.dtype == "auto" else config.dtype,
        slots=config.slots,
        deterministic=config.deterministic,
        device=config.device,
        deadline=config.deadline,
    )


def ask(config: AskOptions) -> Ask:
    """How a stage's options put a problem to a model."""
    from magcli.curate.sampling import Ask
    from magcli.generate.types import Sampling

    sampling = Sampling(config.max_tokens, config.temperature, config.top_p)
    return Ask(system_text(config.system), sampling, config.samples, config.seed)


def system_text(path: Path | None) -> str | None:
    """The system prompt that an option names; ``none`` means that there is none."""
    from magcli.model.chat import system_prompt

    return None if path is not None and str(path) == "none" else system_prompt(path)


def reward_rule(config: RewardOptions) -> RewardRule:
    """The reward that a stage's options describe."""
    from magcli.verify.reward import RewardRule

    return RewardRule(config.max_length or NO_LIMIT, config.cache_length, use_language=config.language)


def open_pool(config: RewardOptions) -> Pool:
    """The verifier processes that a stage's options describe."""
    from magcli.verify.pool import Pool

    return Pool(config.workers, deadline=config.verify_deadline)


def check_engine(stage: str, config: EngineOptions) -> None:
    """Refuse engine options that contradict themselves.

    Raises:
        UsageError: which one and why.
    """
    from magcli.run.job import usage

    url = config.model.startswith(("http://", "https://"))
    usage(bool(config.model), f"{stage}: --model is missing: a local folder, a hub id or the URL of a server")
    usage(config.slots > 0, f"{stage}.slots: {config.slots} is not positive")
    usage(config.deadline > 0, f"{stage}.deadline: {config.deadline} is not positive")
    usage(not (config.deterministic and config.dtype == "bf16"), f"{stage}: --deterministic needs --dtype fp32")
    usage(not (config.deterministic and url), f"{stage}: a server cannot be --deterministic")
    usage(not (config.engine == "torch" and url), f"{stage}: --engine torch cannot run a URL")
    usage(not (config.engine == "server" and not url), f"{stage}: --engine server needs a URL as --model")


def check_ask(stage: str, config: AskOptions) -> None:
    """Refuse sampling options that make no sense.

    Raises:
        UsageError: which one and why.
    """
    from magcli.run.job import usage

    usage(config.samples > 0, f"{stage}.samples: {config.samples} is not positive")
    usage(config.max_tokens > 0, f"{stage}.max_tokens: {config.max_tokens} is not positive")
    usage(config.temperature >= 0, f"{stage}.temperature: {config.temperature} is negative")
    usage(0 < config.top_p <= 1, f"{stage}.top_p: {config.top_p} is not in (0, 1]")


def check_reward(stage: str, config: RewardOptions) -> None:
    """Refuse reward options that contradict themselves.

    Raises:
        UsageError: which one and why.
    """
    from magcli.run.job import usage

    usage(config.workers > 0, f"{stage}.workers: {config.workers} is not positive")
    usage(config.verify_deadline > 0, f"{stage}.verify_deadline: {config.verify_deadline} is not positive")
    usage(config.max_length >= 0, f"{stage}.max_length: {config.max_length} is negative")
    usage(
        0 <= config.cache_length <= (config.max_length or config.cache_length),
        f"{stage}.cache_length: {config.cache_length} is not between 0 and max_length {config.max_length}",
    )


def model_bits(model: str) -> dict[str, Any]:
    """The digest of a local model's files, which decides rows as much as any option does."""
    from magcli.model.load import fingerprint

    return {"model_sha256": fingerprint(Path(model))} if Path(model).is_dir() else {}
