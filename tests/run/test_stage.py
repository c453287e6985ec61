import pytest

from magcli.run.settings import fingerprint

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
