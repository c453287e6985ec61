"""Verdicts over HTTP for other trainers: the remote reward model of OpenRLHF, and reward functions of verl.

A request is a JSON object; which protocol it is follows from its keys:

===================================================  =========================================================
request                                              response
===================================================  =========================================================
``query``, ``prompts``, ``labels``: lists            ``rewards``, ``scores`` (1.0 if right), ``extra_logs``
``solution_str``, ``ground_truth``, ``extra_info``   ``score``, ``acc``, ``pred``, ``reason``
``solution_strs``, ``ground_truths``, ..: lists      a list of these
===================================================  =========================================================

The first is what OpenRLHF 0.11 posts to ``--reward.remote_url``; the others are the arguments of a ``compute_score`` of
verl 0.9, which posts nothing itself (``examples/verl_reward.py`` does). Bad requests get one line as ``error``.
"""

import base64
import binascii
import hmac
import json
import threading
from collections.abc import Callable, Mapping, Sequence
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from magcli.errors import DataError, EnvironmentFault, MagError
from magcli.layouts import programs, rollouts
from magcli.layouts.types import Unreadable
from magcli.run.local_http import names_this_machine
from magcli.verify.grader import Grader
from magcli.verify.reward import Reward, RewardRule

MAX_BODY = 1 << 26
"""Bytes of a request that are read at most."""
READ_SECONDS = 60.0
"""Time in which a client must send its request."""
QUESTIONS = ("question", "problem", "prompt")
"""Keys of verl's ``extra_info`` under which data sets keep the question."""

Row = dict[str, Any]
Task = tuple[str, Row]
"""A completion, and its problem."""


class BadRequest(Exception):
    """A request that cannot be answered: one line, for the client."""


class Verdicts:
    """Answers requests with a grader, from any thread; ``opening`` is put before each completion."""

    def __init__(self, grader: Grader, rule: RewardRule, opening: str = "") -> None:
        self._grader, self._rule, self._opening = grader, rule, opening

    def answer(self, body: Any) -> Any:
        """The response to a request.

        Raises:
            BadRequest: it is of no protocol, or a field is wrong.
            MagError: nothing can be graded on this machine.
        """
        match body:
            case {"query": query, "labels": _}:
                rewards = self._grade(_tasks_of_openrlhf(body))
                return _for_openrlhf(rewards, is_list=isinstance(query, list))
            case {"solution_strs": list(texts), "ground_truths": list(truths)}:
                infos = body.get("extra_infos") or [None] * len(texts)
                tasks = [_task_of_verl(*task) for task in _together(texts, truths, infos)]
                return [_for_verl(reward) for reward in self._grade(tasks)]
            case {"solution_str": text, "ground_truth": truth}:
                (reward,) = self._grade([_task_of_verl(text, truth, body.get("extra_info"))])
                return _for_verl(reward)
        raise BadRequest(
            "the request is a JSON object with query, prompts and labels, or solution_str and ground_truth"
        )

    def _grade(self, tasks: Sequence[Task]) -> list[Reward]:
        for _, row in tasks:
            # A custom reward may need neither an answer nor tests.
            if not row.get("tests") and not (row.get("answer") or "").strip() and not self._grader.is_custom:
                raise BadRequest("a label is empty: each completion needs its reference answer or tests")
        # Without lengths in tokens, so without a length penalty.
        return self._grader.rewards([(self._opening + text, 0, row, self._rule) for text, row in tasks])


# ---- OpenRLHF ----


def _tasks_of_openrlhf(body: Mapping[str, Any]) -> list[Task]:
    queries, labels = _listed(body["query"]), _listed(body["labels"])
    # Without prompts a query must be a whole conversation in a chat template.
    prompts = _listed(body.get("prompts") or [""] * len(queries))
    return [_task_of_openrlhf(*values) for values in _together(queries, prompts, labels)]


def _task_of_openrlhf(query: Any, prompt: Any, label: Any) -> Task:
    """The completion in a query, which is the prompt with it, and the problem."""
    if not isinstance(query, str) or not isinstance(prompt, str):
        raise BadRequest("query and prompts are lists of texts")
    return _said(query, prompt), _problem(prompt, label)


def _said(query: str, prompt: str) -> str:
    # The tokenizer may have changed the prompt when it decoded it; then the template's marks tell the turn.
    if prompt and query.startswith(prompt):
        return rollouts.without_turn_end(query[len(prompt) :])
    try:
        return str(rollouts.said_in_chat(query)["completion"])
    except Unreadable:
        raise BadRequest("a query begins with its prompt, or has one turn of the model in a chat template") from None


def _for_openrlhf(rewards: Sequence[Reward], *, is_list: bool) -> Row:
    columns: Row = {
        "rewards": [reward.total for reward in rewards],
        "scores": [float(reward.correct) for reward in rewards],
        "format": [reward.format for reward in rewards],
        "language": [reward.language for reward in rewards],
        "correct_anywhere": [float(reward.correct_anywhere) for reward in rewards],
        "ungraded": [float(not reward.trainable) for reward in rewards],
    }
    if not is_list:  # a request for one completion gets numbers
        columns = {name: values[0] for name, values in columns.items()}
    scores = {name: columns.pop(name) for name in ("rewards", "scores")}
    return {**scores, "extra_logs": columns}


# ---- verl ----


