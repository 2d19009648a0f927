"""Register: the exported model, its weights, its papers and its provenance as one version, once."""

from __future__ import annotations

import hashlib
import inspect
import json
import os
import shutil
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

from models.data.preparation import KNOWN_ROWS_FILE
from models.errors import StoreError
from models.files import sha256, write_text
from models.inference import pyfunc
from models.pipeline.keys import key_of
from models.pipeline.records import Record
from models.sealing import TAG, signature
from models.training.costs.summary import of_results
from tasks.host import stores
from tasks.loop.ledger import REFERENCES
from tasks.loop.loop import Done, Inputs, Loop
from tasks.mlflow import provenance
from tasks.mlflow.artifacts import FILES, signing_key
from tasks.mlflow.delivery import client, experiment_id, reaching_store
from tasks.mlflow.registry import KEY, Registry
from tasks.state.outbox import LOOP_RUN

if TYPE_CHECKING:
    import pandas as pd

REQUIREMENTS = ("onnxruntime", "numpy")
SPEC = "spec.json"
CODE = "code"


def register(loop: Loop) -> tuple[Record, bool]:
    """Make a registered version of the challenger; the same work registered twice is one version.

    Raises:
        StoreError: The registry is away; everything is kept, the next run registers.
    """

    def act(inputs: Inputs, folder: Path) -> Done:
        work = {name: inputs[name].digest for name in ("train", "export")}
        key = key_of({**work, "dataset": inputs["version"].result["prepared"]})
        loop.delivery.deliver()
        run_id = loop.delivery.run_id(LOOP_RUN)
        if run_id is None:
            raise StoreError("the run of this loop has not reached the tracking store: run again when it is back")
        registry = Registry(loop.workspace, loop.spec.name)
        version = registry.find(key)
        write_text(folder / SPEC, loop.spec.model_dump_json(indent=1))
        files = {**_files(inputs), SPEC: folder / SPEC}
        tags = _tags(loop, inputs, files)
        if version is None:
            model_id = _log_model(loop, inputs, folder, run_id, {KEY: key, FILES: tags[FILES]}, files)
            version = registry.create(key, f"models:/{model_id}", run_id, model_id, tags, loop.spec.description)
        else:
            judged = {name: tags[name] for name in ("loopline.verdict", "loopline.rival")}
            if not judged.items() <= registry.tags(version).items():
                registry.set_tags(version, {**judged, "loopline.loop_id": loop.id})
        if registry.alias("champion") != version:
            registry.set_alias("challenger", version)
        loop.outbox.tags(LOOP_RUN, {"loopline.version": version})
        loop.outbox.metrics(LOOP_RUN, _costs(inputs))
        reference = inputs["validate-prepared"].file("reference.json")
        write_text(loop.state / REFERENCES / f"{version}.json", reference.read_text())
        made_by = registry.run_of(version)  # version 1 of another registry is another one
        where = stores.name_of(loop.workspace, os.environ["MLFLOW_TRACKING_URI"])
        result = {"version": version, "model": loop.spec.name, "key": key, "run": made_by, "store": where}
        return Done(result=result)

    return loop.carry_out("register", act)


def _files(inputs: Inputs) -> dict[str, Path]:
    """What travels with the version, by its name there."""
    papers = {
        "reference.json": inputs["validate-prepared"].file("reference.json"),
        "verdict.json": inputs["judge"].file("verdict.json"),
        KNOWN_ROWS_FILE: inputs["judge"].file(KNOWN_ROWS_FILE),
    }
    trained = inputs["train"].file(inputs["train"].result["weights"])
    weights = {"job.json": trained.with_name("job.json"), trained.name: trained}
    return {**dict(sorted(inputs["export"].files.items())), **papers, **weights}


def _costs(inputs: Inputs) -> dict[str, float]:
    """What the search, the training and both took, as metrics."""
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
        "loopline.target": loop.spec.data.target,
        "loopline.spec": key_of(loop.spec.model_dump(mode="json")),
        "loopline.code": provenance.shown(code),
        "loopline.lock": code["lock"],
        "loopline.study": str(searched.get("study", "")),
        "loopline.params": json.dumps(searched.get("params", {})),
        "loopline.seed": str(loop.spec.train.seed),
        "loopline.world_size": str(weights["world_size"]),
        "loopline.weights_sha256": str(weights["weights_sha256"]),
        "loopline.verdict": f"{verdict['decision']}: {verdict['reasons'][0]}"[:5000],
        "loopline.metric": f"{verdict['metric']}={verdict['value']:.6g}",
        "loopline.rival": str(verdict["rival"]),
        **_served(inputs["export"].result),
        FILES: json.dumps(hashes),
        **({TAG: signature(key, loop.spec.name, hashes)} if key else {}),
    }


