"""Chat templates and their time limit, the loss mask, and that SFT and RL use the same prompt."""

import contextlib
import random
import re
import time
from concurrent.futures import ThreadPoolExecutor

import pytest
from tokenizers import Tokenizer, models
from transformers import AutoTokenizer, PreTrainedTokenizerFast

from magcli.errors import DataError, EnvironmentFault
from magcli.model import chat
from magcli.model.chat import (
    Deadline,
    TokensWithMask,
    completion_text,
    prompt_tokens,
    show_mask,
    system_prompt,
    to_messages,
    tokenize_with_mask,
)

QUESTION = to_messages("1+2", "Be kind.")
ANSWER = {"role": "assistant", "content": "<think>easy</think>3"}
LINES = "{% for m in messages %}{{ m.role + ':' + m.content + '<|end|>\n' }}{% endfor %}"
ASSISTANT = "{% if add_generation_prompt %}{{ 'assistant:' }}{% endif %}"


@pytest.fixture
def tokenizer(tiny_model_dir):
    return AutoTokenizer.from_pretrained(tiny_model_dir)


def test_a_prompt_ends_with_the_generation_prompt(tokenizer):
    text = tokenizer.decode(prompt_tokens(tokenizer, QUESTION))
    assert text == "<|system|>Be kind.<|end|><|user|>1+2<|end|><|assistant|>"


@pytest.mark.parametrize("prefill", ["<think>", "<think>\n", "<think>\n\n</think>\n\n"])
def test_a_completion_starts_with_the_templates_prefill(tokenizer, prefill):
    tokenizer.chat_template = LINES + ASSISTANT.replace("assistant:", f"assistant:{prefill}")
    prompt, ends = prompt_tokens(tokenizer, QUESTION), {tokenizer.eos_token_id}
    tokens = tokenizer("easy</think>3<|end|>", add_special_tokens=False)["input_ids"]
    assert completion_text(tokenizer, prompt, tokens, ends) == f"{prefill}easy</think>3"
    assert completion_text(tokenizer, prompt, tokens[:-1], ends) == f"{prefill}easy</think>3"
    assert completion_text(tokenizer, prompt, [], ends) == prefill


def test_a_completion_without_prefill_is_what_was_sampled(tokenizer):
    question = to_messages("what does <think>\n mean?", "Write <think> first.")
    prompt = prompt_tokens(tokenizer, question)
    tokens = tokenizer("<think>easy</think>3", add_special_tokens=False)["input_ids"]
    assert completion_text(tokenizer, prompt, tokens, set()) == "<think>easy</think>3"


def test_targets_are_the_assistants_tokens_and_end_of_turn(tokenizer):
    tokens, mask = tokenize_with_mask(tokenizer, [*QUESTION, ANSWER])
    targets = [token for token, target in zip(tokens, mask, strict=True) if target]
    assert tokenizer.decode(targets) == "<think>easy</think>3<|end|>"
    assert targets[-1] == tokenizer.eos_token_id


def test_sft_and_rl_use_the_same_prompt(tokenizer):
    tokens, mask = tokenize_with_mask(tokenizer, [*QUESTION, ANSWER])
    prompt = prompt_tokens(tokenizer, QUESTION)
    assert tokens[: len(prompt)] == prompt
    assert mask.index(True) == len(prompt)


def test_every_assistant_turn_is_a_target(tokenizer):
    again = {"role": "user", "content": "and 2+2?"}
    tokens, mask = tokenize_with_mask(tokenizer, [*QUESTION, ANSWER, again, {"role": "assistant", "content": "4"}])
    targets = [token for token, target in zip(tokens, mask, strict=True) if target]
    assert tokenizer.decode(targets) == "<think>easy</think>3<|end|>4<|end|>"


def test_text_after_the_end_of_turn_is_not_a_target(tokenizer):
    tokenizer.chat_template = LINES + ASSISTANT
    tokens, mask = tokenize_with_mask(tokenizer, [*QUESTION, ANSWER])
    assert tokenizer.decode(tokens[-1:]) == "\n"
    assert mask[-2:] == [True, False]


