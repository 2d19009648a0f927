"""Windows as they are found, and a small made-up model with its reference."""

import functools

import numpy as np
import pyarrow as pa
import pytest

from models.data.preparation import Preparation
from models.data.target_encoding import TargetEncoding
from models.inputs.categorical.record import CategoricalInput
from models.inputs.numeric.record import NumericInput
from models.judge.verdict import Estimate
from models.monitoring.build import reference_of
from models.monitoring.reference import Reference
from models.monitoring.report import ContractBreach, Drift, MonitoringReport, WindowReport

DAY = 86_400.0


def drift(name: str = "score", psi: float = 0.01, level: str = "none") -> Drift:
    return Drift(
        name=name,
        kind="numeric",
        num_values=1000,
        nulls=0.0,
        nulls_reference=0.0,
        outside=0.0,
        psi=psi,
        p_holm=0.5,
        warn_at=0.05,
        strong_at=0.2,
        level=level,
    )


def window(number: int, **told: object) -> WindowReport:
    given = {
        "id": f"1/{number}",
        "version": "1",
        "begin": number * DAY,
        "end": (number + 1) * DAY,
        "num_predictions": 1000,
        "whole": True,
        "predictions": [drift()],
        "state": "green",
        "reason": "as at its promotion",
    }
    return WindowReport.model_validate({**given, **told})


def breach(column: str = "distance") -> ContractBreach:
    return ContractBreach(
        column=column, kind="range", share=0.4, expected=0.0, reason=f"{column}: 40 % of the values over 6000"
    )


def decayed(number: int, **told: object) -> WindowReport:
    realised = Estimate(value=0.65, low=0.63, high=0.67)
    return window(number, realised=realised, num_measured=900, num_labels=900, decayed=True, state="red", **told)


def well() -> MonitoringReport:
    """Of a champion that does well."""
    return MonitoringReport(
        project="flights",
        at=100 * DAY,
        champion="1",
        metric="roc_auc",
        direction="maximize",
        verdict=Estimate(value=0.73, low=0.72, high=0.74),
        windows=[window(0), window(1)],
    )


@pytest.fixture
def findings() -> MonitoringReport:
    return well()


COLOURS = ["red", "green", "blue"]
"""Categories of the made-up model below."""


def preparation() -> Preparation:
    return Preparation(
        kind="table",
        task="binary",
        target=TargetEncoding(name="late", classes=["false", "true"], dtype="string"),
        inputs=[
            NumericInput(name="wind", fill=0.0),
            NumericInput(name="gust", fill=0.0),
            CategoricalInput(name="colour", categories=COLOURS),
        ],
    )


def chance(wind: np.ndarray) -> np.ndarray:
    """The made-up model: it states the truth."""
    return 1 / (1 + np.exp(-1.5 * wind))


def rows(num: int, seed: int = 0, shift: float = 0.0, nulls: float = 0.0) -> pa.Table:
    """Columns of the model by their own names."""
    source = np.random.default_rng(seed)
    wind = source.standard_normal(num) + shift
    gust = wind + source.standard_normal(num)
    colour = np.array(COLOURS)[source.integers(0, 3, num)]
    there = source.random(num) >= nulls
    columns = {"wind": pa.array(wind, mask=~there), "gust": pa.array(gust), "colour": pa.array(colour)}
    return pa.table(columns)


def truth(table: pa.Table, seed: int = 0, right: bool = True) -> np.ndarray:
    """What came true: as the model says, or by a coin."""
    wind = table.column("wind").to_numpy()
    stated = chance(np.nan_to_num(wind)) if right else np.full(len(wind), 0.5)
    return (np.random.default_rng(seed + 1000).random(len(wind)) < stated).astype(np.int64)


@functools.cache
def reference() -> Reference:
    """That of the made-up model."""
    splits = {"train": rows(20_000, seed=1), "test": rows(5000, seed=2)}
    test = splits["test"]
    stated = chance(test.column("wind").to_numpy())
    return reference_of(preparation(), truth(test), stated, lambda split, names: [splits[split].select(names)])


def logged(table: pa.Table) -> pa.Table:
    """The rows as the prediction log has them."""
    score = chance(np.nan_to_num(table.column("wind").to_numpy()))
    return table.rename_columns([f"input.{name}" for name in table.column_names]).append_column("score", [score])