def _served(exported: dict[str, Any]) -> dict[str, str]:
    """Which variant the version serves, and what each would cost and lose; too many digits tell nobody more."""
    short = [
        {name: float(f"{value:.4g}") if isinstance(value, float) else value for name, value in each.items()}
        for each in exported["variants"]
    ]
    return {"loopline.served": exported["served"], "loopline.variants": json.dumps(short)}


def _log_model(
    loop: Loop, inputs: Inputs, folder: Path, run_id: str, tags: dict[str, str], files: dict[str, Path]
) -> str:
    """An MLflow logged model of the ONNX flavour with all files in it; one that a killed run logged is used again."""
    with reaching_store(), tempfile.TemporaryDirectory(dir=folder) as place:
        store = client()
        experiment = experiment_id(store, loop.workspace, loop.spec.name)
        known = store.search_logged_models([experiment], filter_string=f"tags.`{KEY}` = '{tags[KEY]}'")
        for model in known:
            whole = str(model.status) in ("READY", "LoggedModelStatus.READY")
            if whole and model.tags.get(FILES) == tags[FILES]:
                return str(model.model_id)
        model_folder = _onnx_flavour(loop, Path(place) / "model", files, inputs["export"].result)
        made = store.create_logged_model(
            experiment,
            name=loop.spec.name,
            source_run_id=run_id,
            tags={**tags, "loopline.loop_id": loop.id},
            params={
                "net": loop.spec.model.net,
                **{name: str(value) for name, value in inputs["search"].result.get("params", {}).items()},
            },
            model_type="onnx",
        )
        store.log_model_artifacts(made.model_id, str(model_folder))
        store.finalize_logged_model(made.model_id, "READY")
        return str(made.model_id)


def _onnx_flavour(loop: Loop, folder: Path, files: dict[str, Path], exported: dict[str, Any]) -> Path:
    """The folder of an MLflow model: its ONNX flavour, signature, an input example, and our own files beside."""
    import mlflow.onnx
    import onnx
    from mlflow.models import Model

    proto, example = onnx.load(str(files["model.onnx"])), _example(exported)
    predictor = pyfunc.Predictor(
        pyfunc.open_session(files["model.onnx"]), json.loads(files["preparation.json"].read_text())
    )
    mlflow.onnx.save_model(
        proto,
        str(folder),
        signature=_signature(exported["inputs"], predictor.predict(example)),
        input_example=example,
        pip_requirements=list(REQUIREMENTS),
        save_as_external_data=False,
        metadata={"loopline.loop_id": loop.id, "loopline.project": loop.spec.name},
    )
    for name, path in files.items():
        shutil.copyfile(path, folder / name)
    described = Model.load(str(folder))
    described.flavors["python_function"] |= {"loader_module": _write_code(folder / CODE), "code": CODE}
    described.save(str(folder / "MLmodel"))
    diff = provenance.code_version()["diff"]
    if diff:
        write_text(folder / "uncommitted.diff", diff)
    return folder


def _write_code(folder: Path) -> str:
    """Put beside the model the code by which MLflow runs it where there is no Loopline; the module's name.

    The name goes by the content: a process that loads two versions must not run the one by the code of the other.
    """
    code = inspect.getsource(pyfunc)
    name = f"loopline_model_{hashlib.sha256(code.encode()).hexdigest()[:8]}"
    write_text(folder / f"{name}.py", code)
    return name


def _example(exported: dict[str, Any]) -> Any:
    """A few rows as MLflow's clients send them: a data frame of columns, or arrays by name."""
    import pandas as pd

    from models.export.signature import feed_of

    feed = feed_of(exported["input_example"], exported["inputs"])
    return pd.DataFrame(feed) if all(values.ndim == 1 for values in feed.values()) else feed


def _signature(inputs: list[dict[str, Any]], answer: pd.DataFrame) -> Any:
    """What the graph takes, and what the model's code gives for it."""
    import numpy as np
    from mlflow.models import ModelSignature, infer_signature
    from mlflow.types import ColSpec, DataType, Schema, TensorSpec

    columns = {
        "double": DataType.double,
        "string": DataType.string,
        "float": DataType.float,
        "int64": DataType.long,
    }
    kinds = {
        "double": np.float64,
        "float": np.float32,
        "uint8": np.uint8,
        "string": np.str_,
        "int64": np.int64,
    }
    taken: list[Any] = [ColSpec(columns[part["dtype"]], part["name"]) for part in inputs if len(part["shape"]) == 1]
    if len(taken) < len(inputs):
        taken = [
            TensorSpec(
                np.dtype(kinds[part["dtype"]]),
                tuple(-1 if not isinstance(size, int) else size for size in part["shape"]),
                part["name"],
            )
            for part in inputs
        ]
    return ModelSignature(Schema(taken), infer_signature(model_output=answer).outputs)
