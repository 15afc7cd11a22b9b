"""The samples of a watch as CSV, the columns of the Parquet file."""

from __future__ import annotations

from pathlib import Path

import pyarrow.csv

from kdaprof.runs.atomic import write_with
from kdaprof.runs.util import UTIL_SCHEMA
from kdaprof.runs.util_file import UtilFile

CSV_FILE = "gpu_util.csv"


def write_csv(file: UtilFile, path: Path) -> None:
    """Write it batch by batch, atomically."""

    def fill(temporary: Path) -> None:
        with pyarrow.csv.CSVWriter(str(temporary), UTIL_SCHEMA) as writer:
            for batch in file.batches():
                writer.write_batch(batch)

    write_with(path, fill)
