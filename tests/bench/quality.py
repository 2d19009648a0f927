"""Loopline's defaults beside peers untouched, on the same splits: the goal on the test rows, and CPU-seconds.

    python -m tests.bench.quality [--seeds 5] [--minutes 8] [CASE...]

`make bench-quality`. The scores are appended to `tests/bench/quality.jsonl`, and what stands there is not measured
again, so it can be run in pieces; delete the file to measure anew. At the end docs/reference/quality.md is written.

Loopline runs the steps ingest, prepare, search and train in this process as a loop runs them; the checks of the data,
the export and the registry are left out, since no peer has them.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
import time
import traceback
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from tests.bench.measure import living_cpu_s
from tests.bench.quality_data import CASES, Case, read
from tests.bench.quality_peers import PEERS, Peer, Sides, autogluon
from tests.bench.quality_table import OURS, PAGE, ROOT, Score, append, page, scores

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
    parser.add_argument("--autogluon", help="Python of an environment that has it: see quality_autogluon.py")
    options = parser.parse_args()
    os.environ["OMP_NUM_THREADS"] = "1"  # read when scikit-learn is loaded: threads that wait would count as work
    until = time.monotonic() + 60 * options.minutes
    peers = PEERS | ({"AutoGluon": partial(autogluon, options.autogluon)} if options.autogluon else {})
    with tempfile.TemporaryDirectory(prefix="loopline-quality-") as folder:
        for seed in range(options.seeds):
            for case in CASES:
                named = not options.cases or case.short in options.cases
                known = {score.contestant for score in scores() if (score.case, score.seed) == (case.short, seed)}
                missing = [name for name in (OURS, *peers) if name not in known]
                if named and missing and time.monotonic() < until:
                    place = Path(folder) / f"{case.short}-{seed}"
                    measure(case, seed, place, Path(folder) / "sources", {name: peers.get(name) for name in missing})
    PAGE.write_text(page(scores()))


def measure(case: Case, seed: int, place: Path, sources: Path, missing: Mapping[str, Peer | None]) -> None:
    """Append the score of each missing contestant on one data set and one split; Loopline's is None."""
    frame = read(case, sources)
    ours = _ours(case, frame, place, seed, is_whole=OURS in missing)
    if ours is not None:
        append(ours)
    known = (case.short, seed, OURS)
    limit_s = next((score.cpu_s for score in scores() if (score.case, score.seed, score.contestant) == known), 0.0)
    sides = _sides(case, frame, place, limit_s)
    for name, fit in missing.items():
        if fit is None:
            continue
        before = _cpu_s()
        try:
            predicted = fit(case, sides)
            value = None if predicted is None else _value(case, sides.targets["test"], predicted)
            score = Score(case.short, seed, name, case.metric, value, _cpu_s() - before)
        except Exception as error:  # a peer that fails is a result
            score = Score(case.short, seed, name, case.metric, None, _cpu_s() - before, error=_text(error))
        append(score)


def _ours(case: Case, frame: pd.DataFrame, place: Path, seed: int, is_whole: bool) -> Score | None:
    """Run the steps up to the trained model, and score it on the test rows; what it refuses is a result too.

    If not `is_whole`, the data is only split, for the peers.
    """
    from models.errors import LooplineError
    from models.nets.catalogue import net_name
    from tasks.host.workspace import Project, Workspace
    from tasks.loop.loop import Loop, SilentReporter
    from tasks.steps.ingest import ingest
    from tasks.steps.prepare import prepare
    from tasks.steps.search import search
    from tasks.steps.train import fit

    folder = place / "projects" / "t"
    folder.mkdir(parents=True)
    frame.to_parquet(folder / "table.parquet")
    (folder / "project.yaml").write_text(_spec(case, seed))
    workspace = Workspace(place)
    workspace.make()
    project = Project(workspace, folder)
    before, search_s = _cpu_s(), 0.0
    try:
        loop = Loop(project, project.spec(), "t-1", "bench", SilentReporter())
        try:
            for step in (ingest, prepare, search, fit) if is_whole else (ingest, prepare):
                begun = _cpu_s()
                step(loop)
                search_s += _cpu_s() - begun if step is search else 0.0
        finally:
            loop.rank_pool.close()
        if not is_whole:
            return None
        cpu_s = _cpu_s() - before
        value: float | None
        value, missed = _on_tests(case, loop)
        params = loop.done["search"].result.get("params", {})
        family = params.get("model.net") or net_name("auto", loop.spec.data.kind)
        about: dict[str, Any] = {"family": str(family), "missed": missed, "search_s": search_s}
    except LooplineError as error:
        value, cpu_s, about = None, _cpu_s() - before, {"error": _text(error)}
    return Score(case.short, seed, OURS, case.metric, value, cpu_s, commit=_commit(), **about)


