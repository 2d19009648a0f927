"""An estimator by reference is served as its library answers, and a kill amid its fit changes no bit."""

import tempfile
import threading
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import psutil
import pyarrow.parquet as pq
import pytest

from models.data.encode import encode
from models.data.preparation import SPLITS, Preparation
from models.distributed.order import seed_of, share
from models.estimators.rows import LEAST_CHANCE
from models.project_spec.reserved_columns import SPLIT_COLUMN
from tasks.host.workspace import Workspace
from tasks.loop.lifecycle import open_loop
from tasks.ranks.rank_pool import RankPool
from tasks.steps import export, ingest, judge, prepare, promote, register, search, train, validate, version
from tests.conftest import MakeProject, Serve
from tests.tiny_jobs import MakeJob

ACTS = (
    *(ingest.ingest, validate.validate_raw, prepare.prepare, validate.validate_prepared, version.version),
    *(search.search, train.fit, export.export, judge.judge, register.register, promote.promote),
)
SPEC = """
goal: {{metric: {metric}}}
model: {{net: "{net}", arguments: {arguments}}}
search: {{trials: 0}}
train: {{threads: 1, refit: false, epochs: 4}}
judge: {{min_samples: 10, margin: 0.5}}
"""
PIPELINE = """
from sklearn.decomposition import PCA
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline

def build(settings):
    learner = LogisticRegression(C=10.0, solver=settings["solver"], tol=settings["tol"],
                                 max_iter=settings["max_iter"], random_state=settings["seed"])
    return make_pipeline(PCA(settings["components"], random_state=settings["seed"]), learner)

FAMILY = {
    "estimator": build,
    "output": "probabilities",
    "tasks": ["binary", "multiclass"],
    "numbers": "standardised",
    "categories": "one-hot",
    "arguments": {"components": 3, "solver": "lbfgs", "tol": 1e-4, "max_iter": 1000},
}
"""
SCORES: dict[str, Callable[[int], object]] = {
    "binary": lambda score: "high" if score > 250 else "low",
    "multiclass": lambda score: "high" if score > 300 else "middle" if score > 150 else "low",
    "regression": lambda score: score / 100 - 2,
}
METRICS = {"binary": "accuracy", "multiclass": "accuracy", "regression": "rmse"}
Parameters = dict[str, Any]
Predict = Callable[[np.ndarray], np.ndarray]


class Epoch(NamedTuple):
    """So many rounds, with a seed of their own."""

    seed: int
    rounds: int


class Case(NamedTuple):
    """An estimator, and how its library is called without Loopline.

    Attributes:
        net: The reference.
        task: What it learns.
        arguments: Of the spec.
        one_hot: Whether numbers are standardised, and categories become columns.
        fit: (matrix, target, parameters, epochs) -> the fitted object's probabilities or numbers.
        slow: The arguments of a fit that takes a second or so of 9,000 rows.
    """

    net: str
    task: str
    arguments: Parameters
    one_hot: bool
    fit: Callable[[np.ndarray, np.ndarray, Parameters, list[Epoch]], Predict]
    slow: Parameters


def xgboost_fit(x: np.ndarray, y: np.ndarray, parameters: Parameters, epochs: list[Epoch]) -> Predict:
    from xgboost import XGBClassifier

    fitted = None
    for seed, rounds in epochs:
        model = XGBClassifier(**parameters, n_estimators=rounds, random_state=seed, n_jobs=1)
        fitted = model.fit(x, y, xgb_model=fitted)
    assert fitted is not None
    return fitted.predict_proba


def catboost_fit(x: np.ndarray, y: np.ndarray, parameters: Parameters, epochs: list[Epoch]) -> Predict:
    """It goes on from CatBoost's own file: from the object in memory it would go on otherwise."""
    from catboost import CatBoost, CatBoostClassifier

    fitted, before = None, None
    with tempfile.TemporaryDirectory() as folder:
        for seed, rounds in epochs:
            fitted = CatBoostClassifier(**parameters, iterations=rounds, random_seed=seed, thread_count=1)
            fitted.fit(x, y, init_model=before)
            fitted.save_model(f"{folder}/model.cbm")
            before = CatBoost().load_model(f"{folder}/model.cbm")
    assert fitted is not None
    return fitted.predict_proba


def forest_fit(x: np.ndarray, y: np.ndarray, parameters: Parameters, epochs: list[Epoch]) -> Predict:
    from sklearn.ensemble import RandomForestClassifier

    return RandomForestClassifier(**parameters, random_state=epochs[0].seed).fit(x, y).predict_proba


