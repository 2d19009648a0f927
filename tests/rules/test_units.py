"""Rule: no number of a row was learnt from its own unit of independence: its group, its key, or its time.

Each walk changes the targets of one unit of the training rows: what was learnt for the rows of that unit must stay.
"""

from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest

from models.data.encode import write_tensors
from models.data.feeds import targets
from models.data.preparation import Preparation
from models.data.prepare import prepare_table, write_rows
from models.judge.evidence import Evidence
from models.judge.held_out import with_clusters
from models.ngrams.columns import feature_matrix
from models.project_spec.blocks import Model, Spec, Train
from models.project_spec.reserved_columns import FITTED_PREFIX, ROW_COLUMN, SPLIT_COLUMN, TEXT_PREFIX
from models.training.batches.examples import open_examples
from models.training.job import TrainingJob
from tasks.loop.jobs import FOLD_BY
from tests.wide import wide_but

SPLITS: dict[str, dict[str, Any]] = {
    "group": {"by": "group", "column": "unit"},
    "time": {"by": "time", "column": "unit"},
    "hash": {"by": "hash", "column": "unit"},
    "random with a key": {"by": "random", "column": "unit"},
    "position": {"by": "position"},
}
NUM_UNITS, ROWS_A_UNIT = 60, 10
TARGET_MEAN = "def fit(rows):\n    return {'mean': (rows['y'] == 'yes').groupby(rows['place']).mean()}\n"


class Prepared(NamedTuple):
    """A prepared folder, the rows in it, their units, and what they were made of."""

    folder: Path
    rows: pa.Table
    units: np.ndarray
    spec: Spec
    preparation: Preparation


def frame() -> pd.DataFrame:
    """Rows whose text, place and target are those of their unit, so that a unit's rows tell each other's target."""
    random = np.random.default_rng(0)
    unit = np.repeat(np.arange(NUM_UNITS), ROWS_A_UNIT)
    words = np.array([f"w{number:03}" for number in range(240)])
    own = words.reshape(NUM_UNITS, 4)
    texts = [" ".join([*random.choice(own[each], 3), *random.choice(words, 3)]) for each in unit]
    yes = random.permutation(np.arange(NUM_UNITS) % 2 == 0)[unit]
    place = np.char.add("p", (unit % 20).astype(str))
    return pd.DataFrame({"unit": unit, "text": texts, "place": place, "y": np.where(yes, "yes", "no")})


def prepared(place: Path, rows: pd.DataFrame, split: str) -> Prepared:
    place.mkdir(exist_ok=True)
    (place / "own.py").write_text(TARGET_MEAN)
    features = {"columns": ["text", "place"], "kinds": {"text": "text"}, "fit": "./own.py:fit"}
    data = {"source": "t.csv", "target": "y", "split": SPLITS[split], "features": features}
    spec = Spec.model_validate({"name": "t", "data": data})
    made, preparation = prepare_table(pa.Table.from_pandas(rows, preserve_index=False), spec, place)
    write_rows(made, preparation, place)
    return Prepared(place, made, made.column(ROW_COLUMN).to_numpy() // ROWS_A_UNIT, spec, preparation)


@pytest.fixture(scope="module", params=wide_but(SPLITS, {"group", "time", "hash"}))
def split(request: pytest.FixtureRequest) -> str:
    name: str = request.param
    return name


@pytest.fixture(scope="module")
def before(split: str, tmp_path_factory: pytest.TempPathFactory) -> Prepared:
    return prepared(tmp_path_factory.mktemp("units"), frame(), split)


def test_every_feature_that_is_learnt_from_targets(before: Prepared, split: str, tmp_path: Path) -> None:
    training = np.unique(before.units[before.rows.column(SPLIT_COLUMN).to_numpy() == 0])
    rows, unit = frame(), training[len(training) // 2]
    rows.loc[rows["unit"] == unit, "y"] = "no" if rows.loc[rows["unit"] == unit, "y"].iloc[0] == "yes" else "yes"
    after = prepared(tmp_path, rows, split)
    here = pa.array(before.units == unit)
    means = [each.rows.column(FITTED_PREFIX + "mean").filter(here).to_numpy() for each in (before, after)]
    np.testing.assert_allclose(*means, atol=1e-12)
    scores = [_score(each, here) for each in (before, after)]
    np.testing.assert_allclose(*scores, atol=1e-3)


def _score(data: Prepared, here: pa.Array) -> np.ndarray:
    """Return the score of a unit's texts, without shift and scale: those are of all training rows."""
    (part,) = data.preparation.texts
    scores = feature_matrix(data.rows.column(TEXT_PREFIX + "text").filter(here), part.num_features)[:, 0]
    return np.asarray((scores - scores.mean()) / scores.std())


def test_every_fold_and_every_cluster(before: Prepared, split: str) -> None:
    """No unit is on both sides of a fold, or in two clusters of a verdict, or of the test of a calibration."""
    job = TrainingJob(
        folder=before.folder / "job",
        prepared=before.folder,
        tensors=write_tensors(before.folder, before.folder),
        project=before.folder,
        model=Model(net="trees"),
        train=Train(),
        metric="roc_auc",
        direction="maximize",
        fold_by=FOLD_BY[before.spec.data.split.by],
    )
    codes = before.rows.column(SPLIT_COLUMN).to_numpy()
    known = np.concatenate([before.units[codes == code] for code in (0, 1)])
    for fold in range(3):
        sides = open_examples(job.model_copy(update={"fold": (fold, 3)}), before.preparation)
        units = [np.unique(known[side.keep.numpy()]) for side in sides]
        assert len(np.intersect1d(*units)) <= (split == "position"), "two stretches of rows meet within a unit"
    from models.export.trained import units_of

    of_validation = units_of(job, before.preparation.kind, ("validation",))
    assert of_validation is not None
    assert of_validation.in_order == (split in ("time", "position"))
    target = targets(before.folder, "test")
    evidence = Evidence(task="binary", target=target, challenger=np.full(len(target), 0.5))
    clusters = with_clusters(evidence, before.folder, before.preparation, before.spec).clusters
    assert clusters is not None
    if split != "position":
        _assert_not_divided(of_validation.of_rows, before.units[codes == 1])
        _assert_not_divided(clusters, before.units[codes == 2])


def _assert_not_divided(parts: np.ndarray, units: np.ndarray) -> None:
    assert len(np.unique(np.stack([parts, units]), axis=1).T) == len(np.unique(units))
