"""What a start of vLLM is doing, from its own log, and the end of one that hangs."""

import os
import subprocess
import sys
import tempfile
import time
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path

import pytest

from magcli.console import Console
from magcli.errors import EnvironmentFault
from magcli.generate.open import open_policy
from magcli.generate.spec import Spec
from magcli.generate.vllm import start as vllm_start
from magcli.generate.vllm.phases import PHASES, StartWatch, newest_phase
from magcli.generate.vllm.start import SOCKETS, _environment, cause_in, start
from magcli.model.model import Model

CPU_LOG = """\
(MainProcess pid=1) INFO 11-28 13:21:05 [model.py:733] Resolved architecture: LlamaForCausalLM
(EngineCore pid=2) INFO 11-28 13:21:35 [core.py:133] Initializing a V1 LLM engine (v0.32.0) with config: model='model'
(EngineCore pid=2) INFO 11-28 13:21:42 [parallel_state.py:1906] world_size=1 rank=0 local_rank=0 backend=gloo
(EngineCore pid=2) INFO 11-28 13:21:42 [cpu_model_runner.py:68] Starting to load model examples/model...
(EngineCore pid=2) INFO 11-28 13:21:42 [default_loader.py:501] Loading weights took 0.12 seconds
(EngineCore pid=2) INFO 11-28 13:21:44 [cpu_worker.py:260] Explicitly set (0.01/16.21) GiB for KV cache on node 0.
(EngineCore pid=2) INFO 11-28 13:21:44 [kv_cache_utils.py:2327] CPU KV cache size: 2,112 tokens, Maximum concurrency
(EngineCore pid=2) INFO 11-28 13:21:44 [core.py:402] init engine (profile, create kv cache, warmup model) took 0.11 s
"""
"""Lines of a real start on a CPU."""

HANGING = """
import multiprocessing, sys, time
from magcli.generate.vllm.phases import StartWatch
from pathlib import Path

if __name__ == "__main__":
    log = Path(sys.argv[1])
    child = multiprocessing.get_context("spawn").Process(target=time.sleep, args=(60,))
    child.start()
    log.write_text("INFO [monitor.py:40] Starting torch.compile\\n")
    began = time.monotonic()
    with StartWatch(log, 1.0, lambda line: None, lambda: child.kill() or True) as watch:
        child.join()
    print(watch.hung, time.monotonic() - began < 10, child.exitcode)
"""


def test_each_line_of_a_start_says_what_begins() -> None:
    lines = CPU_LOG.splitlines(keepends=True)
    assert [newest_phase(line) for line in lines] == [
        None,
        "opening the device",
        None,
        "loading weights",
        None,
        "allocating the KV cache",
        None,
        "connecting",
    ]
    assert newest_phase("".join(lines[:5])) == "loading weights"


def test_vllm_still_writes_the_texts_that_say_what_begins() -> None:
    """A release of vLLM that writes others makes this fail, not a start that says nothing."""
    found = find_spec("vllm")
    if found is None or not found.submodule_search_locations:
        pytest.skip("vLLM is not installed")
    folder = Path(found.submodule_search_locations[0])
    files = [*folder.glob("v1/**/*.py"), *folder.glob("compilation/*.py"), *folder.glob("model_executor/warmup/*.py")]
    sources = "\n".join(file.read_text() for file in files)
    missing = [text for text in PHASES if text not in sources]
    assert not missing


def test_the_phase_and_its_time_are_shown_while_the_log_grows(tmp_path: Path) -> None:
    log, shown = tmp_path / "log", list[str]()
    log.touch()
    with StartWatch(log, 60, shown.append, lambda: False) as watch, open(log, "a") as file:
        for line in CPU_LOG.splitlines(keepends=True):
            file.write(line)
            file.flush()
            time.sleep(0.3)
    phases = [line.partition(":")[2].partition(" for ")[0].strip() for line in shown]
    assert list(dict.fromkeys(phases))[:3] == ["importing its packages", "opening the device", "loading weights"]
    assert watch.hung is None
    assert watch.summary().startswith("2 s")


def test_a_progress_bar_in_the_log_counts_as_lines(tmp_path: Path) -> None:
    """vLLM's bar of captured graphs ends in carriage returns until it is full."""
    log, shown = tmp_path / "log", list[str]()
    log.write_bytes(b"\rCapturing CUDA graphs (FULL):   0%|    | 0/3\rCapturing CUDA graphs (FULL):  33%|#   | 1/3")
    with StartWatch(log, 60, shown.append, lambda: False):
        time.sleep(0.6)
    assert "capturing graphs" in shown[-1]


