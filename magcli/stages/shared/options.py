"""Options that several stages share, as dataclasses that a stage's ``Config`` inherits, and checks of their values.

Each check raises ``UsageError`` with the name of the stage and of the option.
"""

import json
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal
from urllib.parse import urlsplit

from magcli.choices import AUTO, AskedFormat, Switch
from magcli.config import is_url, opt
from magcli.errors import UsageError, usage
from magcli.model.chat.thoughts import FORMS, GAP
from magcli.plan.engines import policy_engine, require_vllm
from magcli.stages.shared import vllm_options
from magcli.stages.shared.forms import form_of_option
from magcli.stages.shared.parallel import check_split_engine

MODEL = "Model and engine"
SAMPLING = "Sampling"
BATCH = "Batches (in completions) and schedule"
TRAIN = "Training"
CHECKPOINTS = "Checkpoints and tracking"
OBJECTIVE = "Objective"
REWARD = "Reward and verifiers"
CURRICULUM = "Choice of problems"
EVALUATION = "Evaluation on held-out problems"
GENERATORS, CLUSTER = "Generators beside the trainer", "Several GPUs and machines"
PANELS = (MODEL, SAMPLING, BATCH, TRAIN, OBJECTIVE, REWARD, CURRICULUM, EVALUATION, CHECKPOINTS, GENERATORS, CLUSTER)
"""The panels of ``--help`` in order; those of a single stage come before them."""

Engine = Literal["auto", "torch", "vllm", "server"]
Sandbox = Literal["full", "restricted", "auto", "dangerously-none"]

DEVICE = re.compile(r"(auto|cpu|mps|(cuda|xpu)(:\d+)?)")
"""Well-formed names of devices; torch knows which ones exist."""
RESERVED_VARIABLES = (
    "messages", "add_generation_prompt", "tokenize", "tools", "documents", "chat_template", "continue_final_message",
    "padding", "truncation", "max_length", "return_tensors", "return_dict", "return_assistant_tokens_mask",
    "tokenizer_kwargs", "conversation", "strftime_now",
)  # fmt: skip
"""Names that are not variables of a chat template, or that the run itself sets."""


def device(*, affects_rows: bool = True) -> Any:
    """The device of the model."""
    text = "Device of the model: cpu, cuda, cuda:1; auto: cuda where PyTorch can use a GPU, else cpu."
    return opt(AUTO, text, panel=MODEL, affects_rows=affects_rows)


def dtype(panel: str = MODEL) -> Any:
    """The dtype of the weights for sampling."""
    return opt("auto", "Dtype of the weights for sampling; auto: bf16 where it is faster on this machine.", panel=panel)


def samples(default: int) -> Any:
    """Samples per problem, with a stage's own default."""
    return opt(default, "Number of samples per problem.", panel=SAMPLING, gt=0)


def max_tokens(default: int = 1024) -> Any:
    """Maximum completion length, with a stage's own default."""
    return opt(default, "Maximum new tokens per completion.", panel=SAMPLING, gt=0)


def temperature(default: float = 1.0, *, greedy: bool = True) -> Any:
    """Sampling temperature, with a stage's own default; ``greedy``: it may be 0."""
    if greedy:
        return opt(default, "Sampling temperature; 0 is greedy decoding.", panel=SAMPLING, ge=0)
    return opt(default, "Sampling temperature, above 0.", panel=SAMPLING, gt=0)


def seed() -> Any:
    """The seed of sampling."""
    text = "Seed of the run; each sample's seed is a hash of this seed, the row's id and the sample's number."
    return opt(0, text, panel=SAMPLING)


def system(panel: str = SAMPLING) -> Any:
    """The system prompt of conversations."""
    return opt(None, "File with the system prompt (default: magcli's; 'none' for no system prompt).", panel=panel)


def sandbox() -> Any:
    """Isolation of programs."""
    return opt(
        "full",
        "Isolation of programs; auto: restricted where full is not possible; dangerously-none lets model-written code "
        "do anything on this machine that you can.",
        panel=REWARD,
    )


def thoughts(panel: str = MODEL, auto: str = "as the chat template and the tokenizer have it") -> Any:
    """The form of thoughts; ``auto`` says in the help which one ``auto`` takes."""
    text = f"Form of thoughts: {', '.join(form.name for form in FORMS)} or OPENING{GAP}CLOSING; auto: {auto}."
    return opt(AUTO, text, panel=panel)


