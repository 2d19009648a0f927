"""Loopline's defaults beside peers untouched, on the same splits: the goal on the test rows, and CPU-seconds.

    python -m tests.bench.quality [--seeds 5] [--minutes 8] [--half building] [CASE...]

`make bench-quality`. The scores are appended to `tests/bench/quality.jsonl`, and what stands there is not measured
again, so it can be run in pieces; delete the file to measure anew. At the end docs/reference/quality.md is written.
The half of the data sets that is looked at once is measured with `--half once` alone, when all is done.

Each contestant has a process of its own. Loopline runs the steps ingest, prepare, search and train; the checks of the
data, the export and the registry are left out, since no peer has them.
"""

from __future__ import annotations

import argparse
import json
import os
import pickle
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from tests.bench.quality_case import Case
from tests.bench.quality_data import CASES, read
from tests.bench.quality_peers import PEERS
from tests.bench.quality_process import OURS, RESULT, SPLIT, TASK, Result, Task
from tests.bench.quality_series import until_origin, windows
from tests.bench.quality_sides import Sides
from tests.bench.quality_table import PAGE, ROOT, Score, append, page, scores

SPEC = """\
name: {name}
goal: {{metric: {metric}}}
data:
  source: table.parquet
  target: {target}
  split: {split}
{more}train: {{threads: 1, seed: {seed}}}
"""


def main() -> None:
    """Measure what is missing within the time, then write the page."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("cases", nargs="*", help="short names of data sets; default: all")
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--minutes", type=float, default=float("inf"), help="no data set begins later")
    parser.add_argument("--half", choices=["building", "once"], default="building", help="see quality_case.py")
    parser.add_argument("--peers", nargs="*", help="names of peers; default: all. Loopline is measured all the same")
    parser.add_argument("--autogluon", default="", help="Python of an environment that has it: quality_autogluon.py")
    parser.add_argument("--statsmodels", default="", help="Python of an environment that has it: quality_forecasts.py")
    options = parser.parse_args()
    until = time.monotonic() + 60 * options.minutes
    pythons = {"": "ours", "autogluon": options.autogluon, "statsmodels": options.statsmodels}
    with tempfile.TemporaryDirectory(prefix="loopline-quality-") as folder:
        for seed in range(options.seeds):
            for case in CASES:
                named = not options.cases or case.short in options.cases
                known = {score.contestant for score in scores() if (score.case, score.seed) == (case.short, seed)}
                missing = [name for name in _contestants(case, options.peers, pythons) if name not in known]
                is_chosen = named and case.half == options.half
                if is_chosen and missing and time.monotonic() < until:
                    place = Path(folder) / f"{case.short}-{seed}"
                    measure(case, seed, place, Path(folder) / "sources", missing, pythons)
    PAGE.write_text(page(scores()))


def _contestants(case: Case, peers: Sequence[str] | None, pythons: Mapping[str, str]) -> list[str]:
    """Return Loopline, and the peers that take the data and whose environment is there."""
    chosen = [
        name
        for name, peer in PEERS.items()
        if peer.takes(case) and pythons[peer.python] and (peers is None or name in peers)
    ]
    return [OURS, *chosen]


def measure(
    case: Case, seed: int, place: Path, sources: Path, missing: Sequence[str], pythons: Mapping[str, str]
) -> None:
    """Append the score of each missing contestant on one data set and one split; the split is Loopline's."""
    frame = until_origin(case, read(case, sources), seed)
    project = place / "projects" / "t"
    project.mkdir(parents=True)
    frame.to_parquet(project / "table.parquet")
    (project / "project.yaml").write_text(_spec(case, seed))
    ours = _run(place, OURS if OURS in missing else SPLIT, Task(case))
    if OURS in missing:
        append(_score(case, seed, OURS, ours))
    known = (case.short, seed, OURS)
    limit_s = next((score.cpu_s for score in scores() if (score.case, score.seed, score.contestant) == known), 0.0)
    task = Task(case, _sides(case, frame, place, limit_s), pythons)
    for name in missing:
        if name != OURS:
            append(_score(case, seed, name, _run(place / "peers" / name, name, task)))


