"""Register: stores model, weights, verdict and provenance as one version in the registry, exactly once."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from models.data.preparation import KNOWN_ROWS_FILE
from models.errors import StoreError
from models.files import sha256, write_text
from models.judge.stored_predictions import PREDICTIONS_FILE
from models.judge.worst_rows import WORST_FILE
from models.pipeline.keys import key_of
from models.pipeline.records import StepRecord
from models.serving.registry import BEST, FILES, JUDGED_BEST, KEY, RIVAL, described
from models.signing import TAG, signature
from models.training.costs.summary import of_results
from models.training.families import chosen_net
from models.training.job import JOB_FILE
from models.training.search_space import MEMBERS, shown
from tasks.host import database, stores
from tasks.loop.champion import open_registry
from tasks.loop.loop import Inputs, Loop, StepResult
from tasks.loop.step_cache import REFERENCES
from tasks.mlflow import provenance
from tasks.mlflow.client import reaching_store
from tasks.mlflow.delivery import experiment_id
from tasks.mlflow.embedded_store import open_client
from tasks.mlflow.model_cache import signing_key
from tasks.mlflow.onnx_model import onnx_model
from tasks.state import shared_files, versions
from tasks.state.outbox import LOOP_RUN
from tasks.steps.train import ESTIMATOR, MODEL_FILE

SPEC = "spec.json"


def register(loop: Loop) -> tuple[StepRecord, bool]:
    """Make a registered version of the challenger; the same work registered twice is one version.

    Raises:
        StoreError: The registry is not reachable; all results stay, and the next run registers.
    """

    def act(inputs: Inputs, folder: Path) -> StepResult:
        work = {name: inputs[name].digest for name in ("train", "export")}
        key = key_of({**work, "dataset": inputs["version"].result["prepared"]})
        loop.delivery.deliver()
        run_id = loop.delivery.run_id(LOOP_RUN)
        if run_id is None:
            raise StoreError("the run of this loop has not reached the tracking store: run again when it is back")
        registry = open_registry(loop.workspace, loop.spec.name)
        number = registry.find(key)
        write_text(folder / SPEC, loop.spec.model_dump_json(indent=1))
        files = {**_files(inputs), SPEC: folder / SPEC}
        tags = _tags(loop, inputs, files)
        if number is None:
            model_id: str | None = _log_model(loop, inputs, folder, run_id, tags | {KEY: key}, files)
            loop.confirm()
            source = f"models:/{model_id}"
            stored = registry.create(key, source, run_id, model_id, tags, loop.spec.description, loop.lease)
        else:
            model_id = registry.logged_model(number)
            judged = {name: tags[name] for name in ("loopline.verdict", RIVAL, JUDGED_BEST, BEST)}
            is_same = judged.items() <= registry.tags(number).items()  # then it keeps the loop that judged it
            stored = registry.judge(number, {} if is_same else {**judged, "loopline.loop_id": loop.id}, loop.lease)
        version = stored.number
        loop.outbox.tags(LOOP_RUN, {"loopline.version": version})
        if model_id:
            loop.outbox.model(LOOP_RUN, model_id)
        loop.outbox.metrics(LOOP_RUN, _costs(inputs))
        reference = inputs["validate-prepared"].file("reference.json")
        path = loop.state / REFERENCES / f"{version}.json"
        write_text(path, reference.read_text())
        shared_files.publish(loop.state, loop.epoch, path)
        where = stores.name_of(loop.workspace, os.environ["MLFLOW_TRACKING_URI"])
        # the number alone is not enough: every registry has a version 1
        result = {"version": version, "model": loop.spec.name, "key": key, "run": stored.run, "store": where}
        return StepResult(result=result)

    return loop.carry_out("register", act)


def _files(inputs: Inputs) -> dict[str, Path]:
    """Return the files stored with the version, by their names there."""
    papers = {
        "reference.json": inputs["validate-prepared"].file("reference.json"),
        "verdict.json": inputs["judge"].file("verdict.json"),
        KNOWN_ROWS_FILE: inputs["judge"].file(KNOWN_ROWS_FILE),
        PREDICTIONS_FILE: inputs["judge"].file(PREDICTIONS_FILE),
        WORST_FILE: inputs["judge"].file(WORST_FILE),
    }
    trained = inputs["train"]
    weights = {JOB_FILE: trained.file(MODEL_FILE).with_name(JOB_FILE)}
    if name := trained.result["weights"]:
        weights[name] = trained.file(name)
    for family, member in trained.result["members"].items():
        name = member["weights"]
        weights[f"{family}.{name}"] = trained.file(f"{MEMBERS}/{family}/{name}")
    return {**dict(sorted(inputs["export"].files.items())), **papers, **weights}


def _costs(inputs: Inputs) -> dict[str, float]:
    """Return the costs of the search, the training and both, as metrics."""
    costs = of_results(inputs["search"].result, inputs["train"].result)
    return {f"cost/{part}/{name}": value for part in costs for name, value in costs[part].figures().items()}


def _tags(loop: Loop, inputs: Inputs, files: dict[str, Path]) -> dict[str, str]:
    dataset, searched, weights, verdict = (inputs[name].result for name in ("version", "search", "train", "judge"))
    code, key = provenance.code_version(), signing_key()
    hashes = {name: sha256(path) for name, path in files.items()}
    costs = of_results(searched, weights)
    spent = costs["total"].figures() if costs else {}
    return {
        **{f"loopline.cost.{name}": f"{value:.6g}" for name, value in spent.items()},
        "loopline.loop_id": loop.id,
        "loopline.dataset": str(dataset["prepared"]),
        "loopline.raw": str(dataset["raw"]),
        "loopline.target": loop.spec.data.target_name,
        "loopline.spec": key_of(loop.spec.model_dump(mode="json")),
        "loopline.code": provenance.shown(code),
        "loopline.project_code": provenance.shown(provenance.project_version(loop.project.folder)),
        "loopline.lock": code["lock"],
        "loopline.study": str(searched.get("study", "")),
        "loopline.params": json.dumps(searched.get("params", {})),
        "loopline.seed": str(loop.spec.train.seed),
        "loopline.world_size": str(weights["world_size"]),
        "loopline.weights_sha256": str(weights["weights_sha256"]),
        "loopline.verdict": f"{verdict['decision']}: {verdict['reasons'][0]}"[:5000],
        "loopline.metric": f"{verdict['metric']}={verdict['value']:.6g}",
        RIVAL: str(verdict["rival"]),
        JUDGED_BEST: str(verdict["judged_best"]),
        BEST: str(verdict["best"]),
        **_served(inputs["export"].result),
        **weights.get(ESTIMATOR, {}),
        FILES: json.dumps(hashes),
        **({TAG: signature(key, loop.spec.name, hashes)} if key else {}),
    }


def _served(exported: dict[str, Any]) -> dict[str, str]:
    """Return tags: the served variant, and cost and metric loss of each variant, rounded to four digits."""
    short = [
        {name: float(f"{value:.4g}") if isinstance(value, float) else value for name, value in variant.items()}
        for variant in exported["variants"]
    ]
    return {"loopline.served": exported["served"], "loopline.variants": json.dumps(short)}


def _log_model(
    loop: Loop, inputs: Inputs, folder: Path, run_id: str, tags: dict[str, str], files: dict[str, Path]
) -> str:
    """Log an MLflow model of the ONNX flavour with all files; reuse a complete one that a killed run logged."""
    with reaching_store(), _fresh(folder / "model") as model_folder:
        store = open_client(loop.workspace)
        experiment = experiment_id(store, loop.workspace, loop.spec.name)
        models = store.search_logged_models([experiment], filter_string=f"tags.`{KEY}` = '{tags[KEY]}'")
        with database.reading(loop.workspace.state) as connection:
            withdrawn = versions.withdrawn(connection, loop.spec.name)
        is_withdrawn = any(version.registered.key == tags[KEY] for version in withdrawn)
        for model in models:
            whole = str(model.status) in ("READY", "LoggedModelStatus.READY")
            if whole and model.tags.get(FILES) == tags[FILES] and not is_withdrawn:
                return str(model.model_id)
        metadata = {"loopline.loop_id": loop.id, "loopline.project": loop.spec.name}
        onnx_model(model_folder, files, inputs["export"].result, metadata)
        project = provenance.project_version(loop.project.folder)
        if diff := provenance.diff_of(provenance.code_version(), project):
            write_text(model_folder / "uncommitted.diff", diff)
        logged = store.create_logged_model(
            experiment,
            name=loop.spec.name,
            source_run_id=run_id,
            tags={
                **{name: tags[name] for name in (KEY, FILES)},
                "loopline.loop_id": loop.id,
                "mlflow.note.content": described(tags),
                **provenance.source_tags(loop.project.folder),
            },
            params={
                "net": chosen_net(loop.spec, inputs["search"].result.get("params", {})),
                **{name: str(value) for name, value in shown(inputs["search"].result.get("params", {})).items()},
            },
            model_type="onnx",
        )
        store.log_model_artifacts(logged.model_id, str(model_folder))
        store.finalize_logged_model(logged.model_id, "READY")
        return str(logged.model_id)


@contextlib.contextmanager
def _fresh(folder: Path) -> Iterator[Path]:
    """Yield a path for a folder, without what a killed process left there, and remove the folder at the end."""
    shutil.rmtree(folder, ignore_errors=True)
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)
