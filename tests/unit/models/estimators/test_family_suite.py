"""The suite of families probes a row for each of its tasks."""

from pathlib import Path

import pytest

from models.estimators.family_suite import family_claims
from models.project_spec.conformance import outcomes

pytestmark = [
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),  # skl2onnx hands numpy's truths to protobuf
    pytest.mark.filterwarnings("ignore::UserWarning"),
]
ROW = """\
import random

from sklearn.linear_model import LogisticRegression


def steady(settings):
    return LogisticRegression()


def drawn(settings):
    return LogisticRegression(C=random.random())


FAMILY = {"estimator": steady, "output": "probabilities", "tasks": ["binary", "multiclass"]}
DRAWN_FAMILY = {"estimator": drawn, "output": "probabilities", "tasks": ["binary"]}
"""


@pytest.mark.parametrize(
    ("name", "errors"),
    [
        ("FAMILY", ["", "", ""]),
        ("DRAWN_FAMILY", ["", "have different bytes"]),
        ("NO_FAMILY", ["has no 'NO_FAMILY'"]),
    ],
)
def test_each_task_of_a_row_is_probed(tmp_path: Path, name: str, errors: list[str]) -> None:
    (tmp_path / "linear.py").write_text(ROW)
    told = [*outcomes(family_claims(f"./linear.py:{name}", tmp_path))]
    assert len(told) == len(errors), told
    for outcome, error in zip(told, errors, strict=True):
        assert error in outcome.error
        assert bool(error) == bool(outcome.error)
