"""What a shell, a locale or a path can do wrong is one line with a documented exit code."""

import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from magcli.data.durable import HIDDEN_BYTES

LINE = json.dumps({"prompt": "größer ∑?", "answer": "é"}, ensure_ascii=False) + "\n"
PROGRAM = [sys.executable, "-m", "magcli"]
ASCII = {"LC_ALL": "C", "PYTHONCOERCECLOCALE": "0", "PYTHONUTF8": "0"}


def started(*arguments: object, **environment: str) -> "subprocess.CompletedProcess[bytes]":
    """The command line, started as a user starts it."""
    return subprocess.run([*PROGRAM, *map(str, arguments)], env={**os.environ, **environment}, capture_output=True)


@pytest.mark.parametrize("environment", [ASCII, {"PYTHONIOENCODING": "ascii"}], ids=["locale", "streams"])
def test_text_passes_in_an_ascii_locale(tmp_path: Path, environment: dict[str, str]) -> None:
    (tmp_path / "é.jsonl").write_text(LINE, encoding="utf-8")
    done = started("show", tmp_path / "é.jsonl", **environment)
    assert done.returncode == 0, done.stderr
    assert "größer ∑?" in done.stdout.decode()
    done = started("convert", tmp_path / "é.jsonl", "-o", tmp_path / "ü.csv", **environment)
    assert (done.returncode, (tmp_path / "ü.csv").exists()) == (0, True)
    assert "ü.csv" in done.stderr.decode()


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs /dev/full")
@pytest.mark.parametrize("arguments", ["--help", "rl --help", "--version"])
def test_help_on_a_full_disk_is_one_line(arguments: str) -> None:
    with open("/dev/full", "wb") as full:
        done = subprocess.run([*PROGRAM, *arguments.split()], stdout=full, stderr=subprocess.PIPE)
    assert done.returncode == 4
    assert done.stderr.decode().splitlines() == [done.stderr.decode().strip()]
    assert "stdout: No space left on device" in done.stderr.decode()


