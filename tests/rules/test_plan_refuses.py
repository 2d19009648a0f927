"""The rule: `plan` refuses what cannot work; whatever it accepts passes every later stage but the data's own.

One act is left out by name, the probe of estimators (`tasks.loop.probe`), which runs a library's code: it may refuse
what `plan` accepts, and what both accept trains.

Specs are drawn, good and bad keys alike. A refusal names the key. What is accepted is prepared, its expectations are
evaluated, each net that it may train is built and fitted, and a perfect prediction reaches its goal.
"""

from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import yaml
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from models.data.prepare import prepare_table
from models.errors import DataError, LooplineError, UsageError
from models.estimators.probe import probe_tasks
from models.judge.gates import goal_gate
from models.judge.verdict import Estimate, Verdict
from models.metrics.metrics import metric_of
from models.nets.build import build_net
from models.nets.catalogue import row_of
from models.nets.sizes import Sizes
from models.project_spec.blocks import Judge
from models.project_spec.references import sort_of_net
from models.sources.read import read_source
from models.training.families import families_of
from models.training.search_space import with_params
from models.training.spec_check import read_checked
from models.validation.expectations import raw_checks
from models.validation.source_check import check_source
from tasks.tools.expectations import run_checks
from tests.goal_jobs import fitted, prepared_table