def save_dtype() -> Any:
    """The dtype of saved weights."""
    return opt("source", "Dtype of the saved weights; source: as in the model at the start.", panel=CHECKPOINTS)


@dataclass(frozen=True)
class LocalEngineOptions:
    """An engine that samples from weights on this machine."""

    engine: Engine = opt(
        "auto", "Sampling engine; auto: server for a URL, vllm on a GPU if it is installed, else torch.", panel=MODEL
    )
    dtype: AskedFormat = dtype()
    slots: int = opt(0, "Maximum number of concurrent sequences; 0: 256 for vLLM on a GPU, else 64.", panel=MODEL, ge=0)
    deterministic: bool = opt(
        False,
        "Use fp32, and make each row's result bitwise independent of the other sequences in its batch.",
        panel=MODEL,
    )
    device: str = device()
    gpu_memory: float = vllm_options.gpu_memory(MODEL, "0 is 0.9")
    tensor_parallel: int = vllm_options.tensor_parallel(MODEL)
    vllm_eager: Switch = vllm_options.vllm_eager(MODEL)

    @property
    def num_slots(self) -> int:
        """The maximum number of concurrent sequences."""
        if self.slots:
            return self.slots
        if self.engine == "server" or not self.device.startswith("cuda"):
            return 64
        uses_vllm = policy_engine(self.engine, self.device, deterministic=self.deterministic) == "vllm"
        return 256 if uses_vllm else 64


@dataclass(frozen=True)
class TemplateOptions:
    """How prompts are rendered, and where completions end."""

    chat_template: Path | None = opt(
        None, "File with a chat template (Jinja) that replaces the model's; saved with a trained model.", panel=MODEL
    )
    template_args: tuple[str, ...] = opt(
        (),
        "Variables of the chat template, key=value, such as enable_thinking=false; values are JSON or text.",
        panel=MODEL,
    )
    thoughts: str = thoughts()
    stop: tuple[str, ...] = opt(
        (),
        "More tokens that end a completion, by text or id, each a single token; the model's own and the chat "
        "template's end of turn always end it.",
        panel=SAMPLING,
    )


ENGINE_IN_RECIPE = ("deadline", "tensor_parallel", "deterministic", "gpu_memory", "vllm_eager", "template_args")
"""Those of ``EngineOptions`` that ``--help`` does not list: they are set once for a machine."""


@dataclass(frozen=True)
class EngineOptions(TemplateOptions, LocalEngineOptions):
    """A model, on this machine or behind a URL."""

    model: str = opt("", "A local folder, a hub id, or the URL of an OpenAI-compatible server.", panel=MODEL)
    deadline: float = opt(
        600.0,
        "Timeout in seconds of one request to a server (retries included) or to vLLM, and of a phase of vLLM's start.",
        panel=MODEL,
        affects_rows=False,
        gt=0,
    )


@dataclass(frozen=True)
class GenerationOptions:
    """How completions are sampled."""

    max_tokens: int = max_tokens()
    temperature: float = temperature()
    seed: int = seed()


@dataclass(frozen=True)
class SamplingOptions(GenerationOptions):
    """How problems are sampled."""

    samples: int = samples(1)
    top_p: float = opt(
        1.0, "Nucleus sampling: only the most likely tokens with this total probability.", panel=SAMPLING, gt=0, le=1
    )
    system: Path | None = system()


@dataclass(frozen=True)
class GraderOptions:
    """How completions are verified."""

    workers: int = opt(1, "Number of verifier workers.", panel=REWARD, affects_rows=False, gt=0)
    verify_deadline: float = opt(
        2.0,
        "Timeout in seconds of one verdict; then the worker is killed and the reason is timeout.",
        panel=REWARD,
        gt=0,
    )
    sandbox: Sandbox = sandbox()


