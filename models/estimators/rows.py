"""The estimators that a spec may name by reference: a row of facts each.

A row holds what the checks of a spec, the search, the fit and the export ask. A class that is not listed gets the
facts that its source tells (`general_row`), and no search space.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Literal

Numbers = Literal["prepared", "standardised"]
Categories = Literal["native", "index", "one-hot"]
Output = Literal["probabilities", "scores", "labels"]
Package = Literal["sklearn", "xgboost", "catboost", "file"]
"""The head of the reference to a class; `file`: a row that a team wrote."""
Arguments = Mapping[str, Any]

LEAST_CHANCE = 1e-7
"""Probabilities are cut here before their logarithm: a forest says 0 of what few rows have shown."""
CLASSES = ("binary", "multiclass", "multilabel")
NUMBERS = ("regression",)
QUANTILES = ("regression", "quantile")
GOAL = "the goal sets it: say goal.metric"
SEED = "say train.seed"
THREADS = "Loopline divides the cores: say train.threads"
ROUNDS = "say model.arguments.rounds"
PATIENCE = "say train.patience"
QUIET = "Loopline reports the epochs itself"
DEVICE = "estimators are fitted on the CPU"
WEIGHTS = "the prepared rows have the weights: say data.weight or train.class_weights"
KINDS = "the columns' kinds decide: say data.features.kinds"
RESUME = "Loopline resumes by itself"
ONWARDS = "CatBoost cannot go on from a model with it, and each epoch does"
POSITIONS = "it counts columns of a matrix that no spec shows; trees take such constraints by the columns' names"


@dataclass(frozen=True)
class EstimatorRow:
    """The facts about an estimator."""

    name: str
    """Short name: the class, or the stem of the file."""
    package: Package
    tasks: tuple[str, ...]
    numbers: Numbers = "prepared"
    """prepared: as the preparation gives them; standardised: to mean 0 and spread 1 of the training rows."""
    gaps: bool = False
    """Whether it takes NaN."""
    categories: Categories = "index"
    """index: an order that trees can cut; one-hot: a column for each category; native: positions are handed over."""
    output: Output = "scores"
    """scores: numbers, logits or logarithms of chances; labels: classes alone, which a spec may not take."""
    rounds: str = ""
    """The constructor's argument that counts rounds; empty: fitted in one epoch."""
    num_rounds: int = 1
    """Rounds where `model.arguments.rounds` is not set."""
    seed: str = ""
    threads: str = ""
    neighbours: str = ""
    """The constructor's argument that counts training rows which an answer needs."""
    quantile: str = ""
    """The constructor's argument of the quantile; empty: it learns none."""
    quantile_form: str = ""
    """How the argument writes the quantile, where it is no number."""
    weights: bool = True
    """Whether `fit` takes `sample_weight`."""
    owned: Mapping[str, str] = field(default_factory=dict)
    """Arguments that a spec may not set, and the cure."""
    fixed: Arguments = field(default_factory=dict)
    """Arguments with the values that Loopline sets always."""
    own_split: bool = False
    """Whether the class itself splits the rows that it learns from."""
    arguments: tuple[str, ...] | None = None
    """Names of the arguments; None: the source tells them."""
    defaults: Arguments = field(default_factory=dict)
    """Values of arguments that a spec leaves out, where they are not the library's."""
    space: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    """The default search: an argument and the fields of its `Dimension`."""
    objectives: Mapping[str, Arguments] = field(default_factory=dict)
    """Arguments that set a loss of `models/training/optimisation/losses.py`; none: the estimator's own loss."""
    modules: tuple[str, ...] = ()
    """Packages that it imports."""
    distributions: tuple[str, ...] = ()
    """Their names in a package index."""