def histogram_fit(x: np.ndarray, y: np.ndarray, parameters: Parameters, epochs: list[Epoch]) -> Predict:
    from sklearn.ensemble import HistGradientBoostingRegressor

    return HistGradientBoostingRegressor(**parameters, random_state=epochs[0].seed).fit(x, y).predict


def logistic_fit(x: np.ndarray, y: np.ndarray, parameters: Parameters, epochs: list[Epoch]) -> Predict:
    from sklearn.linear_model import LogisticRegression

    return LogisticRegression(**parameters, random_state=epochs[0].seed).fit(x, y).predict_proba


def pipeline_fit(x: np.ndarray, y: np.ndarray, parameters: Parameters, epochs: list[Epoch]) -> Predict:
    file: dict[str, Any] = {}
    exec(PIPELINE, file)
    return file["build"]({**parameters, "seed": epochs[0].seed}).fit(x, y).predict_proba


SAGA = {"solver": "saga", "tol": 0.0, "max_iter": 1500}
CASES = {
    "xgboost": Case(
        net="xgboost:XGBClassifier",
        task="binary",
        arguments={"rounds": 20, "subsample": 0.8},
        one_hot=False,
        fit=xgboost_fit,
        slow={"rounds": 300, "subsample": 0.8},
    ),
    "catboost": Case(
        net="catboost:CatBoostClassifier",
        task="binary",
        arguments={"rounds": 20},
        one_hot=False,
        fit=catboost_fit,
        slow={"rounds": 400},
    ),
    "forest": Case(
        net="sklearn.ensemble:RandomForestClassifier",
        task="binary",
        arguments={"n_estimators": 30},
        one_hot=False,
        fit=forest_fit,
        slow={"n_estimators": 240, "max_leaf_nodes": 8},
    ),
    "histogram": Case(
        net="sklearn.ensemble:HistGradientBoostingRegressor",
        task="regression",
        arguments={"max_iter": 60},
        one_hot=False,
        fit=histogram_fit,
        slow={"max_iter": 1200, "max_leaf_nodes": 4},
    ),
    "logistic": Case(
        net="sklearn.linear_model:LogisticRegression",
        task="multiclass",
        arguments={"C": 3.0},
        one_hot=True,
        fit=logistic_fit,
        slow=SAGA,
    ),
    "pipeline": Case(
        net="./piped.py:FAMILY", task="binary", arguments={"components": 2}, one_hot=True, fit=pipeline_fit, slow=SAGA
    ),
}


def rows_of(task: str) -> str:
    """A table of 300 rows: a number, a category, the target."""
    lines = ["x,c,y"]
    for row in range(300):
        score = row * 37 % 400 + 60 * (row % 3 == 0) + row % 50
        lines.append(f"{row * 37 % 400 / 40},{'uvw'[row % 3]},{SCORES[task](score)}")
    return "\n".join(lines) + "\n"


def matrices(case: Case, prepared: Path, preparation: Preparation) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """The matrix of the training rows, that of the test rows, and the target of the training rows."""
    tensors = {side: encode(prepared, side) for side in ("train", "test")}
    target = tensors["train"]["target"]
    numbers = {side: part["numeric"] for side, part in tensors.items()}
    indices = {side: part["categorical"].astype(np.float32) for side, part in tensors.items()}
    if case.one_hot:
        doubles = numbers["train"].astype(np.float64)
        shift, scale = (doubles.mean(axis=0).astype(np.float32), doubles.std(axis=0).astype(np.float32))
        (width,) = preparation.cardinalities
        numbers = {side: (part - shift) / scale for side, part in numbers.items()}
        indices = {side: np.eye(width, dtype=np.float32)[part[:, 0].astype(int)] for side, part in indices.items()}
    learnt, asked = (np.column_stack([numbers[side], indices[side]]) for side in ("train", "test"))
    return learnt, asked, target


def library_answers(case: Case, prepared: Path, preparation: Preparation, trained: Mapping[str, Any]) -> np.ndarray:
    """What the library's fitted object predicts for the test rows: probabilities (row, class), or numbers (row,)."""
    environment = trained["environment"]
    parameters = {name: value for name, value in environment["parameters"].items() if name != "threads"}
    rounds = int(case.arguments.get("rounds", 1))
    num_epochs = min(4, rounds)
    ranges = [share(0, rounds, epoch, num_epochs) for epoch in range(num_epochs)]
    kept = [(first, stop) for first, stop in ranges if stop <= environment["rounds"]]
    epochs = [Epoch(seed_of("estimator", 0, first) % 2**31, stop - first) for first, stop in kept]
    learnt, asked, target = matrices(case, prepared, preparation)
    return case.fit(learnt, target, parameters, epochs)(asked)