NUM = 120
COLUMNS = {
    "a": np.arange(NUM) % 7,
    "b": np.arange(NUM) * 37 % 101 / 10,
    "c": np.array(["u", "v", "w"] * (NUM // 3)),
    "y": np.array(["no", "yes"] * (NUM // 2)),
}
SIZES, SHARES = st.integers(-2, 64), st.sampled_from([-0.5, 0.0, 0.3, 1.0, 2.0, float("inf")])
NAMES = st.sampled_from(["a", "b", "c", "y", "zz"])
NET_ARGUMENTS = {
    "mlp": {"hidden": SIZES, "layers": st.integers(-1, 3), "dropout": SHARES, "norm": st.sampled_from(["batch", "no"])},
    "tabm": {"hidden": SIZES, "members": st.integers(-1, 4), "dropout": SHARES},
    "transformer": {"width": SIZES, "heads": st.integers(-1, 5), "layers": st.integers(0, 2), "word_dropout": SHARES},
    "trees": {
        "num_leaves": st.integers(-1, 6),
        "max_depth": st.integers(-3, 3),
        "learning_rate": SHARES,
        "feature_fraction": SHARES,
        "lambda_l2": SHARES,
        "max_bin": st.integers(-1, 5),
    },
    "linear": {"l2": SHARES, "iterations": st.integers(-1, 5)},
}
ESTIMATOR_ARGUMENTS = {
    "sklearn.tree:DecisionTreeClassifier": {
        "max_depth": st.integers(-1, 5),
        "criterion": st.sampled_from(["gini", "ginny"]),
        "random_state": st.just(1),
        "max_depht": st.just(2),
    },
    "sklearn.naive_bayes:GaussianNB": {"var_smoothing": SHARES},
    "sklearn.tree:DecisionTreeRegressor": {},
}


def models_of(arguments_of):
    """Return the strategy of a model block with one of these nets, and some of its arguments."""
    return st.sampled_from([*arguments_of]).flatmap(
        lambda net: st.builds(
            lambda arguments: {"net": net, "arguments": arguments},
            st.fixed_dictionaries({}, optional=arguments_of[net]),
        )
    )


MODELS = models_of(NET_ARGUMENTS)
SPACES = st.builds(
    lambda key, values: {"trials": 1, "space": {key: {"choices": values}}},
    st.sampled_from(["model.hidden", "model.dropout", "model.width", "model.heads", "train.lr", "model.nope"]),
    st.lists(st.one_of(SIZES, SHARES), min_size=1, max_size=3, unique=True),
)
GOALS = st.builds(
    lambda metric, good_enough: {"metric": metric, "good_enough": good_enough},
    st.sampled_from(["accuracy", "roc_auc", "log_loss", "rmse", "nope"]),
    st.sampled_from([-1.0, 0.0, 0.5, 1.0, 2.0]),
)
BOUND = st.sampled_from([None, -1, 0, 5])
EXPECTATIONS = st.one_of(
    st.builds(
        lambda column, low, high: {
            "expect": "column_values_to_be_between",
            "arguments": {
                key: value
                for key, value in (("column", column), ("min_value", low), ("max_value", high))
                if value is not None
            },
        },
        st.sampled_from(["a", "b", "zz"]),
        BOUND,
        BOUND,
    ),
    st.builds(
        lambda column, regex: {
            "expect": "column_values_to_match_regex",
            "arguments": {"column": column, "regex": regex},
        },
        st.sampled_from(["c", "zz"]),
        st.sampled_from(["u", "(", "[a-z]+", "*"]),
    ),
    st.builds(
        lambda name: {"expect": name, "arguments": {"column": "a"}}, st.sampled_from(["nope", "column_to_exist"])
    ),
    st.builds(
        lambda share: {"expect": "column_values_to_not_be_null", "arguments": {"column": "a", "mostly": share}}, SHARES
    ),
)
SPLITS = st.one_of(
    st.just({"by": "stratified"}),
    st.builds(lambda by, column: {"by": by, "column": column}, st.sampled_from(["group", "time", "hash"]), NAMES),
    st.builds(lambda share: {"by": "stratified", "validation": share, "test": share}, SHARES),
)
DATA = st.fixed_dictionaries(
    {"source": st.sampled_from(["d.csv"] * 9 + ["nope.csv"]), "target": st.just("y")},
    optional={"split": SPLITS, "expectations": st.lists(EXPECTATIONS, max_size=2)},
)
SPECS = st.fixed_dictionaries(
    {"data": DATA},
    optional={
        "model": MODELS,
        "search": SPACES,
        "goal": GOALS,
        "judge": st.builds(lambda slices: {"slices": slices}, st.lists(NAMES, max_size=2)),
    },
)
OF_ESTIMATORS = st.fixed_dictionaries({"data": DATA, "model": models_of(ESTIMATOR_ARGUMENTS)}, optional={"goal": GOALS})
KEYS = ("data", "model", "search", "goal", "judge", "train")


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("plan")
    pd.DataFrame(COLUMNS).to_csv(folder / "d.csv", index=False)
    return folder


def accepted(folder: Path, document):
    """Return the spec as `plan` accepts it, or None; a refusal begins with its file, line and key."""
    (folder / "project.yaml").write_text(yaml.safe_dump({"name": "p", **document}))
    try:
        spec = read_checked(folder / "project.yaml", is_for_here=False)
        check_source(spec.data, folder)
        refusal = ""
    except (UsageError, DataError) as error:
        spec, refusal = None, f" {error}"
    assert not refusal or any(f" {key}." in refusal or f" {key}:" in refusal for key in KEYS), refusal
    return spec


def passes_every_stage(folder: Path, place: Path, spec, *, trains: bool) -> None:
    table, refusal = read_source(folder / spec.data.source), ""
    try:
        preparation = prepare_table(table, spec, folder)[1]
    except DataError as error:
        refusal = str(error)
    if refusal:  # the data's own: so few rows, dealt in this way
        assert refusal.startswith(("data.split", "column")), refusal
        return
    for net in families_of(spec):
        for arguments in drawn(spec, net):
            model, _ = with_params(spec.model.model_copy(update={"net": net}), spec.train, arguments)
            if row_of(net).by_descent and net != "linear":
                build_net(model, Sizes.of(preparation, net), folder)
            if trains and is_probed(model, folder):
                train(place, spec, model)
    if spec.goal.metric and spec.goal.good_enough is not None:
        reaches_its_goal(spec, preparation, folder)


def can_be_evaluated(folder: Path, specs) -> None:
    """All expectations of all specs at once: the library takes its time for each call."""
    checks = [check for spec in specs for check in raw_checks(spec.data) if check.origin == "spec"]
    assert checks
    results = run_checks(read_source(folder / "d.csv"), checks).report["results"]
    assert [one["error"] for one in results] == [None] * len(checks)
    assert not any("no column" in str(one["observed"]) for one in results)


def is_probed(model, folder: Path) -> bool:
    """Return whether the probe lets an estimator pass; other nets have none."""
    if sort_of_net(model.net) != "class":
        return True
    try:
        probe_tasks(model.net, str(folder), ["binary"], model.arguments)
    except LooplineError:
        return False
    return True


def drawn(spec, net):
    """Yield the settings of each trial that a search may draw, one dimension at a time."""
    yield {}
    for path, dimension in (spec.search.space or {}).items():
        yield from ({path: value} for value in dimension.choices or ())


def train(place: Path, spec, model) -> None:
    number = len([*place.iterdir()])
    blocks = {"goal": {"metric": spec.goal.metric}} if spec.goal.metric else {}
    prepared = prepared_table(
        place / str(number), {name: values.tolist() for name, values in COLUMNS.items()}, **blocks
    )
    own = {"rounds": 3} if model.net == "trees" else {}
    fitted(place / f"job {number}", prepared, model.net, {**own, **model.arguments}, epochs=1)


def reaches_its_goal(spec, preparation, folder: Path) -> None:
    metric = metric_of(spec.goal, preparation, folder)
    target = np.array([0, 1] * 20)
    value = metric.value(target, np.where(target == 1, 1.0, 0.0))
    verdict = Verdict(
        task="binary",
        metric=metric.name,
        direction=metric.direction,
        rules=Judge(),
        num_samples=40,
        challenger=Estimate(value=round(float(value), 6)),
        good_enough=spec.goal.good_enough,
    )
    assert goal_gate(verdict).passed


QUIET = {"deadline": None, "suppress_health_check": list(HealthCheck), "database": None}


def draws(folder: Path, place: Path, *, trains: bool):
    """Return the property, and the specs that were accepted while it ran."""
    specs = []

    @given(document=SPECS)
    def holds(document):
        spec = accepted(folder, document)
        if spec is not None:
            specs.append(spec)
            passes_every_stage(folder, place, spec, trains=trains)

    return holds, specs


def test_what_plan_accepts_passes_the_stages_before_the_training(folder):
    holds, specs = draws(folder, folder, trains=False)
    settings(max_examples=40, derandomize=True, phases=[Phase.generate], **QUIET)(holds)()
    assert len(specs) >= 10
    can_be_evaluated(folder, specs)


@pytest.mark.soak
def test_what_plan_accepts_trains(folder, tmp_path):
    holds, specs = draws(folder, tmp_path, trains=True)
    settings(max_examples=400, print_blob=True, **QUIET)(holds)()
    can_be_evaluated(folder, specs)


@pytest.mark.soak
def test_what_plan_and_the_probe_accept_of_estimators_trains(folder, tmp_path):
    specs = []

    @given(document=OF_ESTIMATORS)
    def holds(document):
        spec = accepted(folder, document)
        if spec is not None:
            specs.append(spec)
            passes_every_stage(folder, tmp_path, spec, trains=True)

    settings(max_examples=100, print_blob=True, **QUIET)(holds)()
    assert specs
