"""Given rows are scored as the judge scores prepared ones, and shown as MLflow's clients see them."""

from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from models.data.feeds import feeds
from models.data.preparation import Preparation
from models.errors import TrainingError
from models.inference.arrow_rows import feed_of_rows, lines_of, series_feeds
from models.inference.predict import predict
from models.inference.scoring import RUN_ROWS, Scorer


@pytest.fixture
def made(exported_job):
    """A function that gives a finished job, the scorer of its export, and the exported file."""

    def make(net, kind, task, **arguments):
        job, answer = exported_job(net, kind, task, **arguments)
        path = Path(answer["path"])
        return job, Scorer(path.parent), path

    return make


@pytest.mark.parametrize(
    ("net", "kind", "task", "arguments"),
    [
        ("mlp", "table", "binary", {"hidden": 8}),
        ("trees", "table", "multiclass", {}),
        ("trees", "table", "regression", {}),
        ("cnn", "image", "multiclass", {"width": 4, "hidden": 8}),
    ],
)
def test_rows_are_scored_as_prepared_rows_are(made, net, kind, task, arguments):
    job, scorer, path = made(net, kind, task, **arguments)
    rows = pq.read_table(job.prepared / "rows.parquet", filters=[("__split", "==", 2)])
    scored = scorer.score(feed_of_rows(rows, scorer.preparation))
    expected = predict(path, feeds(job.prepared, "test"), scorer.preparation)
    found = scored.scores if task == "multiclass" else scored.score
    np.testing.assert_allclose(found, expected, atol=1e-6)
    assert scored.shown.num_rows == rows.num_rows
    classes = scorer.preparation.target.classes or []
    names = ["label", *(f"probability_{name}" for name in classes)] if classes else ["prediction"]
    assert scored.shown.column_names == names
    if classes:
        likeliest = np.stack([scored.shown.column(name).to_numpy() for name in names[1:]], axis=1).argmax(axis=1)
        assert scored.shown.column("label").to_pylist() == [classes[one] for one in likeliest]


def test_windows_of_a_series_are_scored_as_prepared_ones_are(made):
    job, scorer, path = made("gru", "series", "regression", hidden=8)
    rows = pq.read_table(job.prepared / "rows.parquet")
    (found,) = list(series_feeds(rows, scorer.preparation))
    ends, feed = found
    scores = dict(zip(ends.tolist(), scorer.score(feed).score, strict=True))
    targets = np.flatnonzero(rows.column("__split").to_numpy() == 2)
    expected = predict(path, feeds(job.prepared, "test"), scorer.preparation)
    assert scorer.preparation.window is not None
    horizon = scorer.preparation.window.horizon
    np.testing.assert_allclose([scores[int(one) - horizon] for one in targets], expected, atol=1e-6)
    assert max(scores) == rows.num_rows - 1  # beyond what is known: the forecast


def test_texts_are_read(made):
    _, scorer, _ = made("decoder", "text", "language", width=16, layers=2, heads=2)
    assert scorer.preparation.characters is not None
    lines = lines_of(pa.table({"text": ["und so", None]}), scorer.preparation.characters)
    scored = scorer.read(lines)
    assert scored.shown.column_names == ["next_character", "probability", "bits_per_char"]
    assert scored.score is not None
    assert 0 < scored.score[0] < 20


def test_many_rows_run_in_pieces_and_come_in_order(made):
    _, scorer, _ = made("mlp", "table", "binary", hidden=8)
    count = 2 * RUN_ROWS + 3
    rows = pa.table(
        {part.name: np.linspace(-2, 2, count) for part in scorer.preparation.numeric}
        | {part.name: ["1"] * count for part in scorer.preparation.categorical}
    )
    whole = scorer.score(feed_of_rows(rows, scorer.preparation)).score
    tail = scorer.score(feed_of_rows(rows.slice(count - 5), scorer.preparation)).score
    assert whole is not None
    assert len(whole) == count
    np.testing.assert_allclose(whole[-5:], tail, atol=1e-7)


def test_rows_that_the_graph_refuses_are_told(made):
    _, scorer, _ = made("mlp", "table", "binary", hidden=8)
    with pytest.raises(TrainingError, match="cannot run on these rows"):
        scorer.score({"nothing": np.zeros(3)})
    assert isinstance(scorer.preparation, Preparation)
