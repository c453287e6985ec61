"""Cold-start selection: who is left out and why, bounds, up-sampling, fractions, and that order does not matter."""

import random
from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from magcli.curate import traces
from magcli.curate.math.words import jaccard
from magcli.curate.published import columns_read, readable, texts_of, traces_of
from magcli.curate.traces import (
    Candidate,
    MixedRow,
    histogram,
    histogram_lines,
    mix_table,
    near_duplicates,
    ngrams,
    select,
    shares,
)
from magcli.model.chat.thoughts import BRACKETS, CHANNELS, FORMS, THINK

candidate_lists = st.lists(
    st.builds(
        Candidate,
        row=st.just(0),
        problem=st.sampled_from("pqrs"),
        key=st.just(""),
        num_tokens=st.integers(1, 300),
        correct=st.booleans(),
        step=st.integers(0, 5),
    ),
    max_size=60,
).map(lambda listed: [each._replace(row=i, key=f"k{i}") for i, each in enumerate(listed)])


def made(row: int, *, problem: str = "p", num_tokens: int = 50, correct: bool = True, step: int = 9) -> Candidate:
    return Candidate(row, problem, f"{problem}/{row}", num_tokens, correct, step)


def test_each_row_is_left_out_for_its_reason() -> None:
    rows = [made(0, step=1), made(1, correct=False), made(2, num_tokens=5), *(made(i) for i in range(3, 8))]
    chosen = select(rows, seed=0, from_step=2, shortest=0.2, per_problem=3)
    assert Counter(chosen.dropped.values()) == {"early-step": 1, "wrong": 1, "short": 1, "surplus": 2}
    assert len(chosen.copies) == 3


@given(candidate_lists, st.integers(0, 3), st.floats(0, 1), st.integers(1, 3), st.integers(0, 9))
def test_every_row_is_selected_or_dropped(rows: list[Candidate], step: int, share: float, most: int, seed: int) -> None:
    chosen = select(rows, seed=seed, from_step=step, shortest=share, per_problem=most, hardest=3.0)
    assert chosen.copies.keys() | chosen.dropped.keys() == set(range(len(rows)))
    assert not chosen.copies.keys() & chosen.dropped.keys()
    assert all(rows[row].correct and rows[row].step >= step for row in chosen.copies)
    assert all(count >= 1 for count in chosen.copies.values())
    assert max(Counter(rows[row].problem for row in chosen.copies).values(), default=0) <= most


def test_near_identical_rows_do_not_use_up_the_bound() -> None:
    rows = [made(i) for i in range(12)]
    chosen = select(rows, seed=0, per_problem=3, same=lambda one, other: one % 3 == other % 3)
    assert {row % 3 for row in chosen.copies} == {0, 1, 2}
    assert Counter(chosen.dropped.values()).keys() <= {"near-identical", "surplus"}


def test_ungraded_traces_are_not_bounded_weighted_or_counted_in_the_pass_rate() -> None:
    rows = [made(i)._replace(correct=None, num_tokens=1) for i in range(9)] + [made(9), made(10, correct=False)]
    chosen = select(rows, seed=0, per_problem=1, hardest=3.0, shortest=0.9)
    assert chosen.copies == {**dict.fromkeys(range(9), 1), 9: 2}


@given(candidate_lists, st.randoms(use_true_random=False))
def test_order_of_rows_does_not_matter(rows: list[Candidate], shuffler: random.Random) -> None:
    shuffled = list(rows)
    shuffler.shuffle(shuffled)
    assert select(rows, seed=1, per_problem=2, shortest=0.3) == select(shuffled, seed=1, per_problem=2, shortest=0.3)


def test_other_problems_do_not_change_the_choice() -> None:
    rows = [made(i) for i in range(20)]
    more = [made(i, problem="other") for i in range(20, 50)]
    alone = select(rows, seed=3, per_problem=4).copies
    assert {row for row in select(rows + more, seed=3, per_problem=4).copies if row < 20} == set(alone)
    assert set(select(rows, seed=4, per_problem=4).copies) != set(alone)


def test_short_traces_are_a_share_of_the_correct_ones() -> None:
    rows = [made(i, problem=f"p{i}", num_tokens=i + 1) for i in range(100)]
    dropped = select(rows, seed=0, shortest=0.25).dropped
    assert sorted(dropped) == list(range(25))


