"""What is known to fail from spec, code and header is refused before anything runs."""

import os
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from models.errors import LooplineError, UsageError
from models.project_spec.blocks import Spec
from models.training import spec_check
from models.training.spec_check import check_spec, read_checked

NETS = """
class Pictures:
    def __init__(self, channels, num_outputs, width=8): ...

class Table:
    def __init__(self, sizes, num_numeric, *, layers, width=8): ...

def any_arguments(sizes, **arguments): ...

def two(images, labels): ...
"""
HEADER = "age,town,left,few,none\n"
PICTURES = {"kind": "image", "image": {"height": 2, "width": 2}}
ROWS = HEADER + "".join(f"{age + 0.5},a,{'yes' if age % 2 else 'no'},{age % 3},\n" for age in range(40))


@pytest.fixture
def base(tmp_path: Path) -> Path:
    (tmp_path / "data.csv").write_text(ROWS)
    (tmp_path / "empty.csv").write_text(HEADER)
    pq.write_table(
        pa.table({"age": [0.5, 1.5, 2.5], "town": ["a"] * 3, "left": ["yes"] * 3}), tmp_path / "data.parquet"
    )
    (tmp_path / "semi.csv").write_text("age;town;left\n1;a;yes\n")
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "loop.csv").symlink_to("loop.csv")
    (tmp_path / "own.py").write_text("def make(frame):\n    raise SystemExit('never run')\n")
    (tmp_path / "net.py").write_text(NETS)
    return tmp_path


def spec_of(blocks: dict[str, Any]) -> Spec:
    data = {"source": "data.csv", "target": "left", **blocks.get("data", {})}
    return Spec.model_validate({"name": "t", **blocks, "data": data})


def series(**window: Any) -> dict[str, Any]:
    split = {"by": "time", "column": "age"}
    return {"data": {"kind": "series", "target": "few", "split": split, "window": {"length": 3, **window}}}


