"""magcli's reward in your own trainer, and your own reward in magcli.

python reward.py
magcli grade completions.jsonl --reward reward.py:brief
"""

from magcli.verify import Grader


def brief(completion: str, row: dict) -> dict:
    """Half for the correct last word, half for brevity. A plain number as result works too."""
    words = completion.split()
    right = bool(words) and words[-1].strip("$\\.boxed{}") == row["answer"]
    return {"total": 0.5 * right + 0.5 * (len(words) < 10), "correct": right, "extracted": words[-1] if words else ""}


if __name__ == "__main__":
    problem = {"prompt": "What is one half of 3?", "answer": "3/2"}
    program = {"kind": "code", "prompt": "Print twice the number.", "tests": [{"input": "4", "output": "8"}]}
    completions = [
        "<think>Half of 3 is 1.5.</think>The answer is \\boxed{1.5}.",
        "The answer is \\boxed{1.5}.",
        "<think>Twice.</think>\n```python\nprint(2 * int(input()))\n```\n",
    ]
    with Grader(workers=2) as grader:
        rewards = grader.grade(completions, [problem, problem, program])
    for found in rewards:
        print(f"total {found.total:.2f}, {found.reason} ({found.detail}): {found.extracted.strip()}")