def _spec(case: Case, seed: int) -> str:
    """Return the spec of a newcomer: source, target, goal, and what the kind of data needs."""
    split, more = f"{{by: random, seed: {seed}}}", ""
    if case.kind == "series":
        split, more = "{by: time, column: time}", f"  kind: series\n  window: {{length: {case.window}}}\n"
    if case.kind == "image":
        more = "  kind: image\n  image: {column: image, height: 8, width: 8, channels: 1}\n"
    return SPEC.format(name="t", metric=case.metric, target=case.target, split=split, seed=seed, more=more)


def _on_tests(case: Case, loop: Any) -> tuple[float, int]:
    """Return the goal of the trained model on the test rows, and how many of their classes it never predicts.

    The test rows stand in for the validation rows of the model's job.
    """
    from models.data.feeds import targets
    from models.data.preparation import Preparation
    from models.export.class_head import choose_class_head, with_class_head
    from models.export.trained import num_validation_examples, validation_predictions
    from models.files import read_json
    from models.metrics.classification import at_threshold, missed_classes
    from models.training.job import JOB_FILE, TrainingJob

    trained = loop.step_cache.records.path(next(iter(loop.done["train"].outputs)))
    job = TrainingJob.model_validate(read_json(trained.with_name(JOB_FILE)))
    job = job.model_copy(update={"folder": trained.parent})
    preparation, _ = choose_class_head(job, Preparation.load(job.prepared))
    tests = job.model_copy(update={"tensors": {**job.tensors, "validation": job.tensors["test"]}})
    predicted = validation_predictions(tests, preparation, np.arange(num_validation_examples(tests)))
    true, classes = targets(job.prepared, "test"), preparation.target.classes
    if classes is None:
        return _value(case, pd.Series(true), predicted), 0
    predicted = with_class_head(predicted, preparation)
    decided = at_threshold(predicted, preparation.class_head.threshold) if predicted.ndim == 1 else predicted
    shares = predicted if predicted.ndim == 2 else np.stack([1 - predicted, predicted], axis=1)
    names = pd.Series(np.array(classes)[true.astype(int)])
    return _value(case, names, pd.DataFrame(shares, columns=classes)), len(missed_classes(true, decided))


def _sides(case: Case, frame: pd.DataFrame, place: Path, limit_s: float) -> Sides:
    """Return the rows of Loopline's split; of a series, the windows before the steps that each side predicts."""
    names = ("train", "validation", "test")
    path = next(place.glob("projects/t/data/prepared/rows.parquet"), None) or next(place.rglob("rows.parquet"))
    rows = pd.read_parquet(path, columns=["__row", "__split"])
    at = {name: rows.loc[rows["__split"] == code, "__row"].to_numpy() for code, name in enumerate(names)}
    target = frame[case.target]
    if case.kind == "series":
        windows = np.lib.stride_tricks.sliding_window_view(target.to_numpy(), case.window)
        at = {name: each[each >= case.window] for name, each in at.items()}
        return Sides({name: windows[each - case.window] for name, each in at.items()},
                     {name: target.loc[each] for name, each in at.items()}, limit_s)  # fmt: skip
    inputs: dict[str, Any] = {name: frame.loc[each].drop(columns=[case.target]) for name, each in at.items()}
    if case.kind == "image":
        inputs = {name: np.stack([np.frombuffer(one, np.uint8) for one in each["image"]]).astype(float)
                  for name, each in inputs.items()}  # fmt: skip
    return Sides(inputs, {name: target.loc[each] for name, each in at.items()}, limit_s)


def _value(case: Case, target: pd.Series, predicted: Any) -> float:
    """Return the case's metric by scikit-learn; classes are columns of `predicted`."""
    from sklearn.metrics import accuracy_score, mean_absolute_error, roc_auc_score

    if case.metric == "mae":
        return float(mean_absolute_error(target, predicted))
    if case.metric == "accuracy":
        return float(accuracy_score(target, predicted.columns.to_numpy()[predicted.to_numpy().argmax(axis=1)]))
    classes = sorted(predicted.columns)
    return float(roc_auc_score(target.to_numpy() == classes[1], predicted[classes[1]]))


def _text(error: Exception) -> str:
    lines = str(error).splitlines() or [type(error).__name__]
    if os.environ.get("QUALITY_DEBUG"):
        traceback.print_exc(file=sys.stderr)
    return lines[0][:200]


def _cpu_s() -> float:
    """Return the CPU-seconds of this process and of all that it started, which may live on."""
    times = os.times()
    return times.user + times.system + times.children_user + times.children_system + living_cpu_s()


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
