"""Tiny problems that can be learnt, written as the engine reads them."""

import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch
from safetensors.numpy import save_file

from models.data.preparation import Preparation, TextInput
from models.data.target_encoding import TargetEncoding
from models.inputs.categorical.record import CategoricalInput
from models.inputs.image.record import ImageInput
from models.inputs.numeric.record import NumericInput
from models.project_spec.blocks import Image, Model, Train
from models.project_spec.window import Window
from models.training.job import TrainingJob

MakeJob = Callable[..., TrainingJob]
NETS_BY_KIND = {"table": "mlp", "image": "cnn", "series": "gru", "text": "decoder"}
METRICS = {"regression": "mae", "language": "bits_per_char"}


def preparation_of(kind: str, task: str) -> Preparation:
    if kind == "text":
        characters = TextInput(column="text", length=8, stride=8, alphabet="abcdef")
        return Preparation(kind=kind, task=task, target=TargetEncoding(name="next"), characters=characters)
    classes = {"binary": ["no", "yes"], "multiclass": ["a", "b", "c"], "regression": None}[task]
    return Preparation(
        kind=kind,
        task=task,
        target=TargetEncoding(name="y", classes=classes, shift=0.0 if classes else 5.0, scale=1.0 if classes else 2.0),
        inputs=[
            *([] if kind == "image" else [NumericInput(name=f"x{i}", fill=0.0) for i in range(3)]),
            *([CategoricalInput(name="c", categories=["u", "v", "w"])] if kind == "table" else []),
            *(
                [ImageInput(name="image", image=Image(height=8, width=8), mean=[0.5], std=[0.25])]
                if kind == "image"
                else []
            ),
        ],
        window=Window(length=6) if kind == "series" else None,
    )


def tensors_of(kind: str, task: str, count: int, seed: int) -> dict[str, np.ndarray]:
    rng = np.random.default_rng(seed)
    signal = rng.normal(size=count).astype(np.float32)
    tensors: dict[str, np.ndarray] = {}
    if kind == "text":
        # Each character is the one two before it and one more, or now and then another: the net must look back.
        tokens = np.arange(8 * count + 1) // 2 % 6 + 1
        odd = rng.random(len(tokens)) < 0.05
        tokens[odd] = rng.integers(1, 7, odd.sum())
        return {"tokens": tokens.astype(np.uint8), "start": np.arange(0, 8 * count, 8, dtype=np.int64)}
    if kind == "table":
        tensors["categorical"] = rng.integers(0, 4, (count, 1)).astype(np.int32)
        noise = rng.normal(size=(count, 2)).astype(np.float32)
        tensors["numeric"] = np.concatenate([signal[:, None], noise], axis=1)
    elif kind == "image":
        image = rng.integers(0, 60, (count, 1, 8, 8))
        image[:, :, 2:6, 2:6] += np.clip(100 + 60 * signal, 0, 190).astype(np.int64)[:, None, None, None]
        tensors["image"] = image.astype(np.uint8)
    else:
        tensors["series"] = rng.normal(size=(count + 6, 3)).astype(np.float32)
        tensors["end"] = np.arange(5, count + 5, dtype=np.int64)
        signal = tensors["series"][tensors["end"], 0]
    if task == "regression":
        tensors["target"] = signal
        tensors["value"] = signal.astype(np.float64) * 2 + 5
    else:
        edges = [0.0] if task == "binary" else [-0.5, 0.5]
        tensors["target"] = np.digitize(signal, edges).astype(np.int64)
    return tensors


def noisy(images: torch.Tensor) -> torch.Tensor:
    """An augmentation of a user's own, which draws from all three generators."""
    return images * random.random() + torch.rand(1) * float(np.random.random())


def noisy_columns(columns: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    """The same for columns of a table or a series; a category of every fourth row or so is missing."""
    made = {name: noisy(column) if column.is_floating_point() else column for name, column in columns.items()}
    if "c" in made:
        made["c"] = torch.where(torch.rand(len(made["c"])) < 0.25, 0, made["c"])
    return made


def job_maker(place: Path) -> MakeJob:
    """A function that writes a tiny problem below `place` and gives a job for it."""

    def make(
        kind: str = "table",
        task: str = "binary",
        net: str | None = None,
        arguments: dict[str, Any] | None = None,
        count: int = 200,
        folder: str = "job",
        unlabelled: int = 0,
        job: dict[str, Any] | None = None,
        **train: Any,
    ) -> TrainingJob:
        prepared = place / f"{kind}-{task}-{count}"
        if not prepared.exists():
            prepared.mkdir()
            preparation_of(kind, task).save(prepared)
            save_file(tensors_of(kind, task, count, 0), prepared / "train.safetensors")
            save_file(tensors_of(kind, task, max(50, count // 4), 1), prepared / "validation.safetensors")
        sides = ["train", "validation"] + ["unlabelled"] * bool(unlabelled)
        if unlabelled and not (prepared / "unlabelled.safetensors").exists():
            tensors = tensors_of(kind, task, unlabelled, 2)
            del tensors["target"]
            save_file(tensors, prepared / "unlabelled.safetensors")
        metric = METRICS.get(task, "accuracy")
        settings = {"epochs": 3, "batch": 32, "lr": 0.01, "warmup": 0.0, "refit": False, **train}
        return TrainingJob(
            folder=place / folder,
            prepared=prepared,
            tensors={side: prepared / f"{side}.safetensors" for side in sides},
            project=place,
            model=Model(net=net or NETS_BY_KIND[kind], arguments=arguments or {}),
            train=Train(**settings),
            metric=metric,
            direction="minimize" if task in METRICS else "maximize",
            **{"checkpoint_share": 1.0, **(job or {})},
        )

    return make
