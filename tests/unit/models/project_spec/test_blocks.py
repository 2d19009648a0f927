"""The spec's rules: each constraint that a block declares refuses what it says it refuses."""

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from models.metrics.bootstrap import p_value
from models.project_spec.blocks import NAME_PATTERN, Judge, Spec

DATA = {"source": "data.csv", "target": "y"}
SERIES = {**DATA, "kind": "series", "window": {"length": 3}, "split": {"by": "time", "column": "t"}}


def read(**blocks: Any) -> Spec:
    return Spec.model_validate({"name": "tiny", "data": DATA, **blocks})


def test_source_and_target_suffice() -> None:
    spec = read()
    assert (spec.search.trials, spec.train.epochs, spec.model.net, spec.judge.mode) == (
        10,
        10,
        "auto",
        "noninferiority",
    )


def test_of_a_text_the_source_suffices() -> None:
    data = read(data={"source": "book.txt", "kind": "text", "split": {"test": 0.1}}).data
    assert data.text is not None
    assert (data.target, data.text.length, data.split.by, data.split.test) == ("text", 128, "position", 0.1)
    again = read(data={"source": "book.txt", "kind": "text", "text": {"column": "line"}})
    assert again.data.target == "line"
    assert Spec.model_validate_json(again.model_dump_json()) == again


def test_a_spec_cannot_be_changed_after_reading() -> None:
    with pytest.raises(ValidationError):
        read().train.lr = 1.0


def test_a_spec_survives_json() -> None:
    spec = read(train={"lr": 0.5}, search={"space": {"train.lr": {"low": 1, "high": 3}}})
    assert Spec.model_validate_json(spec.model_dump_json()) == spec


REFUSED: list[tuple[dict[str, Any], str]] = [
    ({"name": "Flights"}, "pattern"),
    ({"name": "9lives"}, "pattern"),
    ({"name": "a" * 64}, "pattern"),
    ({"data": {"source": "", "target": "y"}}, "at least 1"),
    ({"data": {"source": "a", "target": ""}}, "at least 1"),
    ({"data": {**DATA, "kind": "video"}}, "'table', 'image', 'series' or 'text'"),
    ({"data": {"source": "a.txt", "kind": "text", "target": "y"}}, "text has no target"),
    ({"data": {"source": "a.txt", "kind": "text", "split": {"by": "random"}}}, "shuffled text leaks"),
    ({"data": {"source": "a.txt", "kind": "text", "task": "binary"}}, "no `task`"),
    ({"data": {"source": "a.txt", "kind": "text", "features": {"drop": ["a"]}}}, "no `features`"),
    ({"data": {"source": "a.txt", "kind": "text", "text": {"length": 1}}}, "greater than or equal to 2"),
    ({"data": {**DATA, "text": {"length": 9}}}, "say `kind: text`"),
    ({"data": {**DATA, "task": "language"}}, "for `kind: text`"),
    ({"data": {**DATA, "kind": "image"}}, "data.image"),
    ({"data": {**DATA, "kind": "series"}}, "data.window"),
    ({"data": {**DATA, "kind": "series", "window": {"length": 3}}}, "by: time"),
    ({"data": {**SERIES, "task": "binary"}}, "series predicts a number, got task binary: remove `task`"),
    ({"data": {**SERIES, "task": "multiclass"}}, "series predicts a number"),
    ({"data": {**DATA, "split": {"by": "time"}}}, "needs `column`"),
    ({"data": {**DATA, "split": {"by": "group"}}}, "needs `column`"),
    ({"data": {**DATA, "split": {"by": "hash"}}}, "needs `column`"),
    ({"data": {**DATA, "split": {"by": "group", "column": DATA["target"]}}}, "which is the target"),
    ({"data": {**DATA, "split": {"by": "time", "column": DATA["target"]}}}, "which is the target"),
    ({"judge": {"slices": ["a", "b", "a"]}}, "got 'a' twice, expected each column once"),
    ({"data": {**DATA, "split": {"validation": 0.5, "test": 0.4}}}, "leave at least 0.1"),
    ({"data": {**DATA, "split": {"validation": 0.0}}}, "greater than 0"),
    ({"data": {**DATA, "split": {"test": 1.0}}}, "less than 1"),
    ({"data": {**DATA, "image": {"height": 0, "width": 1}}}, "greater than 0"),
    ({"data": {**DATA, "window": {"length": 0}}}, "greater than 0"),
    ({"data": {**SERIES, "window": {"length": 3, "stride": 10**30}}}, "less than or equal to 2147483647"),
    ({"data": {**DATA, "features": {"max_categories": 1}}}, "greater than or equal to 2"),
    ({"data": {**DATA, "features": {"transform": "./f.py:f"}}}, "features.transform reads what features.fit returns"),
    ({"data": {**DATA, "features": {"fit": "mean"}}}, "fit names your own function, such as ./own.py:fit, got 'mean'"),
    ({"data": {**SERIES, "features": {"fit": "./f.py:f"}}}, "features.fit is of tables, but kind is series"),
    ({"data": {**DATA, "expectations": [{"arguments": {}}]}}, "required"),
    ({"train": {"lr": 0.0}}, "greater than 0"),
    ({"train": {"lr": "fast"}}, "valid number"),
    ({"train": {"epochs": 1.5}}, "valid integer"),
    ({"train": {"epochs": "3"}}, "valid integer"),
    ({"train": {"epochs": True}}, "valid integer"),
    ({"train": {"momentum": 1.0}}, "less than 1"),
    ({"train": {"label_smoothing": 1.0}}, "less than 1"),
    ({"train": {"augment": {"rotate_degrees": 181.0}}}, "less than or equal to 180"),
    ({"train": {"augment": {"function": "flip"}}}, "function names your own function"),
    ({"train": {"augment": {"flip": True}}}, "augment.flip is for data of kind image, but data.kind is table: remove"),
    ({"data": SERIES, "train": {"augment": {"swap": 0.1}}}, "augment.swap is for data of kind table, but .* series"),
    ({"data": SERIES, "train": {"augment": {"mixup_alpha": 0.2}}}, "augment.mixup_alpha is for data of kind image"),
    (
        {"search": {"space": {"train.augment": {"choices": [{}, {"flip": True}]}}}},
        "search.space.train.augment.flip is for data of kind image, but data.kind is table: remove",
    ),
    (
        {"search": {"space": {"train.augment": {"choices": [{"noise": -0.1}]}}}},
        "search.space.train.augment: got {'noise': -0.1}, expected `choices` of blocks.*: noise: .* or equal to 0",
    ),
    (
        {"search": {"space": {"train.augment": {"low": 0.0, "high": 1.0}}}},
        "search.space.train.augment: got 'a range', expected `choices` of blocks, such as {noise: 0.1}: Input should",
    ),
    (
        {"data": {"source": "a.txt", "kind": "text"}, "train": {"augment": {"function": "./a.py:f"}}},
        "augment.function is for data of kind image or table or series, but data.kind is text: remove it",
    ),
    ({"train": {"precision": "fp8"}}, "'bf16' or 'fp16'"),
    ({"train": {"compile": "always"}}, "'auto'"),
    ({"train": {"nccl": {"IB_DISABLE": 1}}}, "got the name 'IB_DISABLE', expected a variable of NCCL"),
    ({"train": {"nccl": {"NCCL_DEBUG": "a\0b"}}}, "String should match pattern"),
    ({"judge": {"confidence": 0.5}}, "greater than 0.5"),
    ({"judge": {"resamples": 99}}, "greater than or equal to 100"),
    ({"judge": {"confidence": 0.999}}, "`resamples: 1999` or more"),
    ({"judge": {"confidence": 0.99, "resamples": 198}}, "`resamples: 199` or more"),
    ({"judge": {"margin": -0.1}}, "greater than or equal to 0"),
    ({"judge": {"mode": "better"}}, "'superiority' or 'noninferiority'"),
    ({"judge": {"unit": "year"}}, "'hour', 'day', 'week' or 'month'"),
    ({"judge": {"unit": "day"}}, "judge.unit is for tables split by time, but table is split by random"),
    ({"data": SERIES, "judge": {"unit": "day"}}, "but series is split by time: drop it"),
    ({"data": SERIES, "judge": {"test": "mcnemar"}}, "counts every row as independent"),
    ({"data": {**DATA, "split": {"by": "group", "column": "g"}}, "judge": {"test": "mcnemar"}}, "say `bootstrap`"),
    ({"serve": {"max_latency_ms": 0.0}}, "greater than 0"),
    ({"monitor": {"window": 10}}, "greater than or equal to 100"),
    ({"retrain": {"on": ["rain"]}}, "'new_data'"),
    ({"goal": {"direction": "up"}}, "'maximize' or 'minimize'"),
    ({"goals": {}}, "Extra inputs"),
]


