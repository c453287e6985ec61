"""What an update of an engine's weights asks of a GPU, counted on a CPU."""

from benchmarks.weights import count_update


def test_an_update_waits_for_buffers_not_for_tensors():
    counts = count_update()
    assert counts["tensors"] == 272
    assert counts["handles"] == 1
    assert counts["synchronisations"] == 2, "one for the digests of each end"
    assert counts["copies"] < counts["tensors"]