def test_help_for_a_reader_that_has_gone_ends_quietly() -> None:
    with subprocess.Popen([*PROGRAM, "rl", "--help"], stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        process.stdout.close()
        assert process.stderr.read() == b""
    assert process.returncode == 141


@pytest.mark.parametrize("stderr", ["/dev/full", "closed"])
def test_messages_that_cannot_be_written_do_not_fail_the_command(tmp_path: Path, stderr: str) -> None:
    (tmp_path / "a.jsonl").write_text(LINE, encoding="utf-8")
    target = "2>&-" if stderr == "closed" else f"2>{stderr}"
    command = f"{sys.executable} -m magcli convert a.jsonl -o b.arrow {target}"
    assert subprocess.run(["bash", "-c", command], cwd=tmp_path).returncode == 0
    assert (tmp_path / "b.arrow").exists()


NO_INPUTS = {
    "": (2, "the name of a table is empty"),
    "none.jsonl": (3, "none.jsonl does not exist"),
    "a.jsonl/x.jsonl": (3, "does not exist"),
    "x" * 300 + ".jsonl": (4, "File name too long"),
    "new\nline.jsonl": (3, "does not exist"),
    "*.none": (3, "no file matches"),
    "https://example.org/a.jsonl": (3, "is a URL; download the file"),
    "/dev/null": (3, "is empty"),
}


@pytest.mark.parametrize("name", NO_INPUTS, ids=lambda name: name[:20])
def test_a_path_that_is_no_table_is_one_line(tmp_path: Path, magcli, name: str) -> None:
    (tmp_path / "a.jsonl").write_text(LINE, encoding="utf-8")
    code, message = NO_INPUTS[name]
    done = magcli("show", "--", name, cwd=tmp_path)
    assert done.returncode == code
    assert message in done.stderr
    assert len(done.stderr.splitlines()) == 1


NO_OUTPUTS = {
    ".": (2, "has no name of its own"),
    "/": (2, "has no name of its own"),
    "..": (2, "is a folder with other files"),
    "a.jsonl/x.jsonl": (4, "cannot write"),
    "x" * 300 + ".jsonl": (4, "File name too long"),
    "/proc/x.jsonl": (4, "cannot write"),
    "a.jsonl": (2, "is read or written by this command already"),
    "out.xlsx": (2, "unknown table format '.xlsx'"),
}


@pytest.mark.parametrize("name", NO_OUTPUTS, ids=lambda name: name[:20])
def test_a_path_that_cannot_be_written_is_one_line(tmp_path: Path, magcli, name: str) -> None:
    (tmp_path / "a.jsonl").write_text(LINE, encoding="utf-8")
    code, message = NO_OUTPUTS[name]
    done = magcli("convert", "a.jsonl", "-o", name, "--quiet", cwd=tmp_path)
    assert done.returncode == code
    assert message in done.stderr
    assert len(done.stderr.splitlines()) == 1
    assert [path.name for path in tmp_path.iterdir()] == ["a.jsonl"]


@pytest.mark.parametrize("suffix", [".arrow", ".jsonl", ""], ids=["arrow", "jsonl", "folder"])
@pytest.mark.parametrize("more", [0, 1, 20, 32])
def test_a_name_is_too_long_before_any_work_or_not_at_all(tmp_path: Path, magcli, suffix: str, more: int) -> None:
    """Hidden files beside an output have longer names than the output itself."""
    (tmp_path / "a.jsonl").write_text('{"prompt": "What is 12+7?", "answer": "19"}\n')
    longest = os.pathconf(tmp_path, "PC_NAME_MAX") - HIDDEN_BYTES
    name = "x" * (longest + more - len(suffix)) + suffix
    done = magcli("clean-math", "a.jsonl", "-o", name, "--quiet", cwd=tmp_path)
    assert done.returncode == (4 if more else 0), done.stderr
    assert len(done.stderr.splitlines()) == bool(more)
    assert ("File name too long; give one of at most" in done.stderr) == bool(more)
    assert (tmp_path / name).exists() == (not more)


REDIRECTIONS = ["<&-", ">&-", "2>&-", "<&- >&-", ">&- 2>&-", "<&- >&- 2>&-"]


@pytest.mark.parametrize("closed", REDIRECTIONS)
@pytest.mark.parametrize(
    ("arguments", "needs"),
    [
        ("convert a.jsonl -o b.jsonl", ""),
        ("grade b.jsonl -o c.jsonl --no-language", ""),
        ("show a.jsonl", ">"),
        ("convert a.jsonl", ">"),
        ("convert - -o b.jsonl", "<"),
        ("--version", ">"),
        ("nonsense", "always"),
    ],
    ids=lambda value: str(value)[:12],
)
def test_a_closed_stream_is_an_error_only_where_it_is_needed(
    tmp_path: Path, arguments: str, needs: str, closed: str
) -> None:
    (tmp_path / "a.jsonl").write_text(LINE, encoding="utf-8")
    row = {"prompt": "?", "answer": "5", "completion": "<think>a</think>\\boxed{5}"}
    (tmp_path / "b.jsonl").write_text(json.dumps(row) + "\n")
    overwrite = "--overwrite" if "-o b.jsonl" in arguments else ""
    command = f"{' '.join(PROGRAM)} {arguments} {overwrite} {closed}"
    streams = [part[0] for part in closed.split()]
    given = LINE.encode() if "<" not in streams else None
    done = subprocess.run(["bash", "-c", command], cwd=tmp_path, input=given, capture_output=True)
    fails = needs == "always" or (needs != "" and needs in streams)
    assert done.returncode == (2 if fails else 0), done.stderr
    errors = done.stderr.decode().splitlines()
    assert len(errors) <= (1 if fails else 3)
    if fails and "2" not in streams:
        assert errors[0].startswith("error: ")
    if arguments.startswith("grade"):
        assert json.loads((tmp_path / "c.jsonl").read_text())["reason"] == "correct"


@pytest.mark.parametrize("closed", REDIRECTIONS)
def test_no_file_gets_the_number_of_a_closed_stream(tmp_path: Path, closed: str) -> None:
    """What a library writes to stderr must not land in a table."""
    program = (
        "import os; from magcli.__main__ import occupy_closed_streams; occupy_closed_streams();"
        "table = open('table', 'w'); os.write(1, b'noise'); os.write(2, b'noise');"
        "table.write('rows') if table.fileno() > 2 else None"
    )
    command = f'{sys.executable} -c "{program}" {closed}'
    subprocess.run(["bash", "-c", command], cwd=tmp_path, check=True, capture_output=True)
    assert (tmp_path / "table").read_text() == "rows"


@pytest.mark.parametrize(
    "name", ["new\nline.jsonl", " .jsonl", "-x.jsonl", "a:b.jsonl", "[a].jsonl", "a b/c*d?.jsonl", "\x01.csv"]
)
def test_odd_names_are_names(tmp_path: Path, magcli, name: str) -> None:
    done = magcli("convert", "-", f"--output={name}", cwd=tmp_path, input=LINE.encode())
    assert done.returncode == 0, done.stderr
    done = magcli("convert", "--format", "jsonl", "--", name, cwd=tmp_path)
    assert done.stdout.decode() == LINE


SMALL_DISK = """
mount -t tmpfs -o size=16m none disk || exit 77
head -c 9000000 /dev/zero > disk/others
{program} convert - -o out.arrow < {table}
"""


@pytest.mark.parametrize(("megabytes", "code"), [(3, 0), (20, 4)])
def test_a_pipe_that_would_fill_the_disk_is_refused_before(tmp_path: Path, megabytes: int, code: int) -> None:
    """On a disk of 16 MB, of which others have 9, in a namespace of its own."""
    (tmp_path / "disk").mkdir()
    (tmp_path / "a.jsonl").write_text(LINE * (megabytes * 1_000_000 // len(LINE.encode())), encoding="utf-8")
    script = SMALL_DISK.format(program=" ".join(PROGRAM), table="a.jsonl")
    own_mounts = ["unshare", "--mount", *([] if os.geteuid() == 0 else ["--user", "--map-root-user"])]
    command, environment = [*own_mounts, "bash", "-c", script], {**os.environ, "TMPDIR": str(tmp_path / "disk")}
    done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True)
    if done.returncode == 77 or "unshare" in done.stderr:
        pytest.skip("this machine has no mount namespaces")
    assert done.returncode == code, done.stderr
    assert len(done.stderr.splitlines()) == 1
    if code:
        assert done.stderr.startswith(
            f"error: stdin is too large for {tmp_path / 'disk'}: after 6 MB it is almost full; "
        )
        assert "set TMPDIR to a folder with room, or name a file instead of a pipe" in done.stderr
    assert (tmp_path / "out.arrow").exists() == (code == 0)


@pytest.mark.parametrize("stage", ["clean-math", "cold-start"])
def test_a_full_folder_for_temporary_files_is_named(tmp_path: Path, magcli, stage: str) -> None:
    row = {"answer": "1", "completion": "<think>x</think>\\boxed{1}"}
    rows = [{"id": str(i), "prompt": f"Compute {i}+1 of number {i}.", **row} for i in range(2000)]
    (tmp_path / "a.jsonl").write_text("".join(json.dumps(each) + "\n" for each in rows))
    done = magcli(stage, tmp_path / "a.jsonl", "-o", "/dev/null", largest=10_000)
    assert done.returncode == 4
    assert done.stderr.splitlines()[-1].startswith(f"error: cannot write {tempfile.gettempdir()}: File too large")