@dataclass(frozen=True)
class _RewardParts:
    """The parts of the reward, listed before the verifiers."""

    penalty_end: int = opt(
        0,
        "Completion length in tokens at which the length penalty is largest (l_max); 0 disables it.",
        panel=REWARD,
        ge=0,
    )
    penalty_width: int = opt(
        0, "Number of tokens below --penalty-end over which the length penalty grows (l_cache).", panel=REWARD, ge=0
    )
    language: bool = opt(
        True, "Reward completions whose reasoning and answer are in the language of the question.", panel=REWARD
    )
    reward: str = opt(
        "",
        "Custom reward that replaces the recipe's: module:function or file.py:function; several with weights are "
        "a.py:f=0.7,b.py:g=0.3, or the option several times.",
        panel=REWARD,
        several=True,
    )
    num_tests: int = opt(
        20, "Number of randomly chosen tests per program, the same for a whole group; 0 uses all.", panel=REWARD, ge=0
    )
    partial: bool = opt(
        False, "Partial reward: the fraction of tests that a program passes, instead of all or nothing.", panel=REWARD
    )


@dataclass(frozen=True)
class RewardOptions(GraderOptions, _RewardParts):
    """The reward of completions (recipe, section 2), and their verifiers."""


@dataclass(frozen=True)
class EnvironmentOptions:
    """What answers the turns of the model."""

    environment: str = opt(
        "",
        "Environment that answers the model's turns or grades them: python, calculator, reasoning-gym, verifiers:NAME, "
        "or your own class, as module:Class or file.py:Class.",
        panel=SAMPLING,
    )


@dataclass(frozen=True)
class EvaluationOptions:
    """Held-out problems that a training run samples and grades at intervals."""

    eval_table: Path | None = opt(
        None,
        "Table of held-out problems to sample and grade during training, for the accuracy of the model.",
        panel=EVALUATION,
        affects_rows=False,
    )
    eval_samples: int = opt(4, "Number of samples per problem.", panel=EVALUATION, gt=0)
    eval_max_tokens: int = opt(1024, "Maximum new tokens per completion.", panel=EVALUATION, gt=0)
    eval_temperature: float = opt(0.7, "Sampling temperature.", panel=EVALUATION, ge=0)
    eval_slots: int = opt(64, "Maximum number of concurrent sequences.", panel=EVALUATION, gt=0)


@dataclass(frozen=True)
class ClusterOptions:
    """Where the shards of a stage run."""

    cluster: str = opt(
        "",
        "Run the rows in shards as tasks of Ray: local starts a Ray on this machine, auto or HOST:PORT joins a running "
        "one. The output must be a file on storage that all nodes share.",
        panel=CLUSTER,
        affects_rows=False,
    )


@dataclass(frozen=True)
class ClusterEngineOptions:
    """Where the engines of a stage run that does everything else in one process."""

    cluster: str = opt(
        "",
        "Sample with engines on Ray, one on each of its GPUs or, on CPUs, nodes: local starts a Ray on this machine, "
        "auto or HOST:PORT joins a running one.",
        panel=CLUSTER,
        affects_rows=False,
    )


def check_engine(stage: str, config: EngineOptions) -> None:
    """A model and an engine that can run it."""
    usage(bool(config.model), f"{stage}: --model is missing: a local folder, a hub id or the URL of a server")
    is_server = is_url(config.model)
    if is_server:
        _check_server(stage, config)
    usage(is_server or config.engine != "server", f"{stage}: --engine server needs a URL as --model")
    check_template(stage, config)
    # Numbers are ids of tokens in the model's own vocabulary.
    token_ids = [item for item in config.stop if item.isdecimal()]
    usage(not (is_server and token_ids), f"{stage}: --stop {','.join(token_ids)}: a server takes texts, not ids")
    check_local_engine(stage, config)


def _check_server(stage: str, config: EngineOptions) -> None:
    """The URL of a server, and no option that only a local model has."""
    usage(_is_address(config.model), f"{stage}: --model {config.model} is not a URL such as http://host:8000/v1")
    usage(not config.deterministic, f"{stage}: --deterministic needs a local model, not the URL of a server")
    is_local = config.engine in ("torch", "vllm")
    usage(not is_local, f"{stage}: --engine {config.engine} needs a model folder or hub id, not a URL")
    usage(not config.chat_template, f"{stage}: a server has its own chat template; omit --chat-template")


