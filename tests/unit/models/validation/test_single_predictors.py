"""A column that is made from the target is named; strong and honest ones are not."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest

from models.data.prepare import prepare_table
from models.project_spec.blocks import Spec
from models.validation.single_predictors import single_predictors

NUM = 3000


def named(columns: dict[str, object], target: object, **data: object) -> dict[str, float]:
    """The columns that are named, beside a strong honest one and noise."""
    random = np.random.default_rng(1)
    table = pa.table({**columns, "noise": random.normal(size=NUM), "kind": random.choice(["a", "b"], NUM), "y": target})
    spec = Spec.model_validate({"name": "t", "data": {"source": "x", "target": "y", **data}})
    return single_predictors(*prepare_table(table, spec, None))


def test_a_number_that_decides_a_rare_class_is_named():
    hidden = np.random.default_rng(0).normal(size=NUM)
    strong = hidden + np.random.default_rng(2).normal(0, 0.5, NUM)
    found = named({"leak": -hidden, "strong": strong}, np.where(hidden > 1.6, "yes", "no"))
    assert list(found) == ["leak"]
    assert found["leak"] > 0.995


def test_a_number_that_is_missing_for_one_class_and_a_category_of_each_class_are_named():
    target = np.random.default_rng(0).choice(["a", "b", "c"], NUM)
    gap = np.where(target == "a", np.nan, 1.0)
    assert list(named({"code": np.char.add("code ", target)}, target)) == ["code"]
    assert list(named({"gap": gap}, np.where(target == "a", "yes", "no"))) == ["gap"]


@pytest.mark.parametrize(("noise", "names"), [(0.0, ["leak"]), (0.01, ["leak"]), (0.3, [])])
def test_a_number_from_which_a_skewed_target_follows_is_named(noise: float, names: list[str]):
    random = np.random.default_rng(0)
    target = np.exp(random.normal(size=NUM))
    assert list(named({"leak": np.log(target) + random.normal(0, noise, NUM)}, target)) == names


def test_few_rows_say_nothing():
    random = np.random.default_rng(0)
    target = random.choice(["a", "b"], 200)
    table = pa.table({"leak": target, "y": target})
    spec = Spec.model_validate({"name": "t", "data": {"source": "x", "target": "y"}})
    assert single_predictors(*prepare_table(table, spec, None)) == {}
