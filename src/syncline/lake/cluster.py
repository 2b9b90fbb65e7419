"""A standalone Spark cluster from the pip package alone: the command that becomes its master or one of its workers.

What runs on it is the pipeline's business. `compose.yaml` shows the whole.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Final, Literal

from syncline.lake.java import find_java, quiet_home

Role = Literal["master", "worker"]
CLASSES: Final[dict[Role, str]] = {
    "master": "org.apache.spark.deploy.master.Master",
    "worker": "org.apache.spark.deploy.worker.Worker",
}


def daemon(role: Role, arguments: Sequence[str]) -> tuple[list[str], dict[str, str]]:
    """What to execute, and the variables it needs."""
    import pyspark

    home = Path(pyspark.__file__).parent
    variables = {
        "JAVA_HOME": str(quiet_home(find_java())),
        "SPARK_HOME": str(home),
        "PYSPARK_PYTHON": sys.executable,
    }
    return [str(home / "bin" / "spark-class"), CLASSES[role], *arguments], variables
