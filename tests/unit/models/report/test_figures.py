"""Every picture is a valid SVG that says what it shows, for the usual and for the odd case."""

import re
from xml.etree import ElementTree

import numpy as np
import pytest

from models.judge.verdict import Difference, Estimate, Slice, Verdict
from models.project_spec.blocks import Judge
from models.report import figures

pytestmark = pytest.mark.usefixtures("pictures")

RNG = np.random.default_rng(0)
BINARY = RNG.integers(0, 2, 300)
CHANCE = np.clip(BINARY * 0.3 + RNG.random(300) * 0.7, 0, 1)
THREE = RNG.integers(0, 3, 200)
SHARES = RNG.dirichlet(np.ones(3), 200)


def text_of(svg):
    """The words of an SVG; fails where it is not one."""
    root = ElementTree.fromstring(svg)
    assert root.tag.endswith("svg")
    return " ".join(" ".join(root.itertext()).split())


def verdict(**more):
    base = {"task": "binary", "metric": "roc_auc", "direction": "maximize", "rules": Judge(margin=0.01)}
    return Verdict(**{**base, "num_samples": 300, "challenger": Estimate(value=0.8, low=0.7, high=0.9), **more})


def part(value, **more):
    estimate = Estimate(value=0.7, low=0.6, high=0.8)
    return Slice(column="origin", value=value, num_samples=40, challenger=estimate, **more)


def test_difference_shows_gain_and_what_was_asked():
    won = Difference(value=0.05, low=0.02, high=0.08, reached=True)
    words = text_of(figures.difference(verdict(difference=won, over_baseline=won)))
    for label in ("gain over the champion", "gain over the baseline", "+0.05", "asked", "roc_auc, right is better"):
        assert label in words


def test_difference_of_a_metric_to_minimise_still_has_better_on_the_right():
    less = Difference(value=-0.05, low=-0.08, high=-0.02, reached=True)
    assert "+0.05" in text_of(figures.difference(verdict(direction="minimize", difference=less)))
    assert text_of(figures.difference(verdict(difference=Difference(value=None))))


def test_confusion_matrix_names_classes_and_counts():
    words = text_of(figures.confusion_matrix(BINARY, CHANCE, ["on time", "late & lost"]))
    hits = int(((CHANCE > 0.5) & (BINARY == 1)).sum())
    for label in ("on time", "late & lost", "true class", "predicted class", str(hits)):
        assert label in words
    many = RNG.dirichlet(np.ones(40), 100)
    assert text_of(figures.confusion_matrix(RNG.integers(0, 40, 100), many, [str(each) for each in range(40)]))


def test_roc_and_pr_name_models_with_their_areas():
    words = text_of(figures.roc_and_pr(BINARY, {"challenger": CHANCE, "champion": CHANCE**2}))
    for label in ("false positive rate", "precision", "recall", "challenger 0.", "champion 0."):
        assert label in words


def test_roc_of_many_classes_draws_each_that_occurs():
    target = np.where(THREE == 2, 0, THREE)
    words = text_of(figures.roc_and_pr(target, {"challenger": SHARES}, ["adelie", "gentoo", "chinstrap"]))
    assert "gentoo" in words
    assert "chinstrap" not in words


def test_curves_of_many_examples_stay_small():
    target = RNG.integers(0, 2, 50_000)
    assert len(figures.roc_and_pr(target, {"challenger": RNG.random(50_000)})) < 60_000


def test_calibration_for_two_and_for_three_classes():
    assert "challenger (error 0." in text_of(figures.calibration(BINARY, {"challenger": CHANCE}))
    words = text_of(figures.calibration(THREE, {"challenger": SHARES}))
    assert "observed frequency" in words
    assert "stated chance" in words


@pytest.mark.parametrize("prediction", [np.linspace(0, 9, 50), np.full(50, 3.0)])
def test_residuals_carry_the_targets_name(prediction):
    words = text_of(figures.residuals(np.linspace(0, 10, 50), prediction, "demand (MW)"))
    for label in ("true demand (MW)", "predicted demand (MW)", "Errors", "median"):
        assert label in words


@pytest.mark.parametrize(("repeats", "labels"), [(1, ["1"]), (3, ["1", "2", "3"]), (40, ["1", "10"])])
def test_counts_on_a_logarithmic_scale_are_plain_numbers(repeats, labels):
    truth = np.r_[np.linspace(0, 10, 50), np.full(repeats, 5.0)]
    words = figures.residuals(truth, truth, "demand").decode()
    assert "$" not in words
    written = re.findall(r">([\d.]+)</text>", words)
    assert all(label in written for label in labels)


def test_scores_by_class_by_rightness_and_of_a_regression():
    assert "stated chance of late" in text_of(figures.scores(BINARY, CHANCE, ["on time", "late"]))
    assert "wrongly classified" in text_of(figures.scores(THREE, SHARES, ["a", "b", "c"]))
    assert "demand" in text_of(figures.scores(np.arange(9.0), np.arange(9.0) + 1, (), "demand"))
    assert text_of(figures.scores(np.zeros(5, int), np.full(5, 0.1), ["a", "b"]))


def test_slices_mark_the_lost_one_and_leave_out_the_undefined():
    undefined = part("XXX").model_copy(update={"challenger": Estimate(value=None)})
    found = [part("JFK", champion=Estimate(value=0.6)), part("EWR", lost=True), undefined]
    words = text_of(figures.slices(verdict(slices=found)))
    for label in ("origin = JFK (40)", "▼ lost", "champion", "roc_auc (95% interval)"):
        assert label in words
    assert "XXX" not in words


def test_each_model_and_reference_has_its_line():
    bits = np.random.default_rng(0).gamma(2, 1, (20, 16))
    svg = figures.bits_by_position({"challenger": bits, "champion": bits + 1}, {"bz2": 1.978, "none": None}).decode()
    assert f"challenger {bits.mean():.3f}" in svg
    assert f"champion {bits.mean() + 1:.3f}" in svg
    assert "bz2 1.978" in svg
    assert "none" not in svg.split("<defs>")[-1].split("</style>")[-1].replace("fill: none", "").replace('"none"', "")


def test_its_axes_are_labelled_with_numbers():
    svg = figures.bits_by_position({"challenger": np.ones((2, 200))}, {}).decode()
    assert "mathdefault" not in svg
    assert ">100<" in svg
