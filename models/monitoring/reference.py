"""The monitoring reference of a model: the distributions of its training columns and of its test scores.

It is stored with the version as `monitoring-reference.json`, with numbers and text alone. For tables it has the
columns; for images, series and texts only scores and labels, because a picture has no columns to count.
"""

from __future__ import annotations

from collections.abc import Collection
from pathlib import Path
from typing import Annotated

import numpy as np
from pydantic import BeforeValidator, Field, PlainSerializer

from models.errors import StoreError
from models.files import write_text
from models.frozen_model import FrozenModel
from models.kinds.task import Task
from models.monitoring.calibration import Calibration
from models.monitoring.coverage import Coverage
from models.monitoring.histogram import Bins, Counts
from models.project_spec.monitor_and_retrain import Monitor

REFERENCE_FILE = "monitoring-reference.json"

CountList = Annotated[
    Counts,
    BeforeValidator(lambda value: np.asarray(value, dtype=np.int64)),
    PlainSerializer(lambda counts: counts.tolist(), return_type=list[int]),
]


class ReferenceColumn(FrozenModel, arbitrary_types_allowed=True):
    """A column, or the score, with its counts in training (for the score: on the test rows)."""

    bins: Bins
    counts: CountList
    outside: float = Field(0.0, description="Share of the test rows outside what training knew.")
    weighted: ReferenceColumn | None = Field(None, description="The same of rows that count by data.weight.")

    @property
    def name(self) -> str:
        """Name of the column."""
        return self.bins.name

    @property
    def nulls(self) -> float:
        """Share of missing values."""
        return self.bins.num_missing(self.counts) / max(1, self.num_rows)

    @property
    def num_rows(self) -> int:
        """Number of counted rows, including missing values."""
        return int(self.bins.values_of(self.counts).sum()) + self.bins.num_missing(self.counts)


class Reference(FrozenModel, extra="ignore"):  # a version of an earlier release has more
    """The distributions that monitoring compares predictions with."""

    version: int = 1
    task: Task
    classes: list[str] | None = None
    columns: list[ReferenceColumn] = Field(default_factory=list)
    scores: list[ReferenceColumn] = Field(
        description="`score`, of many classes `confidence` and `class`, or each of several outputs."
    )
    calibration: Calibration | None = Field(None, description="Of classifications: what stated chances came to.")
    weighted_calibration: Calibration | None = Field(None, description="The same of rows that count by data.weight.")
    coverage: Coverage | None = Field(None, description="Of quantiles: the coverage of their interval on test rows.")
    weighted_coverage: Coverage | None = Field(None, description="The same of rows that count by data.weight.")

    def as_monitored(self, monitor: Monitor, redact: Collection[str]) -> Reference:
        """Return what the windows of a project are compared with, live and in a backtest.

        Args:
            monitor: The spec's block; `weights: sampling` takes the weighted rows.
            redact: The spec's `serve.log.redact`.
        """
        logged = self.without(redact)
        return logged.of_weighted_rows() if monitor.weights == "sampling" else logged

    def of_weighted_rows(self) -> Reference:
        """Return a copy whose distributions are those of the weighted rows, if the rows had weights."""
        alike = {
            "calibration": self.weighted_calibration or self.calibration,
            "coverage": self.weighted_coverage or self.coverage,
            "columns": [column.weighted or column for column in self.columns],
            "scores": [score.weighted or score for score in self.scores],
        }
        return self.model_copy(update={**alike, "weighted_calibration": None, "weighted_coverage": None})

    def without(self, names: Collection[str]) -> Reference:
        """Return a copy without some columns: columns that are never logged cannot be compared."""
        if not any(column.name in names for column in self.columns):
            return self
        return self.model_copy(update={"columns": [column for column in self.columns if column.name not in names]})

    def save(self, folder: Path) -> Path:
        """Write the reference into a folder."""
        path = folder / REFERENCE_FILE
        write_text(path, self.model_dump_json() + "\n")
        return path

    @classmethod
    def load(cls, folder: Path) -> Reference | None:
        """Return the reference in a version's folder; None for a version from before references existed.

        Raises:
            StoreError: The file is there and cannot be read.
        """
        path = folder / REFERENCE_FILE
        try:
            return cls.model_validate_json(path.read_text())
        except FileNotFoundError:
            return None
        except (OSError, ValueError) as error:
            raise StoreError(f"{path}: cannot be read ({type(error).__name__}): train and register again") from error
