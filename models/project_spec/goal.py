"""The `goal` block: the metric that decides, its parameters, and the least acceptable value."""

from __future__ import annotations

import re
from typing import Literal

from pydantic import Field, model_validator

from models.project_spec.block import ClassName, Reference, SpecBlock


class ErrorCosts(SpecBlock):
    """The costs of wrong decisions between two classes, in any unit; right ones cost nothing."""

    false_positive: float = Field(gt=0, description="Of a negative row that is called positive.")
    false_negative: float = Field(gt=0, description="Of a positive row that is called negative.")


class Goal(SpecBlock):
    """The goal of the model: the metric that decides, and the least acceptable value."""

    metric: Reference | None = Field(
        None,
        description="A short name or a reference; default roc_auc, accuracy, mae, pinball, bits_per_char or ndcg by "
        "task. Of a ranking also with a cutoff: `ndcg@10`.",
    )
    quantile: float | None = Field(
        None, gt=0, lt=1, description="Of metric pinball: 0.9 predicts a value that 90 % of the true ones stay under."
    )
    costs: ErrorCosts | None = Field(None, description="The metric is the mean cost of the decisions of two classes.")
    positive: ClassName | None = Field(
        None,
        description="Of two classes the one that metric, costs and threshold are about; default: the later one, by "
        "name or number.",
    )
    direction: Literal["maximize", "minimize"] | None = Field(
        None, description="Default: the metric's own; needed for a metric of your own."
    )
    good_enough: float | None = Field(
        None, description="A model is promoted only if the metric is at least (or at most) this value."
    )

    @property
    def reference(self) -> str | None:
        """The metric with its quantile or costs, as `resolve_metric` reads it; `ndcg@10` is `ndcg_at_10`."""
        if self.costs is not None:
            return f"cost_{self.costs.false_positive:g}_{self.costs.false_negative:g}"
        if self.quantile is not None:
            return f"{self.metric}_{self.quantile:g}"
        # MLflow takes no @ in the name of a metric.
        return None if self.metric is None else re.sub(r"^(\w+)@(\d+)$", r"\1_at_\2", self.metric)

    @model_validator(mode="after")
    def _metric_has_its_parameters(self) -> Goal:
        if self.metric != "pinball" and self.quantile is not None:
            raise ValueError(f"quantile is of metric pinball, but metric is {self.metric}: say `metric: pinball`")
        if self.metric == "cost" and self.costs is None:
            raise ValueError("metric cost needs `costs` with false_positive and false_negative")
        if self.costs is not None and self.metric not in (None, "cost"):
            raise ValueError(f"costs are a metric of their own, but metric is {self.metric}: remove one of them")
        return self
