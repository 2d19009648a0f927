"""An estimator by reference goes through the whole loop, and is served as its library answers."""

import numpy as np
import pyarrow.parquet as pq
import pytest

from models.data.encode import encode
from models.data.preparation import SPLITS, Preparation
from models.estimators.inputs import input_plan
from models.estimators.rows import LEAST_CHANCE, ROWS
from models.project_spec.reserved_columns import SPLIT_COLUMN
from tasks.host.workspace import Workspace
from tasks.loop.lifecycle import open_loop
from tasks.steps import card, export, ingest, judge, prepare, promote, register, search, train, validate, version
from tests.conftest import MakeProject, Serve

ACTS = (
    *(ingest.ingest, validate.validate_raw, prepare.prepare, validate.validate_prepared, version.version),
    *(search.search, train.fit, export.export, judge.judge, register.register, promote.promote, card.write_card),
)
DATA = "x,c,y\n" + "".join(
    f"{i * 37 % 400 / 40},{'uvw'[i % 3]},{'high' if i * 37 % 400 + 60 * (i % 3 == 0) + i % 50 > 250 else 'low'}\n"
    for i in range(400)
)
SPEC = """
model: {net: "sklearn.linear_model:LogisticRegression", arguments: {C: 3.0}}
search: {trials: 0}
train: {threads: 1, refit: false}
judge: {min_samples: 10, margin: 0.5}
"""


def test_what_is_served_is_what_the_library_predicts(
    workspace: Workspace, make_project: MakeProject, serve: Serve
) -> None:
    from sklearn.linear_model import LogisticRegression

    project = make_project("tiny", SPEC, rows=DATA)
    with open_loop(project, ()) as loop:
        for act in ACTS:
            act(loop)
    assert loop.done["promote"].result["decision"] == "promote", loop.done["promote"].result

    row, version_served = ROWS["LogisticRegression"], Preparation.load(loop.place(loop.done["export"]))
    tensors = {side: encode(project.prepared, side) for side in ("train", "test")}
    inputs = {side: np.column_stack([part["numeric"], part["categorical"]]) for side, part in tensors.items()}
    plan = input_plan(row, inputs["train"].astype(np.float32), version_served.cardinalities, None)
    learnt, asked = (plan.matrix(inputs[side].astype(np.float32)) for side in ("train", "test"))
    fitted = LogisticRegression(**{**row.defaults, "C": 3.0}).fit(learnt, tensors["train"]["target"])
    chance = np.clip(fitted.predict_proba(asked)[:, 1], LEAST_CHANCE, 1 - LEAST_CHANCE)
    head, (negative, positive) = version_served.class_head, version_served.target.classes or ()
    offset = head.offsets[1] - head.offsets[0] if head.offsets else 0.0
    expected = 1 / (1 + np.exp(-(head.slope * np.log(chance / (1 - chance)) + offset)))

    rows = pq.read_table(project.prepared / "rows.parquet")
    records = rows.filter(np.equal(rows.column(SPLIT_COLUMN), SPLITS.index("test"))).select(["x", "c"]).to_pylist()
    answers = serve("tiny").post("/invocations", {"dataframe_records": records}).ok().json["predictions"]
    assert [answer[f"probability_{positive}"] for answer in answers] == pytest.approx(expected, abs=1e-4)
    decided = np.where(expected > head.threshold, positive, negative)
    assert [answer["label"] for answer in answers] == decided.tolist()
