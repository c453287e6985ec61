"""The sequences that trainer and engines score after an update."""

from magcli.generate.types import Rollout
from magcli.rl.probe import PROBE_TOKENS, SEQUENCE_TOKENS, probe_sequences, probe_tokens, scored_groups
from magcli.rl.types import Group


def group(number, prompt, lengths):
    prompt = tuple(range(prompt))
    rollouts = tuple(
        Rollout(index, prompt, (number,) * length, (-1.0,) * length, ((0, 0),), "stop", 0)
        for index, length in enumerate(lengths)
    )
    return Group(number, {}, prompt, rollouts, ("",) * len(lengths), (), None)


def test_the_first_update_and_each_tenth_have_a_full_probe_and_others_a_share():
    small, large = [group(0, 5, [10, 10])], [group(0, 5, [30_000] * 2)]
    assert [probe_tokens(update, small) for update in (1, 2, 10, 11)] == [512, 64, 64, 512]
    assert probe_tokens(2, large) == PROBE_TOKENS
    assert probe_tokens(2, [group(0, 5, [4096])]) == 128


def test_a_probe_takes_one_completion_of_each_group_before_a_second():
    groups = [group(1, 3, [20, 20]), group(2, 3, [20, 20])]
    assert [(tokens[0], len(tokens)) for _, tokens in probe_sequences(groups, 50)] == [(1, 20), (2, 20), (1, 10)]
    assert sum(len(tokens) for _, tokens in probe_sequences(groups, 1000)) == 80


def test_long_prompts_and_completions_are_cut():
    (sequence,) = probe_sequences([group(1, 1000, [1000])], 1000)
    assert [len(part) for part in sequence] == [SEQUENCE_TOKENS // 2] * 2
    (sequence,) = probe_sequences([group(1, 10, [1000])], 1000)
    assert [len(part) for part in sequence] == [10, SEQUENCE_TOKENS - 10]


def test_scores_count_as_sampled_by_the_version():
    sequences = probe_sequences([group(1, 3, [2]), group(2, 3, [2])], 10)
    first, second = scored_groups(sequences, [[-1.0, -2.0], [-3.0, -4.0]], 7)
    assert first.rollouts[0].logprobs == (-1.0, -2.0)
    assert second.rollouts[0].versions == ((0, 7),)
    assert second.num_tokens == 2
