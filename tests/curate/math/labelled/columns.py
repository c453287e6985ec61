"""Maps the columns of each source to the problem, answer and choices of a labelled row.

Rows whose text may not be shipped are identified by file, row number and digest; ``sources.jsonl`` says where the files
are published, and ``problem_of`` converts their rows to what the labeller read.
"""

import hashlib
import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

Row = Mapping[str, Any]
_NEXT_ROW = re.compile(r"[\s,]*(?=[{\[])")


class Problem(NamedTuple):
    """The input of ``clean-math`` for one row; ``choices`` are lettered or in the order of the letters."""

    problem: str
    answer: str | None
    choices: list[str] | None = None


def read(path: Path) -> list[Row]:
    """The rows of a published file: one JSON array, an object with one as ``example`` or rows by name, JSON lines."""
    text = path.read_text(encoding="utf-8", errors="replace")
    try:
        whole = json.loads(text)
    except json.JSONDecodeError:
        if text.startswith("[\n"):
            return list(_truncated_array(text))
        return [json.loads(line) for line in text.split("\n") if line.strip()]
    return list(whole.get("example", whole.values()) if isinstance(whole, dict) else whole)


def _truncated_array(array: str) -> Iterator[Row]:
    """The complete rows of a JSON array that was published truncated."""
    at = 1
    while row := _NEXT_ROW.match(array, at):
        try:
            found, at = json.JSONDecoder().raw_decode(array, row.end())
        except json.JSONDecodeError:
            return
        yield found


def digest(row: Row) -> str:
    """First 16 hex digits of the SHA-256 of the row as JSON: keys sorted, no spaces, UTF-8 unescaped."""
    canonical = json.dumps(row, sort_keys=True, ensure_ascii=False, separators=(",", ":"))
    return hashlib.sha256(canonical.encode()).hexdigest()[:16]


def half_of(sha256: str) -> str:
    """``seen`` if the last hex digit is even, else ``held-out``."""
    return "held-out" if int(sha256[-1], 16) % 2 else "seen"


def problem_of(source: str, row: Row) -> Problem:
    """The columns of a row of ``source``, a name in ``sources.jsonl``."""
    problem, answer, choices = COLUMNS[source](row)
    return Problem(problem, None if answer is None else str(answer), choices)


def boxed(solution: str) -> str | None:
    r"""The content of the last ``\boxed{}`` or ``\fbox{}`` of a solution, or None."""
    start = max(solution.rfind("\\boxed"), solution.rfind("\\fbox"))
    if start < 0:
        return None
    brace = solution.find("{", start)
    if brace < 0 or solution[start + 6 : brace].strip():
        return solution[start + 6 :].split("$")[0].strip()
    return _balanced(solution, brace)


def _balanced(text: str, brace: int) -> str:
    depth = 0
    for at in range(brace, len(text)):
        depth += {"{": 1, "}": -1}.get(text[at], 0)
        if depth == 0:
            return text[brace + 1 : at]
    return text[brace + 1 :]


def _named(problem: str, answer: str) -> Callable[[Row], Problem]:
    return lambda row: Problem(row[problem], row[answer])


def _solved(row: Row) -> Problem:
    return Problem(row["problem"], boxed(row["solution"]))


def _gsm8k(row: Row) -> Problem:
    return Problem(row["question"], row["answer"].split("####")[-1].strip())


def _instructed(row: Row) -> Problem:
    return Problem(_joined(row["instruction"], row["input"]), row["output"])


def _seeded(row: Row) -> Problem:
    first = row["instances"][0]
    return Problem(_joined(row["instruction"], first["input"]), first["output"])


def _joined(instruction: str, given: str) -> str:
    return f"{instruction}\n{given}" if given else instruction


def _contextual(row: Row) -> Problem:
    return Problem(_joined(row.get("context") or "", row["question"]).lstrip("\n"), ", ".join(row["final_answer"]))


def _only(row: Row) -> Problem:
    (problem,) = row.values()
    return Problem(problem["question"], problem["answer"])


def _lettered(row: Row) -> Problem:
    return Problem(row["problem"], row["answer_value"], [option["content"] for (option,) in row["answer_option_list"]])


def _measured(row: Row) -> Problem:
    return Problem(row["problem_text"], f"{row['answer_latex'].strip()} {row['unit'].strip()}".strip())


def _several(values: Iterable[float]) -> str:
    return ", ".join(str(int(value)) if value == int(value) else str(value) for value in values)


def _spoken(row: Row) -> Problem:
    return Problem(row["raw_text"], _several(row["ans"]))


