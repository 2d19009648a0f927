from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from models.data.preparation import Preparation
from models.data.target_encoding import TargetEncoding
from models.errors import DataError
from models.inference.explain import Explainer, Explanation
from models.inputs.categorical.record import CategoricalInput
from models.inputs.numeric.record import NumericInput
from models.project_spec.window import Window

Model = Callable[[dict[str, np.ndarray]], dict[str, np.ndarray]]


def table(columns: int, classes: list[str] | None = None) -> Preparation:
    return Preparation(
        kind="table",
        task="binary" if classes else "regression",
        target=TargetEncoding(name="y", classes=classes),
        inputs=[NumericInput(name=f"x{at}", fill=0.0) for at in range(columns)],
    )


def numbers(rows: int, columns: int, seed: int) -> dict[str, np.ndarray]:
    drawn = np.random.default_rng(seed).normal(size=(columns, rows))
    return {f"x{at}": drawn[at] for at in range(columns)}


def explained(explainer: Explainer, model: Model, feed: dict[str, np.ndarray]) -> list[Explanation]:
    rows = len(next(iter(feed.values())))
    question = dict(explainer.question(feed))
    assert {len(values) for values in question.values()} == {explainer.evaluations(rows)}
    return explainer.explanations(rows, model(question))


def regression(function: Callable[[np.ndarray], np.ndarray]) -> Model:
    return lambda feed: {"prediction": function(np.stack(list(feed.values()), axis=1))}


@given(st.integers(1, 6), st.integers(1, 4), st.integers(1, 9), st.integers(0, 99))
def test_contributions_add_up_to_the_value_less_the_base(columns: int, rows: int, size: int, seed: int) -> None:
    weights = np.random.default_rng(seed).normal(size=columns)
    model = regression(lambda x: np.tanh(x @ weights) * x[:, 0])
    background, feed = numbers(size, columns, seed + 1), numbers(rows, columns, seed + 2)
    base = model(background)["prediction"].mean()
    found = explained(Explainer(table(columns), background), model, feed)
    for each, value in zip(found, model(feed)["prediction"], strict=True):
        assert each.base == pytest.approx(base)
        assert each.value == pytest.approx(value)
        assert each.base + sum(each.contributions.values()) == pytest.approx(each.value)


def test_of_a_sum_each_column_contributes_its_term() -> None:
    weights, background = np.array([2.0, -1.0, 0.0]), numbers(16, 3, 0)
    feed = numbers(5, 3, 1)
    found = explained(Explainer(table(3), background), regression(lambda x: x @ weights), feed)
    for row, each in enumerate(found):
        exact = {f"x{at}": w * (feed[f"x{at}"][row] - background[f"x{at}"].mean()) for at, w in enumerate(weights)}
        assert each.contributions == pytest.approx(exact)
        assert each.contributions["x2"] == 0.0  # a column that the model does not look at


def test_two_columns_that_only_work_together_share_what_they_do() -> None:
    nothing = {"x0": np.zeros(16), "x1": np.zeros(16)}
    (found,) = explained(
        Explainer(table(2), nothing), regression(lambda x: x[:, 0] * x[:, 1]), {"x0": np.ones(1), "x1": np.ones(1)}
    )
    assert found == Explanation("prediction", 0.0, 1.0, {"x0": 0.5, "x1": 0.5})


def test_a_row_of_the_background_alone_is_not_explained_by_anything() -> None:
    background = numbers(1, 4, 0)
    (found,) = explained(Explainer(table(4), background), regression(lambda x: x.sum(axis=1)), background)
    assert set(found.contributions.values()) == {0.0}


def test_of_classes_the_chance_of_the_one_answered_is_explained() -> None:
    def model(feed: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
        yes = 1 / (1 + np.exp(-feed["x0"]))
        return {"label": np.where(yes > 0.5, "yes", "no"), "probabilities": np.stack([1 - yes, yes], axis=1)}

    feed = {"x0": np.array([3.0, -3.0])}
    found = explained(Explainer(table(1, ["no", "yes"]), numbers(8, 1, 0)), model, feed)
    assert [each.of for each in found] == ["probability_yes", "probability_no"]
    assert all(each.value > 0.9 and each.contributions["x0"] > 0 for each in found)


def test_texts_and_missing_values_take_part() -> None:
    preparation = table(1).with_inputs("categorical", [CategoricalInput(name="c", categories=["u", "v"])])
    background = {"x0": np.array([np.nan, 0.0]), "c": np.array(["u", ""], object)}

    def model(feed: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
        return {"prediction": np.nan_to_num(feed["x0"]) + 5.0 * (feed["c"] == "v")}

    feed = {"x0": np.array([np.nan]), "c": np.array(["v"], object)}
    (found,) = explained(Explainer(preparation, background), model, feed)
    assert found.contributions == {"x0": 0.0, "c": 5.0}


def test_a_column_of_a_series_is_exchanged_over_the_whole_window() -> None:
    preparation = Preparation(
        kind="series",
        task="regression",
        target=TargetEncoding(name="y"),
        inputs=[NumericInput(name="a", fill=0.0), NumericInput(name="b", fill=0.0)],
        window=Window(length=3),
    )
    explainer = Explainer(preparation, {"series": np.zeros((4, 3, 2))})
    rows = np.arange(12.0).reshape(2, 3, 2)
    found = explained(explainer, lambda feed: {"prediction": feed["series"].sum(axis=(1, 2))}, {"series": rows})
    assert [each.contributions for each in found] == [{"a": 6.0, "b": 9.0}, {"a": 24.0, "b": 27.0}]


def test_the_same_rows_are_explained_alike() -> None:
    model = regression(lambda x: np.sin(x[:, 0] * x[:, 1]) + x[:, 2] ** 2)
    found = [explained(Explainer(table(3), numbers(16, 3, 0)), model, numbers(2, 3, 1)) for _ in range(2)]
    assert found[0] == found[1]


def test_more_rows_than_a_request_may_ask_for_are_refused_with_the_most() -> None:
    explainer = Explainer(table(20), numbers(16, 20, 0))
    explainer.check(13)
    assert explainer.evaluations(13) <= 8192 < explainer.evaluations(14)
    with pytest.raises(DataError, match="got 14 rows, expected 13 at most of 20 columns each"):
        explainer.check(14)


def test_too_many_columns_are_refused() -> None:
    with pytest.raises(DataError, match="300 columns are too many"):
        Explainer(table(300), numbers(16, 300, 0)).check(1)
