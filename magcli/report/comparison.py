"""How runs and evaluations differ: their options, the ends of their curves, and what a paired difference says.

`magcli compare` prints it, and the page of `magcli report` shows it.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from magcli.run.rundir import HELD_OUT, Line, Trained
from magcli.run.settings import CHOSEN, DIGEST, PLAN

ENDS = ("reward", "correct", "entropy", "length_mean", "loss", "held_out_loss")
"""The metrics of steps of which the end is compared."""

END_SHARE = 10
"""The mean is over the last 1 / END_SHARE of the steps."""

ACCURACY = HELD_OUT[:3]
"""The accuracy on held-out problems during training, with its interval."""

HEADLINE = "avg@n"
"""The metric by which the last line says what is better."""

MAX_VALUE = 60
"""Characters of an option's value, at most."""


def options_of(run: Trained) -> dict[str, Any]:
    """The options of a run, what ``auto`` resolved to, and its inputs; without the run's own folder."""
    chosen = run.options.get(CHOSEN, {})
    tables = {"inputs": [f"{table.name} {table.sha256[:8]}".strip() for table in run.inputs]}
    # Without ``CHOSEN`` as a whole, of which each option is there by itself, and the plan, which names devices.
    return {**run.options, **chosen, **tables, "command": run.stage, CHOSEN: None, PLAN: None}


def differing(settings: Sequence[Mapping[str, Any]]) -> dict[str, list[Any]]:
    """The settings that are not equal in all, by name, with their values.

    A digest is left out where the option that it belongs to differs too.
    """
    names: dict[str, None] = {}  # in the order of their first appearance
    for options_of_run in settings:
        names.update(dict.fromkeys(options_of_run))
    differ = {}
    for name in names:
        values = [options_of_run.get(name) for options_of_run in settings]
        # Not a set: values may be lists, which have no hash.
        are_equal = all(value == values[0] for value in values)
        if not are_equal:
            differ[name] = values
    implied = {f"{name}{DIGEST}" for name in differ}
    return {name: values for name, values in differ.items() if name not in implied}


def end_of(lines: Sequence[Line]) -> dict[str, Any]:
    """The number of steps, the mean of each metric over the last of them, and the last accuracy with its interval."""
    steps = [line for line in lines if line["step"]]
    num_last = max(1, len(steps) // END_SHARE)
    # The mean of some steps, because a single one is noisy.
    last = steps[-num_last:]
    end: dict[str, Any] = {"steps": len(steps)}
    for name in ENDS:
        measured = [line[name] for line in last if line.get(name) is not None]
        if not measured:
            # A metric that is measured at intervals may have its last value earlier.
            measured = [line[name] for line in steps if line.get(name) is not None][-1:]
        if measured:
            end[name] = sum(measured) / len(measured)
    evaluated = [line for line in lines if line.get("accuracy") is not None]
    if evaluated:
        newest = evaluated[-1]
        end |= {name: newest.get(name) for name in ACCURACY}
    return end


def accuracy(end: Mapping[str, Any]) -> str:
    """The last accuracy on held-out problems in percent, with its interval."""
    value, low, high = (end.get(name) for name in ACCURACY)
    return in_percent(value, low, high) or "-"


def in_percent(value: float | None, low: float | None, high: float | None, sign: str = "") -> str:
    """A share in percent with its interval, if it has one; empty without a share. ``sign``: ``+`` for differences."""
    if value is None:
        return ""
    text = f"{100 * value:{sign}.1f}"
    if low is None or high is None:
        return text
    return f"{text} [{100 * low:{sign}.1f}, {100 * high:{sign}.1f}]"


def verdict(row: Mapping[str, Any], first: str) -> str:
    """What a row of a comparison says about its model and the first one, in one line."""
    where = f"{row['suite']}: " if row["suite"] else ""
    pair = f"{where}{row['model']} against {first}"
    if row.get("difference") is None:
        why = "they share no problem, or the completions of one are not there (evaluate --completions keeps them)"
        return f"{pair}: no difference by problem: {why}"
    difference, low, high = row["difference"], row["difference_low"], row["difference_high"]
    if low is None or high is None:
        return f"{pair}: {100 * difference:+.1f} points on a single problem"
    # Certain is what holds for the whole interval.
    if low > 0:
        better = "better"
    elif high < 0:
        better = "worse"
    else:
        better = "neither better nor worse with certainty"
    interval = f"{100 * difference:+.1f} points [{100 * low:+.1f}, {100 * high:+.1f}]"
    return f"{pair}: {interval} on {row['num_paired']:,} problems, {better}"


def short(value: Any) -> str:
    """The value of an option, of a digest or a list its beginning."""
    if value in (None, "", [], {}):
        return "-"
    text = ", ".join(map(str, value)) if isinstance(value, list | tuple) else str(value)
    if len(text) <= MAX_VALUE:
        return text
    return f"{text[: MAX_VALUE - 3]}..."


def figure(value: float | None) -> str:
    """A metric with four digits, a count with all."""
    if value is None:
        return "-"
    return f"{value:,}" if isinstance(value, int) else f"{value:.4g}"