def served_probabilities(chances: np.ndarray, preparation: Preparation) -> np.ndarray:
    """The chances through the calibration of the version (row, class)."""
    head = preparation.class_head
    logits = head.slope * np.log(np.clip(chances, LEAST_CHANCE, 1 - LEAST_CHANCE))
    powers = np.exp(logits + (np.array(head.offsets) if head.offsets else 0.0))
    return powers / powers.sum(axis=1, keepdims=True)


def decided(probabilities: np.ndarray, preparation: Preparation) -> list[str]:
    """The labels by the decision of the version."""
    head, classes = preparation.class_head, preparation.target.classes or []
    if len(classes) == 2:
        return [classes[int(second > head.threshold)] for second in probabilities[:, 1]]
    scores = probabilities * (head.score_weights or 1.0) + (head.score_offsets or 0.0)
    return [classes[position] for position in scores.argmax(axis=1)]


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=pytest.mark.wide if name == "logistic" else pytest.mark.soak) for name in CASES]
)
def test_what_is_served_is_what_the_library_predicts(
    tracked: Workspace,
    make_project: MakeProject,
    serve: Serve,
    code_memory: str,
    name: str,
) -> None:
    case = CASES[name]
    tracked.cache.mkdir(exist_ok=True)
    (tracked.cache / "code.json").write_text(code_memory)
    spec = SPEC.format(metric=METRICS[case.task], net=case.net, arguments=case.arguments)
    project = make_project("tiny", spec, rows=rows_of(case.task))
    (project.folder / "piped.py").write_text(PIPELINE)
    with open_loop(project, ()) as loop:
        for act in ACTS:
            act(loop)
    assert loop.done["promote"].result["decision"] == "promote", loop.done["promote"].result

    version_served = Preparation.load(loop.place(loop.done["export"]))
    expected = library_answers(case, project.prepared, version_served, loop.done["train"].result)
    rows = pq.read_table(project.prepared / "rows.parquet")
    records = rows.filter(np.equal(rows.column(SPLIT_COLUMN), SPLITS.index("test"))).select(["x", "c"]).to_pylist()
    answers = serve("tiny").post("/invocations", {"dataframe_records": records}).ok().json["predictions"]
    target = version_served.target
    if target.classes:
        expected = served_probabilities(expected, version_served)
        served = np.array([[answer[f"probability_{value}"] for value in target.classes] for answer in answers])
    else:
        served = np.array([(answer["prediction"] - target.shift) / target.scale for answer in answers])
    difference = float(np.abs(served - expected).max())
    print(f"{name}: {difference:.1e}, {len(records)} rows")  # pytest -s shows it
    assert difference < 1e-4
    if target.classes:
        assert [answer["label"] for answer in answers] == decided(expected, version_served)


class RankWatch(threading.Thread):
    """Watches the processor time of the rank of a pool, and kills it once, after `kill_after_s` of it."""

    def __init__(self, pool: RankPool, kill_after_s: float = float("inf")) -> None:
        super().__init__(daemon=True)
        self._fork_server = psutil.Process(pool._fork_server.pid)
        self._kill_after_s = kill_after_s
        self._over = threading.Event()
        self.used_s, self.killed = 0.0, False

    def run(self) -> None:
        while not self._over.wait(0.005):
            for process in self._fork_server.children(recursive=True):
                try:
                    self._see(process)
                except psutil.NoSuchProcess:
                    continue

    def _see(self, process: psutil.Process) -> None:
        times = process.cpu_times()
        self.used_s = max(self.used_s, times.user + times.system)
        if not self.killed and times.user + times.system >= self._kill_after_s:
            process.kill()
            self.killed = True

    def __enter__(self) -> "RankWatch":
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self.join()


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=pytest.mark.soak if name != "xgboost" else pytest.mark.wide) for name in CASES]
)
def test_a_rank_killed_amid_the_fit_starts_again_and_ends_with_the_same_bits(
    pool: RankPool, make_job: MakeJob, tmp_path: Path, name: str
) -> None:
    case = CASES[name]
    (tmp_path / "piped.py").write_text(PIPELINE)
    settings = {"net": case.net, "task": case.task, "arguments": case.slow, "count": 9000, "epochs": 6, "patience": 6}
    with RankWatch(pool) as watch:
        expected = pool.run(make_job(folder="whole", **settings))
    with RankWatch(pool, watch.used_s / 2) as killer:
        result = pool.run(make_job(folder="killed", **settings))
    assert killer.killed
    assert result.restarts == 1
    assert result.weights_sha256 == expected.weights_sha256
    assert [epoch["val_loss"] for epoch in result.epochs] == [epoch["val_loss"] for epoch in expected.epochs]
    assert bool(result.resumed_from) == ("rounds" in case.slow), "what has no rounds begins again"
