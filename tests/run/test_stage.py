import pytest

from magcli.run.settings import changes, fingerprint

DIGEST = {"model_sha256": "ab", "seed": 1}


@pytest.mark.parametrize(
    ("one", "other", "same"),
    [
        ({"model": "a/model", **DIGEST}, {"model": "/b/model", **DIGEST}, True),
        ({"model": "a/model", **DIGEST}, {"model": "a/model", **DIGEST, "model_sha256": "cd"}, False),
        ({"model": "a/model", **DIGEST}, {"model": "a/model", **DIGEST, "seed": 2}, False),
        ({"model": "http://a:1/v1#m"}, {"model": "https://b/v1#m"}, True),
        ({"model": "http://a:1/v1#m"}, {"model": "http://a:1/v1#n"}, False),
        ({"model": "http://a:1/v1#m"}, {"model": "m"}, False),
        ({"model": "http://a:1/v1"}, {"model": "http://b:1/v1"}, False),
        ({"model": "http://a:1/v1"}, {"model": "http://a:1/v1"}, True),
        ({"model": "org/a"}, {"model": "org/b"}, False),
        ({"seed": 1}, {"seed": 1}, True),
    ],
)
def test_the_location_of_a_model_does_not_matter(one, other, same):
    assert (fingerprint(one) == fingerprint(other)) is same


FILES = {"reward_sha256": "r", "system_sha256": "s", "stage_1_data_sha256": "d", "against a_sha256": "a"}


@pytest.mark.parametrize(
    ("one", "other", "same"),
    [
        ({"reward": "a/f.py:one"}, {"reward": "b/f.py:one"}, True),
        ({"reward": "a/f.py:one"}, {"reward": "a/f.py:two"}, False),
        ({"system": "a/s.txt"}, {"system": "/b/s.txt"}, True),
        ({"system": "a/s.txt"}, {"system": None}, False),
        ({"stage": [{"updates": 2, "data": "a"}]}, {"stage": [{"updates": 2, "data": "b"}]}, True),
        ({"stage": [{"updates": 2, "data": "a"}]}, {"stage": [{"updates": 3, "data": "a"}]}, False),
        ({"stage": [{"updates": 2, "data": "a"}]}, {"stage": [{"updates": 2}]}, False),
        ({"against": ["x/a"]}, {"against": ["y/a"]}, True),
        ({"loss": "a/f.py:one"}, {"loss": "b/f.py:one"}, False),
    ],
)
def test_the_location_of_a_file_with_a_digest_does_not_matter(one, other, same):
    assert (changes({**one, **FILES}, {**other, **FILES}) == "") is same


def test_a_change_names_the_option_and_the_file():
    before = {"model": "a", "model_sha256": "1", "reward_imports": {"x.py": "1", "y.py": "2"}, "seed": 0, "lr": 1}
    now = {"model": "b", "model_sha256": "1", "reward_imports": {"x.py": "1", "y.py": "3"}, "seed": 0, "lr": 2}
    assert changes(before, now) == "lr 1 (now 2), reward_imports y.py '2' (now '3')"
    assert changes({"model": "a", "model_sha256": "1"}, {"model": "b", "model_sha256": "2"}) == (
        "model 'a' (now 'b'), model_sha256 '1' (now '2')"
    )
    assert changes({}, {"reward_imports": {"x.py": "1"}}) == "reward_imports x.py None (now '1')"