def _drawn(row: Row) -> Problem:
    return Problem(row["original"]["sQuestion"], _several(row["original"]["lSolutions"]))


def _turns(row: Any) -> Problem:
    asked, answered = row
    return Problem(asked["value"], str(answered["ground_truth"]["value"]))


COLUMNS: dict[str, Callable[[Row], tuple[str, Any, list[str] | None]]] = {
    "aime_1983_2023.json": _named("problem", "answer"),
    "alignbench.jsonl": _named("question", "reference"),
    "alpaca_en_1000.json": _instructed,
    "alpaca_zh_1000.json": _instructed,
    "ape_test.jsonl": _named("original_text", "ans"),
    "ape_valid.jsonl": _named("original_text", "ans"),
    "aqua_test.jsonl": lambda row: Problem(row["question"], row["correct"], row["options"]),
    "asdiv.jsonl": lambda row: Problem(f"{row['body']} {row['question']}", row["answer"]),
    "carp_en.jsonl": _named("content", "answer"),
    "cm17k_test.json": _spoken,
    "cm17k_valid.json": _spoken,
    "cmath_zh.jsonl": _named("question", "answer"),
    "cn_middle_school_zh.jsonl": lambda row: Problem(row["question"], row["choice_answer"] or row["answer"]),
    "college_math.jsonl": _named("question", "answer"),
    "comp_math_24_25.jsonl": _named("problem", "expected_answer"),
    "draw_train.jsonl": _drawn,
    "gaokao2023en.jsonl": _named("question", "answer"),
    "gaokao_2023_choice.json": lambda row: Problem(row["question"], ", ".join(row["answer"])),
    "gaokao_2024_choice.json": lambda row: Problem(row["question"], ", ".join(row["answer"])),
    "gaokao_bench_choice_1.json": lambda row: Problem(row["question"], ", ".join(row["answer"])),
    "gaokao_bench_cloze_1.json": _named("question", "answer"),
    "gaokao_bench_cloze_2.json": _named("question", "answer"),
    "gaokao_bench_open_1.json": _named("question", "answer"),
    "gaokao_bench_open_2.json": _named("question", "answer"),
    "gaokao_math_cloze_zh.jsonl": _named("question", "answer"),
    "gaokao_math_qa_zh.jsonl": lambda row: Problem(
        row["question"], row["label"], [row["options"][letter] for letter in sorted(row["options"])]
    ),
    "gsm8k_test.jsonl": _gsm8k,
    "gsm8k_train.jsonl": _gsm8k,
    "kaoyan_zh.jsonl": _named("problem", "answer"),
    "math_test_full.jsonl": _solved,
    "math_train.json": _named("problem", "answer"),
    "math_vision.jsonl": lambda row: Problem(row["question"], row["answer"], row["options"] or None),
    "mawps_addsub.jsonl": _named("input", "target"),
    "mawps_multiarith.jsonl": _named("input", "target"),
    "mawps_singleeq.jsonl": _named("input", "target"),
    "mawps_singleop.jsonl": _named("input", "target"),
    "minerva_math.jsonl": _solved,
    "minif2f_informal.jsonl": _named("informal_statement", "informal_proof"),
    "mmlu_stem.jsonl": lambda row: Problem(row["question"], "ABCD"[row["answer"]], row["choices"]),
    "odyssey_math.jsonl": _only,
    "olympiadbench_en_open.jsonl": _contextual,
    "orz_57k.json": _turns,
    "orz_57k_later.json": _turns,
    "orz_72k.json": _turns,
    "proofnet.jsonl": _named("nl_statement", "nl_proof"),
    "putnam_informal.json": _named("informal_statement", "informal_solution"),
    "sat_math.jsonl": lambda row: Problem(_joined(row["question"], row["options"]), row["Answer"]),
    "scibench_atkins.json": _measured,
    "scibench_calculus.json": _measured,
    "scibench_chemmc.json": _measured,
    "scibench_class.json": _measured,
    "scibench_diff.json": _measured,
    "scibench_fund.json": _measured,
    "scibench_matter.json": _measured,
    "scibench_quan.json": _measured,
    "scibench_stat.json": _measured,
    "scibench_thermo.json": _measured,
    "self_instruct_seed_175.jsonl": _seeded,
    "svamp.jsonl": lambda row: Problem(f"{row['Body']} {row['Question']}", row["Answer"]),
    "tabmwp_test1k.json": lambda row: Problem(row["question"], row["answer"], row["choices"]),
    "tal_en.jsonl": _lettered,
    "tal_zh.jsonl": _lettered,
    "theoremqa.json": _named("Question", "Answer"),
}
