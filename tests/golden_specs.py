"""Small specs and their rows for the golden test: every task, data kind and kind of column, in as few rows as will do.

Numbers are drawn as whole numbers and divided, so that no library rounds them in its own way.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pyarrow as pa

Columns = dict[str, Any]
Block = dict[str, Any]

LEVELS = [0.1, 0.5, 0.9]
SMALL_TREES: Block = {"rounds": 6, "num_leaves": 4, "min_data_in_leaf": 5}
SMALL_NET: Block = {"hidden": 8, "layers": 1}
MEMBERS = [
    {"model.net": "trees", "weight": 0.6, **{f"model.{name}": value for name, value in SMALL_TREES.items()}},
    {"model.net": "linear", "weight": 0.4},
]
OWN_FEATURES = (
    "import torch\n"
    "def fit(rows):\n"
    "    return {'mean': rows.groupby('city')['price'].mean(), 'middle': float(rows['price'].median())}\n"
    "def transform(columns, state):\n"
    "    return {'above': (columns['price'] > state['middle']).to(torch.float32)}\n"
)
"""The code of `./own.py`: one feature by category, one that is a stretch of graph."""


@dataclass(frozen=True)
class GoldenSpec:
    """A spec without its name, the rows of its source, and the family that is trained on them."""

    rows: Callable[[], Columns]
    data: Block
    net: str
    arguments: Block = field(default_factory=dict)
    train: Block = field(default_factory=dict)
    goal: Block = field(default_factory=dict)


def table_rows() -> Columns:
    """Columns of each kind with holes, and a target for each task of a table."""
    rng = np.random.default_rng(51)
    num = 240
    price = rng.integers(-2000, 2001, num) / 1000
    size = rng.integers(0, 5000, num) / 100
    number = np.round(2 * price + size / 25 + rng.integers(-500, 501, num) / 1000, 3)
    words = np.array(["red", "round", "small", "old", "broken", "new", "blue", "cheap"])
    order = np.argsort(-price[:, None] * (np.arange(8) < 4) + rng.integers(0, 3000, (num, 8)) / 1000, axis=1)
    start = np.datetime64("2024-01-01T06:00:00", "us")
    return {
        "id": [f"row-{row}" for row in range(num)],
        "price": pa.array(np.where(np.arange(num) % 11 == 5, np.nan, price), from_pandas=True),
        "size": size,
        "year": rng.integers(1990, 2021, num),
        "city": [None if row % 13 == 4 else ["Zürich", "東京", "", "Oslo"][row * row % 4] for row in range(num)],
        "floor": rng.integers(1, 5, num),
        "is new": rng.random(num) < 0.4,
        "when": start + (rng.integers(0, 400 * 24, num) * 3_600_000_000).astype("timedelta64[us]"),
        "note": [" ".join(words[row[: 3 + int(row[0]) % 3]]) for row in order],
        "group": rng.integers(0, 40, num),
        "worth": np.exp2(np.round(size * 0.3, 1)),
        "weight": rng.integers(0, 4, num) / 2,
        "binary": np.where(number > 1, "yes", "no"),
        "multiclass": np.select([number < 0, number < 2], ["low", "middle"], "high"),
        "number": number,
        "other": np.round(number * 3 - price, 3),
        "positive": np.round(np.exp2(np.round(number)) + size, 3),
        "label a": (number > 1) * 1,
        "label b": (price > 0.5) * 1,
        "grade": np.digitize(number, [0, 1, 3]),
    }


def image_rows() -> Columns:
    """Images of two channels that are higher than wide; a class is where they are bright."""
    rng = np.random.default_rng(52)
    classes = rng.integers(0, 3, 150)
    pixels = rng.integers(0, 120, (150, 6, 4, 2))
    for row, label in enumerate(classes):
        pixels[row, 2 * label : 2 * label + 2] += 100
    return {
        "picture": [image.tobytes() for image in pixels.astype(np.uint8)],
        "label": np.array(["ja", "né", "日本"])[classes],
        "bright": np.round(pixels.mean(axis=(1, 2, 3)), 3),
    }


def series_rows() -> Columns:
    """Two series of hours with a week's worth of swing, a column that is known beforehand, and missing values."""
    rng = np.random.default_rng(53)
    num = 160
    hours = np.arange(num)
    swing = np.abs(hours % 24 - 12)
    parts = [np.round(20 + level + swing + rng.integers(-200, 201, num) / 100, 2) for level in (0, 15)]
    warm = rng.integers(-100, 301, 2 * num) / 10
    start = np.datetime64("2024-03-01T00:00:00", "us")
    return {
        "time": np.tile(start + (hours * 3_600_000_000).astype("timedelta64[us]"), 2),
        "shop": np.repeat(["north", "south"], num),
        "sold": np.concatenate(parts),
        "warm": pa.array(np.where(np.arange(2 * num) % 17 == 3, np.nan, warm), from_pandas=True),
        "open": np.tile((hours % 24 > 7) * 1, 2),
    }


def text_rows() -> Columns:
    """Lines of a few words, some of them beyond ASCII."""
    rng = np.random.default_rng(54)
    words = np.array(["Zürich", "und", "so", "weiter", "東京", "aber"])
    return {"line": [" ".join(words[picks]) for picks in rng.integers(0, 6, (160, 4))]}


