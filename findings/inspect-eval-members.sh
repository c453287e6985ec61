#!/bin/sh
# Guess: a log of inspect_ai (.eval), which is a ZIP archive, can be read with Python's zipfile.
# Seen: its members are compressed with Zstandard (method 93). zipfile of Python 3.11 refuses them, except in a process
# that has imported inspect_ai, which extends zipfile; so a reader that is tested there fails everywhere else.
set -eu
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet --disable-pip-version-check inspect-ai==0.3.285 openai
cd "$folder"
cat > write.py <<'PYTHON'
import zipfile

import inspect_ai
from inspect_ai import Task, eval
from inspect_ai.dataset import Sample
from inspect_ai.model import ModelOutput, ModelUsage, get_model
from inspect_ai.scorer import match

answer = ModelOutput.from_content("mockllm/model", "2")
answer.usage = ModelUsage(input_tokens=4, output_tokens=1, total_tokens=5)
task = Task(dataset=[Sample(input="1+1?", target="2")], scorer=match())
log = eval(task, model=get_model("mockllm/model", custom_outputs=[answer]), display="none", log_dir=".")[0]
print("inspect_ai", inspect_ai.__version__, "status of the log:", log.status)
with zipfile.ZipFile(log.location) as archive:
    print("members:", {member.filename: member.compress_type for member in archive.infolist()})
    print("in the process that imported inspect_ai:", archive.read("header.json")[:20])
PYTHON
cat > read.py <<'PYTHON'
import glob
import sys
import zipfile

print("Python", sys.version.split()[0])
with zipfile.ZipFile(*glob.glob("*.eval")) as archive:
    assert {member.compress_type for member in archive.infolist()} == {93}
    try:
        archive.read("header.json")
    except NotImplementedError as error:
        print("in another process:", repr(error))
    else:
        sys.exit("zipfile can read it" if sys.version_info < (3, 14) else 0)
PYTHON
venv/bin/python write.py
venv/bin/python read.py
