"""Problems into other languages: by a server, by a model that cannot, and from a table."""

import json
import threading
from collections import Counter
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest
from calling import call_stage, kill_and_resume, seconds_of

from magcli.curate.translation import LanguageChoice
from magcli.data import table
from magcli.errors import DataError, UsageError
from magcli.verify.reward import RewardRule, reward

EXAMPLES = Path(__file__).parents[2] / "examples"
PROBLEMS, TRANSLATIONS = EXAMPLES / "word_problems.jsonl", EXAMPLES / "translations.jsonl"
BOTH = ("fr", "de")


def written(path, rows):
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


def rows_of(path):
    return [row for batch in table.read(str(path)).rows for row in batch.to_pylist()]


GOOD = {(row["id"], row["language"]): row["prompt"] for row in rows_of(TRANSLATIONS)}
ENGLISH = {row["prompt"]: row["id"] for row in rows_of(PROBLEMS)}


class Translator(ThreadingHTTPServer):
    """An OpenAI-compatible server here that knows the examples; it spoils the first ``bad`` tries of each."""

    daemon_threads = True

    def __init__(self, bad: int = 0) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.bad, self.asked, self.seeds, self.lock = bad, Counter(), set(), threading.Lock()
        threading.Thread(target=self.serve_forever, daemon=True).start()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}/v1#known"

    def answer(self, body: dict) -> tuple[str, str]:
        system, user = (message["content"] for message in body["messages"])
        id, language = ENGLISH[user], "de" if "German" in system else "fr"
        with self.lock:
            self.asked[id] += 1
            self.seeds.add((id, body["seed"]))
            spoiled = self.asked[id] <= self.bad
        text = GOOD[id, language]
        if not spoiled:
            return f"<think>Easy.</think>\n{text}\n", "stop"
        return [(text[: len(text) // 2], "length"), ("1234 " + text, "stop")][self.asked[id] % 2]


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: Translator

    def log_message(self, *_) -> None:
        """Stay quiet."""

    def do_GET(self) -> None:
        self.reply({"data": [{"id": "known"}]})

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        text, finish = self.server.answer(body)
        choice = {"index": 0, "message": {"role": "assistant", "content": text}, "finish_reason": finish}
        self.reply({"choices": [choice], "usage": {"completion_tokens": 9, "prompt_tokens": 9, "total_tokens": 18}})

    def reply(self, body: dict) -> None:
        data = json.dumps(body).encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)


@pytest.fixture
def translator():
    """Opens servers, and closes them at the end."""
    servers: list[Translator] = []

    def opened(bad: int = 0) -> Translator:
        servers.append(Translator(bad))
        return servers[-1]

    yield opened
    for each in servers:
        each.shutdown()
        each.server_close()


def test_a_server_translates_only_the_chosen_rows(translator, tmp_path, capfd):
    out, choice = tmp_path / "out.arrow", LanguageChoice(0.6, BOTH)
    options = {"languages": BOTH, "fraction": 0.6, "model": translator().url, "quiet": False}
    call_stage("translate", PROBLEMS, output=out, **options)
    before, after = rows_of(PROBLEMS), rows_of(out)
    assert [row["id"] for row in after] == [row["id"] for row in before]
    for old, new in zip(before, after, strict=True):
        language = choice.of(old["id"])
        assert (new["answer"], new["source"], new["translated_to"]) == (old["answer"], old["source"], language)
        if language:
            assert (new["prompt"], new["original"]) == (GOOD[old["id"], language], old["prompt"])
            assert (new["language"], new["translation"]) == (language, "translated")
        else:
            assert (new["prompt"], new["original"], new["translation"]) == (old["prompt"], None, None)
            assert new["language"] == "en"
    chosen = sum(row["translated_to"] is not None for row in after)
    assert 0 < chosen < 8
    assert f"{chosen} of 8 selected; translated {chosen} (" in capfd.readouterr().err


@pytest.mark.parametrize(("bad", "outcome"), [(2, {"translated"}), (3, {"cut", "numbers"})])
def test_a_bad_translation_is_retried_with_another_seed_and_then_left_untranslated(translator, tmp_path, bad, outcome):
    server, out = translator(bad), tmp_path / "out.arrow"
    call_stage("translate", PROBLEMS, output=out, languages=BOTH, fraction=1.0, model=server.url, tries=3)
    rows = rows_of(out)
    assert {row["translation"] for row in rows} <= outcome
    assert set(server.asked.values()) == {3}
    assert len(server.seeds) == 24
    kept = [row for row in rows if row["translation"] != "translated"]
    assert all((row["prompt"] in ENGLISH, row["original"], row["language"]) == (True, None, "en") for row in kept)
    assert len(kept) == (0 if bad < 3 else 8)


def test_existing_translations_come_first_and_are_checked_like_others(translator, tmp_path):
    rows = rows_of(TRANSLATIONS)
    spoiled = [{**row, "prompt": row["prompt"].replace("4", "6")} for row in rows if row["id"] != "w1"]
    data, outcomes = written(tmp_path / "t.jsonl", spoiled), {}
    for name, more in {"alone": {}, "with": {"model": translator().url}}.items():
        out = tmp_path / f"{name}.arrow"
        call_stage("translate", PROBLEMS, output=out, from_=data, languages=BOTH, fraction=1.0, **more)
        outcomes[name] = {row["id"]: row["translation"] for row in rows_of(out)}
    assert outcomes["alone"] == {
        **dict.fromkeys(("w2", "w6", "w8"), "translated"),
        **dict.fromkeys(("w4", "w7"), "numbers"),
        **dict.fromkeys(("w3", "w5"), "latex"),
        "w1": "no-translation",
    }
    assert set(outcomes["with"].values()) == {"translated"}


def test_translated_rows_are_unchanged(tmp_path, capfd):
    once, again = tmp_path / "once.jsonl", tmp_path / "again.jsonl"
    call_stage("translate", PROBLEMS, output=once, from_=TRANSLATIONS, languages=("fr",), fraction=0.5)
    call_stage("translate", once, output=again, from_=TRANSLATIONS, languages=("de",), fraction=1.0, quiet=False)
    before = {row["id"]: row for row in rows_of(once) if row["translation"] == "translated"}
    found = {row["id"]: row for row in rows_of(again)}
    assert 0 < len(before) < len(found)
    assert {id: found[id] for id in before} == before
    left = len(found) - len(before)
    said = capfd.readouterr().err
    assert f"{left} of {left} selected; translated {left} (de {left})" in said
    assert f"{len(before)} were translated before" in said
    assert all(found[id]["original"] and found[id]["translated_to"] == "de" for id in set(found) - set(before))


def test_rows_are_joined_by_row_number(tmp_path):
    german = [{"prompt": row["prompt"]} for row in rows_of(TRANSLATIONS) if row["language"] == "de"]
    data, out = written(tmp_path / "t.jsonl", german), tmp_path / "out.jsonl"
    call_stage("translate", PROBLEMS, output=out, from_=data, by="position", languages=("de",), fraction=1.0)
    assert [row["prompt"] for row in rows_of(out)] == [row["prompt"] for row in german]


def test_a_translation_is_not_that_of_another_problem_with_its_id(tmp_path):
    largest = "Which of the numbers in the list above is the largest one of all of them?"
    apples = "How many apples does each of the children have after the party is over?"
    german = "Wie viele Äpfel hat jedes der Kinder, nachdem das Fest zu Ende ist?"
    text = "Lequel des nombres de la liste ci-dessus est le plus grand de tous les nombres ?"
    data, out = written(tmp_path / "t.jsonl", [{"id": "1", "prompt": text}]), tmp_path / "o.jsonl"
    options = {"output": out, "from_": data, "languages": ("fr",), "fraction": 1.0}
    # The same problem again, and in a language from which nothing is translated.
    rows = [{"id": "1", "prompt": prompt, "answer": "7"} for prompt in (german, largest, largest, german)]
    call_stage("translate", written(tmp_path / "p.jsonl", rows), **options)
    assert [row["prompt"] for row in rows_of(out)] == [german, text, text, german]
    other = written(tmp_path / "q.jsonl", [*rows, {"id": "1", "prompt": apples, "answer": "3"}])
    with pytest.raises(DataError, match=r"id '1' belongs to two .* problems, of which .*t\.jsonl translates one"):
        call_stage("translate", other, **options)


def test_unreadable_lines_of_existing_translations_are_reported(tmp_path, capfd):
    path = tmp_path / "translations.jsonl"
    path.write_text(TRANSLATIONS.read_text() + '{"id": \n')
    call_stage("translate", PROBLEMS, output=tmp_path / "out.jsonl", from_=path, languages=BOTH, quiet=False)
    assert "warning: translate: " in (said := capfd.readouterr().err)
    assert said.count("translations.jsonl: skipped unreadable lines (broken-json 1)") == 1


def test_untranslatable_problems_are_unchanged_with_a_reason(translator, tmp_path):
    rows = [
        {"id": "short", "prompt": "Compute $3 + 4$.", "answer": "7"},
        {"id": "word", "prompt": "On which day of the week was the first of May 2020?", "answer": "Friday"},
        {"id": "german", "prompt": "Wie viele Eier legen die Hühner an einem Tag?", "answer": "7"},
        {"id": "code", "prompt": "Read n numbers and print their sum.", "kind": "code", "language": "python"},
    ]
    server, out = translator(), tmp_path / "out.jsonl"
    problems = written(tmp_path / "p.jsonl", rows)
    existing = written(tmp_path / "t.jsonl", [{"id": "code", "prompt": "Lis n nombres et affiche leur somme."}])
    call_stage("translate", problems, output=out, languages=("fr",), fraction=1.0, model=server.url, from_=existing)
    found = {row["id"]: (row["translation"], row["language"]) for row in rows_of(out)}
    assert found == {
        "short": ("too-few-words", None),
        "word": ("worded-answer", "en"),
        "german": ("not-english", "de"),
        "code": ("translated", "python"),
    }
    assert not server.asked, "no token is spent on them"


def test_a_translated_row_earns_the_language_reward_only_in_its_language(tmp_path):
    out = tmp_path / "out.jsonl"
    call_stage("translate", PROBLEMS, output=out, from_=TRANSLATIONS, languages=("de",), fraction=1.0)
    row = rows_of(out)[0]
    said = {
        "de": "<think>Ich ziehe die fünf Äpfel von den zwölf ab, dann bleiben sieben.</think>Es bleiben also sieben "
        "Äpfel übrig: \\boxed{7}",
        "en": "<think>I take the five apples away from the twelve, and seven are left.</think>So there are seven "
        "apples left: \\boxed{7}",
    }
    earned = {name: reward(text, 30, row, RewardRule()) for name, text in said.items()}
    assert {name: (each.language, each.correct) for name, each in earned.items()} == {
        "de": (pytest.approx(0.1), True),
        "en": (0.0, True),
    }


@pytest.mark.faults
def test_killed_and_resumed_gives_the_same_bytes(guesser, tmp_path):
    """The toy model cannot translate: every row is asked for and stays in English, with what was wrong."""
    rows = [
        {"id": f"p{n}", "prompt": f"Anna has {n} apples and buys 5 more of them.", "answer": "3"} for n in range(30)
    ]
    problems = written(tmp_path / "p.jsonl", rows)
    own_prompt = tmp_path / "own.txt"
    own_prompt.write_text("In {language}:")
    options = {"model": str(guesser), "fraction": 1.0, "max_tokens": 24, "deterministic": True, "system": own_prompt}
    took = seconds_of("translate", problems, output=tmp_path / "a.arrow", **options)
    kill_and_resume(3, 0.6 * took, "translate", problems, output=tmp_path / "b.arrow", **options)
    assert (tmp_path / "b.arrow").read_bytes() == (tmp_path / "a.arrow").read_bytes()
    rows = rows_of(tmp_path / "a.arrow")
    assert len(rows) == 30
    assert {row["translation"] for row in rows} <= {"empty", "cut", "latex", "numbers", "language"}


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"model": ""}, "give --model, --from or both"),
        ({"by": "position"}, "translate: --by position requires --from"),
        ({"languages": ("fr", "tlh")}, "translate.languages: unknown tlh; choose from fr, es, it, de, zh, ru"),
        ({"languages": ()}, "translate.languages: no language given"),
        ({"fraction": 1.5}, r"translate.fraction: 1.5 is not in \[0, 1\]"),
        ({"tries": 0}, "translate.tries: 0 is not positive"),
        ({"max_tokens": 0}, "translate.max_tokens: 0 is not positive"),
        ({"temperature": -1.0}, "translate.temperature: -1.0 is negative"),
        ({"engine": "server"}, "--engine server needs a URL"),
    ],
)
def test_invalid_options_are_refused_first(options, message):
    with pytest.raises(UsageError, match=message):
        call_stage("translate", "nothing.jsonl", **{"model": "m"} | options)


def test_an_option_named_by_a_python_keyword_works_in_flags_and_recipes(magcli, tmp_path):
    (tmp_path / "r.toml").write_text('[translate]\nfrom = "a.jsonl"\n')
    for words in (["--from", "a.jsonl"], ["--recipe", tmp_path / "r.toml"]):
        done = magcli("translate", "p.jsonl", *words, "--dry-run", cwd=tmp_path)
        assert json.loads(done.stdout)["config"]["from_"] == "a.jsonl"


@pytest.mark.parametrize(("row", "reason"), [({"id": "x", "prompt": " "}, "empty-prompt"), ({}, "not-an-object")])
def test_row_numbers_join_nothing_if_a_row_is_missing(tmp_path, row, reason):
    """The rows after it would get the translations of their neighbours."""
    problems = written(tmp_path / "problems.jsonl", [row, *rows_of(PROBLEMS)])
    options = {"output": tmp_path / "o.arrow", "by": "position", "languages": ("de",)}
    with pytest.raises(DataError, match=rf"--by position needs every row, but some were dropped \({reason}\)"):
        call_stage("translate", problems, from_=PROBLEMS, **options)