def test_a_mask_without_targets_is_rejected(tokenizer):
    with pytest.raises(DataError, match="no token would be trained on"):
        tokenize_with_mask(tokenizer, QUESTION)


def test_a_mask_of_targets_only_is_rejected(tokenizer):
    tokenizer.chat_template = "{% for m in messages if m.role == 'assistant' %}{{ m.content + '<|end|>' }}{% endfor %}"
    with pytest.raises(DataError, match="every token would be trained on"):
        tokenize_with_mask(tokenizer, [*QUESTION, ANSWER])


def test_a_conversation_starts_with_a_prompt(tokenizer):
    with pytest.raises(DataError, match="no message before"):
        tokenize_with_mask(tokenizer, [ANSWER])


def test_a_template_that_rewrites_earlier_turns_is_rejected(tokenizer):
    tokenizer.chat_template = "{{ messages | length }}" + LINES + ASSISTANT
    with pytest.raises(DataError, match="message 2: the assistant's turn changes the tokens before it"):
        tokenize_with_mask(tokenizer, [*QUESTION, ANSWER])


def test_a_completion_that_merges_with_the_prompts_last_token_is_rejected():
    vocab = {"<|end|>": 0, "a": 1, ":": 2, "u": 3, ":a": 4}
    backend = Tokenizer(models.BPE(vocab=vocab, merges=[(":", "a")]))
    backend.add_special_tokens(["<|end|>"])
    template = "{% for m in messages %}{{ m.role[0] + ':' + m.content + '<|end|>' }}{% endfor %}"
    prompt = "{% if add_generation_prompt %}{{ 'a:' }}{% endif %}"
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=backend, eos_token="<|end|>", chat_template=template + prompt)
    question = {"role": "user", "content": "u"}
    assert tokenize_with_mask(tokenizer, [question, {"role": "assistant", "content": "u"}]).mask[-2:] == [True, True]
    with pytest.raises(DataError, match="merges with the prompt"):
        tokenize_with_mask(tokenizer, [question, {"role": "assistant", "content": "a"}])


def test_a_template_without_end_of_turn_token_is_rejected(tokenizer):
    tokenizer.chat_template = "{% for m in messages %}{{ m.role + ':' + m.content }}{% endfor %}" + ASSISTANT
    with pytest.raises(DataError, match="could not stop"):
        tokenize_with_mask(tokenizer, [*QUESTION, ANSWER])


def test_a_conversation_that_the_template_forbids_is_a_data_error(tokenizer):
    tokenizer.chat_template = "{{ raise_exception('roles must alternate') }}"
    with pytest.raises(DataError, match="roles must alternate"):
        tokenize_with_mask(tokenizer, [*QUESTION, ANSWER])


def test_a_tokenizer_without_a_template_is_named(tokenizer):
    tokenizer.chat_template = None
    with pytest.raises(EnvironmentFault, match="has no chat template"):
        prompt_tokens(tokenizer, QUESTION)


def test_a_mask_is_shown_for_people(tokenizer):
    tokenizer.chat_template = LINES + ASSISTANT
    shown = show_mask(
        tokenizer,
        tokenize_with_mask(tokenizer, [to_messages("1+2", None)[0], {"role": "assistant", "content": "3\n!"}]),
    )
    assert shown.split("\n") == [
        "       | user:1+2<|end|>↵",
        "       | assistant:",
        "target | 3↵",
        "target | !<|end|>",
        "       | ↵",
    ]


def test_the_shown_mask_has_all_tokens(tokenizer):
    every = list(range(len(tokenizer)))
    shown = show_mask(tokenizer, TokensWithMask(every, [token % 3 == 0 for token in every]))
    text = "".join(line.split(" | ", 1)[1] for line in shown.split("\n"))
    assert text.replace("↵", "\n") == tokenizer.decode(every)


