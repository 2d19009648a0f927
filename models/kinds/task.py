"""The tasks: what a model learns to predict, a row of facts each.

A row holds what two rooms or more ask. What one room alone does for a task stands in a table of that room, a `PerTask`
or, where tasks with one link do the same, a `PerLink`: the type checker refuses a table in which one is missing. The
rows are in the keys of nine steps, so a change here runs these steps of every project again, and words of one room
stand in that room.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Generic, Literal, TypedDict, TypeVar, get_args

Task = Literal[
    "binary",
    "multiclass",
    "multilabel",
    "regression",
    "quantile",
    "language",
    "ranking",
]
Link = Literal["logistic", "softmax", "identity", "text"]
"""How outputs of a net become predictions: probabilities of one class each, of classes that exclude each other, values
in the target's unit, or the bits of the characters of a text."""
Loss = Literal["bce", "cross_entropy", "pinball", "goal"]
"""goal: the loss that the goal's best prediction minimises."""
TargetType = Literal["float32", "int64"]
Use = Literal["ensemble", "backtest", "suggest_labels", "monitoring"]

X = TypeVar("X")


class PerTask(TypedDict, Generic[X]):
    """A table with a value for every task."""

    binary: X
    multiclass: X
    multilabel: X
    regression: X
    quantile: X
    language: X
    ranking: X


class PerLink(TypedDict, Generic[X]):
    """A table with a value for every link."""

    logistic: X
    softmax: X
    identity: X
    text: X


@dataclass(frozen=True)
class TaskRow:
    """The facts about a task."""

    name: Task
    link: Link
    metric: str
    """The goal's metric, unless the spec names another one."""
    loss: Loss
    target_type: TargetType
    """The type of the targets that a loss takes: numbers, or indices of classes or characters."""
    is_number: bool = False
    """Target and prediction are numbers in the target's unit: regression, quantile and ranking."""
    is_grouped: bool = False
    """A value of a metric needs whole groups of rows: ranking."""
    has_classes: bool = False
    """The target is one of several named classes: binary and multiclass."""
    has_positive: bool = False
    """One of two classes is positive, and a prediction is its probability: binary."""
    refusals: Mapping[Use, str] = field(default_factory=dict)
    """What cannot be done with such a model, and why, with the cure."""


TASKS: PerTask[TaskRow] = {
    "binary": TaskRow(
        name="binary",
        link="logistic",
        metric="roc_auc",
        loss="bce",
        target_type="float32",
        has_classes=True,
        has_positive=True,
    ),
    "multiclass": TaskRow(
        name="multiclass",
        link="softmax",
        metric="accuracy",
        loss="cross_entropy",
        target_type="int64",
        has_classes=True,
    ),
    "multilabel": TaskRow(
        name="multilabel",
        link="logistic",
        metric="roc_auc",
        loss="bce",
        target_type="float32",
    ),
    "regression": TaskRow(
        name="regression",
        link="identity",
        metric="mae",
        loss="goal",
        target_type="float32",
        is_number=True,
    ),
    "quantile": TaskRow(
        name="quantile",
        link="identity",
        metric="pinball",
        loss="pinball",
        target_type="float32",
        is_number=True,
    ),
    "language": TaskRow(
        name="language",
        link="text",
        metric="bits_per_char",
        loss="cross_entropy",
        target_type="int64",
        refusals={
            "ensemble": "an ensemble has one output for each example, and a model of text has one for each character: "
            "give the settings of one net",
        },
    ),
    "ranking": TaskRow(
        name="ranking",
        link="identity",
        metric="ndcg",
        loss="goal",
        target_type="float32",
        is_number=True,
        is_grouped=True,
        refusals={
            "ensemble": "the scores of two rankings have no common unit: give the settings of one net",
            "backtest": "a ranking is split by group, and its rows have no order in time: a new loop judges the "
            "champion on new groups",
            "suggest_labels": "rows to label are suggested one by one, and this model ranks the rows of a group: label "
            "whole groups of your choice, at the source",
            "monitoring": "ranks, and the log does not say which rows were one group: it is monitored by drift alone, "
            "and labels show no decay; a new loop judges the champion on new groups",
        },
    ),
}
TASK_NAMES: tuple[Task, ...] = get_args(Task)


def refusal(task: Task | None, use: Use) -> str:
    """Return why a use is refused for a task; empty if it is not, and for a task that no spec has named."""
    return "" if task is None else TASKS[task].refusals.get(use, "")
