"""The data half of the bare script: raw package, checks, prepared rows, tensors. No part of Loopline is imported."""

from __future__ import annotations

import importlib.util
import json
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

SOURCE = Path(__file__).parents[2] / "projects" / "flights" / "source.py"
VALIDATION, TEST = 0.15, 0.15
CATEGORICAL = ["carrier", "origin", "dest", "hour", "weekday"]
NUMERIC = [
    "minute", "distance", "sched_arr_time", "sched_minutes", "temp", "dewp", "humid", "wind_speed", "precip",
    "pressure", "visib", "late_origin", "delay_origin", "late_carrier", "late_airline", "late_dest",
]  # fmt: skip
TARGET, TIME = "late", "time_hour"


def read_raw(packages: Path, out: Path) -> Path:
    """The project's own source function over the downloaded package; the table as Parquet."""
    spec = importlib.util.spec_from_file_location("flights_source", SOURCE)
    source = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(source)

    def fetch(reference: str) -> Path:
        member = reference.split("!")[1].split("#")[0]
        return next(packages.rglob(member))

    path = out / "raw.parquet"
    source.load(fetch).to_parquet(path, compression="zstd")
    return path


def check(frame: pd.DataFrame, expectations: list[Any]) -> None:
    """Run Great Expectations; stop when a check fails that is not a warning."""
    import great_expectations as gx

    context = gx.get_context(mode="ephemeral")
    context.variables.progress_bars = {"globally": False}
    batch = context.data_sources.add_pandas("memory").add_dataframe_asset("table")
    definition = batch.add_batch_definition_whole_dataframe("whole")
    suite = context.suites.add(gx.ExpectationSuite(name="suite", expectations=expectations))
    validation = gx.ValidationDefinition(name="validation", data=definition, suite=suite)
    result = context.validation_definitions.add(validation).run(
        batch_parameters={"dataframe": frame}, result_format="SUMMARY"
    )
    for one in result.results:
        if not one.success and one.expectation_config.severity != "warning":
            raise SystemExit(f"rejected: {one.expectation_config}")


def check_raw(frame: pd.DataFrame) -> None:
    """What the spec expects of the raw table."""
    import great_expectations.expectations as expect

    columns = [TARGET, TIME, *CATEGORICAL, *NUMERIC]
    check(
        frame,
        [
            *(expect.ExpectColumnToExist(column=column) for column in columns),
            expect.ExpectColumnValuesToNotBeNull(column=TARGET, mostly=0.9),
            expect.ExpectTableRowCountToBeBetween(min_value=300000),
            expect.ExpectColumnValuesToBeInSet(column="origin", value_set=["EWR", "JFK", "LGA"]),
            expect.ExpectColumnValuesToMatchRegex(column="carrier", regex="^[A-Z0-9]{2}$"),
            expect.ExpectColumnValuesToBeBetween(column="hour", min_value=0, max_value=23),
            expect.ExpectColumnValuesToBeBetween(column="distance", min_value=1, max_value=6000),
            expect.ExpectColumnValuesToBeBetween(column="arr_delay", min_value=-120, max_value=1500),
            expect.ExpectColumnValuesToNotBeNull(column=TIME),
            expect.ExpectColumnValuesToNotBeNull(column="temp", mostly=0.95, severity="warning"),
            expect.ExpectColumnPairValuesAToBeGreaterThanB(
                column_A="temp", column_B="dewp", or_equal=True, mostly=0.99
            ),
        ],
    )


def check_prepared(rows: pd.DataFrame) -> None:
    """What the spec expects of the prepared rows."""
    import great_expectations.expectations as expect

    check(
        rows,
        [
            expect.ExpectColumnValuesToBeUnique(column="row"),
            expect.ExpectColumnValuesToBeInSet(column="split", value_set=[0, 1, 2]),
            expect.ExpectColumnValuesToBeBetween(column="late_origin", min_value=0, max_value=1),
            expect.ExpectColumnValuesToBeInSet(column=TARGET, value_set=["false", "true"]),
        ],
    )


def prepare(raw: Path, out: Path) -> pd.DataFrame:
    """Rows with a target, each once, with their split in time order; as Parquet too."""
    frame = pd.read_parquet(raw)
    frame = frame[frame[TARGET].notna()].drop_duplicates()
    moments = np.sort(frame[TIME].to_numpy())
    shares = 1 - VALIDATION - TEST, 1 - TEST
    edges = [moments[round(share * len(moments))] for share in shares]
    rows = frame[[*CATEGORICAL, *NUMERIC, TARGET]].copy()
    rows["split"] = np.searchsorted(edges, frame[TIME].to_numpy(), side="right").astype(np.int8)
    rows["row"] = frame.index.to_numpy()
    for name in CATEGORICAL:
        rows[name] = rows[name].astype(str)
    rows[TARGET] = np.where(rows[TARGET].astype(bool), "true", "false")
    rows.to_parquet(out / "rows.parquet", compression="zstd")
    return rows


def encode(rows: pd.DataFrame, out: Path) -> dict[str, dict[str, np.ndarray]]:
    """Tensors of each split, with statistics of the training rows alone; they and the schema are kept on disk."""
    from safetensors.numpy import save_file

    train = rows[rows.split == 0]
    categories = {name: train[name].value_counts().index.tolist() for name in CATEGORICAL}
    fill, mean = train[NUMERIC].median(), None
    numbers = rows[NUMERIC].fillna(fill)
    mean, std = train[NUMERIC].mean(), train[NUMERIC].std(ddof=0)
    numeric = ((numbers - mean) / std).to_numpy(np.float32)
    categorical = np.empty((len(rows), len(CATEGORICAL)), np.int32)
    for place, name in enumerate(CATEGORICAL):
        index = {text: position + 1 for position, text in enumerate(categories[name])}
        categorical[:, place] = rows[name].map(index).fillna(0)
    target = (rows[TARGET] == "true").to_numpy(np.int64)
    schema = {"categories": categories, "fill": fill.to_dict(), "mean": mean.to_dict(), "std": std.to_dict()}
    (out / "schema.json").write_text(json.dumps(schema))
    splits = {}
    for code, split in enumerate(("train", "validation", "test")):
        here = rows.split.to_numpy() == code
        splits[split] = {"numeric": numeric[here], "categorical": categorical[here], "target": target[here]}
        save_file(splits[split], out / f"{split}.safetensors")
    return splits
