"""Export: the trained net as one ONNX file with the preparation inside, and the smaller variant that may be served."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

from models.data.preparation import ROWS_FILE, Preparation
from models.errors import StoreError
from models.export.signature import without_rows
from models.files import read_json, sha256, write_text
from models.inference.names import FP32, UNCHANGED_FILE
from models.inference.portable import MODEL_FILE
from models.metrics.metrics import metric_of
from models.pipeline.records import StepRecord
from models.readable import as_shown
from models.training.job import JOB_FILE
from tasks.host import memory
from tasks.loop.jobs import tensors
from tasks.loop.loop import Inputs, Loop, StepResult
from tasks.state.outbox import LOOP_RUN, Outbox

if TYPE_CHECKING:
    from models.export.variants import VariantMeasurement

SAMPLES_FILE = "samples.txt"


def export(loop: Loop) -> tuple[StepRecord, bool]:
    """Write `model.onnx`, `preparation.json`, and `monitoring-reference.json` for the monitoring of predictions.

    `model.onnx` is the served file: the export, in parity with the net, or a smaller variant that the spec allows. In
    the second case the export is kept beside it.

    Raises:
        TrainingError: The graph's predictions differ from the net's by more than the tolerance.
    """

    def act(inputs: Inputs, folder: Path) -> StepResult:
        memory.release()  # of the steps before: the exporter's own memory beside it would be the loop's peak
        prepared, trained = inputs["prepare"], inputs["train"]
        job = trained.file("model.json").with_name(JOB_FILE)
        places = {
            **_settings(job),
            "folder": str(job.parent),  # another machine may have trained it
            "prepared": str(prepared.folder),
            "project": str(loop.project.folder),
            "tensors": {name: str(path) for name, path in tensors(loop.state, prepared).items()},
        }
        model = json.loads(trained.file("model.json").read_text())
        metadata = {"loopline.project": loop.spec.name, "loopline.dataset": prepared.digest}
        exported = loop.rank_pool.call(
            "models.export.export:export",
            job={**places, "model": model},
            out=str(folder),
            metadata=metadata,
        )
        exported = as_shown(exported, loop.spec.data.show_rows, without_rows)
        if "samples" in exported:
            _keep_samples(loop.outbox, folder, exported["samples"])
        loop.make_room(prepared.file(ROWS_FILE))
        exported |= _optimised(loop, prepared.folder, folder, exported["knows_validation"])
        loop.outbox.metrics(LOOP_RUN, {"parity": exported["parity"], "size_bytes": exported["size_bytes"]})
        reference = _reference(prepared.folder, folder)
        further_files = [folder / UNCHANGED_FILE] * (exported["served"] != FP32) + _background(
            prepared.folder, folder, shows_rows=loop.spec.data.show_rows
        )
        return StepResult([folder / MODEL_FILE, folder / "preparation.json", reference, *further_files], exported)

    return loop.carry_out("export", act)


def _settings(job: Path) -> dict[str, Any]:
    """Return the settings of the training that a file holds, which is beside the step's outputs and has no hash.

    Raises:
        StoreError: It is missing or damaged.
    """
    settings = read_json(job)
    if not settings:
        raise StoreError(f"{job}: cannot be read: remove {job.parent} and run again, to train again")
    return settings


def _optimised(loop: Loop, prepared: Path, folder: Path, knows_validation: bool) -> dict[str, Any]:
    """Measure the variants, choose the file to serve, and return its entries for the export's result.

    An ensemble with a member that has learnt from the validation rows has no variants. Measured on these rows, whatever
    weakens its other members would look like a gain.
    """
    from models.export.bench import optimise

    spec, preparation = loop.spec, Preparation.load(folder)
    metric = metric_of(spec.goal, preparation, loop.project.folder)
    metric = metric.at(preparation.class_head.decision)
    serve = spec.serve
    if knows_validation:
        if "variants" in serve.model_fields_set and serve.variants:
            loop.report.note(
                "export: serve.variants makes none of this ensemble, which has learnt from the validation rows on "
                "which they are measured: search.bag: false with train.refit: false, or search.ensemble: false, makes "
                "them"
            )
        serve = serve.model_copy(update={"variants": []})
    table = optimise(folder, prepared, metric, serve, spec.train.seed)
    served = next((variant.name for variant in table if variant.served), FP32)
    _log(loop.outbox, served, table)
    path = folder / MODEL_FILE
    summary = {
        "served": served,
        "sha256": sha256(path),
        "size_bytes": path.stat().st_size,
        "variant_metric": metric.name,
    }
    return {**summary, "variants": [variant.model_dump() for variant in table]}


def _log(outbox: Outbox, served: str, table: list[VariantMeasurement]) -> None:
    for variant in table:
        metrics = {"size_bytes": variant.size_bytes, "latency_ms": variant.latency_ms, "metric_loss": variant.loss}
        measured = {f"variant_{variant.name}_{name}": value for name, value in metrics.items() if value is not None}
        outbox.metrics(LOOP_RUN, measured)
    outbox.tags(LOOP_RUN, {"loopline.served": served})


def _reference(prepared: Path, folder: Path) -> Path:
    from models.monitoring.build import build

    return build(prepared, folder / MODEL_FILE, Preparation.load(folder)).save(folder)


def _background(prepared: Path, folder: Path, *, shows_rows: bool) -> list[Path]:
    from models.export.background import write_background

    written = write_background(folder, prepared, Preparation.load(folder), shows_rows=shows_rows)
    return [] if written is None else [written]


def _keep_samples(outbox: Outbox, folder: Path, samples: list[dict[str, Any]]) -> None:
    from models.export.samples import Sample, as_plain_text

    path = folder / SAMPLES_FILE
    write_text(path, as_plain_text([Sample.model_validate(sample) for sample in samples]))
    outbox.artifact(LOOP_RUN, path, "samples")