@given(st.lists(st.integers(0, 500), min_size=1), st.floats(0, 1))
def test_a_quantile_leaves_out_at_most_its_share(lengths: list[int], share: float) -> None:
    limit = traces.quantile(lengths, share)
    assert limit in lengths
    assert sum(length < limit for length in lengths) <= share * len(lengths)


def test_hard_problems_are_used_more_often() -> None:
    hard = [made(i, problem=f"hard{i}") for i in range(2000)]
    easy = [made(i, problem=f"easy{i}") for i in range(2000, 4000)]
    # Nine wrong samples of ten give a pass rate of 0.1.
    wrong = [made(4000 + i, problem=f"hard{i // 9}", correct=False) for i in range(9 * 2000)]
    copies = select(hard + easy + wrong, seed=5, hardest=3.0).copies
    assert sum(copies[row] for row in range(2000)) / 2000 == pytest.approx(1 + 2 * 0.9, abs=0.06)
    assert {copies[row] for row in range(2000, 4000)} == {1}


def test_pass_rates_count_wrong_rollouts_of_late_steps_only() -> None:
    rows = [made(0), made(1, correct=False), made(2, correct=False, step=0)]
    assert traces.measured_pass_rates(rows[:2]) == {"p": 0.5}
    assert select(rows, seed=0, from_step=1, hardest=3.0).copies == {0: 2}


@given(st.integers(0, 10_000), st.floats(0, 0.9))
def test_instructions_are_a_fraction_of_the_mix(others: int, fraction: float) -> None:
    count = traces.num_instructions(others, fraction)
    assert abs(count - fraction * (count + others)) <= 1


def test_the_sample_does_not_depend_on_row_order() -> None:
    keys = [f"i{i}" for i in range(50)]
    once = {keys[row] for row in traces.sample(keys, 10, seed=1)}
    assert len(once) == 10
    assert {keys[::-1][row] for row in traces.sample(keys[::-1], 10, seed=1)} == once
    assert traces.sample(["a", "b"], 10, seed=1) == {0: 1, 1: 1}


def test_the_mix_contains_every_copy_once_in_a_fixed_order() -> None:
    copies = {"rollouts": {0: 2, 4: 1}, "instructions": {4: 1}}
    picks = traces.mix(copies, seed=0)
    assert Counter((pick.source, pick.row) for pick in picks) == {
        ("rollouts", 0): 2,
        ("rollouts", 4): 1,
        ("instructions", 4): 1,
    }
    assert picks == traces.mix(dict(reversed(copies.items())), seed=0)
    many = {"rollouts": dict.fromkeys(range(100), 1)}
    assert traces.mix(many, seed=0) != traces.mix(many, seed=1)


SHAREGPT = {"system": "Think.", "conversations": [{"from": "human", "value": "1+1?"}, {"from": "gpt", "value": "2"}]}
MARKED = "<|begin_of_thought|>one, two<|end_of_thought|><|begin_of_solution|>2<|end_of_solution|>"


def test_each_sample_of_a_row_becomes_a_trace_with_its_verdict() -> None:
    row = {"id": "a", "problem": "1+1?", "generations": ["2", "3"], "correctness_math_verify": [True, False]}
    names = ("id", "sample", "prompt", "completion", "correct")
    assert [tuple(trace[name] for name in names) for trace in traces_of(row)] == [
        ("a", 0, "1+1?", "2", True),
        ("a", 1, "1+1?", "3", False),
    ]


@pytest.mark.parametrize(
    ("verdict", "found"),
    [("False", False), ("false", False), ("No", False), ("0", False), (0.0, False), ("TRUE", True), (" yes", True),
     (1, True), (None, None), ("", None)],
)  # fmt: skip
def test_verdicts_are_read_in_any_notation(verdict: object, found: bool | None) -> None:
    talk = [{"role": "user", "content": "1+1?"}, {"role": "assistant", "content": "2"}]
    forms = ({"prompt": "1+1?", "completion": "2"}, {"question": "1+1?", "samples": ["2"]}, {"messages": talk})
    traces = [trace for form in forms for trace in traces_of({**form, "correct": verdict})]
    assert [trace.get("correct") for trace in traces] == [found] * 3
    assert not any("unclear" in trace for trace in traces)


def test_verdicts_that_are_neither_true_nor_false_are_unclear() -> None:
    row = {"question": "1+1?", "responses": ["2", "3", "4", "5"], "score": [0.7, 1, None, -2.5]}
    verdicts = [(trace.get("correct"), trace.get("unclear")) for trace in traces_of(row)]
    assert verdicts == [(None, "0.7"), (True, None), (None, None), (None, "-2.5")]


