"""Checkpoints far larger than memory: what is counted beforehand, and what is really held."""

import json
import os
import re
import subprocess
import sys

import pytest
import torch
from safetensors.torch import save_file

from magcli.landscape.checkpoints import open_checkpoint
from magcli.landscape.pca import cost

SMALL_24B = {
    "model.embed_tokens.weight": (131072, 5120),
    "lm_head.weight": (131072, 5120),
    "model.norm.weight": (5120,),
}
SMALL_24B |= {
    f"model.layers.{layer}.{name}.weight": shape
    for layer in range(40)
    for name, shape in {
        "self_attn.q_proj": (4096, 5120),
        "self_attn.k_proj": (1024, 5120),
        "self_attn.v_proj": (1024, 5120),
        "self_attn.o_proj": (5120, 4096),
        "mlp.gate_proj": (32768, 5120),
        "mlp.up_proj": (32768, 5120),
        "mlp.down_proj": (5120, 32768),
        "input_layernorm": (5120,),
        "post_attention_layernorm": (5120,),
    }.items()
}
SMOL_135M = {"model.embed_tokens.weight": (49152, 576), "model.norm.weight": (576,)}
SMOL_135M |= {
    f"model.layers.{layer}.{name}.weight": shape
    for layer in range(30)
    for name, shape in {
        "self_attn.q_proj": (576, 576),
        "self_attn.k_proj": (192, 576),
        "self_attn.v_proj": (192, 576),
        "self_attn.o_proj": (576, 576),
        "mlp.gate_proj": (1536, 576),
        "mlp.up_proj": (1536, 576),
        "mlp.down_proj": (576, 1536),
        "input_layernorm": (576,),
        "post_attention_layernorm": (576,),
    }.items()
}


def hollow(folder, shapes):
    """A checkpoint in bf16 of these shapes, all zeros, that takes no room on the disk."""
    entries, end = {}, 0
    for name, shape in shapes.items():
        size = 2 * torch.Size(shape).numel()
        entries[name] = {"dtype": "BF16", "shape": list(shape), "data_offsets": [end, end + size]}
        end += size
    text = json.dumps(entries).encode()
    folder.mkdir(parents=True)
    with open(folder / "model.safetensors", "wb") as file:
        file.write(len(text).to_bytes(8, "little") + text)
        file.truncate(8 + len(text) + end)
    return folder


def test_a_hundred_checkpoints_of_24b_are_counted_without_reading_them(tmp_path):
    checkpoints = [open_checkpoint(hollow(tmp_path / f"step-{step:06d}", SMALL_24B)) for step in range(100)]
    assert sum(path.stat().st_blocks * 512 for path in tmp_path.rglob("*.safetensors")) < 20e6
    output = cost(checkpoints)
    sizes = "100 checkpoints of 23.6 G weights: 2 x 4.71 TB read, 189 GB written, about "
    assert output.startswith(sizes)
    memory = re.fullmatch(r"([\d.]+) MB of memory", output.removeprefix(sizes))
    assert memory is not None
    assert float(memory[1]) < 30 + 13 * torch.get_num_threads()


def test_the_command_reports_the_cost(magcli, tmp_path):
    for step in range(3):
        hollow(tmp_path / "rl" / "trajectory" / f"step-{step:06d}", SMOL_135M)
    done = magcli("landscape", "--run", tmp_path / "rl", "--cost", "--dry-run")
    assert done.returncode == 0, done.stderr
    assert "3 checkpoints of 135 M weights: 2 x 807 MB read, 1.08 GB written, about" in done.stderr
    assert not (tmp_path / "rl" / "landscape").exists()


LIMITED = """
import resource, sys
resource.setrlimit(resource.RLIMIT_DATA, (1 << 30,) * 2)
from pathlib import Path
from magcli.landscape.components import write_components
from magcli.landscape.pca import plane
root = Path(sys.argv[1])
found = plane(sorted(root.glob("step-*")))
write_components(found, root / "components")
peak = next(int(line.split()[1]) for line in open("/proc/self/status") if line.startswith("VmHWM")) / 1e6
print(len(found.folders), peak)
"""


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="needs /proc and RLIMIT_DATA")
def test_sixteen_checkpoints_of_135m_fit_into_half_a_gigabyte(tmp_path):
    """4.3 GB of bf16 on the disk; all of the process, its imports included, stays below 0.5 GB."""
    generator = torch.Generator().manual_seed(0)
    base = {name: 0.03 * torch.randn(shape, generator=generator) for name, shape in SMOL_135M.items()}
    for step in range(16):
        bend = torch.tensor([1.0, 0.4 * step / 15])
        moved = {n: (w + 1e-3 * step * (bend[len(n) % 2]) * w.roll(1)).bfloat16() for n, w in base.items()}
        (tmp_path / f"step-{step:06d}").mkdir()
        save_file(moved, tmp_path / f"step-{step:06d}" / "model.safetensors")
    command = [sys.executable, "-c", LIMITED, str(tmp_path)]
    environment = {**os.environ, "OMP_NUM_THREADS": "2"}
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=environment)
    count, peak = done.stdout.split() or (0, 0)
    assert (int(count), float(peak) < 0.5) == (16, True), done.stderr + done.stdout


HOLLOW = """
import json, sys, time
from pathlib import Path
from magcli.landscape.pca import plane
started = time.perf_counter()
found = plane(sorted(Path(sys.argv[1]).glob("step-*")))
seconds = time.perf_counter() - started
peak = next(int(line.split()[1]) for line in open("/proc/self/status") if line.startswith("VmHWM")) / 1e6
moved = {tensor.name: tensor.changed * tensor.size for tensor in found.tensors if tensor.changed}
print(json.dumps({"seconds": seconds, "peak": peak, "distance": found.distance.tolist(), "moved": moved}))
"""


def plant(stored, value, count=1000):
    """Set the last ``count`` weights of a tensor on the disk."""
    with open(stored.file, "rb+") as file:
        file.seek(stored.end - 2 * count)
        file.write(torch.full((count,), value, dtype=torch.bfloat16).view(torch.uint8).numpy().tobytes())


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="needs /proc and files with holes")
def test_a_planted_direction_in_sparse_checkpoints_of_24b_shape_is_found(tmp_path):
    """Three checkpoints of LAYERS layers of the 24B model (40 are all), zeros but for two blocks, read once."""
    layers = int(os.environ.get("LAYERS", "1"))
    shapes = {n: s for n, s in SMALL_24B.items() if "layers." not in n or int(n.split(".")[2]) < layers}
    run = [open_checkpoint(hollow(tmp_path / f"step-{step:06d}", shapes)) for step in range(3)]
    early, late = "model.layers.0.self_attn.q_proj.weight", f"model.layers.{layers - 1}.mlp.down_proj.weight"
    plant(run[1][early], 0.5)
    plant(run[2][late], 1.0)
    done = subprocess.run([sys.executable, "-c", HOLLOW, str(tmp_path)], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    output = json.loads(done.stdout)
    size = sum(stored.end - stored.begin for checkpoint in run for stored in checkpoint.values())
    print(f"{size / 1e9:.1f} GB in {output['seconds']:.0f} s, peak memory {output['peak']:.2f} GB")
    assert output["moved"] == pytest.approx({late: 1000})
    assert output["distance"] == pytest.approx([1000**0.5, 1250**0.5, 0])
    assert output["peak"] < 0.5