INPUTS = ["price", "size", "year", "city", "floor", "is new"]


def _table(target: Any, columns: list[str], **data: Any) -> Block:
    kinds = {name: kind for name, kind in {"floor": "categorical", "note": "text"}.items() if name in columns}
    features = {"columns": columns, "kinds": kinds, **data.pop("features", {})}
    return {"target": target, "id": "id", "split": {"by": "random", "test": 0.2}, "features": features, **data}


def _series(**data: Any) -> Block:
    window = {"length": 6, "series_key": "shop", **data.pop("window", {})}
    split = {"by": "time", "column": "time", "test": 0.2}
    return {"kind": "series", "target": "sold", "window": window, "split": split, **data}


_IMAGE = {"column": "picture", "height": 6, "width": 4, "channels": 2}
_FEW_STEPS: Block = {"epochs": 2, "batch": 32, "lr": 0.01}

SPECS: dict[str, GoldenSpec] = {
    "binary, every kind of column, weights": GoldenSpec(
        table_rows,
        _table("binary", [*INPUTS, "when", "note"], weight="weight"),
        "mlp",
        SMALL_NET,
        _FEW_STEPS,
        {"metric": "f1", "positive": "no"},
    ),
    "binary, an ensemble, groups": GoldenSpec(
        table_rows,
        _table("binary", INPUTS, split={"by": "group", "column": "group", "test": 0.2}),
        "ensemble",
        {"members": MEMBERS},
    ),
    "multiclass, fitted features": GoldenSpec(
        table_rows,
        _table(
            "multiclass",
            ["price", "size", "city"],
            split={"by": "stratified", "test": 0.2},
            features={"fit": "./own.py:fit", "transform": "./own.py:transform"},
        ),
        "tabm",
        {**SMALL_NET, "members": 2},
        _FEW_STEPS,
    ),
    "binary, heavy tails": GoldenSpec(table_rows, _table("binary", ["price", "worth"]), "linear"),
    "multiclass, texts alone": GoldenSpec(table_rows, _table("multiclass", ["note"]), "linear"),
    "multilabel": GoldenSpec(
        table_rows,
        _table(["label a", "label b"], [*INPUTS, "note"], task="multilabel"),
        "mlp",
        SMALL_NET,
        _FEW_STEPS,
    ),
    "regression, log scale, times, weights": GoldenSpec(
        table_rows,
        _table("positive", [*INPUTS, "when"], target_scale="log", weight="weight"),
        "trees",
        SMALL_TREES,
        goal={"metric": "mape"},
    ),
    "regression, several targets": GoldenSpec(
        table_rows,
        _table(["number", "other"], INPUTS, split={"by": "time", "column": "when", "test": 0.2}),
        "mlp",
        SMALL_NET,
        _FEW_STEPS,
        {"metric": "r2"},
    ),
    "regression, a transformer": GoldenSpec(
        table_rows,
        _table("number", INPUTS, features={"normalise": "robust", "impute": "mean"}),
        "transformer",
        {"width": 8, "layers": 1, "heads": 2},
        _FEW_STEPS,
        {"metric": "pinball", "quantile": 0.9},
    ),
    "quantile": GoldenSpec(
        table_rows, _table("number", INPUTS, quantiles=LEVELS, weight="weight"), "linear", goal={"metric": "pinball"}
    ),
    "ranking, trees": GoldenSpec(
        table_rows,
        _table("grade", INPUTS, task="ranking", split={"by": "group", "column": "group", "test": 0.2}),
        "trees",
        SMALL_TREES,
    ),
    "ranking, a net": GoldenSpec(
        table_rows,
        _table("grade", INPUTS, task="ranking", split={"by": "group", "column": "group", "test": 0.2}),
        "mlp",
        SMALL_NET,
        _FEW_STEPS,
        {"metric": "ndcg@10"},
    ),
    "image, classes": GoldenSpec(
        image_rows,
        {"kind": "image", "image": _IMAGE, "target": "label", "split": {"by": "stratified", "test": 0.2}},
        "cnn",
        {"width": 4, "stages": 1, "hidden": 8},
        {**_FEW_STEPS, "augment": {"shift_pixels": 1}},
    ),
    "image, a number": GoldenSpec(
        image_rows,
        {"kind": "image", "image": _IMAGE, "target": "bright", "split": {"by": "random", "test": 0.2}},
        "cnn",
        {"width": 4, "stages": 1, "hidden": 8},
        _FEW_STEPS,
        {"metric": "rmse"},
    ),
    "series, horizons and quantiles": GoldenSpec(
        series_rows,
        _series(window={"horizon": [1, 3], "known_future": ["open"]}, quantiles=LEVELS),
        "gru",
        {"hidden": 6},
        _FEW_STEPS,
    ),
    "series, trees, log scale": GoldenSpec(
        series_rows,
        _series(window={"horizon": [1, 2], "known_future": ["open"]}, target_scale="log"),
        "trees",
        SMALL_TREES,
    ),
    "series, one step ahead": GoldenSpec(series_rows, _series(window={"horizon": 2}), "linear"),
    "text": GoldenSpec(
        text_rows,
        {"kind": "text", "text": {"column": "line", "length": 12, "stride": 6}},
        "decoder",
        {"width": 8, "layers": 1, "heads": 2},
        _FEW_STEPS,
    ),
}
