"""A verdict has the figures of its task beside those of every verdict."""

import numpy as np
import pytest

from models.data.target_encoding import OutputColumn, TargetEncoding
from models.judge.evidence import Evidence
from models.judge.verdict import Estimate, Verdict
from models.project_spec.blocks import Judge
from models.report.verdict_figures import verdict_figures

SOURCE = np.random.default_rng(0)
NUMBERS = SOURCE.normal(size=80)
CLASSES = SOURCE.integers(0, 2, 80)
SEVERAL = [OutputColumn(name=name, column=name) for name in ("a", "b")]
QUANTILES = [OutputColumn(name=f"q{level}", column="y", quantile=level) for level in (0.1, 0.9)]


@pytest.mark.parametrize(
    ("task", "target", "values", "names"),
    [
        (
            "binary",
            TargetEncoding(name="y", classes=["no", "yes"]),
            (CLASSES, SOURCE.uniform(size=80)),
            {"confusion", "roc-pr", "calibration", "scores"},
        ),
        (
            "multilabel",
            TargetEncoding(name="a, b", outputs=SEVERAL),
            (np.stack([CLASSES, 1 - CLASSES], axis=1), SOURCE.uniform(size=(80, 2))),
            {"labels"},
        ),
        ("regression", TargetEncoding(name="y"), (NUMBERS, 0.9 * NUMBERS), {"residuals", "scores"}),
        (
            "regression",
            TargetEncoding(name="a, b", outputs=SEVERAL),
            (SOURCE.normal(size=(80, 2)), SOURCE.normal(size=(80, 2))),
            {"targets"},
        ),
        (
            "quantile",
            TargetEncoding(name="y", outputs=QUANTILES),
            (np.stack([NUMBERS, NUMBERS], axis=1), np.stack([NUMBERS - 1, NUMBERS + 1], axis=1)),
            {"quantiles"},
        ),
        ("ranking", TargetEncoding(name="y", group="q"), (np.tile([[0, 0], [1, 0]], (40, 1)), NUMBERS), {"places"}),
    ],
)
def test_the_figures_are_those_of_the_task(task, target, values, names):
    estimate = Estimate(value=0.8, low=0.7, high=0.9)
    verdict = Verdict(task=task, metric="mae", direction="minimize", rules=Judge(), num_samples=80, challenger=estimate)
    evidence = Evidence(task, *values, outputs=target.outputs)
    assert verdict_figures(evidence, verdict, target).keys() == {"difference", *names}
