"""The completions of an update that trackers get."""

from pathlib import Path

from magcli.rl.samples import samples_of


def test_a_run_without_rollouts_has_no_samples(tmp_path: Path) -> None:
    assert samples_of(tmp_path, 1) == []
    (tmp_path / "rollouts").mkdir()
    (tmp_path / "rollouts" / "step-000001.arrow").write_bytes(b"cut")
    assert samples_of(tmp_path, 1) == [], "the report names the damage; the metrics are tracked"