def test_a_phase_that_takes_too_long_is_named_and_ended(tmp_path: Path) -> None:
    program = tmp_path / "hanging.py"
    program.write_text(HANGING)
    done = subprocess.run(
        [sys.executable, program, tmp_path / "log"], capture_output=True, text=True, timeout=400, check=True
    )
    assert done.stdout == "compiling True -9\n"


@pytest.mark.slow
def test_a_start_that_hangs_ends_with_one_line_and_leaves_nothing(
    wide_model_dir: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """vLLM's real engine process, which waits for a file that never comes while it loads weights."""
    os.mkfifo(tmp_path / "never")
    (tmp_path / "sitecustomize.py").write_text(
        "import multiprocessing, sys\n"
        "if 'spawn_main' in ' '.join(sys.orig_argv):\n"
        "    from vllm.model_executor.model_loader.default_loader import DefaultModelLoader\n"
        f"    DefaultModelLoader.load_weights = lambda *_: open({str(tmp_path / 'never')!r}).read()\n"
    )
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    monkeypatch.setattr(vllm_start, "StartWatch", _impatient_with_weights)
    spec = Spec(Model.open(wide_model_dir), engine="vllm", dtype="fp32", slots=2)
    with pytest.raises(EnvironmentFault, match=r"it hung: loading weights took more than 600 s") as caught:
        start(spec, backend="magcli_file")
    assert "\n" not in str(caught.value)
    assert not list(Path(tempfile.gettempdir()).glob(f"{SOCKETS}{os.getpid()}-*"))


class _impatient_with_weights(StartWatch):
    """The limit counts only once weights are loaded, so that a slow machine's imports do not end the start."""

    def _enter(self, phase: str) -> None:
        super()._enter(phase)
        self._limit = 3.0 if phase == "loading weights" else 600.0


def test_a_line_that_quotes_an_error_is_not_the_cause(tmp_path: Path) -> None:
    log = tmp_path / "stderr.log"
    harmless = "(EngineCore pid=2) WARNING 11-28 13:21:05 [vllm.py:9] ImportError: no module named deep_gemm\n"
    log.write_text(harmless + "(EngineCore pid=2) ERROR 11-28 13:21:06 [core.py:1] ValueError: too small\n")
    assert cause_in(log) == "ValueError: too small"


def test_the_key_of_the_compile_cache_is_the_same_for_every_start(wide_model_dir: Path, tmp_path: Path) -> None:
    envs = pytest.importorskip("vllm.envs")
    spec = Spec(Model.open(wide_model_dir), engine="vllm", device="cuda", deadline=600)
    factors = []
    for number, other in enumerate((spec, replace(spec, deadline=30, slots=2))):
        with _environment(other, tmp_path / str(number)):
            factors.append(envs.compile_factors())
    assert factors[0] == factors[1]


def test_a_text_model_has_one_folder_for_all_starts(
    wide_model_dir: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The name of a model's folder is part of the key of vLLM's compile cache."""
    pytest.importorskip("vllm.envs")
    from magcli.generate.vllm.engine import _kept

    config = Model.open(wide_model_dir).config
    monkeypatch.setenv("VLLM_CACHE_ROOT", str(tmp_path / "cache"))
    folders = {_kept(config, tmp_path / name) for name in ("first", "second")}
    assert len(folders) == 1
    folder = folders.pop()
    assert (folder / "config.json").read_bytes() == (tmp_path / "first" / "config.json").read_bytes()
    (tmp_path / "file").touch()
    monkeypatch.setenv("VLLM_CACHE_ROOT", str(tmp_path / "file"))
    assert _kept(config, tmp_path / "third") == tmp_path / "third"


@pytest.mark.slow
def test_the_embedded_engine_takes_the_place_of_a_vllm_that_does_not_start(
    wide_model_dir: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    """vLLM refuses a model that it does not know; ``auto`` stands for vLLM here as it does on a GPU."""
    import json
    import shutil

    from magcli.generate import open as opening
    from magcli.generate.torch.policy import TorchPolicy

    folder = tmp_path / "odd"
    shutil.copytree(wide_model_dir, folder)
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps(config | {"architectures": ["NobodysForCausalLM"]}))
    monkeypatch.setattr(
        opening, "policy_engine", lambda name, device, *, deterministic=False: "vllm" if name == "auto" else name
    )
    spec = Spec(Model.open(folder), slots=2)
    assert isinstance(open_policy(spec, Console()), TorchPolicy)
    said = capfd.readouterr().err.splitlines()[-1]
    assert said.startswith(f"warning: vLLM cannot run {folder} on cpu: ")
    assert said.endswith("; sampling with --engine torch instead")

    monkeypatch.setattr(opening, "embedded_fits", lambda spec: False)
    with pytest.raises(EnvironmentFault, match="vLLM cannot run"):
        open_policy(spec, Console())