@pytest.mark.parametrize(
    ("blocks", "message"),
    [
        ({"data": {"features": {"kinds": {"age": "picture"}}}}, "'numeric', 'categorical'"),
        ({"data": {"features": {"kinds": {"age": "numerical"}}}}, "kinds.age: got 'numerical'.*did you mean 'numeric'"),
        ({"data": {"features": {"kinds": {"age": "fitted"}}}}, "kinds.age: got 'fitted', expected one of 'numeric'"),
        ({"model": {"net": "mpl"}}, "model.net: .*'mpl'.*mlp"),
        ({"train": {"augment": {"function": "./net.py:two"}}}, "two takes images, labels, expected one argument"),
        (
            {"train": {"augment": {"function": "./net.py:two"}}, "data": PICTURES},
            "train.augment.function: ./net.py:two takes images, labels, expected one argument",
        ),
        (
            {"train": {"augment": {"function": "./net.py:tow"}}, "data": PICTURES},
            "train.augment.function: ./net.py:tow: ./net.py has no 'tow': did you mean 'two'",
        ),
        ({"model": {"net": "cnn"}}, "model.net: got cnn, which takes no data of kind table"),
        (
            {"model": {"arguments": {"hiden": 8}}},
            r"model.arguments.hiden: trees, linear, mlp have no argument 'hiden': did you mean 'hidden'",
        ),
        (
            {"model": {"net": "mlp", "arguments": {"hidden": -1}}},
            "model.arguments.hidden: got -1, expected greater than",
        ),
        ({"model": {"net": "mlp", "arguments": {"layers": 0}}}, "model.arguments.layers: got 0, expected greater than"),
        (
            {"model": {"net": "mlp", "arguments": {"dropout": 2}}},
            "model.arguments.dropout: got 2, expected less than 1",
        ),
        ({"model": {"net": "trees", "arguments": {"num_leaves": 1}}}, "model.arguments.num_leaves: got 1, expected gr"),
        (
            {"model": {"net": "mlp"}, "search": {"space": {"model.hidden": {"choices": [8, 0]}}}},
            "search.space.model.hidden: got 0, expected greater than",
        ),
        (
            {"model": {"net": "transformer", "arguments": {"width": 30}}},
            "model.arguments.width: got 30, expected a multiple of 4 for the heads of transformer",
        ),
        (
            {"model": {"net": "transformer"}, "search": {"space": {"model.heads": {"choices": [4, 5]}}}},
            "model.arguments.width: got 64, expected a multiple of 5",
        ),
        (
            {
                "model": {"net": "transformer"},
                "search": {"space": {"model.width": {"low": 32, "high": 64, "integer": True}}},
            },
            "search.space.model.width: a range in steps of 1 has widths .* say `step: 4`",
        ),
        ({"data": {"expectations": [{"expect": "nope"}]}}, "data.expectations.0.expect: got 'nope'"),
        ({"model": {"arguments": {"hidden": "wide"}}}, "model.arguments.hidden: got 'wide', expected a valid integer"),
        ({"model": {"arguments": {"norm": "bach"}}}, "model.arguments.norm: got 'bach', expected 'batch', 'layer' or"),
        ({"model": {"net": "trees", "arguments": {"leaves": 3}}}, "LightGBM has no parameter 'leaves': .*num_leaves"),
        (
            {"goal": {"metric": "roc_auc"}, "model": {"net": "trees", "arguments": {"objective": "regression"}}},
            "model.arguments.objective: got regression with goal.metric roc_auc, expected mae, rmse or r2",
        ),
        ({"model": {"net": "trees", "arguments": {"objective": "huber"}}}, "objective: got 'huber', expected 'auto'"),
        ({"goal": {"metric": "acuracy"}}, r"goal.metric: got 'acuracy', did you mean 'accuracy'"),
        ({"goal": {"metric": "rmse"}, "data": {"task": "binary"}}, "goal.metric: got 'rmse', which is for regression"),
        ({"search": {"space": {"train.optimiser": {"choices": ["adam", "foo"]}}}}, "train.optimiser: got 'foo'"),
        ({"search": {"space": {"train.lr": {"low": -1.0, "high": 1.0}}}}, "train.lr: got -1.0"),
        ({"search": {"space": {"train.epoch": {"choices": [1]}}}}, "did you mean train.epochs"),
        (
            {"search": {"space": {"model.hiden": {"choices": [8]}}}},
            "search.space.model.hiden: trees, linear, mlp have",
        ),
        ({"search": {"space": {"train.precision": {"choices": ["fp8"]}}}}, "train.precision: got 'fp8'"),
        ({"search": {"space": {"train.refit": {"choices": [True, False]}}}}, "train.refit: has no effect, .*: set"),
        (
            {"search": {"epochs": 3, "space": {"train.epochs": {"choices": [2, 9]}}}},
            "train.epochs: has no effect, for each trial has the 3 epochs of search.epochs",
        ),
        ({"search": {"space": {"model.hidden": {"low": 0.5, "high": 8.0}}}}, "search.space.model.hidden: got 0.5,"),
        (
            {"data": {"source": "~nobody-here/x.csv"}},
            "data.source: got '~nobody-here/x.csv', which cannot be checked",
        ),
        ({"data": {"source": "loop.csv"}}, "data.source: got 'loop.csv', which cannot be checked"),
        ({"data": {"source": "pipe"}}, "pipe is neither a file nor a folder"),
        ({"data": {"source": "/dev/zero"}}, "data.source: /dev/zero is neither a file nor a folder"),
        ({"data": {"source": "ftp://host/x.csv"}}, "data.source: got the scheme ftp:, expected an address"),
        (
            {"model": {"net": "tabm"}, "train": {"ranks": 2, "parallel": "tp"}},
            "train.parallel: got tp, but the ranks cannot share tabm: .* or take mlp, transformer, decoder",
        ),
        (
            {"train": {"start": {"weights": "nosuch.safetensors"}}},
            "train.start.weights: got 'nosuch.safetensors', and there is no /.*: expected one of champion, challenger",
        ),
        ({"train": {"start": {"weights": "~nobody-here/w"}}}, "train.start.weights: got '~nobody-here/w', and there"),
        ({"train": {"ranks": 1_000_000}}, "train.ranks: got 1000000, expected at most .* on this machine"),
        ({"goal": {"metric": "rmse"}}, "goal.metric: got 'rmse', which is for regression, expected one for binary: "),
        (
            {"goal": {"metric": "f1"}, "data": {"target": "age"}},
            "goal.metric: got 'f1', .*, expected one for regression: mae",
        ),
        ({"goal": {"metric": "f1"}, "data": {"source": "data.parquet", "target": "age"}}, "for regression: mae"),
        ({"data": {"target": "lfet"}}, "data.target: no column 'lfet' .* did you mean 'left'"),
        ({"data": {"source": "data.parquet", "target": "lfet"}}, "data.target: no column 'lfet'"),
        ({"data": {"source": "semi.csv", "target": "lfet"}}, "which has age, town, left: did you mean 'left'"),
        ({"data": {"features": {"drop": ["agee"]}}}, "data.features.drop: no column 'agee'"),
        ({"data": {"split": {"by": "group", "column": "twon"}}}, "data.split.column: no column 'twon'"),
        ({"data": {"id": "key"}}, "data.id: no column 'key'"),
        ({"judge": {"slices": ["twon"]}}, "judge.slices: no column 'twon'"),
        ({"data": {"source": "./own.py:lod"}}, "data.source: .*has no 'lod'"),
        ({"model": {"net": "./net.py:Pictures"}}, "needs 'channels', a size of kind image: .* kind table: sizes, "),
        ({"model": {"net": "./net.py:Table"}}, "needs 'layers': give it in model.arguments"),
        (
            {"model": {"net": "./net.py:Table", "arguments": {"layers": 1, "widht": 2}}},
            "model.arguments.widht: .* did you mean 'width'",
        ),
        (
            {**series(), "model": {"net": "linear"}, "train": {"loss": "./own.py:make"}},
            "train.loss: got ./own.py:make, but linear takes no own loss of series",
        ),
        (
            {**series(reference="none"), "model": {"net": "linear"}},
            "model.net: linear continues the window, but data.window.reference is none",
        ),
        (series(known_future=["town"]), "known_future: column 'town' is string, expected numbers or booleans"),
        ({**series(), "data": {**series()["data"], "target": "town"}}, "data.target: column 'town' is string"),
        (
            {"data": {"target": "age"}, "model": {"net": "trees", "arguments": {"monotone_constraints": {"few": 1}}}},
            "monotone_constraints: LightGBM has none for the loss of goal.metric mae: take rmse, r2, or for mae",
        ),
        (
            {"model": {"net": "trees", "arguments": {"monotone_constraints": {"aeg": 1}}}},
            "a constraint names 'aeg', which is no column: did you mean 'age'",
        ),
    ],
)
def test_what_is_known_to_fail_is_refused(base: Path, blocks: dict[str, Any], message: str) -> None:
    with pytest.raises(LooplineError, match=message):
        check_spec(spec_of(blocks), base)


