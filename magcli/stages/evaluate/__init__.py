"""pass@k, avg@n and maj@k with 95% intervals, on stored completions or on a model.

Without --model the table has graded completions (from `magcli grade`, an RL run or --completions). With --model it
has problems, which are sampled and graded, or --suite names benchmarks: aime24, math500, gpqa-diamond, humaneval,
ifeval, tools and others, or .toml files of your own such as examples/suite.toml. A killed evaluation resumes.

With --completions the model never generates a sample twice: other metrics are computed from the stored completions.

--before MODEL evaluates two models and reports differences paired by problem, --against compares with a stored run in
the same way, and --compare shows several runs side by side.
"""

from magcli.stages.evaluate.config import Config, check, reads, side_outputs
from magcli.stages.shared import options

INPUTS = "Graded completions (id, correct), or with --model problems (prompt, answer); - is stdin."
OUTPUT = "the metrics (also printed)"
EXAMPLE = (
    "magcli evaluate examples/problems.jsonl --model examples/model --system none --samples 4 --max-tokens 48 --ks 1,4 "
    "-o evaluation.arrow"
)
IN_RECIPE = (*options.ENGINE_IN_RECIPE, "verify_deadline")

__all__ = ["IN_RECIPE", "Config", "check", "reads", "side_outputs"]