@pytest.mark.parametrize("verdict", [True, [True], [True, True, False]])
def test_verdicts_that_do_not_match_the_samples_in_number_are_unclear(verdict: object) -> None:
    traces = list(traces_of({"question": "1+1?", "samples": ["2", "3"], "correct": verdict}))
    assert ["unclear" in trace for trace in traces] == [True, True]
    assert not any("correct" in trace for trace in traces)


def test_several_verdicts_on_one_completion_are_unclear_and_ignored_for_a_conversation() -> None:
    (trace,) = traces_of({"prompt": "1+1?", "completion": "2", "correct": [True, False]})
    assert trace["unclear"] == "[True, False]"
    (trace,) = traces_of({"prompt": "1+1?", "completion": "2", "correct": [None, None]})
    assert "unclear" not in trace
    (trace,) = traces_of({**SHAREGPT, "generations": ["2", "3"], "correctness_math_verify": [True, False]})
    assert not {"unclear", "correct"} & set(trace)


def test_the_score_of_a_conversation_is_not_a_verdict() -> None:
    (trace,) = traces_of({**SHAREGPT, "score": 4.5})
    assert "unclear" not in trace


def test_the_verdict_of_a_conversation_is_read_next_to_its_score() -> None:
    row = {**SHAREGPT, "score": 4.5, "is_correct": False}
    (trace,) = traces_of({name: row[name] for name in columns_read(list(row))})
    assert trace["correct"] is False


@pytest.mark.parametrize(
    ("about", "prompt"),
    [("Good day", "Translate to French\n\nGood day"), (" ", "Translate to French"), (None, "Translate to French")],
)
def test_an_instruction_includes_its_input(about: str | None, prompt: str) -> None:
    row = {"instruction": "Translate to French", "input": about, "output": "Bonjour"}
    assert "input" in columns_read(list(row))
    (trace,) = traces_of(row)
    assert (trace["prompt"], trace["completion"]) == (prompt, "Bonjour")
    (trace,) = traces_of({**row, "question": "1+1?"})
    assert trace["prompt"] == "1+1?"


def test_a_models_completion_takes_precedence_over_a_human_solution() -> None:
    row = {"question": "1+1?", "solution": "Two.", "generation": "<think>one, two</think>2"}
    assert "generation" in columns_read(list(row))
    assert [trace["completion"] for trace in traces_of(row)] == ["<think>one, two</think>2"]


def test_turns_of_other_formats_become_messages_with_their_system_prompt() -> None:
    (trace,) = traces_of(SHAREGPT)
    assert [(turn["role"], turn["content"]) for turn in trace["messages"]] == [
        ("system", "Think."),
        ("user", "1+1?"),
        ("assistant", "2"),
    ]


def test_thoughts_are_wrapped_in_the_tags_of_the_recipe() -> None:
    turns = [{"from": "user", "value": "1+1?"}, {"from": "assistant", "value": MARKED}]
    (marked,) = traces_of({"conversations": turns})
    assert marked["messages"][1]["content"] == "<think>one, two</think>2"
    (apart,) = traces_of({"question": "1+1?", "thinking_trajectories": ["one, two"], "attempt": "2"})
    assert apart["completion"] == THINK.join("one, two", "2")


@pytest.mark.parametrize("key", ["reasoning_content", "thinking", "reasoning"])
def test_thoughts_beside_a_message_are_kept(key: str) -> None:
    turns = [{"role": "user", "content": "1+1?"}, {"role": "assistant", "content": "2", key: "one, two"}]
    (trace,) = traces_of({"messages": turns})
    assert trace["messages"][1] == {"role": "assistant", "content": THINK.join("one, two", "2")}


def test_parts_of_a_content_are_joined_and_tool_calls_are_passed_on() -> None:
    calls = [{"type": "function"}]
    turns = [
        {"role": "user", "content": [{"type": "text", "text": "1+"}, {"type": "text", "text": "1?"}]},
        {"role": "assistant", "content": None, "tool_calls": calls},
    ]
    (trace,) = traces_of({"messages": turns})
    assert trace["messages"] == [
        {"role": "user", "content": "1+1?"},
        {"role": "assistant", "content": None, "tool_calls": calls},
    ]


def test_a_magcli_row_is_unchanged_and_no_other_column_replaces_its_completion() -> None:
    row = {"prompt": "1+1?", "completion": None, "solution": "2", "correct": True}
    (trace,) = traces_of(row)
    assert trace["completion"] is None