def general_row(
    name: str, tasks: tuple[str, ...], arguments: Collection[str], output: Output, weights: bool
) -> EstimatorRow:
    """Return the facts of a class of scikit-learn that is not listed, from what its source tells.

    Args:
        name: Of the class.
        tasks: What it learns.
        arguments: Those of its constructor.
        output: labels for a classifier without `predict_proba` and `decision_function`.
        weights: Whether `fit` takes `sample_weight`.
    """
    return EstimatorRow(
        name=name,
        package="sklearn",
        tasks=tasks,
        numbers="standardised",
        categories="one-hot",
        output=output,
        seed="random_state" if "random_state" in arguments else "",
        threads="n_jobs" if "n_jobs" in arguments else "",
        weights=weights,
        owned={argument: cure for argument, cure in _SKLEARN_OWNED.items() if argument in arguments},
        fixed={argument: value for argument, value in _SKLEARN_FIXED.items() if argument in arguments},
        own_split=name.endswith("CV") or name.startswith("Stacking"),
        arguments=tuple(arguments),
        modules=("sklearn",),
        distributions=("scikit-learn",),
    )


_SKLEARN_OWNED = {
    "random_state": SEED,
    "n_jobs": THREADS,
    "verbose": QUIET,
    "warm_start": RESUME,
    "early_stopping": PATIENCE,
    "validation_fraction": PATIENCE,
    "class_weight": "say train.class_weights",
    "categorical_features": KINDS,
    "monotonic_cst": POSITIONS,
    "interaction_cst": POSITIONS,
}
_SKLEARN_FIXED: Arguments = {"verbose": 0, "early_stopping": False}


def _sklearn(name: str, tasks: tuple[str, ...], **facts: Any) -> EstimatorRow:
    """Return the row of a listed class of scikit-learn; the source tells the names of its arguments."""
    usual = EstimatorRow(
        name=name,
        package="sklearn",
        tasks=tasks,
        output="scores" if tasks in (NUMBERS, QUANTILES) else "probabilities",
        owned=_SKLEARN_OWNED,
        modules=("sklearn",),
        distributions=("scikit-learn",),
    )
    return replace(usual, **facts)


_SKLEARN_ERRORS: Mapping[str, Arguments] = {
    "mse": {"loss": "squared_error"},
    "l1": {"loss": "absolute_error"},
    "relative_l1": {"loss": "absolute_error"},
    "pinball": {"loss": "quantile"},
}
"""The losses of numbers, as scikit-learn's boosted trees name them."""
_LINEAR: Arguments = {"numbers": "standardised", "categories": "one-hot"}
_FOREST: Arguments = {
    "seed": "random_state",
    "threads": "n_jobs",
    "space": {
        "max_features": {"low": 0.1, "high": 1.0},
        "min_samples_leaf": {"low": 1, "high": 50, "log": True, "integer": True},
    },
    "defaults": {"n_estimators": 300, "min_samples_leaf": 2, "max_features": 0.5},
}
_TREE: Arguments = {
    "seed": "random_state",
    "space": {"min_samples_leaf": {"low": 1, "high": 200, "log": True, "integer": True}},
}
_HIST: Arguments = {
    "gaps": True,
    "seed": "random_state",
    "fixed": _SKLEARN_FIXED,
    "owned": {**_SKLEARN_OWNED, "loss": GOAL, "quantile": GOAL, "scoring": PATIENCE, "n_iter_no_change": PATIENCE},
    "space": {
        "learning_rate": {"low": 0.02, "high": 0.3, "log": True},
        "max_leaf_nodes": {"low": 4, "high": 255, "log": True, "integer": True},
        "min_samples_leaf": {"low": 5, "high": 200, "log": True, "integer": True},
        "l2_regularization": {"low": 1e-3, "high": 10.0, "log": True},
    },
    "defaults": {"max_iter": 200, "learning_rate": 0.05},
}
_BOOSTED: Arguments = {
    "seed": "random_state",
    "owned": {**_SKLEARN_OWNED, "loss": GOAL, "alpha": GOAL, "n_iter_no_change": PATIENCE},
    "space": {
        "learning_rate": {"low": 0.02, "high": 0.3, "log": True},
        "max_depth": {"low": 2, "high": 8, "integer": True},
        "subsample": {"low": 0.5, "high": 1.0},
    },
}
_NEIGHBOURS: Arguments = {
    **_LINEAR,
    "threads": "n_jobs",
    "weights": False,
    "neighbours": "n_neighbors",
    "space": {
        "n_neighbors": {"low": 1, "high": 100, "log": True, "integer": True},
        "weights": {"choices": ["uniform", "distance"]},
    },
    "defaults": {"n_neighbors": 15},
}
_MLP: Arguments = {
    **_LINEAR,
    "seed": "random_state",
    "fixed": _SKLEARN_FIXED,
    "space": {
        "alpha": {"low": 1e-6, "high": 1e-1, "log": True},
        "learning_rate_init": {"low": 1e-4, "high": 1e-2, "log": True},
    },
}
_SGD: Arguments = {
    **_LINEAR,
    "seed": "random_state",
    "fixed": _SKLEARN_FIXED,
    "owned": {**_SKLEARN_OWNED, "loss": GOAL},
    "space": {"alpha": {"low": 1e-6, "high": 1e-1, "log": True}},
}
_LABELS: Arguments = {**_LINEAR, "output": "labels"}
_PENALTY = {"low": 1e-3, "high": 1e3, "log": True}
_PENALISED: Arguments = {**_LINEAR, "seed": "random_state", "space": {"alpha": _PENALTY}}

