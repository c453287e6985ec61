"""pyarrow imports pandas where pandas is asked for, and not before."""

import json
import subprocess
import sys

PROGRAM = """
import json, sys
import pyarrow as pa
import magcli.data.table
before = pa.array(["a", None]).to_pylist()
loaded = "pandas" in sys.modules
frame = pa.table({"a": [1, 2]}).to_pandas()
import pandas
series = pa.array(pandas.Series([1.5, float("nan")])).to_pylist()
print(json.dumps([before, loaded, frame["a"].tolist(), series]))
"""


def test_pandas_is_imported_only_on_demand() -> None:
    done = subprocess.run([sys.executable, "-c", PROGRAM], capture_output=True, text=True, timeout=240)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout) == [["a", None], False, [1, 2], [1.5, None]]
