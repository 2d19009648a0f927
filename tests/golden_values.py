"""What a golden spec becomes in every stage, in one process; renamed functions of the product are renamed here alone.

`python -m tests.golden_values` renews `tests/rules/golden.json`. Only a raised library may ask for it, in a commit that
changes nothing else; a change of ours that moves a hash is a fault, or names each value that it moves.
"""

from __future__ import annotations

import hashlib
import json
import platform
import tempfile
from collections.abc import Iterator
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pyarrow as pa
import pyarrow.parquet as pq
import torch
from safetensors.numpy import load_file

from models.data.encode import write_tensors
from models.data.feeds import feeds, targets
from models.data.preparation import ROWS_FILE, Preparation
from models.data.prepare import prepare
from models.export.export import export
from models.files import write_text
from models.inference.loaded_model import LoadedModel
from models.judge.evidence import Evidence
from models.judge.held_out import baseline_of, example_rows, known_rows, with_clusters
from models.project_spec.blocks import Spec
from models.training.batches.examples import open_examples
from models.training.job import TREES_FILE, WEIGHTS_FILE, TrainingJob
from tests.goal_jobs import fitted
from tests.golden_specs import OWN_FEATURES, SPECS, GoldenSpec

PATH = Path(__file__).parent / "rules" / "golden.json"
LIBRARIES = ("torch", "numpy", "scipy", "pyarrow", "pandas", "lightgbm", "onnx", "onnxruntime")
METADATA = {"loopline.project": "golden"}
NUM_FOLDS = 3
NUM_ROWS = 60
"""Raw rows that are read as those of a request."""

Stage = dict[str, Any]
"""Arrays, bytes and JSON values by name."""


def environment() -> dict[str, str]:
    """Return the processor and the libraries under which hashes hold."""
    told = Path("/proc/cpuinfo").read_text(encoding="utf-8") if Path("/proc/cpuinfo").exists() else ""
    names = [line.partition(":")[2].strip() for line in told.splitlines() if line.startswith("model name")]
    processor = f"{platform.machine()}, {(names or [platform.processor()])[0]}"
    capability = torch.backends.cpu.get_cpu_capability()
    return {"processor": f"{processor}, {capability}", **{name: version(name) for name in LIBRARIES}}


def stages_of(spec: GoldenSpec, place: Path) -> Iterator[tuple[str, Stage]]:
    """Take a spec through the loop below `place`; yield the name of each stage and what it gives."""
    place.mkdir(parents=True)
    (place / "own.py").write_text(OWN_FEATURES)
    raw = pa.table(spec.rows())
    pq.write_table(raw, place / "raw.parquet")
    data = {"source": "raw.parquet", **spec.data}
    parsed = Spec.model_validate({"name": "golden", "data": data, "goal": spec.goal})
    prepared, tensors = place / "prepared", place / "tensors"
    prepare(place / "raw.parquet", parsed, place, prepared)
    rows = pq.read_table(prepared / ROWS_FILE)
    yield "prepared", {name: _values(rows.column(name)) for name in rows.column_names}
    tensors.mkdir()
    files = write_tensors(prepared, tensors)
    yield (
        "tensors",
        {f"{split}/{name}": value for split, path in files.items() for name, value in load_file(path).items()},
    )
    yield "judge", _judge(parsed, prepared)
    job = fitted(place / "job", (parsed, files), spec.net, spec.arguments, **spec.train)
    yield "folds", _folds(job)
    yield "weights", dict(_weights(job))
    (place / "out").mkdir()
    record = export(job.as_json(), str(place / "out"), METADATA)
    model = onnx.load(record["path"])
    del model.metadata_props[:]
    yield "graph", _graph(model)
    yield "answers", _answers(place / "out", prepared, raw)


def _judge(spec: Spec, prepared: Path) -> Stage:
    preparation, target = Preparation.load(prepared), targets(prepared, "test")
    baseline = baseline_of(prepared, preparation, target, spec.goal.reference or "mae")
    evidence = Evidence(task=preparation.task, target=target, challenger=baseline.prediction)
    clusters = with_clusters(evidence, prepared, preparation, spec).clusters
    return {
        "baseline": baseline.prediction,
        "baseline's name": [baseline.name],
        "baseline's threshold": np.atleast_1d(np.asarray(baseline.threshold)),
        "targets": target,
        "known rows": known_rows(prepared, preparation),
        "example rows": example_rows(prepared, preparation),
        "clusters": np.zeros(0) if clusters is None else clusters,
    }


