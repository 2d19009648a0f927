"""The verdict: all measurements, rules and decisions about one challenger, as one JSON document.

It holds the rules and the digests of the evidence, so that `models/judge/decide.py` can replay it.
"""

from __future__ import annotations

import math
from typing import Annotated, Literal

from pydantic import BeforeValidator, Field

from models.frozen_model import FrozenModel
from models.kinds.task import Task
from models.project_spec import blocks as spec


def _finite(value: float | None) -> float | None:
    return value if value is None or math.isfinite(value) else None


Number = Annotated[float | None, BeforeValidator(_finite)]
"""A number, or None if it is undefined or was not measured, because JSON has no NaN."""


class Estimate(FrozenModel):
    """A value (of a metric, or a difference of metrics) with its interval."""

    value: Number
    low: Number = None
    high: Number = None


class Difference(FrozenModel):
    """Challenger minus the other, in the metric's own unit; `p_value` against "does not reach the threshold".

    `reached`: the evidence suffices at the verdict's confidence.
    """

    value: Number
    low: Number = None
    high: Number = None
    p_value: Number = None
    reached: bool = False


class Slice(FrozenModel):
    """One value of a slice column. `p_holm`: p-value for a loss of more than `slice_margin`; Holm over all slices."""

    column: str
    value: str
    num_samples: int
    challenger: Estimate
    champion: Estimate | None = None
    difference: Difference | None = None
    p_holm: Number = None
    lost: bool = False
    note: str = ""


class OutputFigures(FrozenModel):
    """The figures of one of several outputs by itself, in its own unit: metric -> value.

    A quantile has its pinball loss and the share of true values below it.
    """

    name: str
    quantile: float | None = None
    horizon: str | None = Field(None, description="Of a quantile at one of several horizons: the horizon's name.")
    goal: Estimate | None = Field(None, description="The goal's metric of the challenger at this horizon alone.")
    challenger: dict[str, Number]
    champion: dict[str, Number] = Field(default_factory=dict)
    baseline: dict[str, Number] = Field(default_factory=dict, description="Of the trivial baseline, or naive forecast.")


class ClassRecall(FrozenModel):
    """How many of a class's test rows the challenger takes for it, by its own decision."""

    name: str
    num_samples: int
    num_trained: int | None = Field(None, description="Training rows of the class.")
    recall: Estimate
    others: Number = Field(None, description="The same share of the rows of all other classes together.")
    taken_for: str = Field("", description="The class that most of its other rows are taken for.")
    goal: Number = Field(None, description="The goal's metric if its share were `others`; None where it is no lower.")


class ServingCost(FrozenModel):
    """Serving cost of one model: p50 latency of one row on one thread, and the size of the loaded file."""

    latency_ms: Number = None
    size_mb: Number = None


class Parity(FrozenModel):
    """The distance between the exported graph's predictions and the trained net's."""

    max_difference: float
    tolerance: float
    num_examples: int
    label_flips: int = Field(0, description="Examples whose predicted class differs.")


class BestChampion(FrozenModel):
    """The comparison with the best champion so far, where that is not the champion; `id` is its version."""

    id: str
    num_samples: int
    estimate: Estimate = Field(description="Its metric on the test rows that it does not know.")
    difference: Difference = Field(description="Challenger minus it, on these rows.")
    test_set_margin: Number = Field(None, description="The margin that these rows can resolve, without judge.margin.")


class Gate(FrozenModel):
    """One condition of promotion."""

    name: Literal[
        "sample", "champion", "best", "goal", "baseline", "predictors", "copies", "slices", "latency", "size", "parity"
    ]
    passed: bool
    reason: str