MEMBERS = [{"weight": 0.5, "model.net": "trees"}, {"weight": 0.5, "model.net": "linear"}]


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"train.lrr": 1}, r"search\.settings: train\.lrr"),
        ({"model.net": "ensemble"}, r"search\.settings\.model\.members: got None, expected a list of at least two"),
        ({"model.net": "ensemble", "model.members": [MEMBERS[0]]}, "at least two members"),
        ({"model.net": "ensemble", "model.members": [MEMBERS[0], "linear"]}, "at least two members"),
        (
            {"model.net": "ensemble", "model.members": [MEMBERS[0], {**MEMBERS[1], "model.net": "auto"}]},
            "got the nets trees, auto, expected ready nets",
        ),
        ({"model.net": "ensemble", "model.members": [MEMBERS[0], {"weight": 0.5}]}, "the nets trees, None"),
        ({"model.net": "ensemble", "model.members": [MEMBERS[0], {**MEMBERS[1], "weight": 0.6}]}, "whose sum is 1"),
        ({"model.net": "ensemble", "model.members": [MEMBERS[0], {**MEMBERS[1], "weight": "x"}]}, r"weights 0\.5, x"),
        ({"model.net": "ensemble", "model.members": [MEMBERS[0], {**MEMBERS[1], "model.net": "cnn"}]}, "of kind table"),
        (
            {"model.net": "ensemble", "model.members": [MEMBERS[0], {**MEMBERS[1], "train.lr": -1}]},
            r"train\.lr: got -1",
        ),
        (
            {"model.net": "ensemble", "model.members": [MEMBERS[0], {**MEMBERS[1], "model.net": "./net.py:Table"}]},
            "expected ready nets",
        ),
        (
            {"model.net": "ensemble", "model.members": [MEMBERS[0], {**MEMBERS[1], "modle.l2": 1}]},
            r"members: got 'modle\.l2', expected train\.<key> or model\.<argument>",
        ),
        (
            {"model.net": "ensemble", "model.members": [MEMBERS[0], {**MEMBERS[1], "model.depth": 1}]},
            r"search\.settings\.model\.members\.model\.depth: linear has no argument 'depth'",
        ),
        ({"model.members": MEMBERS}, r"search\.settings\.model\.members: LightGBM has no parameter 'members'"),
        ({"model.net": ["trees"]}, r"search\.settings\.model\.net: got \['trees'\], expected one of"),
        ({"model.net": "treees"}, r"search\.settings\.model\.net: got 'treees', expected one of"),
        ({"model.net": "cnn"}, "of kind table"),
        ({"model.net": "mlp", "model.depth": 1}, r"search\.settings\.model\.depth: mlp has no argument 'depth'"),
        ({"model.net": "trees", "model.rounds": "x"}, r"search\.settings\.model\.rounds: got 'x', expected a valid"),
        ({"model.hidden": "x"}, r"search\.settings\.model\.hidden: got 'x', expected a valid integer, as mlp"),
    ],
)
def test_settings_of_an_earlier_search_are_read_with_the_spec(
    base: Path, settings: dict[str, Any], message: str
) -> None:
    whole = {"model.net": "ensemble", "model.members": MEMBERS}
    check_spec(spec_of({"search": {"trials": 0, "settings": whole}}), base)
    with pytest.raises(LooplineError, match=message):
        check_spec(spec_of({"search": {"trials": 0, "settings": settings}}), base)


