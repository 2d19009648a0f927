"""The parameters of LightGBM that a spec may set in `model.arguments`, checked by LightGBM's own list.

`TreeArguments` holds those with defaults of Loopline's. Any other parameter that LightGBM knows may be set
too, except those that Loopline owns, because the spec says the same elsewhere or a resumed training would differ.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Literal

from models.errors import UsageError, did_you_mean
from models.inputs.record import DerivedInput

_THREADS = "Loopline divides the cores: say train.threads"
_SEED = "Loopline seeds each segment of rounds: say train.seed"
_FILES = "Loopline gives LightGBM the prepared rows"
_EXPORT = "the exported graph cannot hold such trees"
_MACHINES = "trees are trained in one process"
OWNED: dict[str, str] = {
    "boosting": "only gbdt resumes exactly and can be exported",
    "metric": "it follows from the goal: say goal.metric",
    "num_class": "it follows from the target",
    "sigmoid": "outputs are logits",
    "alpha": "it is the quantile of the goal: say goal.quantile",
    "num_iterations": "say rounds",
    "early_stopping_round": "say train.patience",
    "early_stopping_min_delta": "say train.patience",
    "first_metric_only": "the goal and the log loss decide",
    "num_threads": _THREADS,
    "verbosity": "Loopline reports the epochs itself",
    "deterministic": "it is always on",
    "force_col_wise": "force_row_wise is always on, for equal bits",
    "force_row_wise": "it is always on, for equal bits",
    "bagging_freq": "it is 1 where rows are sampled, so that a resumed training equals a whole one",
    "categorical_feature": "the kinds of the columns decide: say data.features.kinds",
    "weight_column": "the weights come from the prepared rows",
    "zero_as_missing": _EXPORT,
    "linear_tree": _EXPORT,
    "reg_sqrt": "say data.target_scale",
    **dict.fromkeys(("seed", "bagging_seed", "feature_fraction_seed", "drop_seed"), _SEED),
    **dict.fromkeys(("extra_seed", "data_random_seed", "objective_seed"), _SEED),
    **dict.fromkeys(("data", "valid", "header", "label_column", "group_column", "ignore_column"), _FILES),
    **dict.fromkeys(("two_round", "pre_partition", "parser_config_file", "precise_float_parser"), _FILES),
    **dict.fromkeys(("num_machines", "local_listen_port", "time_out", "machine_list_filename", "machines"), _MACHINES),
    **dict.fromkeys(("tree_learner", "device_type", "num_gpu", "gpu_device_id", "gpu_platform_id"), _MACHINES),
}
"""Parameters that a spec may not set, and why."""
ALIASES = {
    "n_estimators": "rounds",
    "num_boost_round": "rounds",
    "n_iter": "rounds",
    "eta": "learning_rate",
    "shrinkage_rate": "learning_rate",
    "num_leaf": "num_leaves",
    "max_leaf_nodes": "num_leaves",
    "min_child_samples": "min_data_in_leaf",
    "min_samples_leaf": "min_data_in_leaf",
    "min_child_weight": "min_sum_hessian_in_leaf",
    "min_split_gain": "min_gain_to_split",
    "reg_alpha": "lambda_l1",
    "reg_lambda": "lambda_l2",
    "subsample": "bagging_fraction",
    "colsample_bytree": "feature_fraction",
    "colsample_bynode": "feature_fraction_bynode",
    "monotonic_cst": "monotone_constraints",
    "max_bins": "max_bin",
}
"""Common other names, of LightGBM, XGBoost and scikit-learn, and the one that Loopline takes."""
NAMED_GOALS = ("mae", "rmse", "r2")
"""Metrics for which a spec may name the objective."""
MONOTONE = "monotone_constraints"
INTERACTIONS = "interaction_constraints"
_FRACTIONS = ("feature_fraction", "feature_fraction_bynode", "bagging_fraction")
_FRACTIONS_OF_CLASSES = ("pos_bagging_fraction", "neg_bagging_fraction")
_SWITCHES = ("extra_trees", "use_quantized_grad")


@dataclass(frozen=True)
class TreeArguments:
    """The arguments of the `trees` net with LightGBM's names and defaults; at most `rounds` trees per class.

    `objective: auto` follows from the goal; for absolute and squared errors the other's may be named. Every other
    parameter of LightGBM may be set too, see `check_parameter`.
    """

    rounds: int = 300
    learning_rate: float = 0.1
    num_leaves: int = 31
    max_depth: int = -1
    min_data_in_leaf: int = 20
    min_gain_to_split: float = 0.0
    lambda_l1: float = 0.0
    lambda_l2: float = 0.0
    feature_fraction: float = 1.0
    feature_fraction_bynode: float = 1.0
    bagging_fraction: float = 1.0
    max_bin: int = 255
    cat_smooth: float = 10.0
    extra_trees: bool = False
    objective: Literal["auto", "regression", "regression_l1"] = "auto"


def settings() -> dict[str, Any]:
    """Return the arguments of trees where a spec sets none."""
    return asdict(TreeArguments())


@functools.cache
def known_parameters() -> dict[str, str]:
    """Return the names of all parameters of the installed LightGBM, with their defaults as text.

    Cost: a model of one split; half a second, with the import.
    """
    import lightgbm
    import numpy as np

    rows = np.arange(4.0)
    smallest = {"verbosity": -1, "num_leaves": 2, "min_data_in_leaf": 1, "num_threads": 1}
    text = lightgbm.train(smallest, lightgbm.Dataset(rows[:, None], rows), 1).model_to_string()
    section = text[text.index("\nparameters:") : text.index("\nend of parameters")]
    return dict(re.findall(r"^\[(\w+): (.*)\]$", section, re.MULTILINE))


def is_parameter(name: str) -> bool:
    """Return whether LightGBM knows a parameter by this name, whoever sets it."""
    return name in ALIASES or name in OWNED or name in known_parameters()


def check_parameter(name: str, value: Any, model_arguments: Sequence[str], key: str = "model.arguments") -> None:
    """Refuse a parameter that LightGBM does not know, that Loopline owns, or with a value of another type.

    Args:
        name: The argument's name in the spec.
        value: Its value.
        model_arguments: The names of the arguments with defaults of Loopline's.
        key: Where it stands in the spec.

    Raises:
        UsageError: Says what was got, what was expected and why.
    """
    if name in ALIASES:
        raise UsageError(f"{key}.{name}: trees call it {ALIASES[name]!r}: say {key}.{ALIASES[name]}")
    if name in OWNED:
        raise UsageError(f"{key}.{name}: Loopline sets it: leave it out; {OWNED[name]}")
    defaults = known_parameters()
    if name not in defaults:
        allowed = [*model_arguments, *(name for name in defaults if name not in OWNED)]
        cure = did_you_mean(name, allowed, "see LightGBM's list of parameters")
        raise UsageError(f"{key}.{name}: LightGBM has no parameter {name!r}: {cure}")
    if name == MONOTONE:
        _check_monotone(value, key)
    elif name == INTERACTIONS:
        _check_interactions(value, key)
    elif _is_number(defaults[name]) and not isinstance(value, (int, float)):
        raise UsageError(f"{key}.{name}: got {value!r}, expected a number, as LightGBM takes it")


def wrong_objective(objective: str, metric: str) -> UsageError:
    """Return the error that the goal's metric does not go with a named objective."""
    return UsageError(
        f"model.arguments.objective: got {objective} with goal.metric {metric}, expected {', '.join(NAMED_GOALS[:-1])} "
        f"or {NAMED_GOALS[-1]} (rmse and r2 not on the log scale): leave it out, and the goal decides"
    )


