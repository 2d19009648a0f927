"""What MLflow shows of a loop: one row for each operation of the outbox; a line that is sent twice is there once.

The lines keep Loopline's own names. Here metrics get the names under which MLflow's page groups them into sections of
charts: sections come in alphabetical order, metrics without one come last, and those of `system/` have a page of their
own.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from models.errors import one_line
from models.training.costs.summary import MEASURED

if TYPE_CHECKING:
    from mlflow import MlflowClient

REFUSALS = {"INVALID_PARAMETER_VALUE", "RESOURCE_DOES_NOT_EXIST", "RESOURCE_ALREADY_EXISTS", "BAD_REQUEST"}
DIGEST_CHARACTERS = 36
"""How long MLflow's SQL store lets the digest of a dataset be."""
BATCH = "batch"
CURVES = "curves/"
SECTIONS = (
    (re.compile(rf"cost/|(.*\.)?({'|'.join(sorted(MEASURED))})$"), "system/"),
    (re.compile(r"system/"), ""),
    (re.compile(r"validation_(raw|prepared)_"), "data/"),
    (re.compile(r"variant_|parity$|size_bytes$"), "export/"),
)
"""The section of the metrics whose name a pattern fits, the first that does; other values of an epoch are `CURVES`."""
ARTIFACT = re.compile(r"\]\(artifact:")


class Target(NamedTuple):
    """A run of MLflow that gets lines, and all lines of its loop, by their numbers."""

    store: MlflowClient
    experiment: str
    run_id: str
    lines: Callable[[], dict[int, dict[str, Any]]]


class MlflowCall(NamedTuple):
    """How the lines of an operation reach MLflow: as which items, by which call, and how many at once."""

    items: Callable[[dict[str, Any]], list[Any]]
    send: Callable[[Target, list[Any]], object]
    limit: int


def call_of(op: str) -> str:
    """Return the call that carries an operation: neighbouring lines of one call and run go together."""
    return BATCH if op in ROWS and ROWS[op].send is _log_batch else op


def project(target: Target, lines: list[dict[str, Any]]) -> list[str]:
    """Send lines of one call; return the reasons of final refusals.

    A line that MLflow will never accept (a parameter with two values, a name that is not allowed) must not block the
    later lines: a refused batch is sent item by item.
    """
    rows = [ROWS[line["op"]] for line in lines]
    items = [item for row, line in zip(rows, lines, strict=True) for item in row.items(line)]
    return _send(items, lambda batch: rows[0].send(target, batch), min(row.limit for row in rows))


def metric_name_of(name: str, step: int) -> str:
    """Return the name under which MLflow shows a metric; `step` is the epoch, 0 for a value of a whole run."""
    section = next((section for pattern, section in SECTIONS if pattern.match(name)), CURVES if step else "")
    return f"{section}{name}"


def _send(items: list[Any], send: Callable[[list[Any]], object], limit: int) -> list[str]:
    from mlflow.exceptions import MlflowException

    refused = []
    for first in range(0, len(items), limit):
        batch = items[first : first + limit]
        try:
            send(batch)
        except MlflowException as error:
            if error.error_code not in REFUSALS:
                raise
            refused += _send(batch, send, 1) if len(batch) > 1 else [one_line(error)]
    return refused


def _metrics(line: Mapping[str, Any], **links: str) -> list[Any]:
    from mlflow.entities import Metric

    step, at_ms = line["step"], line["at_ms"]
    values: Mapping[str, float] = line["metrics"]
    return [Metric(metric_name_of(name, step), value, at_ms, step, **links) for name, value in values.items()]


def _params(line: dict[str, Any]) -> list[Any]:
    from mlflow.entities import Param

    return [Param(key, value[:6000]) for key, value in line["params"].items()]


def _tags(line: dict[str, Any]) -> list[Any]:
    from mlflow.entities import RunTag

    return [RunTag(key, value[:8000]) for key, value in line["tags"].items()]