_XGBOOST_ARGUMENTS = (
    "max_depth", "max_leaves", "max_bin", "grow_policy", "learning_rate", "tree_method", "gamma", "min_child_weight",
    "max_delta_step", "subsample", "sampling_method", "colsample_bytree", "colsample_bylevel", "colsample_bynode",
    "reg_alpha", "reg_lambda",
)  # fmt: skip
_XGBOOST = EstimatorRow(
    name="",
    package="xgboost",
    tasks=(),
    gaps=True,
    rounds="n_estimators",
    num_rounds=300,
    seed="random_state",
    threads="n_jobs",
    owned={
        "n_estimators": ROUNDS,
        "random_state": SEED,
        "seed": SEED,
        "n_jobs": THREADS,
        "nthread": THREADS,
        "verbosity": QUIET,
        "objective": GOAL,
        "quantile_alpha": GOAL,
        "eval_metric": GOAL,
        "base_score": "XGBoost takes it from the training rows",
        "scale_pos_weight": WEIGHTS,
        "early_stopping_rounds": PATIENCE,
        "callbacks": PATIENCE,
        "device": DEVICE,
        "booster": "only gbtree can be exported",
        "missing": "the preparation decides",
        "enable_categorical": KINDS,
        "feature_types": KINDS,
        "max_cat_to_onehot": KINDS,
        "max_cat_threshold": KINDS,
        "multi_strategy": "each output has a model of its own",
        "importance_type": "the card measures importance",
        "monotone_constraints": POSITIONS,
        "interaction_constraints": POSITIONS,
        "num_parallel_tree": "the graph has one tree of each class a round",
        "validate_parameters": "it is always on",
    },
    fixed={"verbosity": 0, "device": "cpu", "booster": "gbtree", "validate_parameters": True},
    arguments=_XGBOOST_ARGUMENTS,
    defaults={"learning_rate": 0.05, "max_depth": 6, "min_child_weight": 1.0, "reg_lambda": 1.0},
    space={
        "learning_rate": {"low": 0.02, "high": 0.3, "log": True},
        "max_depth": {"low": 2, "high": 10, "integer": True},
        "min_child_weight": {"low": 1.0, "high": 100.0, "log": True},
        "reg_lambda": {"low": 1e-3, "high": 10.0, "log": True},
        "subsample": {"low": 0.5, "high": 1.0},
        "colsample_bynode": {"low": 0.3, "high": 1.0},
    },
    modules=("xgboost",),
    distributions=("xgboost-cpu", "xgboost"),
)
_CATBOOST_ARGUMENTS = (
    "learning_rate", "depth", "l2_leaf_reg", "rsm", "border_count", "feature_border_type", "nan_mode",
    "leaf_estimation_iterations", "leaf_estimation_method", "has_time", "random_strength", "bagging_temperature",
    "boosting_type", "bootstrap_type", "subsample", "mvs_reg", "sampling_unit", "sampling_frequency",
    "score_function", "leaf_estimation_backtracking", "min_data_in_leaf",
)  # fmt: skip
_CATBOOST = EstimatorRow(
    name="",
    package="catboost",
    tasks=(),
    gaps=True,
    rounds="iterations",
    num_rounds=300,
    seed="random_seed",
    threads="thread_count",
    owned={
        **dict.fromkeys(("iterations", "n_estimators", "num_boost_round", "num_trees"), ROUNDS),
        **dict.fromkeys(("random_seed", "random_state"), SEED),
        "thread_count": THREADS,
        **dict.fromkeys(("verbose", "silent", "logging_level", "metric_period"), QUIET),
        **dict.fromkeys(("loss_function", "objective", "eval_metric", "custom_metric", "custom_loss"), GOAL),
        **dict.fromkeys(("od_pval", "od_wait", "od_type", "early_stopping_rounds", "use_best_model"), PATIENCE),
        **dict.fromkeys(("best_model_min_trees", "eval_fraction", "callback"), PATIENCE),
        **dict.fromkeys(("task_type", "devices", "device_config", "gpu_ram_part"), DEVICE),
        **dict.fromkeys(("class_weights", "auto_class_weights", "scale_pos_weight"), WEIGHTS),
        **dict.fromkeys(("cat_features", "text_features", "embedding_features", "one_hot_max_size"), KINDS),
        **dict.fromkeys(("save_snapshot", "snapshot_file", "snapshot_interval"), RESUME),
        **dict.fromkeys(("train_dir", "allow_writing_files"), "Loopline keeps the model"),
        **dict.fromkeys(("class_names", "classes_count", "target_border"), "the target decides"),
        **dict.fromkeys(("grow_policy", "max_leaves", "num_leaves"), "only symmetric trees can be exported"),
        **dict.fromkeys(("monotone_constraints", "feature_weights"), POSITIONS),
        **dict.fromkeys(("model_shrink_rate", "model_shrink_mode"), ONWARDS),
        **dict.fromkeys(("langevin", "diffusion_temperature", "boost_from_average"), ONWARDS),
        "eta": "say learning_rate",
        "max_depth": "say depth",
        "reg_lambda": "say l2_leaf_reg",
        "max_bin": "say border_count",
        "colsample_bylevel": "say rsm",
        "min_child_samples": "say min_data_in_leaf",
    },
    fixed={"verbose": False, "allow_writing_files": False, "allow_const_label": True, "task_type": "CPU"},
    arguments=_CATBOOST_ARGUMENTS,
    defaults={"learning_rate": 0.05, "depth": 6, "l2_leaf_reg": 3.0},
    space={
        "learning_rate": {"low": 0.02, "high": 0.3, "log": True},
        "depth": {"low": 3, "high": 8, "integer": True},
        "l2_leaf_reg": {"low": 0.5, "high": 30.0, "log": True},
        "random_strength": {"low": 0.1, "high": 10.0, "log": True},
    },
    modules=("catboost",),
    distributions=("catboost",),
)

