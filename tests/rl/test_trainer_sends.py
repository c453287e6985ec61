"""A trainer whose ranks send their weights: each send has one version, whole, whatever else runs meanwhile."""

import threading
from types import SimpleNamespace

import pytest

from magcli.generate.weights.rank_transfer import Sent
from magcli.rl import trainer as trainers
from magcli.rl.trainer import Trainer
from magcli.rl.types import Numerics

PLAN, MEETINGS = SimpleNamespace(names={}), ()


@pytest.fixture
def trainer():
    """A trainer whose controller does nothing: what is sent says by which version."""

    def run(commands):
        return Sent(commands[0].version, {}, {})

    controller = SimpleNamespace(size=2, run=run)
    numerics = Numerics(64, 1.0, bf16=False)
    return Trainer(controller, updates=3, lr=1e-3, warmup=0, shuffle_rewards=False, seed=0, numerics=numerics)


def test_a_send_waits_for_an_update_and_has_the_version_after_it(trainer, monkeypatch):
    begun, may_end = threading.Event(), threading.Event()

    def update(*arguments, **options):
        begun.set()
        assert may_end.wait(30)
        return SimpleNamespace(norms=[1.0])

    monkeypatch.setattr(trainers, "update", update)
    versions, sent = [], []
    learning = threading.Thread(target=trainer.learn, args=([], SimpleNamespace(objective=None, groups_per_step=1)))
    learning.start()
    assert begun.wait(30)
    sending = threading.Thread(target=lambda: sent.append(trainer.send(PLAN, MEETINGS, versions.append)))
    sending.start()
    sending.join(0.2)
    assert versions == [], "engines are told to receive only when the ranks are free"
    may_end.set()
    learning.join(30)
    sending.join(30)
    assert versions == [1]
    assert sent[0].version == trainer.done == 1


def test_an_update_that_fails_lets_others_send(trainer, monkeypatch):
    def fail(*arguments, **options):
        raise RuntimeError("of a rank")

    monkeypatch.setattr(trainers, "update", fail)
    with pytest.raises(RuntimeError, match="of a rank"):
        trainer.learn([], SimpleNamespace(objective=None, groups_per_step=1))
    assert trainer.send(PLAN, MEETINGS, lambda version: None).version == 0