class Verdict(FrozenModel):
    """The judged comparison of a challenger with the champion, the goal and the trivial baseline."""

    version: int = 1
    decision: Literal["promote", "keep"] = "keep"
    reasons: list[str] = Field(default_factory=list, description="In plain words; the first says it all.")
    gates: list[Gate] = Field(default_factory=list)

    task: Task
    positive: str = Field("", description="The class that metric, costs and threshold are about, of two; else empty.")
    metric: str
    direction: Literal["maximize", "minimize"]
    rules: spec.Judge
    good_enough: Number = None
    num_known: int = Field(0, description="Test rows that do not count: the champion was trained or chosen on them.")
    max_latency_ms: Number = Field(None, description="The tighter of judge.max_latency_ms and serve.max_latency_ms.")
    seed: int = 0

    num_samples: int
    num_clusters: int | None = None
    challenger_id: str | None = None
    champion_id: str | None = Field(None, description="The champion it was compared with; promotion checks it.")
    challenger: Estimate
    champion: Estimate | None = None
    baseline: Estimate | None = None
    baseline_name: str = ""
    references: dict[str, Number] = Field(
        default_factory=dict, description="Other values of the metric to compare with; they decide nothing."
    )
    difference: Difference | None = Field(None, description="Against the champion.")
    test_set_margin: Number = Field(
        None, description="The margin of non-inferiority that the test set can resolve, where judge.margin names none."
    )
    best: BestChampion | None = Field(None, description="Against the best champion so far, if that is another.")
    unweighted: Estimate | None = Field(
        None, description="The challenger's value if all rows count alike; None without data.weight."
    )
    over_baseline: Difference | None = None
    slices: list[Slice] = Field(default_factory=list)
    metrics: dict[str, dict[str, Number]] = Field(
        default_factory=dict, description="Every ready metric of the task: name -> model -> value."
    )
    outputs: list[OutputFigures] = Field(default_factory=list, description="Of each output, if there are several.")
    classes: list[ClassRecall] = Field(
        default_factory=list, description="Of one class of several: those with the lowest recall, the lowest first."
    )
    challenger_cost: ServingCost = Field(default_factory=ServingCost)
    champion_cost: ServingCost | None = None
    parity: Parity | None = None
    copies: Number = Field(0.0, description="Share of the test rows that equal a training or validation row.")
    single_predictors: dict[str, float] = Field(
        default_factory=dict, description="Columns that alone predict the target almost perfectly -> their score."
    )
    digests: dict[str, str] = Field(default_factory=dict, description="SHA-256 of each array of the evidence.")

    @property
    def sign(self) -> int:
        """1 when more of the metric is better, -1 when less is."""
        return 1 if self.direction == "maximize" else -1

    @property
    def margin(self) -> float:
        """The margin of superiority or non-inferiority that decided, in the metric's unit."""
        margin = self.rules.margin if self.rules.margin is not None else self.test_set_margin
        return margin or 0.0

    @property
    def is_best(self) -> bool:
        """True if the challenger is shown to be better than the best champion so far, or is the first model."""
        difference = self.best.difference if self.best else self.difference
        if difference is None:
            return True
        ends = [self.sign * end for end in (difference.low, difference.high) if end is not None]
        return min(ends, default=0.0) > 0

    @property
    def horizons(self) -> dict[str, Estimate]:
        """The goal's metric of the challenger at each of several horizons, of all its quantiles, by horizon."""
        return {output.horizon or output.name: output.goal for output in self.outputs if output.goal is not None}

    def promise(self, *, rows_alike: bool) -> Estimate:
        """Return the challenger's value that served rows are compared with, which have no weights.

        Args:
            rows_alike: The test rows count alike as well; else by their weights, which then say how many served rows
                each stands for.
        """
        return self.unweighted if rows_alike and self.unweighted is not None else self.challenger

    @property
    def num_dependent(self) -> int | None:
        """Number of the test examples if they depend on each other (series, times, groups); None if they do not."""
        return None if self.num_clusters is None else self.num_samples

    @property
    def promoted(self) -> bool:
        """True when every gate was passed."""
        return self.decision == "promote"

    @property
    def summary(self) -> str:
        """The verdict in one sentence."""
        return self.reasons[0]

    @property
    def failed(self) -> list[Gate]:
        """The gates that failed."""
        return [gate for gate in self.gates if not gate.passed]
