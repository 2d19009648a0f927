"""Which families `auto` chooses from, and what it searches in each."""

from pathlib import Path
from typing import Any

import pytest

from models.errors import UsageError
from models.nets.catalogue import CATALOGUE, FAMILIES, FAMILIES_OF, OBJECTIVE
from models.project_spec.blocks import Model, Spec
from models.training import tree_parameters
from models.training.families import chosen_net, families_of, nets_of, search_space
from models.training.job import InitialWeights
from models.training.search_space import settings_of

FOREST = "sklearn.ensemble:ExtraTreesClassifier"
OWN_ROW = """
def estimator(settings):
    raise NotImplementedError


FAMILY = {
    "estimator": estimator,
    "tasks": ["binary"],
    "output": "probabilities",
    "arguments": {"depth": 6, "hidden": 3},
    "space": {"depth": {"low": 2, "high": 9, "integer": True}, "hidden": {"low": 1.0, "high": 2.0}},
}
"""
TEXTS = {"source": "x", "target": "y", "features": {"kinds": {"note": "text"}}}


def spec_of(**blocks: Any) -> Spec:
    return Spec.model_validate({"name": "t", "data": {"source": "x", "target": "y"}, **blocks})


@pytest.mark.parametrize(
    ("blocks", "families"),
    [
        ({}, FAMILIES),
        ({"model": {"net": "mlp"}}, ("mlp",)),
        ({"model": {"net": "./own.py:Net"}}, ("./own.py:Net",)),
        ({"model": {"arguments": {"hidden": 8}}}, ("mlp",)),
        ({"search": {"space": {"train.lr": {"choices": [0.1]}}}}, ("mlp",)),
        ({"search": {"space": {"model.l2": {"choices": [1.0]}}}}, ("linear",)),
        ({"search": {"space": {"train.class_weights": {"choices": ["none"]}}}}, FAMILIES),
        ({"search": {"families": ["mlp", "trees"]}}, ("mlp", "trees")),
        ({"search": {"families": ["trees", "tabm"]}}, ("trees", "tabm")),
        ({"search": {"families": [FOREST, "trees", "./net.py:Net"]}}, (FOREST, "trees", "./net.py:Net")),
        ({"train": {"ema": 0.9}}, ("mlp",)),
        ({"data": TEXTS}, (*FAMILIES, "transformer")),
        ({"data": TEXTS, "train": {"ema": 0.9}}, ("mlp", "transformer")),
        ({"retrain": {"start": "champion"}}, FAMILIES),
        ({"train": {"start": {"weights": "champion"}}}, FAMILIES),
        ({"train": {"start": {"weights": "champion", "freeze": ["trunk.*"]}}}, ("mlp",)),
        ({"train": {"start": {"weights": "3"}}}, ("mlp",)),
        ({"train": {"start": {"weights": "old.safetensors"}}}, ("mlp",)),
    ],
)
def test_auto_takes_the_families_that_fit_the_spec(blocks: dict[str, Any], families: tuple[str, ...]) -> None:
    assert families_of(spec_of(**blocks)) == families


