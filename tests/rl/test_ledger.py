import json

import pytest
from hypothesis import given
from hypothesis import strategies as st
from overlap import overlap

from magcli.errors import DataError
from magcli.rl.ledger import Ledger, account, read


def test_events_are_read_back(tmp_path):
    ledger = Ledger(tmp_path / "ledger.jsonl")
    ledger.record(0, "reserved", problem="p", version=0)
    ledger.record(1, "reserved", problem="q", version=0)
    ledger.record(2, "reserved", problem="p", version=1)
    ledger.record(0, "dropped", reason="all-wrong")
    ledger.record_batch([1, 2], "taken", step=1)
    ledger.sync()
    ledger.close()
    again = Ledger(tmp_path / "ledger.jsonl")
    assert again.outstanding == {1, 2}
    assert again.started == {1: 0, 2: 1}
    assert again.problems == {0: "p", 1: "q", 2: "p"}
    assert again.next_number == 3
    assert again.batches == {1: [1, 2]}
    again.record_batch([1, 2], "trained", step=1)
    again.close()
    assert again.outstanding == set()
    assert again.started == {}
    assert again.trained == {1}
    lines = read(tmp_path / "ledger.jsonl")
    assert [line["event"] for line in lines] == ["reserved", "reserved", "reserved", "dropped", "taken", "trained"]
    assert all(line["time"] > 1.7e9 for line in lines)


def test_a_torn_last_line_is_cut_off_wherever_it_was_torn(tmp_path):
    path = tmp_path / "ledger.jsonl"
    ledger = Ledger(path)
    for group in range(3):
        ledger.record(group, "reserved", problem="p", version=0)
    ledger.close()
    whole = path.read_bytes()
    ends = [at for at, byte in enumerate(whole) if byte == ord("\n")]
    for length in range(len(whole) + 1):
        path.write_bytes(whole[:length])
        found = Ledger(path)
        assert found.outstanding == set(range(sum(end < length for end in ends)))
        found.record(7, "reserved", problem="p", version=0)
        found.close()
        assert read(path)[-1]["group"] == 7


@pytest.mark.parametrize("line", ["{}", "[]", "no json", '{"group": 1, "event": "eaten"}', '{"event": "reserved"}'])
def test_an_invalid_event_is_refused_with_its_line(line, tmp_path):
    path = tmp_path / "ledger.jsonl"
    path.write_text(json.dumps({"group": 0, "event": "reserved", "problem": "p", "version": 0}) + f"\n{line}\n")
    with pytest.raises(DataError, match=r"ledger.jsonl: line 2: .*; restore the file or give"):
        Ledger(path)


@given(st.lists(st.tuples(st.integers(0, 5), st.sampled_from(["reserved", "generated", "admitted", "dropped"]))))
def test_outstanding_groups_were_reserved_and_have_not_ended(tmp_path_factory, noted):
    ledger = Ledger(tmp_path_factory.mktemp("ledger") / "ledger.jsonl")
    outstanding = set()
    for group, event in noted:
        ledger.record(group, event, problem="p", version=0, reason="all-right")
        outstanding = outstanding | {group} if event == "reserved" else outstanding
        outstanding = outstanding - {group} if event == "dropped" else outstanding
    ledger.close()
    assert ledger.outstanding == outstanding == set(ledger.started)


def events(*entries):
    return [{"group": group, "event": event, "reason": "all-wrong", "time": 0.0} for group, event in entries]


def test_the_account_adds_up():
    entries = events(*[(group, "reserved") for group in range(4)], (0, "dropped"), (1, "generated"))
    entries.append({"groups": [1, 2], "event": "trained", "step": 1, "time": 1.0})
    found = account(entries)
    assert str(found) == "4 groups reserved = 2 trained + 1 dropped (all-wrong 1) + 1 outstanding"
    assert found.reserved == found.trained + sum(found.dropped.values()) + found.outstanding
    assert found.faults == ()


@pytest.mark.parametrize(
    ("entries", "fault"),
    [
        ([(0, "reserved"), (0, "reserved")], "group 0 reserved 2 times"),
        ([(0, "reserved"), (0, "dropped"), (0, "trained")], "group 0 ended 2 times"),
        ([(0, "trained")], "group 0 reserved 0 times"),
    ],
)
def test_the_account_names_what_breaks_it(entries, fault):
    assert account(events(*entries)).faults == (fault,)


def timed(*entries):
    return [
        {
            "event": event,
            "time": time,
            "step": 1,
            **({"groups": group} if isinstance(group, list) else {"group": group}),
        }
        for group, event, time in entries
    ]


def test_overlap_is_the_time_when_both_sides_worked():
    entries = timed((0, "reserved", 0), (0, "generated", 4), ([0], "taken", 5), (1, "reserved", 6))
    assert (
        overlap([*entries, *timed((1, "generated", 8), (2, "reserved", 7), (2, "generated", 12), ([0], "trained", 10))])
        == 4
    )
    assert overlap([*entries[:3], *timed(([0], "trained", 10), (1, "reserved", 10), (1, "generated", 20))]) == 0
