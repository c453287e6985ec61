"""PCA of a run's checkpoints, and the reward and length of the weights around the last one.

The plane is spanned by the two principal components of the float32 weights that `magcli rl --trajectory-every` stored.
At each point of a grid on it the weights w* + a1 c1 + a2 c2 are loaded into the running engine, and the problems are
sampled and graded. The final weights w* are evaluated a second time at the end, to check that results repeat. Figures,
an interactive page, points, samples and the regression of reward on length are written to the output folder.

Reward, maximum length, system prompt, temperature and chat template are those of the run, unless options or the recipe
give others; what differs is reported.

If it is interrupted, the same command resumes; a command with more points or samples adds to the existing ones.
"""

from magcli.stages.landscape.config import Config, check, defaults, reads, side_outputs

INPUTS = "The problems to sample at each point: columns prompt, answer; - is stdin."
OUTPUT = "the points (also in the output folder)"
EXAMPLE = "magcli landscape examples/problems.jsonl --run runs/rl --out runs/rl/landscape --points 19 --samples 4"
IN_RECIPE = (
    "penalty_end", "penalty_width", "language", "num_tests", "partial", "verify_deadline",
    "tensor_parallel", "deterministic", "gpu_memory", "vllm_eager", "template_args",
)  # fmt: skip

__all__ = ["IN_RECIPE", "Config", "check", "defaults", "reads", "side_outputs"]