def _folds(job: TrainingJob) -> Stage:
    """Return the positions that each fold of training and validation examples takes."""
    preparation, stage = Preparation.load(job.prepared), {}
    for fold in range(NUM_FOLDS):
        sides = open_examples(job.model_copy(update={"fold": (fold, NUM_FOLDS)}), preparation)
        stage |= {f"{fold}/{side}": np.asarray(examples.values()) for side, examples in zip("tv", sides, strict=True)}
    return stage


def _weights(job: TrainingJob) -> Iterator[tuple[str, Any]]:
    for path in sorted(job.folder.rglob(WEIGHTS_FILE)):
        place = path.relative_to(job.folder)
        yield from ((f"{place}/{tensor}", value) for tensor, value in load_file(path).items())
    for path in sorted(job.folder.rglob(TREES_FILE)):
        yield str(path.relative_to(job.folder)), path.read_bytes()


def _graph(model: onnx.ModelProto) -> Stage:
    numbers = [onnx.numpy_helper.to_array(tensor) for tensor in model.graph.initializer]
    sums = [float(np.abs(array.astype(np.float64)).sum()) for array in numbers if array.dtype.kind in "fiu"]
    return {
        "model": model.SerializeToString(deterministic=True),
        "operators": sorted(node.op_type for node in model.graph.node),
        "sum of the constants": np.array([sum(sums)]),
    }


def _answers(out: Path, prepared: Path, raw: pa.Table) -> Stage:
    """Return the loaded model's answers for the test examples, and for the first raw rows as those of a request."""
    model, stage = LoadedModel("golden", "1", out), {}
    for number, feed in enumerate(feeds(prepared, "test", model.preparation)):
        stage |= {f"test/{number}/{name}": value for name, value in model.answer(feed).outputs.items()}
    asked = model.answer(model.schema.from_arrow(raw.slice(0, NUM_ROWS)))
    stage |= {f"rows/{name}": np.asarray(value) for name, value in model.columns(asked).items()}
    return stage | {
        "schema": model.schema.record_schema(),
        "inputs": [[port.name, port.dtype, *port.shape] for port in model.inputs],
    }


def _values(column: pa.ChunkedArray) -> Any:
    is_number = pa.types.is_integer(column.type) or pa.types.is_floating(column.type)
    return column.to_numpy() if is_number and not column.null_count else [str(value) for value in column.to_pylist()]


def digest(value: Any) -> dict[str, Any]:
    """Return the hash of a value; of numbers also mean, deviation, least and largest, where the hash does not hold."""
    if isinstance(value, bytes):
        return {"hash": _hash(value)}
    if isinstance(value, np.ndarray) and value.dtype != object:
        content = f"{value.dtype.str}{value.shape}".encode() + np.ascontiguousarray(value).tobytes()
        finite = value[np.isfinite(value)].astype(np.float64)
        numbers = [finite.mean(), finite.std(), finite.min(), finite.max()] if finite.size else []
        return {"hash": _hash(content), "numbers": [float(f"{number:.6g}") for number in numbers]}
    plain = value.tolist() if isinstance(value, np.ndarray) else value
    return {"hash": _hash(json.dumps(plain, sort_keys=True).encode())}


def _hash(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()[:16]


def golden(name: str, place: Path) -> dict[str, dict[str, Any]]:
    """Return the digest of each value of a spec, by `stage: name of the value`."""
    stages = stages_of(SPECS[name], place)
    return {f"{stage}: {key}": digest(value) for stage, values in stages for key, value in sorted(values.items())}


def renew() -> None:
    """Write the hashes that hold here and now, a value to a line."""
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as folder:
        specs = {name: golden(name, Path(folder) / str(number)) for number, name in enumerate(SPECS)}
    parts = []
    for name, values in specs.items():
        lines = ",\n".join(f"{json.dumps(key)}: {json.dumps(value)}" for key, value in values.items())
        parts.append(f"{json.dumps(name, ensure_ascii=False)}: {{\n{lines}\n}}")
    values = ",\n".join(parts)
    write_text(PATH, f'{{"environment": {json.dumps(environment(), indent=1)},\n"values": {{\n{values}\n}}}}\n')


if __name__ == "__main__":
    renew()