def _log_batch(target: Target, batch: list[Any]) -> None:
    from mlflow.entities import Metric, Param, RunTag

    metrics, params, tags = ([item for item in batch if isinstance(item, kind)] for kind in (Metric, Param, RunTag))
    target.store.log_batch(target.run_id, metrics=metrics, params=params, tags=tags)


def _artifacts(line: dict[str, Any]) -> list[Any]:
    return [line] if Path(line["path"]).exists() else []  # a deleted file must not block the later lines


def _log_artifact(target: Target, lines: list[Any]) -> None:
    for line in lines:
        target.store.log_artifact(target.run_id, line["path"], line["folder"] or None)


def _log_text(target: Target, lines: list[Any]) -> None:
    for line in lines:
        target.store.log_text(target.run_id, line["text"], line["name"])


def _note(target: Target, lines: list[Any]) -> None:
    """Set the run's description, the newest alone; its links to `artifact:NAME` lead to the run's own artifacts."""
    place = f"](#/experiments/{target.experiment}/runs/{target.run_id}/artifacts/"
    target.store.set_tag(target.run_id, "mlflow.note.content", ARTIFACT.sub(place, lines[-1]["text"])[:8000])


def _datasets(line: dict[str, Any]) -> list[Any]:
    from mlflow.entities import Dataset, DatasetInput, InputTag

    described = line["dataset"]
    dataset = Dataset(
        name=described["name"],
        digest=described["digest"],
        source_type=described["source_type"],
        source=json.dumps(described["source"]),
        schema=json.dumps(described["schema"]),
        profile=json.dumps(described["profile"]),
    )
    return [DatasetInput(dataset, [InputTag("mlflow.data.context", line["context"])])]


def _link_model(target: Target, lines: list[Any]) -> None:
    """Make a logged model the run's output, and link the metrics of the run's datasets to it.

    MLflow keeps a link as often as it is sent, and refuses metrics of a model that it does not have.
    """
    from mlflow.entities import LoggedModelOutput

    store, run_id = target.store, target.run_id
    for line in lines:
        store.get_logged_model(line["model_id"])
        groups = filter(None, [store.get_run(run_id).outputs])  # None without a model
        if line["model_id"] not in {output.model_id for group in groups for output in group.model_outputs}:
            store.log_outputs(run_id, [LoggedModelOutput(line["model_id"], 0)])
        linked = [*_linked(target.lines(), line["run"], line["model_id"])]
        for first in range(0, len(linked), ROWS["metrics"].limit):
            store.log_batch(run_id, metrics=linked[first : first + ROWS["metrics"].limit])


def _linked(lines: Mapping[int, Mapping[str, Any]], run: str, model_id: str) -> Iterator[Any]:
    """Yield the metrics of a run that were measured on one of its datasets, with links to it and to the model."""
    mine = [line for line in lines.values() if line["run"] == run]
    datasets = {line["context"]: line["dataset"] for line in mine if line["op"] == "dataset"}
    for line in mine:
        if line["op"] == "metrics" and (dataset := datasets.get(line.get("measured_on", ""))):
            links = {"dataset_name": dataset["name"], "dataset_digest": dataset["digest"]}
            yield from _metrics(line, model_id=model_id, **links)


def _end(target: Target, lines: list[Any]) -> None:
    for line in lines:
        target.store.set_terminated(target.run_id, line["status"], line["at_ms"])


def _itself(line: dict[str, Any]) -> list[Any]:
    return [line]


ROWS: Mapping[str, MlflowCall] = {
    "metrics": MlflowCall(_metrics, _log_batch, 1000),
    "params": MlflowCall(_params, _log_batch, 100),
    "tags": MlflowCall(_tags, _log_batch, 100),
    "artifact": MlflowCall(_artifacts, _log_artifact, 1),
    "text": MlflowCall(_itself, _log_text, 1),
    "note": MlflowCall(_itself, _note, 1000),
    "dataset": MlflowCall(_datasets, lambda target, batch: target.store.log_inputs(target.run_id, batch), 100),
    "model": MlflowCall(_itself, _link_model, 1),
    "end": MlflowCall(_itself, _end, 1),
}
