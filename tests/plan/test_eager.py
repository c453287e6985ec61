"""When vLLM on a GPU starts without compilation."""

from pathlib import Path

import pytest

from magcli.generate.open import embedded_fits
from magcli.generate.spec import Spec
from magcli.generate.vllm.start import gpu_settings
from magcli.model.model import Model
from magcli.plan import machine
from magcli.plan.engines import COMPILING_SECONDS, EAGER_STEP_SECONDS, decode_steps, starts_eager, starts_sooner
from magcli.plan.machine import Card


def test_steps_are_the_waves_of_all_slots_times_their_tokens() -> None:
    assert decode_steps([(60, 1024)], slots=256) == 1024
    assert decode_steps([(257, 1024)], slots=256) == 2048
    assert decode_steps([(60, 100), (600, 10)], slots=256) == 100 + 30
    assert decode_steps([], slots=256) == 0


def test_compilation_is_left_out_where_it_could_not_pay() -> None:
    break_even = int(COMPILING_SECONDS / EAGER_STEP_SECONDS)
    assert starts_sooner(break_even)
    assert not starts_sooner(break_even + 1)


@pytest.mark.parametrize(
    ("asked", "expected", "eager"),
    [
        ("auto", [(60, 1024)], True),
        ("auto", [(8_000, 1024)], False),
        ("auto", [(60, 16_384)], False),
        ("auto", None, False),  # rows from a pipe
        ("yes", [(8_000, 1024)], True),
        ("no", [(60, 1024)], False),
    ],
)
def test_the_option_decides_and_auto_counts(asked, expected, eager) -> None:
    assert starts_eager(asked, expected, slots=256) is eager


def test_vllm_is_told(tiny_model_dir: Path) -> None:
    for eager in (True, False):
        spec = Spec(Model.open(tiny_model_dir), engine="vllm", device="cuda", eager=eager)
        assert gpu_settings(spec)["enforce_eager"] is eager


def test_the_embedded_engine_fits_where_its_weights_and_a_sequence_have_room(
    tiny_model_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    spec = Spec(Model.open(tiny_model_dir), dtype="fp32")
    assert embedded_fits(spec)
    monkeypatch.setattr(machine, "host", lambda: Card("small", 1 << 20, 1 << 17, is_gpu=False))
    assert not embedded_fits(spec)
    monkeypatch.undo()
    assert not embedded_fits(Spec(Model.open(tiny_model_dir), tensor_parallel=2))
