"""A version has the spec, the epochs and the columns' worth of the loop that made it, not of the newest one."""

from __future__ import annotations

import json
from typing import Any

from models.files import sha256, write_text
from models.judge.column_importance import ColumnImportance, Importances
from models.pipeline.records import StepRecord
from models.serving.registry import FILES, RegisteredVersion
from tasks.dashboard.version_files import SPEC_FILE, contents_of
from tasks.host.workspace import Workspace
from tasks.mlflow.model_cache import VERDICT_FILE
from tasks.state.step_records import StepRecords


def finish(workspace: Workspace, step: str, key: str, result: dict[str, Any], **outputs: str) -> None:
    records = StepRecords(workspace.state / "projects" / "tiny", workspace.root)
    records.save(
        StepRecord(
            step=step, key=key, parts={}, outputs=outputs, digest=key, result=result, loop_id="tiny-1", finished=1.0
        )
    )


def worth(loss: float) -> Importances:
    column = ColumnImportance(column="x", loss=loss, low=0.0, high=1.0)
    return Importances(columns=[column], num_columns=1, num_rows=9, num_shuffles=3, cpu_s=0.1)


def registered(workspace: Workspace, number: str) -> RegisteredVersion:
    """A version whose spec the cache holds, with the hashes of a verdict and of weights of its own."""
    folder = workspace.cache / "models" / "tiny" / number
    write_text(folder / SPEC_FILE, json.dumps({"train": {"lr": float(number)}}))
    hashes = {SPEC_FILE: sha256(folder / SPEC_FILE), VERDICT_FILE: f"verdict-{number}"}
    tags = {FILES: json.dumps(hashes), "loopline.weights_sha256": f"weights-{number}"}
    return RegisteredVersion(number=number, place=folder.as_uri(), tags=tags)


def test_each_version_has_the_records_of_its_own_loop(workspace: Workspace) -> None:
    epochs = {number: [{"train_loss": float(number)}] for number in ("1", "2")}
    members = {"members": {"net": {"epochs": epochs["2"]}, "trees": {"epochs": None}}}
    finish(workspace, "train", "k1", {"weights_sha256": "weights-1", "epochs": epochs["1"]})
    finish(workspace, "train", "k2", {"weights_sha256": "weights-2", **members})
    for number in ("1", "2"):
        result = {"importances": worth(float(number)).model_dump()}
        finish(workspace, "judge", f"k{number}", result, **{"judge/verdict.json": f"verdict-{number}"})
    one, two = (contents_of(workspace, "tiny", registered(workspace, number)) for number in ("1", "2"))
    assert (one.spec, two.spec) == ({"train": {"lr": 1.0}}, {"train": {"lr": 2.0}})
    assert (one.fits, two.fits) == ({"": epochs["1"]}, {"net": epochs["2"], "trees": []})
    assert (one.importances, two.importances) == (worth(1.0), worth(2.0))


def test_what_is_gone_or_was_changed_is_left_out(workspace: Workspace) -> None:
    version = registered(workspace, "3")
    write_text(workspace.cache / "models" / "tiny" / "3" / SPEC_FILE, "{}")
    contents = contents_of(workspace, "tiny", version)
    assert (contents.spec, contents.fits, contents.importances) == ({}, {}, None)