@pytest.mark.parametrize(
    ("names", "is_readable"),
    [(("question", "code"), True), (("conversations",), True), (("question",), False), (("answer", "output"), False)],
)
def test_tables_without_traces_are_recognised_by_their_columns(names: tuple[str, ...], is_readable: bool) -> None:
    assert readable(names) is is_readable


def test_tokens_and_logprobs_are_not_read() -> None:
    names = ["id", "prompt", "completion", "correct", "tokens", "logprobs", "group", "step", "reason"]
    assert set(names) - set(columns_read(names)) == {"tokens", "logprobs"}


def test_rows_copies_weights_and_lengths_are_summed_by_source() -> None:
    placed = [MixedRow("b", 0, 10, 1.0), MixedRow("a", 0, 5, 2.5), MixedRow("b", 1, 10, 1.0)]
    found = shares(placed)
    assert list(found) == ["a", "b"]
    assert vars(found["b"]) == {"rows": 2, "distinct": 1, "length": 20, "weight": 2.0}
    table = [line.split() for line in mix_table(found, "tokens")]
    assert table[1] == ["a", "1", "33.3%", "1", "2.5", "5", "20.0%"]
    assert table[-1] == ["all", "3", "100.0%", "2", "4.5", "25", "100.0%"]


@given(st.lists(st.integers(0, 100_000)))
def test_every_length_is_in_the_bin_that_ends_at_or_above_it(lengths: list[int]) -> None:
    bins = histogram(lengths)
    assert sum(bins.values()) == len(lengths)
    for edge, count in bins.items():
        assert count == sum(edge // 2 < max(length, 1) <= edge for length in lengths)
    assert len(histogram_lines(bins, "tokens")) == len(bins)


LONG = " ".join(f"term {i} is {i * i}," for i in range(30))


@given(st.text(), st.text())
def test_overlap_is_symmetric_and_1_for_equal_texts(one: str, other: str) -> None:
    assert jaccard(ngrams(one), ngrams(other)) == jaccard(ngrams(other), ngrams(one)) <= 1
    assert jaccard(ngrams(one), ngrams(one)) == 1


def test_case_and_spaces_do_not_matter_and_other_words_do() -> None:
    assert ngrams(LONG) == ngrams(LONG.upper().replace(" ", "\n  "))
    one_word = jaccard(ngrams(LONG), ngrams(LONG.replace("term 15", "item 15")))
    assert 0.8 < one_word < 1
    assert jaccard(ngrams(LONG), ngrams(LONG.replace("term", "item"))) == 0


def test_short_texts_are_similar_only_when_equal() -> None:
    near = near_duplicates(["It is 2.", "it is  2.", "It is 3."].__getitem__, 0.8)
    assert near(0, 1)
    assert not near(0, 2)


OTHER = {
    "tags": {"prompt": "1+1?", "completion": "<think>one, two</think>2"},
    "column": {"question": "1+1?", "thinking_trajectories": ["one, two"], "attempt": "2"},
    "open thoughts": {
        "conversations": [
            {"from": "human", "value": "1+1?"},
            {"from": "gpt", "value": "<|begin_of_thought|>one, two<|end_of_thought|><|begin_of_solution|>2"},
        ]
    },
    "parts": {
        "messages": [
            {"role": "user", "content": "1+1?"},
            {"role": "assistant", "content": [{"type": "thinking", "thinking": "one, two"}, "2"]},
        ]
    },
}


@pytest.mark.parametrize("row", OTHER.values(), ids=OTHER)
@pytest.mark.parametrize("form", FORMS, ids=str)
def test_traces_have_their_thoughts_in_the_chosen_form(row, form):
    (trace,) = traces_of(row, form)
    text = trace["completion"] if "completion" in trace else trace["messages"][-1]["content"]
    assert form.split(text) == ("one, two", "2")


def test_texts_of_a_row_are_those_of_assistants():
    talk = [{"from": "human", "value": "1+1?"}, {"from": "gpt", "value": BRACKETS.join("one", "2")}]
    assert list(filter(None, texts_of({"conversations": talk}))) == [BRACKETS.join("one", "2")]
    rows = {"prompt": "1+1?", "generations": [CHANNELS.join("one", "2"), "3"]}
    assert list(filter(None, texts_of(rows))) == [CHANNELS.join("one", "2"), "3"]