def no_monotone(metric: str) -> UsageError:
    """Return the error of a monotone constraint beside a goal whose loss LightGBM takes none for."""
    return UsageError(
        f"model.arguments.{MONOTONE}: LightGBM has none for the loss of goal.metric {metric}: take rmse, r2, or for "
        "mae model.arguments.objective: regression"
    )


def check_constrained(arguments: Mapping[str, Any], columns: Sequence[str]) -> None:
    """Refuse constraints that name none of the columns.

    Raises:
        UsageError: Names the column and the nearest one.
    """
    for name in constrained_columns(arguments):
        if name not in columns:
            cure = did_you_mean(name, columns, f"expected one of {', '.join(columns[:20])}")
            raise UsageError(f"model.arguments: a constraint names {name!r}, which is no column: {cure}")


def constrained_columns(arguments: Mapping[str, Any]) -> list[str]:
    """Return the columns that constraints name."""
    groups = arguments.get(INTERACTIONS) or []
    return [*(arguments.get(MONOTONE) or {}), *(name for group in groups for name in group)]


def without_columns(arguments: Mapping[str, Any], names: Collection[str]) -> dict[str, Any]:
    """Return the parameters whose constraints do not name some columns, which are no inputs yet."""
    free = dict(arguments)
    if free.get(MONOTONE):
        free[MONOTONE] = {name: sign for name, sign in free[MONOTONE].items() if name not in names}
    if free.get(INTERACTIONS):
        groups = [[name for name in group if name not in names] for group in free[INTERACTIONS]]
        free[INTERACTIONS] = [group for group in groups if group]
    return free


