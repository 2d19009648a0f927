"""Finished jobs on tiny data that went through the real preparation, and a way to run part of a graph."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch
from onnx import ModelProto, TensorProto, helper

from models.data.encode import write_tensors
from models.data.preparation import Preparation
from models.data.prepare import prepare
from models.data.target_encoding import TargetEncoding
from models.export.export import export
from models.export.graph import IR_VERSION, ML_OPSET, OPSET
from models.files import read_json, write_json
from models.inputs.categorical.record import CategoricalInput
from models.inputs.graph_builder import GraphBuilder
from models.inputs.image.record import ImageInput
from models.inputs.numeric.record import NumericInput
from models.nets.build import build_net
from models.nets.sizes import Sizes
from models.ngrams.graph import ML_DOMAIN
from models.project_spec.blocks import Image, Model, Spec, Train
from models.project_spec.window import Window
from models.training.batches.examples import open_examples
from models.training.boosters import Boosters
from models.training.checkpoints.weights import save_weights
from models.training.job import TREES_FILE, WEIGHTS_FILE, TrainingJob
from models.training.tree_inputs import tree_inputs
from tests.conftest import MakeOnce

FinishedJob = Callable[..., TrainingJob]
ExportedJob = Callable[..., tuple[TrainingJob, dict[str, Any]]]
METADATA = {"loopline.project": "tiny", "loopline.dataset": "0123"}
METRICS = {"regression": "mae", "horizons": "mae", "quantile": "pinball", "language": "bits_per_char"}
CLASSES = {"binary": ["ja", "né"], "multiclass": ["Adélie", "日本", "ß"]}


@pytest.fixture(autouse=True)
def one_thread() -> None:
    torch.set_num_threads(1)


def table_preparation(task: str = "binary") -> Preparation:
    """Two numeric and three categorical columns, one of each dtype; names that are no identifiers."""
    regression = task == "regression"
    return Preparation(
        kind="table",
        task=task,
        target=TargetEncoding(
            name="y", classes=CLASSES.get(task), shift=50.0 if regression else 0.0, scale=4.0 if regression else 1.0
        ),
        inputs=[
            NumericInput(name="größe (m)", fill=1.7, shift=1.5, scale=0.25),
            NumericInput(name="n/1", fill=-3.0),
            CategoricalInput(name="city", categories=["Zürich", "", "東京"]),
            CategoricalInput(name="month", categories=["1", "12", "7"], dtype="integer"),
            CategoricalInput(name="is late", categories=["false", "true"], dtype="boolean"),
        ],
    )


LEVELS = [0.1, 0.5, 0.9]
"""The quantiles that a model of task `quantile` predicts."""


def image_preparation() -> Preparation:
    """Two-channel images that are wider than high, so that no axis can be mistaken."""
    image = Image(height=4, width=6, channels=2)
    target = TargetEncoding(name="digit", classes=CLASSES["multiclass"])
    pixels = ImageInput(name=image.column, image=image, mean=[0.2, 0.6], std=[0.3, 0.1])
    return Preparation(kind="image", task="multiclass", target=target, inputs=[pixels])


def series_preparation() -> Preparation:
    """Windows of five steps of two features."""
    return Preparation(
        kind="series",
        task="regression",
        target=TargetEncoding(name="load", shift=100.0, scale=20.0),
        inputs=[
            NumericInput(name="load", fill=90.0, shift=100.0, scale=20.0),
            NumericInput(name="°C", fill=8.0, shift=10.0),
        ],
        window=Window(length=5),
    )


def run_stretch(stretch: GraphBuilder, inputs: dict[str, np.ndarray], outputs: list[str]) -> list[np.ndarray]:
    """What a stretch of graph computes by itself."""
    kinds = {"f": TensorProto.FLOAT, "d": TensorProto.DOUBLE, "l": TensorProto.INT64, "B": TensorProto.UINT8}

    def value(name: str, array: np.ndarray) -> object:
        dtype = kinds.get(array.dtype.char, TensorProto.STRING)
        return helper.make_tensor_value_info(name, dtype, ["batch", *array.shape[1:]])

    graph = helper.make_graph(
        stretch.nodes,
        "stretch",
        [value(name, array) for name, array in inputs.items()],
        [helper.make_empty_tensor_value_info(name) for name in outputs],
        stretch.constants,
    )
    opsets = [helper.make_opsetid("", OPSET), helper.make_opsetid(ML_DOMAIN, ML_OPSET)]
    model: ModelProto = helper.make_model(graph, opset_imports=opsets, ir_version=IR_VERSION)
    session = onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    results: list[np.ndarray] = session.run(outputs, inputs)
    return results


def raw_table(kind: str, task: str, count: int = 300) -> pa.Table:
    """Rows with holes, unicode, whole numbers and booleans as categories."""
    rng = np.random.default_rng(5)
    if kind == "text":
        words = rng.choice(["Zürich", "東京", "und", "so", "weiter"], 8 * count)
        return pa.table({"text": [" ".join(words[8 * n : 8 * n + 8]) for n in range(count)]})
    signal = rng.normal(size=count)
    target: list[object]
    if task in ("regression", "horizons", "quantile"):
        target = list(50 + 4 * signal)
    else:
        names = CLASSES[task]
        target = [names[int(np.clip((value + 1.5) / 3 * len(names), 0, len(names) - 1))] for value in signal]
    if kind == "image":
        pixels = rng.integers(0, 256, (count, 4, 6, 2)).astype(np.uint8)
        return pa.table({"image": [image.tobytes() for image in pixels], "target": target})
    if kind == "series":
        steps = np.arange(count)
        return pa.table({"time": steps, "load": signal + np.sin(steps / 9), "°C": 10 + signal[::-1], "target": target})
    holes = rng.random(count) < 0.1
    return pa.table(
        {
            "größe (m)": pa.array(np.where(holes, np.nan, signal + rng.normal(size=count)), from_pandas=True),
            "n/1": rng.integers(0, 50, count),
            "city": [
                None if hole else ["Zürich", "東京", "Ōsaka"][int(value * 3) % 3]
                for hole, value in zip(holes, signal, strict=True)
            ],
            "month": rng.integers(1, 13, count),
            "is late": signal + rng.normal(size=count) > 0,
            "target": target,
        }
    )


def spec_of(kind: str, task: str) -> Spec:
    """The spec under which `raw_table` is prepared; the task `horizons`: a regression at several."""
    data: dict[str, object] = {"source": "raw.parquet", "target": "target", "kind": kind, "task": task}
    if task == "horizons":
        data["task"] = "regression"
    if kind == "image":
        data["image"] = {"height": 4, "width": 6, "channels": 2}
    elif kind == "text":
        data = {"source": "raw.parquet", "kind": kind, "text": {"length": 12}}
    elif kind == "series":
        several = {"horizon": [1, 2, 4], "known_future": ["°C"]} if task in ("horizons", "quantile") else {}
        data |= {"window": {"length": 8, **several}, "split": {"by": "time", "column": "time"}}
    else:
        data["features"] = {"kinds": {"month": "categorical"}}
    data |= {"quantiles": LEVELS} if task == "quantile" else {}
    return Spec.model_validate({"name": "tiny", "data": data})


@pytest.fixture(scope="session")
def finished_job(tmp_path_factory: pytest.TempPathFactory) -> FinishedJob:
    """A function that gives the finished job of a net on data of some kind; weights are random but repeatable."""
    prepared: dict[tuple[str, str], tuple[Path, dict[str, Path]]] = {}

    def make(net: str, kind: str = "table", task: str = "binary", **arguments: object) -> TrainingJob:
        if (kind, task) not in prepared:
            place = tmp_path_factory.mktemp(f"{kind}-{task}")
            pq.write_table(raw_table(kind, task), place / "raw.parquet")
            prepare(place / "raw.parquet", spec_of(kind, task), place, place / "prepared")
            (place / "tensors").mkdir()
            prepared[kind, task] = (place / "prepared", write_tensors(place / "prepared", place / "tensors"))
        folder, tensors = prepared[kind, task]
        job = TrainingJob(
            folder=tmp_path_factory.mktemp("job"),
            prepared=folder,
            tensors=tensors,
            project=folder.parent,
            model=Model(net=net, arguments=arguments),
            train=Train(refit=False),
            metric=METRICS.get(task, "accuracy"),
            direction="minimize" if task in METRICS else "maximize",
        )
        (_grow_trees if net == "trees" else _draw_weights)(job)
        return job

    return make


@pytest.fixture(scope="session")
def exported_job(finished_job: FinishedJob, once: MakeOnce) -> ExportedJob:
    """A function that gives a finished job and what its export answered, made once for all workers."""

    def make(
        net: str, kind: str = "table", task: str = "binary", **arguments: object
    ) -> tuple[TrainingJob, dict[str, Any]]:
        job = finished_job(net, kind, task, **arguments)

        def write(folder: Path) -> None:
            folder.mkdir()
            write_json(folder / "answer.json", export(job.as_json(), str(folder), METADATA))

        name = "-".join(("export", net, kind, task, *(f"{key}-{value}" for key, value in sorted(arguments.items()))))
        return job, read_json(once(name, write) / "answer.json")

    return make


def _draw_weights(job: TrainingJob) -> None:
    torch.manual_seed(3)
    net = build_net(job.model, Sizes.of(Preparation.load(job.prepared)), job.project)
    with torch.no_grad():
        for name, tensor in net.state_dict().items():
            # Statistics that batch normalisation would have after training, so that a wrong one shows.
            if name.endswith(("running_mean", "running_var")):
                tensor.uniform_(0.5, 1.5)
    save_weights(job.folder / WEIGHTS_FILE, net.state_dict())


def _grow_trees(job: TrainingJob) -> None:
    import lightgbm

    preparation = Preparation.load(job.prepared)
    train, _ = open_examples(job, preparation)
    inputs, targets = tree_inputs(train, preparation), train.targets().numpy()
    num_numeric, categorical = len(preparation.numeric), len(preparation.of(CategoricalInput))
    extra = {"num_class": preparation.num_outputs} if preparation.task == "multiclass" else {}
    settings = {"objective": preparation.task, "num_threads": 1, "verbosity": -1, "min_data_in_leaf": 5, **extra}
    boosters = [
        lightgbm.train(
            settings,
            lightgbm.Dataset(
                inputs.features,
                np.ascontiguousarray(label),
                categorical_feature=list(range(num_numeric, num_numeric + categorical)),
                params={"verbosity": -1},
            ),
            10,
        )
        for label in (inputs.label(targets).T if preparation.kind == "series" else [targets])
    ]
    (job.folder / TREES_FILE).write_text(Boosters(boosters).to_text())