def test_bags_of_an_earlier_search_are_of_rows_without_an_order(base: Path) -> None:
    def with_folds(folds: object, **blocks: Any) -> dict[str, Any]:
        members = [{**MEMBERS[0], "weight": 1.0}]
        settings = {"model.net": "ensemble", "model.members": members, "model.folds": folds}
        return {"search": {"trials": 0, "settings": settings}, **blocks}

    check_spec(spec_of(with_folds(5)), base)
    for folds in (1, "5"):
        with pytest.raises(LooplineError, match=r"search\.settings\.model\.folds: got .*, expected a whole number"):
            check_spec(spec_of(with_folds(folds)), base)
    by_time = {"data": {"split": {"by": "time", "column": "when"}}}
    with pytest.raises(LooplineError, match=r"without an order, and data\.split\.by is time"):
        check_spec(spec_of(with_folds(5, **by_time)), base)


def test_an_ensemble_is_of_no_ranking_and_no_net_of_a_spec(base: Path) -> None:
    search = {"trials": 0, "settings": {"model.net": "ensemble", "model.members": MEMBERS}}
    ranking = {"data": {"task": "ranking", "split": {"by": "group", "column": "city"}}, "search": search}
    with pytest.raises(LooplineError, match="two rankings have no common unit"):
        check_spec(spec_of(ranking), base)
    for arguments in ({}, {"members": 3}, {"members": MEMBERS}):
        with pytest.raises(LooplineError, match="ensemble is what a search joins"):
            check_spec(spec_of({"model": {"net": "ensemble", "arguments": arguments}}), base)


