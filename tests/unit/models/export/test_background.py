import json
from pathlib import Path

import numpy as np
import pytest

from models.data.feeds import feeds
from models.data.preparation import Preparation
from models.export.background import BACKGROUND_ROWS, write_background
from models.inference.explain import Explainer
from tests.finished_jobs import FinishedJob


@pytest.mark.parametrize(("kind", "task"), [("table", "binary"), ("series", "regression")])
def test_a_few_training_rows_are_kept_as_the_graph_takes_them(
    finished_job: FinishedJob, tmp_path: Path, kind: str, task: str
) -> None:
    prepared = finished_job("mlp", kind, task).prepared
    preparation = Preparation.load(prepared)
    path = write_background(tmp_path, prepared, preparation, shows_rows=True)
    assert path is not None
    kept, (train, *_) = json.loads(path.read_text()), list(feeds(prepared, "train"))
    assert set(kept) == set(train)
    for name, values in kept.items():
        assert len(values) == BACKGROUND_ROWS
        first = np.array(values[0], train[name].dtype)
        assert np.array_equal(first, train[name][0], equal_nan=first.dtype.kind == "f")
    explainer = Explainer.load(tmp_path, preparation)
    assert explainer is not None
    assert explainer.evaluations(0) == BACKGROUND_ROWS


@pytest.mark.parametrize(("kind", "task"), [("image", "multiclass"), ("text", "language")])
def test_images_and_texts_keep_none(finished_job: FinishedJob, tmp_path: Path, kind: str, task: str) -> None:
    net = "cnn" if kind == "image" else "decoder"
    prepared = finished_job(net, kind, task).prepared
    preparation = Preparation.load(prepared)
    assert write_background(tmp_path, prepared, preparation, shows_rows=True) is None
    assert Explainer.load(tmp_path, preparation) is None
