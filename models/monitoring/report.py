"""The monitoring report, window by window: plain data for triggers, backtest and pages.

The checks are ordered by their weight (docs/how-to/monitoring.md): broken contract, realised metric,
estimated metric, drift of the predictions, drift of the features. Only the first, the second and the fourth can
trigger a loop (`models/monitoring/alarms.py`); the state of a window names its worst check.
"""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from models.frozen_model import FrozenModel
from models.judge.verdict import Estimate, Number
from models.monitoring.coverage import Coverage

State = Literal["green", "amber", "red"]
Level = Literal["none", "warn", "strong"]


class ContractBreach(FrozenModel):
    """A column that breaks the data contract of the model."""

    column: str
    kind: Literal["range", "nulls", "categories"]
    share: float = Field(description="Of the window's rows that break it, 0 to 1.")
    expected: float = Field(description="The same share in training.")
    reason: str = Field(description="In words, with what was allowed.")


class Drift(FrozenModel):
    """The distance of a column, or of the predictions, from the reference. Numbers are None where there is no test."""

    name: str
    kind: Literal["numeric", "categorical"]
    num_values: int = Field(description="Values that are there.")
    nulls: float = Field(description="Share of missing values, 0 to 1.")
    nulls_reference: float
    outside: float = Field(description="Share outside the training range, or of categories unseen in training.")
    psi: Number = Field(None, description="Population stability index, over ten groups of equal weight in training.")
    jensen_shannon: Number = Field(None, description="Distance, 0 to 1: the root of the divergence in bits.")
    ks: Number = Field(None, description="Largest gap between the distribution functions; numeric only.")
    wasserstein: Number = Field(None, description="In standard deviations of the reference; numeric only.")
    g: Number = Field(None, description="Likelihood ratio against the reference, over the same groups as psi.")
    p_value: Number = Field(None, description="Of g.")
    p_holm: Number = Field(None, description="Holm over all columns of the window.")
    warn_at: float = Field(
        description="Psi that is drift: the spec's, or what is usual in past windows without an alarm."
    )
    strong_at: float
    level: Level = "none"
    seasonal: bool = Field(False, description="Its drift is expected: shown, never said.")

    @property
    def is_within_chance(self) -> bool:
        """Whether psi reaches its limit, but the test finds no more than chance: with few rows psi alone is noise."""
        return not self.seasonal and self.level == "none" and self.psi is not None and self.psi >= self.warn_at

    @property
    def words(self) -> str:
        """The level in words, the same on every page."""
        if self.is_within_chance:
            return "within chance"
        return {"none": "no drift", "warn": "drifts", "strong": "drifts much"}[self.level]


class HorizonReport(FrozenModel):
    """The goal's metric at one of several horizons, on labelled predictions, with its own test of decay."""

    name: str = Field(description="`h7` for 7 steps ahead.")
    realised: Estimate
    pooled: Estimate | None = None
    decayed: bool = False


class WindowReport(FrozenModel, extra="ignore"):  # one of an earlier release has more
    """A fixed number of successive predictions of one version, with the result of each check."""

    id: str = Field(description="`version/number`: the same however often it is looked at.")
    version: str
    begin: float = Field(description="Unix time of the first prediction, seconds.")
    end: float = Field(description="Unix time of the last prediction.")
    num_predictions: int
    num_labels: int = Field(0, description="Predictions whose label is known by now: it may still rise.")
    whole: bool = Field(description="False while it fills; only whole windows count.")
    breaches: list[ContractBreach] = Field(default_factory=list)
    realised: Estimate | None = Field(None, description="The goal's metric on labelled predictions; None: too few.")
    num_measured: int = Field(0, description="Examples that `realised` was taken of.")
    pooled: Estimate | None = Field(
        None, description="`realised` over the newest windows together, for the decay test."
    )
    num_pooled: int = Field(0, description="Windows in `pooled`, this one included.")
    decayed: bool = Field(False, description="`pooled` is worse than at promotion, by more than the margin.")
    horizons: list[HorizonReport] = Field(default_factory=list, description="Of a series with several horizons.")
    coverage: Coverage | None = Field(None, description="Of quantiles: the coverage of their interval.")
    miscovered: bool = Field(False, description="`coverage` differs from that on the test rows.")
    estimated: Number = Field(None, description="The metric expected without labels (CBPE); never a gate.")
    predictions: list[Drift] = Field(default_factory=list, description="The score; of many classes also the class.")
    features: list[Drift] = Field(default_factory=list, description="Furthest drifted first.")
    state: State
    reason: str

    @property
    def decayed_horizons(self) -> list[HorizonReport]:
        """The horizons whose metric is worse than at promotion."""
        return [horizon for horizon in self.horizons if horizon.decayed]

    @property
    def drifted(self) -> bool:
        """True when the predictions themselves drift."""
        return any(drift.level != "none" for drift in self.predictions)


class MonitoringReport(FrozenModel):
    """All results of one monitoring run; `monitoring.json` holds the latest.

    `state` is the state of the champion's checks over the last windows, by the spec's rule of `alarms` out of `of`.
    """

    version: int = 1
    project: str
    at: float = Field(description="Unix time of the look, seconds.")
    champion: str | None = Field(None, description="The version that is watched.")
    metric: str | None = None
    direction: Literal["maximize", "minimize"] | None = None
    verdict: Estimate | None = Field(None, description="The champion's metric at its promotion, on test rows.")
    horizons: dict[str, Estimate] = Field(default_factory=dict, description="The same at each of several horizons.")
    windows: list[WindowReport] = Field(
        default_factory=list, description="A few of other versions, then the champion's; each oldest first."
    )
    num_predictions: int = Field(0, description="Counted so far, of all versions.")
    num_labels: int = Field(0, description="Labels that have a prediction.")
    num_unknown_labels: int = Field(0, description="Labels whose prediction is not known; they wait for it.")
    state: State = "green"
    reason: str = "nothing was predicted yet"
    notes: list[str] = Field(default_factory=list, description="What could not be done, and why.")

    def of_champion(self) -> list[WindowReport]:
        """Return the champion's complete windows, oldest first."""
        return [window for window in self.windows if window.version == self.champion and window.whole]
