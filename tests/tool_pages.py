"""What MLflow's and Optuna's own clients read of the loop `tiny`."""

from __future__ import annotations

import json
from typing import Any

import mlflow
import optuna

from tasks.loop.loop import Loop
from tasks.mlflow.client import client
from tasks.tools.optuna_study import storage


def check_run(loop: Loop, run: Any) -> None:
    """The run has its model, its datasets, what decided it and who made it."""
    assert run.info.status == "FINISHED"
    best = loop.done["train"].result["params"]["train.lr"]
    assert (run.data.params["train.epochs"], float(run.data.params["train.lr"])) == ("6", best)
    assert len(run.data.params) < 25, "the defaults are in spec.json"
    assert "curves/val_accuracy" in run.data.metrics
    assert run.data.tags["loopline.decision"] == "promote"
    assert run.data.tags["mlflow.user"]
    datasets = {part.dataset.name: part.dataset for part in run.inputs.dataset_inputs}
    assert sorted(datasets) == ["tiny-test", "tiny-train", "tiny-validation"]
    assert {dataset.digest for dataset in datasets.values()} == {loop.done["version"].result["prepared"][:36]}
    assert [column["type"] for column in json.loads(datasets["tiny-test"].schema)["mlflow_colspec"]][:1] == ["double"]
    source = mlflow.data.get_source(datasets["tiny-train"]).to_dict()["tags"]
    assert source["dvc_prepared"] == loop.done["version"].result["prepared"]
    (output,) = run.outputs.model_outputs
    measured = {(metric.key, metric.dataset_name) for metric in client().get_logged_model(output.model_id).metrics}
    assert measured >= {
        ("test_accuracy", "tiny-test"),
        ("val_accuracy", "tiny-validation"),
        ("train_loss", "tiny-train"),
    }
    assert client().get_model_version("tiny", "1").description.startswith("Promoted.")
    spec = json.loads(mlflow.artifacts.load_text(f"{run.info.artifact_uri}/spec.json"))
    assert spec["train"]["batch"] == 32


def check_study(loop: Loop) -> None:
    """The study names its value, and each trial its run, its loop's page and its curve."""
    study = optuna.load_study(study_name=loop.done["search"].result["study"], storage=storage(loop.workspace))
    assert study.metric_names == ["val_accuracy"]
    trials = study.get_trials()
    assert [trial.user_attrs["loopline.run"] for trial in trials] == [f"{loop.id}/trial-{n}" for n in range(2)]
    assert {trial.user_attrs["loopline.page"] for trial in trials} == {f"http://127.0.0.1:4300/loops/{loop.id}"}
    assert all(trial.intermediate_values for trial in trials), "their curves"