def check_template(stage: str, config: TemplateOptions) -> None:
    """A chat template that can be compiled, and variables of the form key=value."""
    # A first part without "=" continues nothing.
    begins_with_key = not config.template_args or "=" in config.template_args[0]
    names = template_variables(config)
    are_names = all(name.isidentifier() for name in names)
    text = f"{stage}: --template-args must be key=value, such as enable_thinking=false"
    usage(begins_with_key and are_names, text)
    for name in names:
        usage(name not in RESERVED_VARIABLES, f"{stage}: --template-args cannot set {name}, which magcli sets")
    template_source(config)
    check_thoughts(stage, config.thoughts)


def check_thoughts(stage: str, thoughts: str) -> None:
    """A form of thoughts that exists, or a well-formed one of the user's own."""
    try:
        form_of_option(thoughts)
    except UsageError as error:
        raise UsageError(f"{stage}: {error}") from None


def template_source(config: TemplateOptions) -> str:
    """The text of --chat-template; empty without it.

    Raises:
        UsageError: the file cannot be read, or is not a Jinja template.
    """
    if config.chat_template is None:
        return ""
    from magcli.model.chat.template_file import read_template

    return read_template(config.chat_template)


def template_variables(config: TemplateOptions) -> dict[str, Any]:
    """The variables of --template-args; a part without ``=`` continues the value before it, which has a comma."""
    pairs: list[str] = []
    for part in config.template_args:
        if "=" in part or not pairs:
            pairs.append(part)
        else:
            # The option's type has split the text at all commas, also at those within a value.
            pairs[-1] += f",{part}"
    variables = {}
    for pair in pairs:
        name, _, value = pair.partition("=")
        variables[name.strip()] = _json_or_text(value)
    return variables


def _json_or_text(value: str) -> Any:
    try:
        return json.loads(value)
    except ValueError:
        return value


def check_page(option: str, page: Path | None) -> None:
    """A file to write a page to; messages begin with the stage and the ``option``."""
    if page is not None:
        usage(page.suffix in (".html", ".htm"), f"{option} {page}: the file name must end in .html")
        usage(not page.is_dir(), f"{option} {page} is a folder; name a file")


def check_local_engine(stage: str, config: LocalEngineOptions) -> None:
    """An engine, its device and its number format."""
    check_device(stage, config.device)
    usage(not (config.deterministic and config.dtype == "bf16"), f"{stage}: --deterministic needs --dtype fp32")
    check_split_engine(stage, config)
    check_vllm(stage, config.engine, deterministic=config.deterministic)


def _is_address(url: str) -> bool:
    """Whether a URL names a host, and a port by its number if any."""
    try:
        parts = urlsplit(url)
        # ``port`` raises for a number beyond 65535 or no number at all.
        return bool(parts.hostname) and parts.port != 0
    except ValueError:
        return False


def check_device(stage: str, name: str) -> None:
    """A well-formed name of a device."""
    usage(bool(DEVICE.fullmatch(name)), f"{stage}: --device must be cpu, cuda, cuda:1 or similar, not {name}")


def check_vllm(stage: str, engine: str, *, deterministic: bool) -> None:
    """Refuse ``--engine vllm`` with ``--deterministic``, or if vLLM is not installed.

    Raises:
        EnvironmentFault: it is not installed.
    """
    if engine == "vllm":
        # What makes a stage deterministic has another name in `rl`.
        asked = "--schedule sync" if stage == "rl" else "--deterministic"
        usage(not deterministic, f"{stage}: {asked} needs --engine torch")
        require_vllm()


def check_reward(stage: str, config: RewardOptions) -> None:
    """A length penalty that fits, and a reward function that can be imported."""
    if config.reward:
        from magcli.verify import trial

        trial.check_reward(config.reward)
    check_length_penalty(stage, config)


def environment_judges(environment: str) -> bool:
    """Whether an environment, if there is one, has a reward of its own.

    Raises:
        UsageError: there is no such class.
    """
    if not environment:
        return False
    from magcli.verify.environment import terms_of

    return terms_of(environment).judges


def check_length_penalty(prefix: str, config: RewardOptions) -> None:
    """A length penalty that fits, of the run or of one of its stages; messages begin with ``prefix``."""
    usage(
        # The penalty grows between end - width and end; with end 0 there is none, whatever the width.
        0 <= config.penalty_width <= (config.penalty_end or config.penalty_width),
        f"{prefix}.penalty_width: {config.penalty_width} is not between 0 and penalty_end {config.penalty_end}",
    )
