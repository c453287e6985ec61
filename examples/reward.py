"""magcli's reward in your own trainer: two lines, no pool, no pipeline."""

from magcli.verify.reward import RewardRule, reward

found = reward(
    "<think>Half of 3 is 1.5.</think>The answer is \\boxed{1.5}.",
    num_tokens=20,
    row={"prompt": "What is one half of 3?", "answer": "3/2"},
    rule=RewardRule(max_length=64, cache_length=16),
)
print(f"total {found.total:.2f}, {found.reason}: {found.extracted} (decided by {found.detail})")