@pytest.mark.parametrize(
    "blocks",
    [
        {},
        {"goal": {"metric": "rmse"}, "data": {"target": "few"}},  # its first values may be classes or not
        {"goal": {"metric": "f1"}, "data": {"target": "few"}},
        {"goal": {"metric": "f1"}, "data": {"target": "none"}},
        {"goal": {"metric": "f1"}, "data": {"source": "empty.csv"}},
        {"data": {"source": "nosuch.csv"}},  # ingest says so
        {"train": {"start": {"weights": "champion"}}},
        {"train": {"start": {"weights": "3"}}},
        {"data": {"source": "pypi:palmerpenguins==0.1.4!palmerpenguins/data/penguins.csv"}},
        {"model": {"net": "./net.py:Table", "arguments": {"layers": 2, "width": 4}}},
        {"model": {"net": "./net.py:any_arguments", "arguments": {"whatever": 2}}},
        {"model": {"net": "trees", "arguments": {"monotone_constraints": {"age": 1}, "path_smooth": 1.5}}},
        {
            "goal": {"metric": "mae"},
            "data": {"target": "few"},
            "model": {"arguments": {"monotone_constraints": {"age": 1}, "objective": "regression"}},
        },
        {"data": {"target": "made", "features": {"make": "./own.py:make"}}},
        {"model": {"net": "trees"}},
        {"model": {"net": "trees", "arguments": {"num_leaves": 3, "lambda_l2": 1}}},
        {"model": {"net": "trees"}, "search": {"space": {"model.num_leaves": {"low": 4, "high": 9, "integer": True}}}},
        {"model": {"arguments": {"dropout": 0, "norm": "layer"}}},
        {
            "search": {
                "space": {"train.batch": {"low": 16, "high": 64, "integer": True}, "model.hidden": {"choices": [8]}}
            }
        },
        series(known_future=["none"]),
        {"train": {"nodes": 2}},
        {"train": {"nodes": "1:4"}},
    ],
)
def test_what_may_be_right_is_let_through(base: Path, blocks: dict[str, Any]) -> None:
    check_spec(spec_of(blocks), base)


@pytest.mark.parametrize(
    ("overrides", "place"),
    [
        ((), "mine.yaml:7: search.space.model.hiden: "),
        (("search.space={}",), "mine.yaml:5: train.ranks: "),
        (("train.ranks=99999", "search.space={}"), "command line: train.ranks: "),
        (("search.space={}", "train={}", "data.target=lfet"), "command line: data.target: "),
    ],
)
def test_an_error_names_the_place(base: Path, overrides: tuple[str, ...], place: str) -> None:
    path = base / "project.yaml"
    path.write_text(
        "name: t\ndata: {source: data.csv, target: left}\ntrain:\n  epochs: 3\n  ranks: 100000\n"
        "search:\n  space: {model.hiden: {choices: [8]}}\n"
    )
    with pytest.raises(LooplineError) as caught:
        read_checked(path, overrides, "mine.yaml")
    assert str(caught.value).startswith(place)
    assert read_checked(path, ("search.space={}", "train={}")).train.ranks == 1


@pytest.mark.parametrize("value", [float("inf"), float("nan")])
def test_numbers_are_finite(value: float) -> None:
    with pytest.raises(ValueError, match="finite number"):
        spec_of({"train": {"lr": value}})


