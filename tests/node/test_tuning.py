from __future__ import annotations

import subprocess
import sys


def test_a_node_does_not_import_pandas_to_seal_and_whoever_wants_it_still_gets_it() -> None:
    """pyarrow looks for it at the first array of Python values, beside a busy event loop."""
    program = """
import sys
import pyarrow as pa
from syncline.node.tuning import tune
tune()
tune()
assert pa.array(["a"]).to_pylist() == ["a"]
assert "pandas" not in sys.modules
import pandas as pd
table = pa.Table.from_pandas(pd.DataFrame({"n": [1.0, None]}))
assert table.to_pandas()["n"].isna().tolist() == [False, True]
assert table.to_pydict() == {"n": [1.0, None]}
print("fine")
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert (done.stdout, done.stderr) == ("fine\n", "")