def _task_of_verl(text: Any, truth: Any, info: Any) -> Task:
    if not isinstance(text, str):
        raise BadRequest("solution_str is a text")
    fields = info if isinstance(info, Mapping) else {}
    # The question decides in which language the answer should be.
    questions = [fields[name] for name in QUESTIONS if isinstance(fields.get(name), str)]
    question = questions[0] if questions else ""
    return text, _problem(question, truth)


def _for_verl(reward: Reward) -> Row:
    return {
        "score": reward.total,
        "acc": float(reward.correct),
        "pred": reward.extracted,
        "correct_anywhere": float(reward.correct_anywhere),
        "ungraded": float(not reward.trainable),
        "reason": reward.reason,
    }


# ---- both ----


def _problem(prompt: str, truth: Any) -> Row:
    """A problem for the verifier; a ground truth that is tests, or their JSON, asks for a program."""
    try:
        found = programs.ground_truth(truth, None)
    except Unreadable as error:
        raise BadRequest(f"a label cannot be read: {error.detail}") from None
    answer, tests = found["answer"], found["tests"]
    row: Row = {"prompt": prompt, "answer": None if answer is None else str(answer)}
    if tests:
        row |= {"tests": tests, "kind": "code"}
    return row


def _listed(value: Any) -> list[Any]:
    return value if isinstance(value, list) else [value]


def _together(*lists: Any) -> list[tuple[Any, ...]]:
    lengths = [len(values) for values in lists if isinstance(values, list)]
    # Some value is no list, or one is shorter.
    if len(lengths) < len(lists) or len(set(lengths)) > 1:
        raise BadRequest(f"the lists of a request have one length; these have {', '.join(map(str, lengths))}")
    return list(zip(*lists, strict=True))


# ---- HTTP ----


class Server(ThreadingHTTPServer):
    """Answers POST requests; with a token only those that have it.

    Raises:
        EnvironmentFault: the address cannot be bound.
    """

    daemon_threads = True

    def __init__(self, host: str, port: int, answer: Callable[[Any], Any], token: str = "") -> None:
        self.answer, self.token = answer, token
        try:
            super().__init__((host, port), _Handler)
        except (OSError, OverflowError) as error:
            reason = getattr(error, "strerror", None) or error
            raise EnvironmentFault(f"grade: --serve {host}:{port} cannot be bound: {reason}") from None

    @property
    def url(self) -> str:
        """Where it listens."""
        # The port that port 0 has become.
        host, port = self.server_address[:2]
        return f"http://{host!s}:{port}"

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A client that went away is no failure of the server."""


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    timeout = READ_SECONDS
    server: Server
    server_version = "magcli"
    sys_version = ""
    # What the library answers by itself, to other methods and damaged requests.
    error_content_type = "application/json"
    error_message_format = '{"error": "%(message)s"}'

    def log_message(self, *_: Any) -> None:
        """Requests are not logged."""

    def do_POST(self) -> None:
        """Answer a request."""
        status, value = self._response()
        body = json.dumps(value).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        if status == 401:
            self.send_header("WWW-Authenticate", "Bearer")
        if status >= 400:  # what follows of the request may not have been read
            self.send_header("Connection", "close")
            self.close_connection = True
        self.end_headers()
        self.wfile.write(body)

    def do_GET(self) -> None:
        """Nothing is read."""
        self.send_error(405, "POST a JSON object")

    def _response(self) -> tuple[int, Any]:
        if not self._is_allowed():
            return 401, {"error": "the token is missing or wrong: send Authorization: Bearer TOKEN"}
        # A page of another site may reach a local server by a name of its own (DNS rebinding).
        if not self.server.token and not names_this_machine(self.headers.get("Host", "")):
            return 403, {"error": "without a token the server answers as 127.0.0.1 or localhost only"}
        # A web page cannot send this type to another origin without asking the server first, which refuses.
        if self.headers.get_content_type() != "application/json":
            return 415, {"error": "the request is application/json"}
        length = self.headers.get("Content-Length") or ""
        # Nothing is read before the length is known to be small enough.
        if not length.isdecimal() or int(length) > MAX_BODY:
            return 413, {"error": f"the request needs a Content-Length of at most {MAX_BODY:,} bytes"}
        return self._answer(self.rfile.read(int(length)))

    def _answer(self, text: bytes) -> tuple[int, Any]:
        try:
            return 200, self.server.answer(json.loads(text))
        except (ValueError, RecursionError):
            return 400, {"error": "the request is not JSON"}
        except (BadRequest, DataError) as error:
            return 400, {"error": str(error)}
        except MagError as error:
            return 500, {"error": str(error)}

    def _is_allowed(self) -> bool:
        """Whether a request has the token: as a bearer, or as the password of a URL ``http://user:TOKEN@host``."""
        if not self.server.token:
            return True
        kind, _, value = (self.headers.get("Authorization") or "").partition(" ")
        sent = _password(value) if kind.lower() == "basic" else value if kind.lower() == "bearer" else ""
        # In constant time: how long it takes must not tell how much was right.
        return hmac.compare_digest(sent.encode(), self.server.token.encode())


def _password(value: str) -> str:
    try:
        return base64.b64decode(value, validate=True).decode().partition(":")[2]
    except (binascii.Error, UnicodeDecodeError):
        return ""


def serve(server: Server) -> None:
    """Answer requests until a signal ends the process."""
    thread = threading.Thread(target=server.serve_forever, name="serve", daemon=True)
    thread.start()
    try:
        # Waits in pieces, as a signal is handled between them.
        while thread.is_alive():
            thread.join(1.0)
    finally:
        server.shutdown()
        server.server_close()