ROWS: dict[str, EstimatorRow] = {
    row.name: row
    for row in (
        replace(
            _XGBOOST,
            name="XGBClassifier",
            tasks=CLASSES,
            objectives={"bce": {"objective": "binary:logistic"}, "cross_entropy": {"objective": "multi:softprob"}},
        ),
        replace(
            _XGBOOST,
            name="XGBRegressor",
            tasks=QUANTILES,
            quantile="quantile_alpha",
            objectives={
                "mse": {"objective": "reg:squarederror"},
                "l1": {"objective": "reg:absoluteerror"},
                "relative_l1": {"objective": "reg:absoluteerror"},
                "pinball": {"objective": "reg:quantileerror"},
            },
        ),
        replace(
            _CATBOOST,
            name="CatBoostClassifier",
            tasks=CLASSES,
            objectives={"bce": {"loss_function": "Logloss"}, "cross_entropy": {"loss_function": "MultiClass"}},
        ),
        replace(
            _CATBOOST,
            name="CatBoostRegressor",
            tasks=QUANTILES,
            quantile="loss_function",
            quantile_form="Quantile:alpha={}",
            objectives={
                "mse": {"loss_function": "RMSE"},
                "l1": {"loss_function": "MAE"},
                "relative_l1": {"loss_function": "MAE"},
            },
        ),
        _sklearn("RandomForestClassifier", CLASSES, **_FOREST),
        _sklearn("RandomForestRegressor", NUMBERS, **_FOREST),
        _sklearn("ExtraTreesClassifier", CLASSES, **_FOREST),
        _sklearn("ExtraTreesRegressor", NUMBERS, **_FOREST),
        _sklearn("DecisionTreeClassifier", CLASSES, **_TREE),
        _sklearn("DecisionTreeRegressor", NUMBERS, **_TREE),
        _sklearn("HistGradientBoostingClassifier", CLASSES, **_HIST),
        _sklearn("HistGradientBoostingRegressor", QUANTILES, **_HIST, quantile="quantile", objectives=_SKLEARN_ERRORS),
        _sklearn("GradientBoostingClassifier", CLASSES, **_BOOSTED),
        _sklearn(
            "GradientBoostingRegressor",
            QUANTILES,
            **_BOOSTED,
            quantile="alpha",
            objectives=_SKLEARN_ERRORS,
        ),
        _sklearn(
            "LogisticRegression",
            CLASSES,
            **_LINEAR,
            seed="random_state",
            space={"C": _PENALTY},
            defaults={"max_iter": 1000},
        ),
        _sklearn("Ridge", NUMBERS, **_PENALISED),
        _sklearn("Lasso", NUMBERS, **_PENALISED),
        _sklearn(
            "ElasticNet",
            NUMBERS,
            **_LINEAR,
            seed="random_state",
            space={"alpha": _PENALTY, "l1_ratio": {"low": 0.0, "high": 1.0}},
        ),
        _sklearn("KNeighborsClassifier", CLASSES, **_NEIGHBOURS),
        _sklearn("KNeighborsRegressor", NUMBERS, **_NEIGHBOURS),
        _sklearn("SVR", NUMBERS, **_LINEAR, space={"C": _PENALTY, "epsilon": {"low": 1e-3, "high": 1.0, "log": True}}),
        _sklearn("MLPClassifier", CLASSES, **_MLP),
        _sklearn("MLPRegressor", NUMBERS, **_MLP),
        _sklearn(
            "SGDClassifier",
            CLASSES,
            **_SGD,
            threads="n_jobs",
            objectives={"bce": {"loss": "log_loss"}, "cross_entropy": {"loss": "log_loss"}},
        ),
        _sklearn("SVC", CLASSES, **_LABELS),
        _sklearn("NuSVC", CLASSES, **_LABELS),
        _sklearn("LinearSVC", CLASSES, **_LABELS),
        _sklearn("Perceptron", CLASSES, **_LABELS),
        _sklearn("RidgeClassifier", CLASSES, **_LABELS),
        _sklearn("PassiveAggressiveClassifier", CLASSES, **_LABELS),
    )
}
"""The well-known classes, by name."""
