import importlib
import inspect

import pytest

from models.estimators.rows import ROWS, general_row
from models.project_spec.search import Dimension

MODULES = {
    "sklearn": ("ensemble", "linear_model", "tree", "svm", "neighbors", "neural_network"),
    "xgboost": ("",),
    "catboost": ("",),
}


def class_of(row):
    """The class of a row."""
    for part in MODULES[row.package]:
        module = importlib.import_module(f"{row.package}.{part}".rstrip("."))
        if hasattr(module, row.name):
            return getattr(module, row.name)
    raise AssertionError(row.name)


def argument_names(row):
    """The arguments that the constructor of a row's class takes, those of its parents included."""
    found = class_of(row)
    return {name for parent in found.__mro__ for name in inspect.signature(parent.__init__).parameters} | {row.quantile}


@pytest.mark.parametrize("row", ROWS.values(), ids=ROWS)
def test_each_row_names_arguments_that_its_class_takes(row):
    pytest.importorskip(row.package)
    arguments = {*row.fixed, *row.space, *row.defaults, *(row.arguments or ())}
    arguments |= {name for objective in row.objectives.values() for name in objective}
    arguments |= {row.seed, row.threads, row.rounds} - {""}
    assert arguments <= argument_names(row)
    assert not {*row.space, *row.defaults} & {*row.owned}


@pytest.mark.parametrize("row", ROWS.values(), ids=ROWS)
def test_each_row_says_whether_fit_takes_weights(row):
    pytest.importorskip(row.package)
    if row.output != "labels":
        assert ("sample_weight" in inspect.signature(class_of(row).fit).parameters) == row.weights


@pytest.mark.parametrize("row", ROWS.values(), ids=ROWS)
def test_each_space_is_one_of_dimensions(row):
    assert all(Dimension.model_validate(dimension) for dimension in row.space.values())


def test_a_class_that_is_not_listed_gets_the_facts_of_its_source():
    row = general_row("BaggingClassifier", ("binary",), ["n_jobs", "verbose", "max_samples"], "probabilities", True)
    assert (row.seed, row.threads, row.fixed, row.space) == ("", "n_jobs", {"verbose": 0}, {})
    assert row.owned.keys() == {"n_jobs", "verbose"}
    assert general_row("LassoCV", ("regression",), [], "scores", True).own_split
