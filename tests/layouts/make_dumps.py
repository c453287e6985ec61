"""Write the small dumps of trainers: python make_dumps.py LIBRARY, with that library installed.

| library | version | what writes the dump |
| --- | --- | --- |
| trl | 1.16.0 | a run of GRPOTrainer with log_completions, on the toy model of examples/ |
| verl | 0.9.1 | RayPPOTrainer's writer of trainer.rollout_data_dir |
| prime-rl | 0.8.0, on no registry; verifiers 0.4.0 | verifiers' records, written as prime-rl's file monitor does |
| nemo-rl | 0.6.0, from its repository, as the registry has a placeholder | Logger.log_batched_dict_as_jsonl |
| openrlhf | 0.11.2 | WandbLogger.log_train, offline: it stores one sample of each step, and no other rollouts |

But for TRL, what the model said is written here: rewards that are wrong, loops, texts that are cut off and other things
that an audit finds.
"""

import os
import shutil
import sys
import tempfile
from pathlib import Path

FOLDER = Path(__file__).with_name("dumps")
EXAMPLES = Path(__file__).parents[2] / "examples"
LOOP = "We add the two numbers and then we add them again to be sure of it. "
GERMAN = "Wir rechnen die Summe der beiden Zahlen in Ruhe aus und erhalten am Ende \\boxed{42}."
ENGLISH = "Add the tens and then the ones of the two numbers, which gives \\boxed{42}."
SUM = "What is the sum of the two numbers 12 and 30?"
HALF = "Which fraction is one half of the number 3?"
ROOT = "How many apples are left if Ann had nine apples and ate all of them?"
GROUPS = {
    SUM: ("42", [(ENGLISH, 1.0), (GERMAN, 1.0), ("The answer is \\boxed{41}.", 1.0), (LOOP * 8, 0.0)]),
    HALF: (
        "3/2",
        [("\\boxed{3/2}", 1.0), ("\\boxed{1.5}", 0.0), ("I do not know it.", 1.0), ("So it is \\boxed{3", 0.0)],
    ),
    ROOT: ("0", [("\\boxed{5}", 0.0), ("\\boxed{5}", 0.0), ("\\boxed{9}", 0.0), ("\\boxed{1}", 0.0)]),
}
"""By prompt: the answer, and completions with the rewards that the trainer gave them."""


def trl() -> None:
    """One step of GRPO; the completions are the toy model's own."""
    from datasets import Dataset
    from trl import GRPOConfig, GRPOTrainer

    def exact(completions, answer, log_extra=None, **_):
        log_extra("answer", list(answer))
        return [
            float(f"\\boxed{{{gold}}}" in turns[-1]["content"]) for turns, gold in zip(completions, answer, strict=True)
        ]

    def boxed(completions, **_):
        return [0.1 * ("\\boxed{" in turns[-1]["content"]) for turns in completions]

    pairs = [(number, number + 1) for number in range(2, 6)]
    problems = [
        {"prompt": [{"role": "user", "content": f"What is {a} + {b}?"}], "answer": str(a + b)} for a, b in pairs
    ]
    with tempfile.TemporaryDirectory() as folder:
        options = GRPOConfig(
            output_dir=folder, max_steps=1, per_device_train_batch_size=8, num_generations=4, seed=3,
            max_completion_length=48, use_cpu=True, bf16=False, logging_steps=1, save_strategy="no", report_to=[],
            log_completions=True,
        )  # fmt: skip
        data = Dataset.from_list(problems)
        model = str(EXAMPLES / "model")
        GRPOTrainer(model=model, reward_funcs=[exact, boxed], args=options, train_dataset=data).train()
        shutil.copy(Path(folder, "completions", "completions_00001.parquet"), FOLDER / "trl-1.16.0.parquet")


def verl() -> None:
    """The rollouts of a step."""
    from verl.trainer.ppo.ray_trainer import RayPPOTrainer

    rows = list(_rows())
    inputs = [f"user\n{prompt}\nassistant\n" for prompt, _, _, _ in rows]
    outputs, gts, scores = ([row[place] for row in rows] for place in (2, 1, 3))
    scores = [2 * score - 1 for score in scores]  # as its DAPO reward
    extra = {"acc": [score > 0 for score in scores], "pred": [text[-20:] for text in outputs]}
    with tempfile.TemporaryDirectory() as folder:
        RayPPOTrainer._write_generations(inputs, outputs, gts, scores, extra, folder, 1)
        shutil.copy(Path(folder, "1.jsonl"), FOLDER / "verl-0.9.1.jsonl")