@pytest.mark.parametrize(
    ("blocks", "key"),
    [
        ({"train": {"precision": "fp16"}}, r"^train\.precision: got fp16"),
        (
            {"search": {"space": {"train.precision": {"choices": ["fp32", "fp16"]}}}},
            r"^search\.space\.train\.precision: got fp16",
        ),
    ],
)
def test_fp16_is_refused_where_training_would_find_no_gpu(
    base: Path, blocks: dict[str, Any], key: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    spec = spec_of(blocks)
    monkeypatch.setattr(spec_check, "usable_gpus", lambda _: 0)
    with pytest.raises(LooplineError, match=key):
        check_spec(spec, base)
    check_spec(spec, base, is_for_here=False)
    monkeypatch.setattr(spec_check, "usable_gpus", lambda _: 1)
    check_spec(spec, base)


@pytest.mark.parametrize(
    ("gpus", "blocks", "message"),
    [
        (
            1,
            {"train": {"ranks": 2}},
            r"train.ranks: got 2, but this machine has 1 GPU, and each rank needs its own: ex",
        ),
        (
            4,
            {"train": {"ranks": 2}, "search": {"workers": 3}},
            r"search.workers: got 3 with train.ranks 2, which is 6 ranks at a time, but .* 4 GPUs: expected at most 2",
        ),
        (4, {"train": {"ranks": 2}, "search": {"workers": 2}}, None),
        (4, {"train": {"ranks": 4}, "search": {"workers": 3, "trials": 0}}, None),
        (1, {"search": {"workers": 3}}, None),
        (1, {"train": {"ranks": 2}, "model": {"net": "trees"}}, None),
        (0, {"train": {"ranks": 2}}, None),
        (None, {"train": {"ranks": 2}}, None),
    ],
)
def test_each_rank_of_a_job_needs_a_gpu_of_its_own(
    base: Path, gpus: int | None, blocks: dict[str, Any], message: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(spec_check, "usable_gpus", lambda _: gpus)
    if message is None:
        check_spec(spec_of(blocks), base)
        return
    with pytest.raises(UsageError, match=message):
        check_spec(spec_of(blocks), base)
    check_spec(spec_of(blocks), base, is_for_here=False)


def test_a_cluster_elsewhere_is_not_held_to_this_machines_cores(base: Path) -> None:
    check_spec(spec_of({"train": {"ranks": 4096}}), base, is_for_here=False)


def test_an_error_without_a_place_is_not_its_own_cause(tmp_path, monkeypatch):
    """Who follows the causes of such an error never comes to an end."""

    def refuse(*_, **__):
        raise UsageError("nowhere: got nothing")

    monkeypatch.setattr(spec_check, "check_spec", refuse)
    (tmp_path / "project.yaml").write_text("data: {source: data.csv, target: y}\n")
    with pytest.raises(UsageError, match="nowhere: got nothing") as caught:
        spec_check.read_checked(tmp_path / "project.yaml")
    assert caught.value.__cause__ is None


@pytest.mark.parametrize("name", ["monotone_constraints", "interaction_constraints"])
@pytest.mark.parametrize("key", ["model.arguments", "search.space.model"])
def test_trees_on_series_take_no_constraints_of_columns(base: Path, key: str, name: str) -> None:
    value: Any = {"age": 1} if name.startswith("monotone") else [["age"]]
    blocks: dict[str, Any] = {"model": {"net": "trees", "arguments": {name: value}}}
    if key != "model.arguments":
        blocks = {"model": {"net": "trees"}, "search": {"space": {f"model.{name}": {"choices": [value]}}}}
    data = {"source": "x.csv", "target": "age", "kind": "series", "split": {"by": "time", "column": "t"}}
    spec = Spec.model_validate({"name": "tiny", "data": {**data, "window": {"length": 8}}, **blocks})
    with pytest.raises(UsageError, match=rf"^{key}.{name}: trees on series read lags"):
        check_spec(spec, base)
