"""Which processes of a run of RL are on which devices, and how weights go from the trainer to the engines."""

from collections.abc import Sequence
from dataclasses import dataclass

from magcli.choices import AUTO, AskedTransfer, TransferName
from magcli.errors import usage
from magcli.plan.machine import gpu_number

ALONE, BESIDE_TRAINER = 0.9, 0.35
"""The share of a GPU's memory that vLLM takes where it has a card to itself, and beside a trainer."""


@dataclass(frozen=True, slots=True)
class Processes:
    """The processes that a run asks for: trainer ranks, and generators of ``tensor_parallel`` ranks each.

    Without generators the trainer's process samples itself. ``named`` are the devices that the user gives generators.
    """

    device: str
    trainers: int = 1
    generators: int = 0
    tensor_parallel: int = 1
    named: tuple[str, ...] = ()

    @property
    def on_gpu(self) -> bool:
        """Whether the trainer is on a GPU."""
        return self.device.startswith("cuda")

    @property
    def first_device(self) -> str:
        """The device of the first engine; of several free GPUs their type."""
        return self.named[0] if self.named else self.device

    @property
    def trainer_cards(self) -> list[str]:
        """The GPUs of the trainer ranks: of several the first ones."""
        return first_cards(self.trainers) if self.trainers > 1 else [numbered(self.device)]

    @property
    def source(self) -> str:
        """The device from which weights are broadcast: of several trainer ranks the first one sends."""
        return "cuda:0" if self.on_gpu and self.trainers > 1 else self.device

    @property
    def targets(self) -> Sequence[str]:
        """The devices of generators that are known without the machine: beside several ranks, those that are named."""
        return self.named or (() if self.trainers > 1 else (self.device,))

    def sampling_devices(self, gpus: int) -> Sequence[str]:
        """The devices of the engines' ranks: those that the user names, else a GPU each that has no trainer rank.

        Without generators they are the trainer's GPU, and for more ranks those after it. ``gpus`` is the number of GPUs
        of this machine.

        Raises:
            UsageError: GPUs would be idle, or there are fewer than engines.
        """
        if self.named:
            return self.named
        if not self.on_gpu:
            return (self.device,)
        trainers = self.trainers
        if not self.generators:
            idle = f"rl: with --generators 0 this process samples while {trainers} trainer ranks wait; use --generators"
            usage(trainers == 1, idle)
            return _from(self.device, self.tensor_parallel)
        if gpus == 1 and trainers == 1 and self.tensor_parallel == 1:
            # The only GPU is shared: generators beside the trainer.
            return (self.device,)
        # Trainer ranks take the first GPUs, engines the others in their order.
        free = [card for card in first_cards(gpus) if card not in self.trainer_cards]
        none_free = f"rl: each of the {gpus} GPUs has a trainer rank, and generators need others; lower --trainers"
        usage(bool(free), none_free)
        wanted = self.generators * self.tensor_parallel
        usage(wanted <= len(free), self._too_few(len(free), gpus))
        return free[:wanted]

    def idle_cards(self, gpus: int, devices: Sequence[str]) -> Sequence[str]:
        """The GPUs of a machine with ``gpus`` that neither a trainer rank nor one of the engines' ``devices`` uses."""
        if not (self.on_gpu and self.generators):
            return ()
        return sorted(set(first_cards(gpus)) - set(devices) - set(self.trainer_cards))

    def _too_few(self, free: int, gpus: int) -> str:
        """The message where fewer GPUs than the generators' ranks have no trainer rank, with what to change."""
        ranks = self.tensor_parallel
        # Each generator needs all of its ranks.
        most = free // ranks
        if most:
            wanted = f"{self.generators} generators"
            if ranks > 1:
                wanted += f" of {ranks} GPUs each"
            advice = f"use --generators {most}, or name their GPUs with --generator-devices"
        else:
            wanted = f"one generator with --tensor-parallel {ranks}"
            advice = "lower it"
        if self.trainers > 1:
            advice += ", or lower --trainers"
        return f"rl: {free} of {gpus} GPUs have no trainer rank, too few for {wanted}; {advice}"

    def gpu_share(self, devices: Sequence[str]) -> float:
        """The share of a GPU's memory that each vLLM engine takes; engines on one GPU divide it."""
        cards = set(devices)
        share = BESIDE_TRAINER if cards & set(self.trainer_cards) else ALONE
        ranks_on_cards = max(self.generators, 1) * self.tensor_parallel
        most_on_a_card = -(-ranks_on_cards // len(cards))  # rounded up
        return share / most_on_a_card

    def transfer(self, asked: AskedTransfer) -> TransferName:
        """How new weights reach the generators of this machine.

        For a file the trainer gathers all weights in host memory. Several ranks on GPUs do so only if rank 0 cannot
        reach the generators by NCCL.
        """
        if asked != AUTO:
            return asked
        if self.trainers == 1 or self.generators == 0:
            return "file"
        by_nccl = self.on_gpu and all(by_nccl_from(self.source, target) for target in self.targets)
        return "broadcast" if by_nccl else "file"


def by_nccl_from(source: str, target: str) -> bool:
    """Whether weights can go from one device to the other by NCCL."""
    both_gpus = target.startswith("cuda") and source.startswith("cuda")
    return both_gpus and gpu_number(target) != gpu_number(source)


def numbered(device: str) -> str:
    """A device with its number, if it is a GPU without one."""
    return "cuda:0" if device == "cuda" else device


def first_cards(number: int) -> list[str]:
    """The first GPUs of a machine."""
    return [f"cuda:{index}" for index in range(number)]


def _from(device: str, number: int) -> Sequence[str]:
    """``number`` devices: this one and those after it."""
    if number == 1:
        return (device,)
    first = gpu_number(device)
    return [f"cuda:{card}" for card in range(first, first + number)]