@pytest.mark.parametrize(
    ("blocks", "message"),
    [
        (
            {"model": {"arguments": {"hiden": 8}}},
            "model.arguments.hiden: trees, linear, mlp have no argument 'hiden': did you mean 'hidden'",
        ),
        ({"search": {"families": ["trees"]}, "train": {"ema": 0.9}}, "search.families: trees: is not trained by"),
        ({"model": {"net": "mlp"}, "search": {"families": ["mlp"]}}, "search.families: is for `model.net: auto`"),
        ({"search": {"families": ["tres"]}}, "search.families: there is no 'tres': did you mean 'trees'"),
        ({"search": {"families": [FOREST]}, "train": {"ema": 0.9}}, "is not trained by gradient descent"),
        (
            {"model": {"net": "trees"}, "train": {"augment": {"function": "./a.py:f"}}},
            "train.augment.function: is for nets trained by gradient descent, but model.net is trees",
        ),
        ({"model": {"net": "trees"}, "train": {"ema": 0.9}}, "train.ema: is for nets"),
        ({"model": {"net": "xgboost:XGBClassifier"}, "train": {"ema": 0.9}}, "but model.net is xgboost:XGBClassifier"),
        ({"model": {"net": "trees"}, "train": {"batch": "auto"}}, "batch: auto"),
        ({"retrain": {"start": "champion"}, "model": {"net": "trees"}}, "retrain.start: is for nets"),
    ],
)
def test_what_fits_no_family_is_refused(blocks: dict[str, Any], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        families_of(spec_of(**blocks))


def test_references_have_the_spaces_and_defaults_of_their_rows(tmp_path: Path) -> None:
    (tmp_path / "boosted.py").write_text(OWN_ROW)
    (tmp_path / "b").mkdir()
    (tmp_path / "b" / "boosted.py").write_text(OWN_ROW)
    own, other, net = "./boosted.py:FAMILY", "./b/boosted.py:FAMILY", "./net.py:Net"
    spec = spec_of(search={"families": ["mlp", FOREST, own, other, net]})
    space = search_space(spec, num_train=200, base=tmp_path)
    assert space.first(own) == {"model.net": own, "model.depth": 6, "model.hidden of boosted": 3}
    assert space.settings(space.first(own)) == {"model.net": own, "model.depth": 6, "model.hidden": 3}
    assert space.families[other].names == {"model.hidden": "model.hidden of boosted-2"}
    assert space.first(FOREST)["model.min_samples_leaf"] == 2
    assert space.settings(space.first(net))["train.epochs"] > 1
    named = search_space(spec_of(model={"net": own}), base=tmp_path)
    assert {*named.dimensions} == {"model.depth", "model.hidden"}
    other_task = spec_of(model={"net": "sklearn.linear_model:Perceptron"})
    assert search_space(other_task).dimensions == {}, "it has no space, so it has a single trial"


@pytest.mark.parametrize("metric", ["mae", "roc_auc"])
def test_each_family_has_its_own_dimensions_and_begins_with_its_defaults(metric: str) -> None:
    space = search_space(spec_of(), metric=metric)
    assert space.is_choice
    for net, family in space.families.items():
        first = space.first(net)
        assert first["model.net"] == net
        assert {"model.net", *family.dimensions} == first.keys(), "every searched setting has a default"
        left_out = {OBJECTIVE} if metric != "mae" else {}
        assert CATALOGUE[net].defaults.items() - space.settings(first).items() <= {(OBJECTIVE, "auto")}
        assert not space.settings(first).keys() & left_out
        for values in (first, *space.starts(net)):
            assert values.keys() == first.keys()
            for path, dimension in family.dimensions.items():
                value = values[path]
                assert value in dimension.choices if dimension.choices else dimension.low <= value <= dimension.high


def test_trees_start_from_several_settings_and_from_the_squared_error_where_the_goal_is_the_absolute_one() -> None:
    absolute, squared = (search_space(spec_of(), metric=name).starts("trees") for name in ("mae", "rmse"))
    assert [start[OBJECTIVE] for start in absolute] == ["regression", "auto", "auto"]
    assert len(squared) == 2
    assert not any(OBJECTIVE in start for start in squared)
    assert search_space(spec_of(model={"net": "trees"})).starts("trees") == []


def test_a_larger_table_is_seen_less_often() -> None:
    epochs = [
        search_space(spec_of(), num_train=rows).settings({"model.net": "mlp"})["train.epochs"]
        for rows in (900, 10**5, 10**7)
    ]
    assert epochs == [60, 8, 5]


def test_a_net_has_no_more_epochs_than_the_budget_has_time_for_but_at_least_five() -> None:
    space = search_space(spec_of(), num_train=200)
    assert space.first("mlp").keys() == space.within(10.0, {"mlp": 0.5}).first("mlp").keys()
    epochs = [
        space.within(10.0, {"mlp": each}).settings({"model.net": "mlp"})["train.epochs"] for each in (0, 0.1, 0.5, 9)
    ]
    assert epochs == [60, 60, 20, 5]
    assert space.within(10.0, {"mlp": 0.5}).families["trees"] == space.families["trees"]
    named = spec_of(data=TEXTS, search={"families": ["trees", "transformer"]})
    texts = search_space(named, num_train=200).within(10.0, {"transformer": 9})
    assert texts.settings({"model.net": "transformer"})["train.epochs"] == 2


def test_tabm_has_smaller_batches_on_a_small_table() -> None:
    def batches(*rows: int, **train: int) -> list[tuple[int | None, int]]:
        spec = spec_of(search={"families": ["trees", "tabm"]}, train=train)
        firsts = [search_space(spec, num_train=count).settings({"model.net": "tabm"}) for count in rows]
        return [(first.get("train.batch"), first["train.epochs"]) for first in firsts]

    assert batches(0, 100, 2_500, 10**5) == [(32, 60), (32, 60), (128, 60), (256, 8)]
    assert batches(10**5, batch=1000) == [(None, 30)]


def test_what_the_spec_sets_is_no_default() -> None:
    space = search_space(spec_of(train={"epochs": 3}))
    assert "train.epochs" not in space.settings(space.first("mlp"))


def test_a_trial_that_names_its_net_does_not_ask_lightgbm_for_its_parameters(monkeypatch: pytest.MonkeyPatch) -> None:
    """It takes a second of the loop's own process."""
    monkeypatch.setattr(tree_parameters, "known_parameters", lambda: pytest.fail("LightGBM was imported"))
    drawn = {"model.net": "mlp", "model.hidden": 8}
    assert search_space(spec_of()).settings(drawn).items() >= drawn.items()


def test_settings_name_the_net_also_where_an_older_search_did_not() -> None:
    space = search_space(spec_of())
    assert space.settings({"model.hidden": 8})["model.net"] == "mlp"
    assert space.settings({})["model.net"] == FAMILIES[0]
    named = search_space(spec_of(model={"net": "mlp"}))
    assert named.settings({"model.hidden": 8}) == {"model.hidden": 8}
    assert chosen_net(spec_of(), {"model.net": "linear"}) == "linear"
    assert chosen_net(spec_of(), {}) == FAMILIES[0]


def series_of(**blocks: Any) -> Spec:
    data = {"kind": "series", "split": {"by": "time", "column": "day"}, "window": {"length": 8}}
    return spec_of(data={"source": "x", "target": "y", **data}, **blocks)


@pytest.mark.parametrize(
    ("blocks", "families"),
    [
        ({}, FAMILIES_OF["series"]),
        ({"model": {"arguments": {"hidden": 8}}}, ("gru",)),
        ({"train": {"loss": "./loss.py:own"}}, ("gru",)),
        ({"model": {"arguments": {"l2": 3.0}}}, ("linear",)),
        ({"model": {"net": "trees"}}, ("trees",)),
    ],
)
def test_auto_of_a_series_takes_trees_and_a_net(blocks: dict[str, Any], families: tuple[str, ...]) -> None:
    assert families_of(series_of(**blocks)) == families


def test_each_family_of_a_series_begins_with_its_defaults() -> None:
    space = search_space(series_of(), metric="mae")
    assert not {*CATALOGUE["trees"].of_tables} & {
        *space.families["trees"].dimensions,
        *space.families["trees"].defaults,
    }
    assert space.starts("trees") == []
    for net, family in space.families.items():
        assert {"model.net", *family.dimensions} == space.first(net).keys()


def test_a_family_of_tables_is_refused_for_a_series() -> None:
    with pytest.raises(UsageError, match=r"families: mlp: is no family of kind series, expected trees, linear, gru"):
        families_of(series_of(search={"families": ["mlp"]}))


def test_a_window_without_a_reference_is_not_continued() -> None:
    spec = series_of()
    window = spec.data.window.model_copy(update={"reference": "none"})  # type: ignore[union-attr]
    spec = spec.model_copy(update={"data": spec.data.model_copy(update={"window": window})})
    assert families_of(spec) == ("trees", "gru")


def test_the_linear_model_of_a_series_has_nothing_to_search() -> None:
    space = search_space(series_of())
    assert space.tuned(["linear", "gru"]) == ["gru"]
    assert space.tuned(["linear"]) == ["linear"]
    assert space.settings(space.first("linear")) == {"model.net": "linear"}


def test_a_search_counts_as_long_as_the_spec_chooses_from_its_nets() -> None:
    two_trees = [{"model.net": "trees"}, {"model.net": "trees", "model.num_leaves": 7}]
    ensemble = settings_of([0.25, 0.25, 0.5], [*two_trees, {"model.net": "mlp", "model.hidden": 8}])
    assert nets_of(spec_of(), ensemble) == ("trees", "mlp")
    twice = settings_of([0.4, 0.3, 0.3], [{"model.net": net} for net in ("trees", "trees", "linear")])
    assert nets_of(spec_of(), twice) == ("trees", "linear"), "and not trees-2, which is a name and no net"
    assert nets_of(spec_of(retrain={"start": "champion"}), ensemble) == ("trees", "mlp")
    assert nets_of(spec_of(train={"ema": 0.9}), ensemble) == ()
    assert nets_of(spec_of(train={"ema": 0.9}), {"model.net": "mlp"}) == ("mlp",)
    assert nets_of(spec_of(search={"families": ["mlp", "linear"]}), ensemble) == ()
    assert nets_of(spec_of(model={"net": "./own.py:Net"}), {"train.lr": 0.1}) == ("./own.py:Net",)


@pytest.mark.parametrize("members", [None, 3, [3], [{"weight": 1}]])
def test_members_that_are_none_have_no_family(members: object) -> None:
    assert families_of(spec_of(model={"net": "ensemble", "arguments": {"members": members}})) == ()


def weights_of(net: str, **arguments: Any) -> InitialWeights:
    model = Model(net=net, arguments=arguments)
    return InitialWeights(weights=Path("w.safetensors"), sha256="0", label="t version 3", model=model)


def test_the_net_of_the_champion_alone_keeps_its_shape_and_has_its_arguments() -> None:
    """Trees and linear models are searched as without a champion."""
    spec = spec_of(train={"start": {"weights": "champion"}})
    space = search_space(spec, weights_of("mlp", hidden=24, dropout=0.3))
    usual = search_space(spec)
    for net in ("trees", "linear"):
        assert space.families[net] == usual.families[net]
    begun = space.families["mlp"]
    assert begun.dimensions.keys() == {"train.lr", "train.weight_decay", "model.dropout"}
    first = space.settings(space.first("mlp"))
    assert {path: value for path, value in first.items() if path.startswith("model.")} == {
        "model.net": "mlp",
        "model.hidden": 24,
        "model.dropout": 0.3,
    }
    assert first["train.patience"] == CATALOGUE["mlp"].defaults["train.patience"]
    bare = search_space(spec, weights_of("mlp", hidden=24))
    assert bare.first("mlp")["model.dropout"] == CATALOGUE["mlp"].defaults["model.dropout"], "and none is drawn"
    assert search_space(spec, weights_of("tabm", hidden=24)) == usual, "no family is that net"


def test_what_the_spec_sets_is_not_searched_for_unless_it_asks() -> None:
    """Else the architecture that a user wrote down is thrown away."""

    def searched(start: InitialWeights | None = None, **blocks: Any) -> set[str]:
        return {*search_space(spec_of(**{"model": {"net": "mlp"}, **blocks}), start).dimensions}

    everything = searched()
    assert {"train.lr", "model.hidden", "model.layers", "model.dropout"} <= everything
    model = {"net": "mlp", "arguments": {"hidden": 8, "layers": 1}}
    own = searched(train={"lr": 0.1, "epochs": 3}, model=model)
    assert own == everything - {"train.lr", "model.hidden", "model.layers"}
    assert {path for path in searched(weights_of("mlp")) if path.startswith("model.")} == {"model.dropout"}


@pytest.mark.parametrize(
    ("features", "reads_words"),
    [({}, True), ({"columns": ["note", "x"]}, True), ({"columns": ["x"]}, False), ({"drop": ["note"]}, False)],
)
def test_a_declared_text_that_is_no_input_adds_no_family(features: dict[str, Any], reads_words: bool) -> None:
    data = {**TEXTS, "features": {"kinds": {"note": "text"}, **features}}
    assert ("transformer" in families_of(spec_of(data=data))) == reads_words


@pytest.mark.parametrize(
    ("num_train", "families", "reads_words"),
    [(19_999, None, False), (20_000, None, True), (100, ["trees", "transformer"], True)],
)
def test_words_are_read_where_n_grams_do_not_learn_from_all_texts_or_where_the_spec_says_so(
    num_train: int, families: list[str] | None, reads_words: bool
) -> None:
    data = {"source": "x", "target": "y", "features": {"kinds": {"note": "text"}}}
    space = search_space(spec_of(data=data, search={"families": families}), num_train=num_train)
    assert ("transformer" in space.families) == reads_words


def test_texts_alone_leave_little_to_tune() -> None:
    spec = spec_of(data={"source": "x", "target": "y", "features": {"kinds": {"note": "text"}}})
    space = search_space(spec, num_train=1000, is_of_texts=True)
    assert space.patience == 1
    assert not [start for net in space.families for start in space.starts(net)]
    assert search_space(spec, num_train=1000).patience is None
