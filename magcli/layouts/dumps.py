"""The layouts of completions that other tools wrote; those of problems and traces are in ``magcli.layouts.table``."""

from magcli.layouts import programs, readers, responses, rollouts
from magcli.layouts.types import Layout, Place

SAMPLES = "|".join(
    f"{name}[]:string"
    for name in ("responses", "completions", "generations", "samples", "response", "completion", "generation",
                 "outputs", "output")
)  # fmt: skip
RESPONSES = "|".join(
    f"{name}{listed}:object"
    for name in ("response", "message", "generation", "output", "responses", "completions", "generations", "outputs")
    for listed in ("", "[]")
) + "|choices[].message:object"  # fmt: skip

ASKED = Place(("prompt",), readers.asked)
"""A prompt, as a text or as messages with a system prompt among them."""
SAID = Place(("completion",), responses.said)
"""A completion, as a text or as what an API returned."""

DUMPS: tuple[Layout, ...] = (
    Layout(
        "samples",
        "several completions a row, as vLLM scripts and verl's main_generation write them",
        (SAMPLES,),
        {"completion": Place((SAMPLES,), readers.samples_of)},
        native=True,
    ),
    Layout(
        "completion object",
        "TRL: docs/source/dataset_formats.md, conversational completions; what an API returned",
        ("completion:object|completion[]:object",),
        {"completion|thoughts": SAID},
    ),
    Layout(
        "response object",
        "what an API returned: a message, OpenAI's chat completions and Responses, Anthropic, Gemini",
        (RESPONSES,),
        {"completion|thoughts": Place((RESPONSES,), responses.said)},
        without=("completion",),
    ),
    Layout(
        "response as a row",
        "rows that are OpenAI's chat completions or Responses themselves, beside the problem",
        ("object:string", "choices[]|output[]:object"),
        {"completion|thoughts": Place(("choices[]|output[]:object", "id"), responses.said)},
    ),
    Layout(
        "OpenAI batch",
        "OpenAI: batch output files",
        ("custom_id", "response.body"),
        {"completion|thoughts": Place(("response.body", "error", "id"), responses.batch_response)},
    ),
    Layout(
        "Anthropic batch",
        "Anthropic: results of message batches",
        ("custom_id", "result.message"),
        {"completion|thoughts": Place(("result.message", "result.error"), responses.batch_response)},
    ),
    Layout(
        "NeMo Gym rollouts",
        "NVIDIA-NeMo/Gym: ng_collect_rollouts",
        ("responses_create_params.input", "response.output[]"),
        {
            "prompt|system": Place(
                ("responses_create_params.input", "responses_create_params.instructions"), readers.asked
            ),
            "tests": Place(("verifier_metadata",), programs.unit_tests),
            "completion|thoughts": Place(("response",), responses.said),
        },
    ),
    Layout(
        "inspect_ai",
        "UKGovernmentBEIS/inspect_ai: the samples of .eval and .json logs",
        ("input", "target", "epoch", "messages[]", "output.choices[]"),
        {
            "prompt|system": Place(("input", "messages"), readers.asked_of_log),
            "answer": Place(("target",), readers.only),
            "completion|thoughts": Place(("output", "messages", "error"), responses.last_output),
        },
    ),
    Layout(
        "LiveCodeBench outputs",
        "LiveCodeBench: output/MODEL/*_eval_all.json",
        ("question_content", "output_list[]", "code_list[]"),
        {
            "prompt": Place(("question_content", "starter_code"), readers.with_starter),
            "completion": Place(("output_list",), readers.samples_of),
            "verdict": Place(("graded_list",)),
        },
        missing="tests; join them with those of livecodebench/code_generation_lite by question_id",
    ),
    Layout(
        "HumanEval samples",
        "openai/human-eval: samples.jsonl",
        ("task_id", "completion:string"),
        {"completion": Place(("completion",))},
        without=("prompt", "question", "problem", "text", "test", "tests", "test_list", "answer"),
        missing="problems; join them with those of openai/openai_humaneval by task_id",
    ),
    Layout(
        "lm-evaluation-harness",
        "EleutherAI/lm-evaluation-harness: --log_samples",
        ("doc", "target", "resps[]", "doc_id"),
        {
            "prompt": Place(("doc", "arguments"), readers.harness_prompt, uses_up=False),
            "answer": Place(("target",), readers.answer_or_final),
            "completion": Place(("resps",), readers.harness_samples),
        },
        views="filter",
    ),
    Layout(
        "verl dump",
        "verl: trainer.rollout_data_dir",
        ("input:string", "output:string", "gts", "score"),
        {
            "prompt": Place(("input",)),
            "completion": Place(("output",)),
            "answer|tests": Place(("gts", "ability"), programs.ground_truth),
            "verdict": Place(("acc",), uses_up=False),
            "trainer_reward": Place(("score",), uses_up=False),
        },
    ),
    Layout(
        "TRL completions",
        "TRL: log_completions of GRPOConfig and RLOOConfig, completions/completions_*.parquet",
        ("step", "prompt", "completion", "advantage"),
        {
            "prompt|system": ASKED,
            "completion|thoughts": SAID,
        },
        without=("id", "reward_format"),
    ),
    Layout(
        "NeMo-RL rollouts",
        "NVIDIA-NeMo/RL: train_data_step*.jsonl and val_data_step*.jsonl of the logger",
        ("content[]", "rewards[]", "idx"),
        {
            "prompt|system": Place(("content",), rollouts.asked_of_log),
            "completion|thoughts": Place(("content",), rollouts.said_in_log),
            "trainer_reward": Place(("rewards",), rollouts.reward_in_log),
            "num_tokens|logprobs|trainer_logprobs": Place(
                ("token_loss_mask", "generation_logprobs", "prev_logprobs", "token_ids"), rollouts.tokens_of_log
            ),
        },
        missing="answers; join them with the problems by prompt",
    ),
    Layout(
        "OpenRLHF samples",
        "OpenRLHF: the table train/generated_samples of W&B, one rollout of each step",
        ("global_step", "text:string", "reward"),
        {
            "prompt|completion": Place(("text",), rollouts.said_in_chat),
            "trainer_reward": Place(("reward",), uses_up=False),
        },
        without=("prompt", "completion"),
        missing="answers; join them with the problems by prompt",
    ),
    Layout(
        "verifiers results",
        "verifiers and prime-rl: results.jsonl of vf-eval",
        ("prompt[].content", "completion[].content", "example_id", "reward"),
        {
            "prompt|system": ASKED,
            "completion|thoughts": SAID,
            "trainer_reward": Place(("reward",), uses_up=False),
        },
    ),
    Layout(
        "verifiers traces",
        "verifiers 0.4: traces.jsonl, the traces of an episode a line",
        ("task.data", "traces[].nodes"),
        {
            "prompt|system": Place(("task.data", "id"), readers.asked_of_task),
            "answer": Place(("task.data",), readers.answer_of_task),
            "completion|thoughts": Place(("traces",), responses.of_traces),
            "messages": Place(("traces", "task.data", "id"), responses.turns_of_traces),
            "trainer_reward|finish|num_tokens|logprobs|trainer_logprobs": Place(
                ("traces",), rollouts.measured_in_traces
            ),
        },
    ),
    Layout(
        "distilabel",
        "argilla-io/distilabel: TextGeneration",
        ("instruction:string", "generation", "model_name"),
        {
            "prompt": Place(("instruction",)),
            "completion": Place(("generation",), readers.samples_of),
        },
    ),
)
"""Completions that other tools wrote."""
