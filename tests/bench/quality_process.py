"""One contestant on one split, in a process of its own: what it costs is then counted alike for all of them.

    python -m tests.bench.quality_process FOLDER CONTESTANT

FOLDER holds task.pkl; result.pkl is written beside it. Of Loopline the folder is a workspace with the project `t`, of
which the steps ingest, prepare, search and train run as a loop runs them; with `SPLIT` as the contestant the data is
only split.
"""

from __future__ import annotations

import gc
import math
import os
import pickle
import resource
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    import pandas as pd

    from tests.bench.quality_case import Case
    from tests.bench.quality_sides import Sides

OURS = "Loopline"
SPLIT = "split"
TASK, RESULT = "task.pkl", "result.pkl"
MOST_TIMES = 5
"""CPU-seconds of a peer for one of Loopline's on the same split, at most; of pictures as many as Loopline's."""


class Task(NamedTuple):
    """What a contestant gets: the case, the sides of a peer, and the Pythons of the peers' own environments."""

    case: Case
    sides: Sides | None = None
    pythons: Mapping[str, str] = {}


class Result(NamedTuple):
    """What a contestant did.

    Attributes:
        value: The goal on the test rows; None if the contestant does not apply.
        cpu_s: CPU-seconds from the start of its process to the trained model, of a peer to its predictions.
        part_s: The part of them that the step search took, or of a peer its fit and predictions, without its imports;
            0 if it is not known.
        family: The net that Loopline's search chose.
        missed: Classes of the test rows that are never predicted.
        error: Why there is no value, if Loopline refused the data.
    """

    value: float | None
    cpu_s: float
    part_s: float = 0.0
    family: str = ""
    missed: int = 0
    error: str = ""


def main() -> None:
    """Carry out the task of the folder."""
    folder, contestant = Path(sys.argv[1]), sys.argv[2]
    os.environ["OMP_NUM_THREADS"] = "1"  # read when scikit-learn is loaded: threads that wait would count as work
    task: Task = pickle.loads((folder / TASK).read_bytes())
    is_ours = contestant in (OURS, SPLIT)
    result = _ours(task.case, folder, contestant == OURS) if is_ours else _peer(contestant, task)
    (folder / RESULT).write_bytes(pickle.dumps(result))


def cpu_s() -> float:
    """Return the CPU-seconds of this process since its start, and of all that it started, which may live on."""
    from tests.bench.measure import living_cpu_s

    times = os.times()
    return times.user + times.system + times.children_user + times.children_system + living_cpu_s()


def value(case: Case, target: pd.Series, predicted: Any) -> float:
    """Return the case's metric by scikit-learn; classes are columns of `predicted`."""
    from sklearn.metrics import accuracy_score, mean_absolute_error, roc_auc_score

    if case.metric == "mae":
        return float(mean_absolute_error(target, predicted))
    if case.metric == "accuracy":
        return float(accuracy_score(target, predicted.columns.to_numpy()[predicted.to_numpy().argmax(axis=1)]))
    classes = sorted(predicted.columns)
    return float(roc_auc_score(target.to_numpy() == classes[1], predicted[classes[1]]))


def _peer(name: str, task: Task) -> Result:
    from tests.bench.quality_peers import PEERS

    if task.sides is None:
        raise ValueError(f"{TASK}: a peer needs the sides of the split")
    peer, sides = PEERS[name], task.sides
    for module in peer.imports:
        __import__(module)
    if sides.limit_s and not peer.python:
        limit_s = math.ceil(cpu_s() + sides.limit_s * (1 if task.case.is_image else MOST_TIMES))
        resource.setrlimit(
            resource.RLIMIT_CPU, (limit_s, limit_s + 5)
        )  # at the second one nobody could tell why it ended
    begun = time.process_time()
    predicted = peer.fit(task.case, sides._replace(python=task.pythons.get(peer.python, "")))
    part_s, spent = time.process_time() - begun if peer.imports else 0.0, cpu_s()
    return Result(value(task.case, task.sides.targets["test"], predicted), spent, part_s)


def _ours(case: Case, place: Path, is_whole: bool) -> Result:
    """Run the steps up to the trained model, and score it on the test rows; what it refuses is a result too."""
    from flows.cli import COLLECT
    from models.errors import LooplineError
    from models.nets.catalogue import net_name
    from tasks.host import stores
    from tasks.host.workspace import Project, Workspace
    from tasks.loop.loop import Loop, SilentReporter
    from tasks.steps.ingest import ingest
    from tasks.steps.prepare import prepare
    from tasks.steps.search import search
    from tasks.steps.train import fit

    gc.set_threshold(*COLLECT)  # as the program does
    workspace = Workspace(place)
    stores.configure(workspace)  # preparing asks the registry for a champion
    workspace.make()
    project = Project(workspace, place / "projects" / "t")
    search_s = 0.0
    try:
        loop = Loop(project, project.spec(), "t-1", "bench", SilentReporter())
        try:
            for step in (ingest, prepare, search, fit) if is_whole else (ingest, prepare):
                begun = cpu_s()
                step(loop)
                search_s += cpu_s() - begun if step is search else 0.0
        finally:
            loop.rank_pool.close()
        spent = cpu_s()
        reached, missed = _on_tests(case, loop) if is_whole else (None, 0)
    except LooplineError as error:
        return Result(None, cpu_s(), error=str(error).splitlines()[0][:200])
    params = loop.done["search"].result.get("params", {}) if is_whole else {}
    family = str(params.get("model.net") or net_name("auto", loop.spec.data.kind))
    return Result(reached, spent, search_s, family, missed)


def _on_tests(case: Case, loop: Any) -> tuple[float, int]:
    """Return the goal of the trained model on the test rows, and how many of their classes it never predicts.

    The test rows stand in for the validation rows of the model's job.
    """
    import numpy as np
    import pandas as pd

    from models.data.feeds import targets
    from models.data.preparation import Preparation
    from models.export.class_head import choose_class_head
    from models.export.trained import num_validation_examples, validation_predictions
    from models.files import read_json
    from models.metrics.classification import at_threshold, missed_classes
    from models.training.job import JOB_FILE, TrainingJob

    trained = loop.step_cache.records.path(next(iter(loop.done["train"].outputs)))
    job = TrainingJob.model_validate(read_json(trained.with_name(JOB_FILE)))
    job = job.model_copy(update={"folder": trained.parent})
    preparation, _ = choose_class_head(job, Preparation.load(job.prepared))
    tests = job.model_copy(update={"tensors": {**job.tensors, "validation": job.tensors["test"]}})
    predicted = validation_predictions(tests, preparation, np.arange(num_validation_examples(tests.tensors)))
    true, classes = targets(job.prepared, "test"), preparation.target.classes
    if classes is None:
        return value(case, pd.Series(true), predicted), 0
    decided = at_threshold(predicted, preparation.class_head.decision)
    shares = predicted if predicted.ndim == 2 else np.stack([1 - predicted, predicted], axis=1)
    names = pd.Series(np.array(classes)[true.astype(int)])
    return value(case, names, pd.DataFrame(shares, columns=classes)), len(missed_classes(true, decided))


if __name__ == "__main__":
    # The class of the pickles is that of the imported module, not of `__main__`.
    from tests.bench import quality_process

    quality_process.main()
