"""What a look costs: a window of 1e7 rows x 13 features counted, its CPU and its memory, in a process of its own."""

from __future__ import annotations

import json
import resource
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass

NUM_ROWS = 10_000_000
NUM_FEATURES = 13
BATCH_ROWS = 1 << 16


@dataclass(frozen=True)
class Watched:
    """Seconds of CPU for one feature over the whole window, for all of it, and the process' peak memory."""

    feature_cpu_s: float
    window_cpu_s: float
    peak_mb: float
    bare_mb: float


def monitoring_window(num_rows: int = NUM_ROWS) -> Watched:
    """Measure in a fresh process, whose peak is its own."""
    done = subprocess.run(
        [sys.executable, "-m", "tests.bench.watching", str(num_rows)], capture_output=True, text=True, check=True
    )
    return Watched(**json.loads(done.stdout.splitlines()[-1]))


def _measure(num_rows: int) -> Watched:
    import numpy as np
    import pyarrow as pa

    from models.identity.hashing import SortedHashSet
    from models.monitoring.build import reference_of
    from models.monitoring.drift import feature_drift
    from models.monitoring.windowing import OpenWindow, WindowingRules, fill
    from models.project_spec.monitor_and_retrain import Monitor
    from tests.bench import monitoring

    source = np.random.default_rng(0)
    names = [f"x{place}" for place in range(NUM_FEATURES)]
    train = pa.table({name: source.standard_normal(200_000) for name in names})
    chances = source.random(50_000)
    reference = reference_of(
        monitoring.preparation(names), (source.random(50_000) < chances).astype(np.int64), chances,
        lambda split, chosen: [train.select(chosen)],
    )  # fmt: skip
    bare_mb = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    seen, window, cpu_s = SortedHashSet(), OpenWindow(0, num_rows), 0.0
    for table in monitoring.batches(names, num_rows):
        began = time.process_time()
        for changed in fill(window, table, seen, num_rows, WindowingRules("binary", reference, {})):
            window = changed
        cpu_s += time.process_time() - began
    began = time.process_time()
    feature_drift(window.tally, reference.columns, Monitor())
    cpu_s += time.process_time() - began
    return Watched(
        feature_cpu_s=_feature_s(reference.columns[0].bins, num_rows),
        window_cpu_s=cpu_s,
        peak_mb=resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024,
        bare_mb=bare_mb,
    )


def _feature_s(bins: object, num_rows: int) -> float:
    """CPU of counting one feature of the whole window, from sixteen batches."""
    import numpy as np
    import pyarrow as pa

    from models.monitoring.histogram import NumericBins

    assert isinstance(bins, NumericBins)
    column = pa.array(np.random.default_rng(1).standard_normal(BATCH_ROWS))
    began = time.process_time()
    for _ in range(16):
        bins.count(column)
    return (time.process_time() - began) * num_rows / (16 * BATCH_ROWS)


def preparation(names: list[str]) -> object:
    """A binary model of numeric columns."""
    from models.data.preparation import Preparation
    from models.data.target_encoding import TargetEncoding
    from models.inputs.numeric.record import NumericInput

    return Preparation(
        kind="table",
        task="binary",
        target=TargetEncoding(name="y", classes=["no", "yes"], dtype="string"),
        inputs=[NumericInput(name=name, fill=0.0) for name in names],
    )


def batches(names: list[str], num_rows: int) -> Iterator[object]:
    """The window's rows as the prediction log gives them."""
    import numpy as np
    import pyarrow as pa

    source = np.random.default_rng(2)
    for first in range(0, num_rows, BATCH_ROWS):
        size = min(BATCH_ROWS, num_rows - first)
        numbers = np.arange(first, first + size)
        columns = {f"input.{name}": source.standard_normal(size) for name in names}
        at = pa.array(numbers * 100, pa.timestamp("us", tz="UTC"))
        yield pa.table({"id": pa.array(numbers).cast(pa.string()), "at": at, "score": source.random(size), **columns})


if __name__ == "__main__":
    from dataclasses import asdict

    print(json.dumps(asdict(_measure(int(sys.argv[1])))))