def _run(folder: Path, contestant: str, task: Task) -> Result:
    """Carry out a task in a fresh process; one that fails is a result too."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / TASK).write_bytes(pickle.dumps(task))
    command = [sys.executable, "-m", "tests.bench.quality_process", folder, contestant]
    # An installed Loopline has its bytecode: without it each of its processes would compile 300 modules.
    environment = {name: text for name, text in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    done = subprocess.run(command, cwd=ROOT, env=environment, check=False, capture_output=True, text=True)
    if done.returncode == -signal.SIGXCPU:
        return Result(None, 0.0, error="stopped at its limit of CPU-seconds")
    if done.returncode:
        if os.environ.get("QUALITY_DEBUG"):
            sys.stderr.write(done.stderr)
        return Result(None, 0.0, error=(done.stderr.strip().splitlines() or ["no message"])[-1][:200])
    result: Result = pickle.loads((folder / RESULT).read_bytes())
    return result


def _score(case: Case, seed: int, name: str, result: Result) -> Score:
    own = {"commit": _commit(), "search_s": result.part_s} if name == OURS else {"fit_s": result.part_s}
    about: dict[str, Any] = {"family": result.family, "missed": result.missed, "error": result.error, **own}
    return Score(case.short, seed, name, case.metric, result.value, result.cpu_s, **about)


def _spec(case: Case, seed: int) -> str:
    """Return the spec of a newcomer: source, target, goal, and what `loopline new` writes for the kind of data."""
    by, _, column = case.split.partition(":")
    split = f"{{by: {by}, column: {json.dumps(column)}, seed: {seed}}}" if column else f"{{by: random, seed: {seed}}}"
    more = ""
    if case.kind == "series":
        window: dict[str, Any] = {
            "length": case.window,
            "series_key": case.series_key,
            "known_future": case.known_future,
        }
        given = {name: value for name, value in window.items() if value}
        split, more = "{by: time, column: time}", f"  kind: series\n  window: {json.dumps(given)}\n"
    if case.is_image:
        height, width, channels = case.size
        more = f"  kind: image\n  image: {{column: image, height: {height}, width: {width}, channels: {channels}}}\n"
    features = {"kinds": {case.text: "text"} if case.text else {}, "drop": case.keys}
    given = {name: value for name, value in features.items() if value}
    more += f"  features: {json.dumps(given)}\n" if given else ""
    target = json.dumps(case.target)
    return SPEC.format(name="t", metric=case.metric, target=target, split=split, seed=seed, more=more)


def _sides(case: Case, frame: pd.DataFrame, place: Path, limit_s: float) -> Sides:
    """Return the rows of Loopline's split; of a series, the windows before the steps that each side predicts."""
    names = ("train", "validation", "test")
    path = next(place.glob("projects/t/data/prepared/rows.parquet"), None) or next(place.rglob("rows.parquet"))
    rows = pd.read_parquet(path, columns=["__row", "__split"])
    at = {name: rows.loc[rows["__split"] == code, "__row"].to_numpy() for code, name in enumerate(names)}
    target = frame[case.target]
    if case.kind == "series":
        inputs, goals, steps = windows(case, frame)
        is_in = {name: np.isin(steps, each) for name, each in at.items()}
        return Sides({name: inputs[chosen] for name, chosen in is_in.items()},
                     {name: goals[chosen] for name, chosen in is_in.items()}, limit_s)  # fmt: skip
    inputs = {name: frame.loc[each].drop(columns=[case.target, *case.keys]) for name, each in at.items()}
    if case.is_image:
        inputs = {name: np.stack([np.frombuffer(one, np.uint8) for one in each["image"]]).astype(float)
                  for name, each in inputs.items()}  # fmt: skip
    return Sides(inputs, {name: target.loc[each] for name, each in at.items()}, limit_s)


def _commit() -> str:
    """Return the last commit that changed Loopline; `+` if there are changes beside it."""
    measured = ("--", "models", "tasks", "flows")
    log, diff = ("log", "-1", "--format=%h"), ("status", "--porcelain", "--untracked-files=no")
    name, changes = (
        subprocess.run(["git", *command, *measured], cwd=ROOT, check=True, capture_output=True, text=True).stdout
        for command in (log, diff)
    )
    return name.strip() + ("+" if changes else "")


if __name__ == "__main__":
    main()
