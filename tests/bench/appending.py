"""CPU and memory of an append to the log with its share of compaction, in one checkout or several side by side.

`python -m tests.bench.appending [CHECKOUT ...]`: each checkout has its own `.venv`. The S3 server is moto's; its CPU
is not counted. Rounds take the checkouts in turn, so that a busy machine is the same for all.
"""

from __future__ import annotations

import argparse
import itertools
import json
import os
import statistics
import subprocess
import tempfile
from collections import defaultdict
from pathlib import Path

from rich.console import Console
from rich.table import Table

from tests.s3 import BUCKET, s3

ROWS = (1, 150, 5000)
APPENDS = 64
"""As many as the hosts of a shared log append before one merges; a multiple of the eight files that a disk merges."""
PROGRAM = """
import json, resource, sys, time
from pathlib import Path
import pyarrow as pa
from tasks.state.predictions import prediction_log
try:
    from tasks.state.delta.shared_log import SharedLog
except ImportError:  # 4dec9a03
    from tasks.state.shared_log import SharedLog
    SharedLog.add = SharedLog.append
place, rows, appends, key = sys.argv[1], int(sys.argv[2]), int(sys.argv[3]), sys.argv[4]
now = time.time_ns() // 1000
ids = [f"{number:08d}" for number in range(rows)]
table = pa.table({
    "at": pa.array([now + number for number in range(rows)], pa.timestamp("us", tz="UTC")),
    "id": ids, "version": ["1"] * rows, "origin": ["http"] * rows, "score": [0.25] * rows,
    **{f"feature{number}": [float(number + row % 97) for row in range(rows)] for number in range(10)}})
records = [json.dumps({"id": id, "at": now, "score": .25, "features": {f"feature{n}": n + .5 for n in range(10)}})
           for id in ids]

def on_disk(log, number):
    log.append(table, f"segment-{number}")
    log.compact()

def shared(log, number):
    if log.add("predictions", records, {f"segment-{number}": 1}) % appends == 0:
        log.compact()

if place.startswith("s3:"):
    log, add = SharedLog(f"{place}/{key}"), shared
else:
    log, add = prediction_log(Path(place) / key), on_disk
add(log, 0)  # imports, and makes the table
began = time.process_time()
for number in range(1, appends):
    add(log, number)
cpu_ms = 1e3 * (time.process_time() - began) / (appends - 1)
assert log.cursor() == appends
print(json.dumps([cpu_ms, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024]))
"""


def taken(checkout: Path, place: str, rows: int, key: str, environ: dict[str, str]) -> tuple[float, float]:
    """CPU (ms) of an append, and the largest memory of the process (MB)."""
    command = [str(checkout / ".venv/bin/python"), "-c", PROGRAM, place, str(rows), str(APPENDS), key]
    done = subprocess.run(command, cwd=checkout, env=environ, capture_output=True, text=True, check=False)
    assert not done.returncode, done.stderr
    cpu_ms, most_mb = json.loads(done.stdout.splitlines()[-1])
    return cpu_ms, most_mb


def main() -> None:
    """Print the medians, and all figures behind each."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("checkouts", nargs="*", type=Path, default=[Path.cwd()])
    parser.add_argument("--rounds", type=int, default=3)
    arguments = parser.parse_args()
    figures: dict[tuple[str, int, Path], list[tuple[float, float]]] = defaultdict(list)
    with s3() as own, tempfile.TemporaryDirectory() as folder:
        environ = {**os.environ, **own, "PYTHONPATH": "."}
        places = {"disk": folder, "S3": f"s3://{BUCKET}"}
        for turn, rows, kind in itertools.product(range(arguments.rounds), ROWS, places):
            for number, checkout in enumerate(arguments.checkouts):
                key = f"{turn}-{rows}-{number}"
                figures[kind, rows, checkout].append(taken(checkout, places[kind], rows, key, environ))
    table = Table("place", "rows", "checkout", "CPU-ms an append", "of", "peak MB")
    for (kind, rows, checkout), found in sorted(figures.items()):
        cpu_ms, most_mb = zip(*found, strict=True)
        of = " ".join(f"{figure:.1f}" for figure in cpu_ms)
        table.add_row(
            kind, str(rows), checkout.name, f"{statistics.median(cpu_ms):.1f}", of, f"{statistics.median(most_mb):.0f}"
        )
    Console().print(table)


if __name__ == "__main__":
    main()
