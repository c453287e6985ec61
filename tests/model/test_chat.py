"""Chat templates, their variables, system prompts and time limit."""

import contextlib
import random
import re
import time
from concurrent.futures import ThreadPoolExecutor

import pytest
from transformers import AutoTokenizer

from magcli.errors import DataError, EnvironmentFault
from magcli.model.chat import prompts
from magcli.model.chat.prompts import (
    Deadline,
    completion_text,
    prompt_tokens,
    system_prompt,
    to_messages,
)
from magcli.model.chat.thoughts import THINK

QUESTION = to_messages("1+2", "Be kind.")
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
    assert completion_text(tokenizer, prompt, tokens, ends, THINK) == f"{prefill}easy</think>3"
    assert completion_text(tokenizer, prompt, tokens[:-1], ends, THINK) == f"{prefill}easy</think>3"
    assert completion_text(tokenizer, prompt, [], ends, THINK) == prefill


def test_a_completion_without_prefill_is_what_was_sampled(tokenizer):
    question = to_messages("what does <think>\n mean?", "Write <think> first.")
    prompt = prompt_tokens(tokenizer, question)
    tokens = tokenizer("<think>easy</think>3", add_special_tokens=False)["input_ids"]
    assert completion_text(tokenizer, prompt, tokens, set(), THINK) == "<think>easy</think>3"


def test_a_conversation_that_the_template_forbids_is_a_data_error(tokenizer):
    tokenizer.chat_template = "{{ raise_exception('roles must alternate') }}"
    with pytest.raises(DataError, match="roles must alternate"):
        prompt_tokens(tokenizer, QUESTION)


def test_a_tokenizer_without_a_template_is_named(tokenizer):
    tokenizer.chat_template = None
    with pytest.raises(EnvironmentFault, match="has no chat template"):
        prompt_tokens(tokenizer, QUESTION)


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


def test_a_system_prompt_that_the_template_ignores_is_in_the_question(tokenizer):
    tokenizer.chat_template = "{% for m in messages if m.role != 'system' %}" + LINES.split("%}", 1)[1] + ASSISTANT
    assert tokenizer.decode(prompt_tokens(tokenizer, QUESTION)) == "user:Be kind.\n\n1+2<|end|>\nassistant:"


def test_a_system_prompt_that_the_template_rejects_is_in_the_question(tokenizer):
    guard = "{% if messages[0].role == 'system' %}{{ raise_exception('no system') }}{% endif %}"
    tokenizer.chat_template = guard + LINES + ASSISTANT
    assert tokenizer.decode(prompt_tokens(tokenizer, QUESTION)) == "user:Be kind.\n\n1+2<|end|>\nassistant:"
    assert not prompts.takes_system(tokenizer)
    tokenizer.chat_template = LINES + ASSISTANT
    assert prompts.takes_system(tokenizer)


def test_a_template_gets_its_variables_and_the_date_of_the_run(tokenizer):
    source = "{{ strftime_now('%d.%m.%Y') }} {{ style }} {{ messages[0].content }}"
    prompts.use_template(tokenizer, prompts.ChatTemplate(source, {"style": "brief"}, "2024-02-29"))
    assert prompts.render_text(tokenizer, [{"role": "user", "content": "1+2"}]) == "29.02.2024 brief 1+2"
    assert tokenizer.chat_template == source, "it is saved with the model"


@pytest.mark.parametrize("fault", ["{{ messages[9].content.strip() }}", "{{ 1 + 'a' }}", "{{ messages['x'] + 1 }}"])
def test_a_template_that_cannot_handle_a_conversation_is_a_data_error(tokenizer, fault):
    tokenizer.chat_template = fault
    with pytest.raises(DataError, match="the chat template rejects the conversation"):
        prompt_tokens(tokenizer, QUESTION)


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
    monkeypatch.setattr(prompts, "RENDERING", Deadline(0.2))
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
    raise_in = prompts._raise_in

    def slowly(thread: int, kind: type[BaseException] | None) -> None:
        time.sleep(0.002 if kind else 0.0)  # in which the work may end
        raise_in(thread, kind)

    monkeypatch.setattr(prompts, "_raise_in", slowly)
    monkeypatch.setattr(prompts, "POLL_SECONDS", 1e-4)
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