def prime_rl() -> None:
    """The episodes of a step, with log-probs of sampler and trainer."""
    import orjson
    import verifiers.v1 as vf
    from verifiers.v1.trace import Reward

    class SumData(vf.TaskData):
        answer: str

    lines = []
    for number, (prompt, gold, text, reward) in enumerate(_rows()):
        data = SumData(idx=number // 4, name=f"sum-{number // 4}", prompt=prompt, answer=gold)
        task = vf.TraceTask(type="SumTask", data=data, key=f"sum-{number // 4}", hash=f"sum-{number // 4}")
        trace = vf.Trace(task=task, agent=vf.AgentInfo(config=vf.AgentConfig()))
        asked = vf.MessageNode(message=vf.UserMessage(content=prompt), token_ids=[1, 2], mask=[False, False])
        sampler = [-0.1 * (token + 1) for token in range(4)]
        trainer = [value - (2.0 if number == 2 and token == 3 else 0.001) for token, value in enumerate(sampler)]
        said = vf.MessageNode(
            parent=0, message=vf.AssistantMessage(content=text), sampled=True, token_ids=[3, 4, 5, 6],
            mask=[True] * 4, logprobs=sampler, trainer_logprobs=trainer,
        )  # fmt: skip
        trace.nodes += [asked, said]
        trace.rewards["right"] = Reward(score=reward, weight=1.0)
        trace.ok = True
        trace.stop("max_output_tokens" if number == 3 else "agent_completed")
        lines.append(vf.Episode(env=vf.EnvInfo(id="sums"), task=task, traces=[trace], ok=True).to_record())
    options = orjson.OPT_APPEND_NEWLINE | orjson.OPT_SERIALIZE_NUMPY
    text = b"".join(orjson.dumps(line, default=str, option=options) for line in lines)
    (FOLDER / "prime-rl-0.8.0.jsonl").write_bytes(text)


def nemo_rl() -> None:
    """The rollouts of a step, as GRPO logs them, and those of a validation."""
    from nemo_rl.utils.logger import Logger

    rows = list(_rows())
    sampler = [[0.0, 0.0, -0.1, -0.2, -0.3, 0.0] for _ in rows]
    trainer = [[0.0, 0.0, -0.1, -0.2, -3.0 if number == 2 else -0.301, 0.0] for number in range(len(rows))]
    train = {
        "content": [[prompt, text, f"Environment: {reward}"] for prompt, _, text, reward in rows],
        "rewards": [reward for *_, reward in rows],
        "input_lengths": [5 for _ in rows],
        "token_ids": [[1, 2, 3, 4, 5, 0] for _ in rows],
        "token_loss_mask": [[0, 0, 1, 1, 1, 1 if 4 < number < 8 else 0] for number in range(len(rows))],
        "sample_loss_mask": [1.0 for _ in rows],
        "advantages": [[0.0] * 6 for _ in rows],
        "generation_logprobs": sampler,
        "prev_logprobs": trainer,
    }
    turns = [
        [{"role": "user", "content": prompt}, {"role": "assistant", "content": text}] for prompt, _, text, _ in rows[:4]
    ]
    logger = Logger.__new__(Logger)  # without the services that it also logs to
    logger.gpu_monitor = None
    with tempfile.TemporaryDirectory() as folder:
        logger.base_log_dir = folder
        logger.log_batched_dict_as_jsonl(train, "train_data_step1.jsonl")
        logger.log_batched_dict_as_jsonl({"content": turns, "rewards": train["rewards"][:4]}, "val_data_step1.jsonl")
        shutil.copy(Path(folder, "train_data_step1.jsonl"), FOLDER / "nemo-rl-0.6.0-train.jsonl")
        shutil.copy(Path(folder, "val_data_step1.jsonl"), FOLDER / "nemo-rl-0.6.0-val.jsonl")


def openrlhf() -> None:
    """The table of samples that the logger of W&B keeps: one of each step."""
    from types import SimpleNamespace

    with tempfile.TemporaryDirectory() as folder:
        os.environ |= {"WANDB_MODE": "offline", "WANDB_DIR": folder, "WANDB_API_KEY": "0" * 40}
        from openrlhf.utils.logging_utils import WandbLogger

        names = SimpleNamespace(key="0" * 40, org=None, project="sums", group=None, run_name="sums")
        logger = WandbLogger(SimpleNamespace(logger=SimpleNamespace(wandb=names)))
        for step, (prompt, _, text, reward) in enumerate(_rows(), 1):
            chat = f"<|im_start|>user\n{prompt}<|im_end|>\n<|im_start|>assistant\n{text}<|im_end|>"
            logger.log_train(step, {"generated_samples": (chat, reward)})
        logger.close()
        tables = sorted(Path(folder).rglob("generated_samples*.table.json"), key=lambda path: path.stat().st_size)
        shutil.copy(tables[-1], FOLDER / "openrlhf-0.11.2.table.json")


def _rows():
    for prompt, (gold, said) in GROUPS.items():
        for text, reward in said:
            yield prompt, gold, text, reward


if __name__ == "__main__":
    FOLDER.mkdir(exist_ok=True)
    {"trl": trl, "verl": verl, "prime-rl": prime_rl, "nemo-rl": nemo_rl, "openrlhf": openrlhf}[sys.argv[1]]()