@pytest.mark.parametrize(("blocks", "words"), REFUSED, ids=[str(blocks)[:60] for blocks, _ in REFUSED])
def test_refused(blocks: dict[str, Any], words: str) -> None:
    with pytest.raises(ValidationError, match=words):
        read(**blocks)


@pytest.mark.parametrize("confidence", [0.985, 0.99, 0.999, 0.9999])
def test_the_resamples_named_are_the_fewest_with_which_a_model_can_pass(confidence: float) -> None:
    with pytest.raises(ValidationError) as caught:
        read(judge={"confidence": confidence, "resamples": 100})
    named = int(str(caught.value).split("`resamples: ")[1].split("`")[0])
    best, fewer = (p_value(np.ones(count), 0.0, at_threshold=False) for count in (named, named - 1))
    assert best is not None
    assert fewer is not None
    assert best < 1 - confidence <= fewer
    assert read(judge={"confidence": confidence, "resamples": named}).judge.resamples == named


def test_a_verdict_of_rules_that_are_refused_now_stays_readable() -> None:
    assert Judge(confidence=0.999).resamples == 1000


@given(st.from_regex(NAME_PATTERN, fullmatch=True))
def test_every_name_of_the_pattern_is_taken(name: str) -> None:
    assert read(name=name).name == name


@pytest.mark.parametrize(
    ("blocks", "said"),
    [
        ({"retrain": {"rows": 1000}}, "retrain.rows needs rows in order"),
        (
            {
                "train": {"rows": 9},
                "data": {"source": "a", "target": "y", "kind": "text", "text": {"column": "y", "length": 8}},
            },
            "which those of data.kind text do not: drop it",
        ),
        (
            {
                "search": {"trials": 2, "space": {"train.rows": {"choices": [9, 99]}}},
                "data": {"source": "a", "target": "y", "kind": "text", "text": {"column": "y", "length": 8}},
            },
            "which those of data.kind text do not: drop it",
        ),
        ({"data": {**DATA, "newest": 1000}}, "newest needs rows in order"),
        ({"retrain": {"quiet": {"begin": 6, "end": 6}}}, "that is no hour"),
    ],
)
def test_what_retraining_cannot_do_is_refused(blocks: dict[str, Any], said: str) -> None:
    with pytest.raises(ValidationError, match=said):
        read(**blocks)
