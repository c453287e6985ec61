"""magcli's reward in TRL's GRPOTrainer: pip install trl, then python trl_reward.py [MODEL].

The two relevant lines are those with ``grader``. A completion that could not be graded (an unparsable ground truth, a
lost worker) gets None, which TRL ignores, and never the reward of a wrong one.
"""

import sys
import tempfile

from datasets import Dataset
from trl import GRPOConfig, GRPOTrainer

from magcli.verify import Grader, RewardRule

grader = Grader(workers=2)
rule = RewardRule(penalty_end=48, penalty_width=16)


def magistral(prompts, completions, completion_ids, answer, **columns):
    """Format, answer, length and language rewards, as in magcli rl."""
    texts = [turns[-1]["content"] for turns in completions]
    rows = [{"prompt": turns[-1]["content"], "answer": gold} for turns, gold in zip(prompts, answer, strict=True)]
    found = grader.grade(texts, rows, rule, num_tokens=[len(tokens) for tokens in completion_ids])
    print("graded:", ", ".join(f"{each.reason} {each.total:.2f}" for each in found))
    return [each.total if each.trainable else None for each in found]


problems = Dataset.from_list(
    [
        {"prompt": [{"role": "user", "content": f"What is {a} + {b}?"}], "answer": str(a + b)}
        for a in range(2, 6)
        for b in range(2, 6)
    ]
)
options = GRPOConfig(
    output_dir=tempfile.mkdtemp(),
    max_steps=3,
    per_device_train_batch_size=8,
    num_generations=4,
    max_completion_length=48,
    learning_rate=1e-4,
    beta=0.0,
    epsilon_high=0.28,
    use_cpu=True,
    bf16=False,
    logging_steps=1,
    save_strategy="no",
    report_to=[],
    disable_tqdm=True,
)
model = sys.argv[1] if len(sys.argv) > 1 else "model"
trainer = GRPOTrainer(model=model, reward_funcs=magistral, args=options, train_dataset=problems)
trainer.train()
for line in trainer.state.log_history:
    if "reward" in line:
        print(f"step {line['step']}: reward {line['reward']:.3f}")
grader.shutdown()
