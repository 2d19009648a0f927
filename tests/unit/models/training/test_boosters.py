import lightgbm
import numpy as np

from models.data.preparation import OutputColumn, Preparation, TargetEncoding
from models.training.boosters import Boosters, booster_texts, objectives

ROWS = np.random.default_rng(0).normal(size=(500, 3))
QUIET = {"verbosity": -1, "num_threads": 1, "min_data_in_leaf": 5}


def of(task, *levels):
    outputs = [OutputColumn(name=f"o{at}", column="y", quantile=level) for at, level in enumerate(levels)]
    return Preparation(kind="table", task=task, target=TargetEncoding(name="y", outputs=outputs))


def grown(preparation, rounds):
    own = [{**QUIET, **each} for each in objectives(preparation, "pinball")]
    sets = [lightgbm.Dataset(ROWS, ROWS[:, 0] + ROWS[:, 1] ** 2, params=QUIET, free_raw_data=False) for _ in own]
    boosters = Boosters.first_round(own, sets, None)
    for _ in range(rounds - 1):
        boosters.update()
    return boosters


def test_each_output_has_its_objective():
    assert [each["alpha"] for each in objectives(of("quantile", 0.1, 0.9), "pinball")] == [0.1, 0.9]
    assert [each["objective"] for each in objectives(of("multilabel", None, None), "roc_auc")] == ["binary"] * 2
    assert [each["objective"] for each in objectives(of("regression", None, None), "mae")] == ["regression_l1"] * 2
    assert objectives(of("regression"), "rmse") == [{"objective": "regression", "metric": "l2"}]


def test_boosters_are_the_same_from_their_text_and_in_pieces():
    boosters = grown(of("quantile", 0.1, 0.9), 8)
    text = boosters.to_text()
    assert len(booster_texts(text)) == 2
    whole = Boosters.of_text(text).raw(ROWS, 0, -1, threads=1)
    np.testing.assert_array_equal(whole, boosters.raw(ROWS, 0, 8, threads=1))
    pieces = boosters.raw(ROWS, 0, 3, threads=1) + boosters.raw(ROWS, 3, 8, threads=1)
    np.testing.assert_allclose(pieces, whole)
    np.testing.assert_array_equal(
        Boosters.of_text(boosters.to_text(3)).raw(ROWS, 0, -1, 1), boosters.raw(ROWS, 0, 3, 1)
    )
    assert whole[:, 0].mean() < whole[:, 1].mean()
    assert boosters.num_leaves() > 16
