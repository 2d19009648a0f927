"""Checks of the spec's `data` block whose keys must go together."""

from __future__ import annotations

import itertools

from models.project_spec.block import MAX_OUTPUTS
from models.project_spec.blocks import Data, Features, Text

ORDERED = "say `split: {by: time, column: ...}`, or drop it"


def check_data(data: Data) -> None:
    """Refuse keys that contradict each other.

    Raises:
        ValueError: Says which keys, and the cure.
    """
    _check_kind(data)
    if data.newest and (data.split.by not in ("time", "position") or data.kind == "text"):
        raise ValueError(f"newest needs rows in order, but {data.kind} is split by {data.split.by}: {ORDERED}")
    if data.text is not None:
        _check_text(data, data.text)
    _check_targets(data)
    _check_fitted(data)
    if data.quantiles is not None:
        _check_quantiles(data, data.quantiles)
    if data.task == "ranking":
        _check_ranking(data)


def _check_kind(data: Data) -> None:
    if data.kind == "image" and data.image is None:
        raise ValueError("kind image needs `data.image` with height and width")
    if data.kind == "series" and data.window is None:
        raise ValueError("kind series needs `data.window` with length")
    if data.kind == "series" and data.split.by != "time":
        raise ValueError("kind series needs `data.split.by: time` with its column: shuffled series leak")
    if data.kind == "series" and data.task not in (None, "regression", "quantile"):
        raise ValueError(
            f"kind series predicts a number, got task {data.task}: remove `task`, or let the source make each "
            "window a row and say `kind: table`"
        )
    known = data.window.known_future if data.window else []
    for name in known:
        if name in (*data.targets, data.split.column, data.window and data.window.series_key) or known.count(name) > 1:
            raise ValueError(
                f"window.known_future: got {name!r}, expected different columns of numbers, none of which is the "
                "target, the times or the series: remove it"
            )
    if data.weight is not None and data.kind not in ("table", "image"):
        raise ValueError(f"weight is for tables and images, but kind is {data.kind}: remove it")
    if data.kind != "text" and data.task == "language":
        raise ValueError("task language is for `kind: text`")


def _check_text(data: Data, text: Text) -> None:
    if data.kind != "text":
        raise ValueError("`data.text` is for text: say `kind: text`, or remove it")
    if data.target != text.column:
        raise ValueError(f"kind text has no target ({data.target!r}): every character is one; remove `target`")
    if data.split.by != "position":
        raise ValueError(f"kind text is split by position, got {data.split.by}: shuffled text leaks; remove `by`")
    if data.task not in (None, "language") or data.features != Features():
        raise ValueError("kind text has no `task` and no `features`: remove them")


def _check_targets(data: Data) -> None:
    """Check the number of targets against task, kind and split."""
    if data.split.column in data.targets and data.split.by not in ("stratified", "position") and data.task != "ranking":
        raise ValueError(
            f"split.column: got {data.split.column}, which is the target: a split by its values holds what is to be "
            "predicted apart; name another column, or say `by: stratified`"
        )
    if isinstance(data.target, str):
        if data.task == "multilabel":
            raise ValueError(
                f"task multilabel needs a list of 0/1 columns, got target {data.target}: write `target: [first, "
                "second]`; for one label say `task: binary`"
            )
        if data.task == "quantile" and data.quantiles is None:
            raise ValueError("task quantile needs the quantiles: write `quantiles: [0.1, 0.5, 0.9]`")
        return
    if data.kind not in ("table", "image"):
        raise ValueError(f"kind {data.kind} predicts one column, got {len(data.target)} targets: name one")
    if data.task not in (None, "regression", "multilabel"):
        raise ValueError(
            f"several targets are a regression or a multilabel task, got task {data.task}: remove `task`, or name one "
            "target"
        )
    if data.split.by == "stratified":
        raise ValueError("split by stratified needs one target: say `by: random`, or `by: hash` with a key column")


def _check_fitted(data: Data) -> None:
    features = data.features
    if features.transform is not None and features.fit is None:
        raise ValueError(
            f"features.transform reads what features.fit returns: name a function in `fit`, or say "
            f"{features.transform} in `make`"
        )
    if features.fit is not None and data.kind == "series":
        raise ValueError(
            "features.fit is of tables, but kind is series, whose windows hold no categories to look up: make the "
            "columns in the source, from past rows alone, or let it make each window a row and say `kind: table`"
        )
    if features.fit is not None and data.kind != "table":
        raise ValueError(f"features.fit is of tables, but kind is {data.kind}: remove it")


def _check_quantiles(data: Data, quantiles: list[float]) -> None:
    if data.kind == "text":
        raise ValueError("quantiles are of numbers, but kind text predicts characters: remove `quantiles`")
    if not isinstance(data.target, str):
        raise ValueError(f"quantiles are of one target, got {len(data.target)}: name one, or remove `quantiles`")
    if data.task not in (None, "regression", "quantile"):
        raise ValueError(f"quantiles are of a regression, got task {data.task}: remove `quantiles` or `task`")
    if any(low >= high for low, high in itertools.pairwise(quantiles)):
        raise ValueError(f"quantiles: got {quantiles}, expected ascending ones, such as [0.1, 0.5, 0.9]")
    num = len(data.window.horizons) * len(quantiles) if data.window else 0
    if num > MAX_OUTPUTS:
        raise ValueError(
            f"quantiles: got {num:,} outputs, {len(quantiles)} for each horizon of the window, expected {MAX_OUTPUTS} "
            "at most: name fewer quantiles or fewer horizons"
        )


def _check_ranking(data: Data) -> None:
    """Check that the rows have groups, which are never divided and never an input."""
    if data.kind != "table":
        raise ValueError(f"task ranking is for tables, got kind {data.kind}: say `kind: table`, or remove `task`")
    group = data.split.column
    if data.split.by != "group":
        raise ValueError(
            f"task ranking orders the rows of a group, got a split by {data.split.by}: say `split: {{by: group, "
            "column: query}` with the column that names a row's group"
        )
    if group in data.targets:
        raise ValueError(f"task ranking: {group!r} is both the target and the group: name another `split.column`")
    if group in (*(data.features.columns or ()), *data.features.kinds):
        raise ValueError(
            f"features: {group!r} names the groups of the ranking (split.column), which new groups do not share: take "
            "it out"
        )
    if data.weight is not None:
        raise ValueError(f"weight: a ranking counts every group alike, got {data.weight}: remove it")
    if data.target_scale == "log":
        raise ValueError("target_scale: log is for numbers, but the target of a ranking is a grade: remove it")
    if data.unlabelled:
        raise ValueError("unlabelled: a row without a grade has no place in its group's order: remove it")
