"""Uploading a folder: a local server implements the part of the hub's protocol that a push needs."""

import base64
import json
import os
import subprocess
import sys
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from magcli.errors import UsageError
from magcli.stages.export import check_repository

PUSH = """
import sys
from pathlib import Path
from magcli.errors import EnvironmentFault
from magcli.model.hub import push
try:
    print(push(Path(sys.argv[1]), "owner/toy", public=False))
except EnvironmentFault as error:
    print("fault:", error)
"""


class Hub(BaseHTTPRequestHandler):
    """Accepts uploads; files are stored in ``server.files``, other requests in ``server.asked``."""

    def do_POST(self):
        body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        name = self.path.partition("?")[0].split("/")[-1 if self.path.startswith("/api/repos") else -2]
        self.server.asked[name] = body
        self._answer(getattr(self, f"_{name.replace('-', '_')}", lambda _: {})(body))

    def do_GET(self):
        self._answer({"id": "owner/toy", "siblings": [], "sha": "0" * 40})

    def _create(self, body):
        return {"url": f"http://{self.headers['Host']}/owner/toy", "id": "1"}

    def _preupload(self, body):
        paths = [file["path"] for file in json.loads(body)["files"]]
        return {"files": [{"path": path, "uploadMode": "regular", "shouldIgnore": False} for path in paths]}

    def _commit(self, body):
        for line in map(json.loads, body.splitlines()):
            if line["key"] == "file":
                self.server.files[line["value"]["path"]] = base64.b64decode(line["value"]["content"])
        where = f"http://{self.headers['Host']}/owner/toy/commit/" + "0" * 40
        return {"success": True, "commitUrl": where, "commitOid": "0" * 40, "hookOutput": ""}

    def _answer(self, value):
        body = json.dumps(value).encode()
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_):
        return


@pytest.fixture
def hub():
    server = ThreadingHTTPServer(("127.0.0.1", 0), Hub)
    server.files, server.asked = {}, {}
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield server
    server.shutdown()
    server.server_close()


def pushed(folder, endpoint, **more):
    """The output of a process that pushes a folder; the hub's client reads the endpoint on import."""
    given = {**os.environ, "HF_ENDPOINT": endpoint, "HF_TOKEN": "hf_none", "HF_HUB_OFFLINE": "0", **more}
    command = [sys.executable, "-c", PUSH, str(folder)]
    return subprocess.run(command, env=given, capture_output=True, text=True, timeout=400, check=True).stdout


def test_all_files_arrive_in_a_private_repository(tmp_path, hub):
    sent = {
        "README.md": b"---\ntags: [magcli]\n---\n# toy\n",
        "config.json": b"{}",
        "model.safetensors": bytes(range(99)),
    }
    for name, data in sent.items():
        (tmp_path / name).write_bytes(data)
    output = pushed(tmp_path, f"http://127.0.0.1:{hub.server_port}")
    assert "/owner/toy" in output
    assert hub.files == sent
    made = json.loads(hub.asked["create"])
    assert (made["name"], made["organization"]) == ("toy", "owner")
    assert made.get("private") is True or made.get("visibility") == "private"


def test_an_unreachable_or_disabled_hub_is_a_one_line_error(tmp_path):
    for more in ({}, {"HF_HUB_OFFLINE": "1"}):
        output = pushed(tmp_path, "http://127.0.0.1:9", **more)
        assert output.startswith(f"fault: {tmp_path} is complete, but pushing it to owner/toy failed: ")
        assert len(output.splitlines()) == 1


@pytest.mark.parametrize("name", ["toy", "a/b/c", "owner/", "/toy", "own er/toy", "owner/.toy"])
def test_invalid_repository_names_are_rejected(name):
    with pytest.raises(UsageError, match="give OWNER/NAME"):
        check_repository(name)


def test_valid_repository_names_pass():
    assert check_repository("owner/toy-1.0_x") is None
