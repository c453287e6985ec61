import json

from hypothesis import given
from hypothesis import strategies as st

from magcli.rl.ledger import Ledger


def test_what_was_noted_is_found_again(tmp_path):
    ledger = Ledger(tmp_path / "ledger.jsonl")
    ledger.note(0, "reserved", problem="p", version=0)
    ledger.note(1, "reserved", problem="q", version=0)
    ledger.note(0, "dropped", reason="all-wrong")
    length = ledger.sync()
    ledger.note(2, "reserved", problem="r", version=1)
    ledger.close()
    again = Ledger(tmp_path / "ledger.jsonl", length=length)
    assert again.outstanding == {1}, "what came after the checkpoint is cut off"
    again.note(1, "trained", step=1)
    again.close()
    lines = [json.loads(line) for line in (tmp_path / "ledger.jsonl").read_text().splitlines()]
    assert [(line["group"], line["event"]) for line in lines] == [
        (0, "reserved"),
        (1, "reserved"),
        (0, "dropped"),
        (1, "trained"),
    ]


def test_a_new_run_begins_with_an_empty_ledger(tmp_path):
    (tmp_path / "ledger.jsonl").write_text('{"group": 0, "event": "reserved"}\n{"gro')
    ledger = Ledger(tmp_path / "ledger.jsonl")
    assert ledger.outstanding == set()
    assert ledger.sync() == 0
    ledger.close()


@given(st.lists(st.tuples(st.integers(0, 5), st.sampled_from(["reserved", "generated", "admitted", "trained"]))))
def test_outstanding_is_what_was_begun_and_not_ended(tmp_path_factory, noted):
    ledger = Ledger(tmp_path_factory.mktemp("ledger") / "ledger.jsonl")
    last = {}
    for group, event in noted:
        ledger.note(group, event)
        last[group] = event
    assert ledger.outstanding == {group for group, event in last.items() if event != "trained"}
    length = ledger.sync()
    ledger.close()
    again = Ledger(ledger.file.name, length=length)
    assert again.outstanding == ledger.outstanding
    again.close()
