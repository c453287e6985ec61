"""AdamW whose moments stay in host memory: 8 bytes a parameter less on a GPU, for a copy in each direction a step.

A step brings the moments of one piece of a parameter after the other to the device, updates there, and writes them
back. On a GPU the host memory is pinned, and the next piece is copied while the current one is updated. The arithmetic
is that of ``torch.optim.AdamW(fused=True)``, and so are the names of the state: a checkpoint loads with or without
offloading.
"""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.optim import AdamW
from torch.optim.adamw import adamw as adamw_step

PIECE = 1 << 26
"""Parameters that are updated at once: 512 MiB of moments. At most two pieces are on the device."""

MOMENTS = ("exp_avg", "exp_avg_sq")


@dataclass(slots=True)
class Piece:
    """A part of a parameter and of its gradient on the device, with the part of its moments in host memory."""

    group: dict[str, Any]
    step: Tensor
    values: Tensor
    gradient: Tensor
    moments: tuple[Tensor, Tensor]


class OffloadedAdamW(AdamW):
    """AdamW with its moments in host memory; the parameters are on one device and are not sharded."""

    def __init__(self, groups: Iterable[dict[str, Any]], *, piece: int = PIECE, **options: Any) -> None:
        super().__init__(groups, fused=True, **options)
        self._piece = piece

    @torch.no_grad()
    def step(self, closure: Callable[[], float] | None = None) -> None:  # type: ignore[override]
        """Update all parameters that have a gradient; ``closure`` is not supported.

        Raises:
            ValueError: a closure was given.
        """
        if closure is not None:
            raise ValueError("OffloadedAdamW has no closure")
        pieces = list(self._pieces())
        if not pieces:
            return
        copies = _copies_for(pieces[0].values.device)
        arriving = copies.upload(pieces[0])
        for number, piece in enumerate(pieces):
            # The next piece is on its way while this one is updated.
            moments = copies.arrived(arriving)
            if number + 1 < len(pieces):
                arriving = copies.upload(pieces[number + 1])
            _update(piece, moments)
            copies.download(piece, moments)
        copies.finish()
        # Counted after all pieces, which have to see the same number.
        for _, parameter in self._with_gradient():
            self.state[parameter]["step"] += 1

    @torch.no_grad()
    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Load a state; its moments never pass through the device."""
        # Without moments, which PyTorch would copy to the device.
        super().load_state_dict({**state_dict, "state": {}})
        parameters = [parameter for group in self.param_groups for parameter in group["params"]]
        for number, stored in state_dict["state"].items():
            state = self._started(parameters[number])
            state["step"].copy_(stored["step"])
            for name in MOMENTS:
                state[name].copy_(stored[name])

    def _with_gradient(self) -> Iterator[tuple[dict[str, Any], nn.Parameter]]:
        """(group, parameter) of all parameters that this step updates."""
        for group in self.param_groups:
            for parameter in group["params"]:
                if parameter.grad is not None:
                    yield group, parameter

    def _pieces(self) -> Iterator[Piece]:
        """All pieces of this step, in the order of the parameters."""
        for group, parameter in self._with_gradient():
            yield from self._pieces_of(group, parameter)

    def _pieces_of(self, group: dict[str, Any], parameter: nn.Parameter) -> Iterator[Piece]:
        state = self.state[parameter] or self._started(parameter)
        assert parameter.grad is not None
        # A view of the parameter, which is updated in place; a gradient may have another layout.
        values = parameter.detach().view(-1)
        gradient = parameter.grad.reshape(-1)
        step = state["step"]
        first, second = (state[name].view(-1) for name in MOMENTS)
        for start in range(0, len(values), self._piece):
            part = slice(start, start + self._piece)
            moments = (first[part], second[part])
            yield Piece(group, step, values[part], gradient[part], moments)

    def _started(self, parameter: nn.Parameter) -> dict[str, Any]:
        """The state of a parameter before its first step."""
        pinned = parameter.device.type == "cuda"
        state: dict[str, Any] = {"step": torch.zeros((), device=parameter.device)}
        for name in MOMENTS:
            state[name] = torch.zeros(parameter.shape, dtype=parameter.dtype, pin_memory=pinned)
        self.state[parameter] = state
        return state


def _update(piece: Piece, moments: tuple[Tensor, Tensor]) -> None:
    """One step of AdamW on a piece, in place; the step's number is counted for the whole parameter by the caller."""
    group = piece.group
    beta1, beta2 = group["betas"]
    adamw_step(
        [piece.values],
        [piece.gradient],
        [moments[0]],
        [moments[1]],
        [],
        # A copy: the kernel counts it up, once for each piece.
        [piece.step.clone()],
        fused=True,
        amsgrad=False,
        beta1=beta1,
        beta2=beta2,
        lr=group["lr"],
        weight_decay=group["weight_decay"],
        eps=group["eps"],
        maximize=False,
    )


class DirectCopies:
    """Copies in the order of the work, for devices without streams; on a CPU they are copies of the same memory."""

    def __init__(self, device: torch.device) -> None:
        self._device = device

    def upload(self, piece: Piece) -> tuple[Tensor, Tensor]:
        """Copies of a piece's moments on the device."""
        first, second = (moment.to(self._device, copy=True) for moment in piece.moments)
        return first, second

    def arrived(self, moments: tuple[Tensor, Tensor]) -> tuple[Tensor, Tensor]:
        """The moments, once they can be used."""
        return moments

    def download(self, piece: Piece, moments: tuple[Tensor, Tensor]) -> None:
        """Write updated moments back to host memory."""
        for kept, moment in zip(piece.moments, moments, strict=True):
            kept.copy_(moment)

    def finish(self) -> None:
        """Wait for all copies."""


class StreamCopies:
    """Copies of a CUDA device on a stream of their own, beside the updates of the current stream.

    Copies of all pieces are on one stream, so the memory of a piece that was written back is free for the next one
    that arrives.
    """

    def __init__(self, device: torch.device) -> None:
        self._device = device
        self._work = torch.cuda.current_stream(device)
        self._copies = torch.cuda.Stream(device)  # type: ignore[no-untyped-call]
        self._copies.wait_stream(self._work)

    def upload(self, piece: Piece) -> tuple[Tensor, Tensor]:
        """Copies of a piece's moments on the device, which may still be on their way."""
        with torch.cuda.stream(self._copies):
            first, second = (moment.to(self._device, non_blocking=True) for moment in piece.moments)
        self._arrival = self._copies.record_event()
        return first, second

    def arrived(self, moments: tuple[Tensor, Tensor]) -> tuple[Tensor, Tensor]:
        """The moments, which later work of the current stream waits for."""
        self._work.wait_event(self._arrival)
        for moment in moments:
            # Else the memory could be reused while the update still reads it.
            moment.record_stream(self._work)
        return moments

    def download(self, piece: Piece, moments: tuple[Tensor, Tensor]) -> None:
        """Write moments back to host memory as soon as they are updated."""
        self._copies.wait_stream(self._work)
        with torch.cuda.stream(self._copies):
            for kept, moment in zip(piece.moments, moments, strict=True):
                kept.copy_(moment, non_blocking=True)

    def finish(self) -> None:
        """Wait for all copies: a checkpoint may read the moments next."""
        self._copies.synchronize()


def _copies_for(device: torch.device) -> DirectCopies | StreamCopies:
    return StreamCopies(device) if device.type == "cuda" else DirectCopies(device)
