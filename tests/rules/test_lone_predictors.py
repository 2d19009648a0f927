"""The rule: a column that alone tells the answer promotes no first model; `new`, validation and the verdict keep it."""

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest

from models.data.prepare import prepare_table, write_rows
from models.identity.equal_share import EqualRows
from models.judge.decide import judge, replay
from models.judge.evidence import Evidence
from models.metrics.metrics import METRICS
from models.project_spec.blocks import Judge, Spec
from models.project_spec.reader import read_spec
from models.report.card import traffic_light
from models.scaffold.table import guess_spec
from models.validation.single_predictors import single_predictors
from tasks.loop.champion_parts import Rival
from tasks.steps.judge import reasons_to_wait

NUM = 1200
IDS = ["PassengerId", "customerID", "LoanID", "RowNumber", "EmployeeNumber", "userid", "orderNo", "sku", "row", "n"]
ANSWER = np.sort(np.random.default_rng(0).integers(0, 2, NUM))
"""The file is in the order of the answer, so that the number of a row tells it."""
NOISE = np.random.default_rng(1).normal(size=NUM)
LEAKS = {
    "number": np.arange(NUM) * 1.5,
    "category": np.where(ANSWER == 1, "left", "stayed"),
    "date": pd.Timestamp("2024-01-01") + pd.to_timedelta(np.arange(NUM), unit="D"),
}


@pytest.mark.parametrize("name", IDS)
def test_new_drops_the_number_of_a_row(tmp_path, name):
    path = tmp_path / "d.csv"
    pd.DataFrame({name: np.arange(1, NUM + 1), "x": NOISE, "y": ANSWER}).to_csv(path, index=False)
    (tmp_path / "project.yaml").write_text(guess_spec(path, "p", "y"))
    assert read_spec(tmp_path / "project.yaml").data.features.drop == [name]


def evidence(predictors, champion):
    score = 1 / (1 + np.exp(-4 * (ANSWER - 0.5 + NOISE / 5)))
    return Evidence(
        task="binary",
        target=ANSWER,
        challenger=score,
        champion=score if champion else None,
        baseline=np.full(NUM, 0.5),
        single_predictors=predictors,
    )


@pytest.mark.parametrize("leak", LEAKS)
def test_a_first_model_with_a_lone_predictor_waits_for_a_person(tmp_path, leak):
    table = pa.Table.from_pandas(pd.DataFrame({"leak": LEAKS[leak], "x": NOISE, "y": ANSWER}), preserve_index=False)
    data = {"source": "d.csv", "target": "y", "split": {"by": "stratified"}}
    rows, preparation = prepare_table(table, Spec.model_validate({"name": "p", "data": data}), tmp_path)
    predictors = single_predictors(rows, preparation)
    assert [*predictors] == ["leak"]

    rules = Judge(resamples=100)
    first = judge(evidence(predictors, champion=False), rules, METRICS["roc_auc"])
    assert [gate.name for gate in first.failed] == ["predictors"]
    assert "'leak'" in first.reasons[1]
    assert "loopline promote" in first.reasons[1]
    assert "data.features.drop" in first.reasons[1]
    assert replay(first, evidence(predictors, champion=False), METRICS["roc_auc"]).same
    assert traffic_light(first) == "amber"

    assert judge(evidence({}, champion=False), rules, METRICS["roc_auc"]).promoted
    assert judge(evidence(predictors, champion=True), rules, METRICS["roc_auc"]).promoted


def test_a_first_model_that_is_the_champion_by_now_waits_for_nobody(tmp_path):
    """It is judged again when code changes, such as by an update of Loopline; its rival is none, as at first."""
    table = pa.Table.from_pandas(pd.DataFrame({"leak": LEAKS["number"], "x": NOISE, "y": ANSWER}), preserve_index=False)
    data = {"source": "d.csv", "target": "y", "split": {"by": "stratified"}}
    rows, preparation = prepare_table(table, Spec.model_validate({"name": "p", "data": data}), tmp_path)
    write_rows(rows, preparation, tmp_path)
    equal = EqualRows(num_rows=NUM, identified=True, together=False, num_in_training=60, num_test=120)

    first = reasons_to_wait(Rival("", None), tmp_path, preparation, equal)
    assert (first["copies"], [*first["single_predictors"]]) == (0.5, ["leak"])
    assert reasons_to_wait(Rival("", "1"), tmp_path, preparation, equal) == {}
    assert reasons_to_wait(Rival("1:a", "1"), tmp_path, preparation, equal)["single_predictors"] == {}