def with_derived(arguments: Mapping[str, Any], derived: Sequence[DerivedInput]) -> dict[str, Any]:
    """Return the parameters with what a constraint of a column says of the inputs that are derived from it.

    What rises with a monotone column is monotone too; what a group of columns holds are also their derived inputs.
    """
    converted = dict(arguments)
    if signs := arguments.get(MONOTONE):
        converted[MONOTONE] = signs | {part.name: signs[part.of] for part in derived if part.rises and part.of in signs}
    if groups := arguments.get(INTERACTIONS):
        converted[INTERACTIONS] = [[*group, *(part.name for part in derived if part.of in group)] for group in groups]
    return converted


def with_positions(arguments: Mapping[str, Any], columns: Sequence[str], ordered: Collection[str]) -> dict[str, Any]:
    """Return the parameters with constraints by position, as LightGBM takes them.

    Args:
        arguments: Checked by `check_parameter`.
        columns: The input column behind each column of the matrix; a time stands behind several.
        ordered: The input columns that may be monotone: numbers.

    Raises:
        UsageError: A constraint names no input column, or one without an order must be monotone.
    """
    names, converted = list(dict.fromkeys(columns)), dict(arguments)
    for name in constrained_columns(arguments):
        if name not in names:
            cure = did_you_mean(name, names, f"expected one of {', '.join(names[:20])}")
            raise UsageError(f"model.arguments: a constraint names {name!r}, which is no input column: {cure}")
    if arguments.get(MONOTONE):
        wrong = next((name for name in arguments[MONOTONE] if name not in ordered), None)
        if wrong:
            raise UsageError(f"model.arguments.{MONOTONE}: {wrong!r} is no number, so it has no order: remove it")
        converted[MONOTONE] = [arguments[MONOTONE].get(name, 0) for name in columns]
    if arguments.get(INTERACTIONS):
        groups = arguments[INTERACTIONS]
        converted[INTERACTIONS] = [
            [position for position, name in enumerate(columns) if name in group] for group in groups
        ]
    return converted


def is_sampled(arguments: Mapping[str, Any]) -> bool:
    """Return whether LightGBM draws at random while it grows trees: its generators' state cannot be saved."""
    fractions = any(float(arguments.get(name, 1.0)) < 1 for name in (*_FRACTIONS, *_FRACTIONS_OF_CLASSES))
    switches = any(bool(arguments.get(name)) for name in _SWITCHES)
    return fractions or switches or arguments.get("data_sample_strategy") == "goss"


def samples_rows(arguments: Mapping[str, Any]) -> bool:
    """Return whether each round sees a part of the rows."""
    return any(float(arguments.get(name, 1.0)) < 1 for name in ("bagging_fraction", *_FRACTIONS_OF_CLASSES))


def _check_monotone(value: Any, key: str) -> None:
    if not isinstance(value, dict) or not set(value.values()) <= {1, -1, 0}:
        raise UsageError(
            f"{key}.{MONOTONE}: got {value!r}, expected columns with 1 (rising) or -1 (falling), such as {{age: 1}}"
        )


def _check_interactions(value: Any, key: str) -> None:
    groups = value if isinstance(value, list) else [None]
    if not all(isinstance(group, list) and all(isinstance(name, str) for name in group) for group in groups):
        raise UsageError(
            f"{key}.{INTERACTIONS}: got {value!r}, expected lists of columns, such as [[age, sex], [fare]]"
        )


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True
