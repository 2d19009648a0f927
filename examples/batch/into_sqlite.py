"""Predicts rows with the champion and writes the predictions into a table of a SQLite database, each row once.

    python into_sqlite.py PROJECT ROWS.csv DATABASE.sqlite --id patient

The second call with the same rows changes nothing: a prediction is identified by the row's id and the version.
"""

from __future__ import annotations

import argparse
import sqlite3
import subprocess
import sys
import tempfile
from pathlib import Path

import pandas as pd

TABLE = "create table if not exists predictions (id text, version text, prediction real, primary key (id, version))"
INSERT = "insert or ignore into predictions values (?, ?, ?)"


def predict(project: str, rows: Path, id_column: str) -> pd.DataFrame:
    """Return the champion's predictions of a file of rows."""
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder) / "predictions.parquet"
        program = str(Path(sys.executable).with_name("loopline"))
        subprocess.run([program, "predict", project, str(rows), "--id", id_column, "--out", str(out)], check=True)
        return pd.read_parquet(out)


def store(predictions: pd.DataFrame, database: Path) -> int:
    """Add the predictions to the table, and return how many are new."""
    columns = predictions[["id", "version", "prediction"]].astype({"id": str, "version": str})
    with sqlite3.connect(database) as connection:
        connection.execute(TABLE)
        before = connection.total_changes
        connection.executemany(INSERT, columns.itertuples(index=False, name=None))
        added = connection.total_changes - before
    connection.close()
    return added


def main() -> None:
    """Read the arguments, predict and store."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("project")
    parser.add_argument("rows", type=Path)
    parser.add_argument("database", type=Path)
    parser.add_argument("--id", default="id", dest="id_column")
    arguments = parser.parse_args()
    added = store(predict(arguments.project, arguments.rows, arguments.id_column), arguments.database)
    print(f"{added} new predictions in {arguments.database}")


if __name__ == "__main__":
    main()