def test_the_shipped_system_prompt_states_the_format():
    text = system_prompt(None)
    assert all(word in text for word in ("<think>", "</think>", "\\boxed{}", "language"))


def test_a_system_prompt_can_be_replaced_by_a_file(tmp_path):
    own = tmp_path / "own.txt"
    own.write_text("Réponds.\n", encoding="utf-8")
    assert system_prompt(own) == "Réponds."
    with pytest.raises(EnvironmentFault, match=r"nowhere\.txt"):
        system_prompt(tmp_path / "nowhere.txt")


def test_no_system_prompt_means_no_system_turn():
    assert to_messages("1+2", None) == to_messages("1+2", "") == [{"role": "user", "content": "1+2"}]


NEVER = "{% for i in range(99999) %}{% for j in range(99999) %}{% endfor %}{% endfor %}"


@pytest.mark.parametrize(
    ("bomb", "message"),
    [
        (NEVER, "does not terminate (not finished in 0.2 s of CPU time)"),
        ("{{ 'x' * 10**15 }}", "needs too much memory"),
        ("{{ 'x' * 10**25 }}", "needs too much memory"),
        ("{% macro again() %}{{ again() }}{% endmacro %}{{ again() }}", "recurses endlessly"),
    ],
)
def test_a_template_that_does_not_render_is_an_error_of_the_model(tokenizer, monkeypatch, bomb, message):
    monkeypatch.setattr(chat, "RENDERING", Deadline(0.2))
    tokenizer.chat_template = bomb + LINES
    with pytest.raises(EnvironmentFault, match="the chat template of .*tiny " + re.escape(message)):
        prompt_tokens(tokenizer, QUESTION)


def loop() -> None:
    while True:
        pass


def busy(seconds: float) -> float:
    end = time.thread_time() + seconds
    while time.thread_time() < end:
        pass
    return seconds


def stubborn() -> None:
    while True:
        with contextlib.suppress(Exception):
            loop()


def swallows() -> str:
    try:
        loop()
    except BaseException:
        return "swallowed"


def test_work_in_time_returns_its_result() -> None:
    few = Deadline(5.0)
    assert few.run(lambda: 3) == 3
    with pytest.raises(KeyError, match="x"):
        few.run(lambda: {}["x"])


@pytest.mark.flaky(reruns=2)
@pytest.mark.parametrize("work", [loop, stubborn, swallows])
def test_endless_work_is_interrupted_in_any_thread(work) -> None:
    few = Deadline(0.3)
    started = time.thread_time()
    with pytest.raises(TimeoutError, match=r"not finished in 0\.3 s of CPU time"):
        few.run(work)
    assert 0.3 < time.thread_time() - started < 5
    with ThreadPoolExecutor(3) as pool:
        late, idle, done = pool.submit(few.run, work), pool.submit(few.run, lambda: time.sleep(1)), 0
        while not late.done():
            done += few.run(lambda: 1)
        with pytest.raises(TimeoutError):
            late.result()
        assert idle.result() is None, "only CPU time counts"
    assert done > 10


@pytest.mark.flaky(reruns=2)
def test_nothing_is_raised_after_the_work_has_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    raise_in = chat._raise_in

    def slowly(thread: int, kind: type[BaseException] | None) -> None:
        time.sleep(0.002 if kind else 0.0)  # in which the work may end
        raise_in(thread, kind)

    monkeypatch.setattr(chat, "_raise_in", slowly)
    monkeypatch.setattr(chat, "POLL_SECONDS", 1e-4)
    few, in_time = Deadline(0.005), []

    def rounds(seed: int) -> None:
        draw = random.Random(seed)
        for _ in range(200):
            try:
                few.run(lambda: busy(draw.uniform(0.0, 0.015)))
                in_time.append(True)
            except TimeoutError:
                in_time.append(False)
            busy(0.003)

    with ThreadPoolExecutor(2) as pool:
        for done in [pool.submit(rounds, seed) for seed in range(2)]:
            done.result()
    assert 50 < sum(in_time) < 350, "some in time and some not"
