"""The built-in nets: their names, the kinds of data they accept, and their default search spaces.

This module does not import torch: the process that plans a search reads the spaces without that cost.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from models.errors import UsageError
from models.project_spec.blocks import Kind
from models.project_spec.references import is_own_code, resolve
from models.project_spec.search import WITHOUT_DESCENT, Dimension

OBJECTIVE = "model.objective"
"""The path of the objective of trees, which is searched where the goal is the absolute error."""
_TRAIN_SPACE = {
    "train.lr": Dimension(low=1e-4, high=1e-2, log=True),
    "train.weight_decay": Dimension(low=1e-6, high=1e-1, log=True),
}
_RECURRENT_SPACE = {
    "model.hidden": Dimension(choices=[32, 64, 128]),
    "model.layers": Dimension(low=1, high=2, integer=True),
    "model.dropout": Dimension(low=0.0, high=0.4),
}


@dataclass(frozen=True)
class CatalogueEntry:
    """A built-in net: its factory, the kinds of data it accepts, and its own part of the default search space.

    `arguments` names the class whose fields are `model.arguments`, if these are not the parameters of the factory.
    `defaults` are the values of its first trial, by spec path, where a search chooses between families, and each of
    `starts` changes them for a further trial of a table, before values are drawn; the paths `of_tables` have a default
    and are searched for tables alone. `self_tuned`: the kinds of data for which the fit itself chooses the arguments
    that the spec leaves out, so that there is nothing to search. `is_divided`: whether ranks can share its layers or
    its blocks.
    `steps_an_epoch`: steps that an epoch of a small table has at least, by smaller batches; 0: the usual batch.
    `fewest_epochs`: epochs of a family's first trial, however many examples there are and however long one takes.
    `reads_words`: whether it takes the words of a table's texts in their order, beside the features of the texts.
    """

    reference: str
    kinds: tuple[Kind, ...]
    space: dict[str, Dimension]
    arguments: str = ""
    defaults: dict[str, Any] = field(default_factory=dict)
    starts: tuple[dict[str, Any], ...] = ()
    of_tables: tuple[str, ...] = ()
    self_tuned: tuple[Kind, ...] = ()
    is_divided: bool = False
    steps_an_epoch: int = 0
    fewest_epochs: int = 5
    reads_words: bool = False


CATALOGUE: dict[str, CatalogueEntry] = {
    "mlp": CatalogueEntry(
        "models.nets.mlp:build",
        ("table", "image", "series"),
        {
            "model.hidden": Dimension(choices=[64, 128, 256, 512]),
            "model.layers": Dimension(low=1, high=4, integer=True),
            "model.dropout": Dimension(low=0.0, high=0.5),
        },
        defaults={
            "train.lr": 2e-3,
            "train.weight_decay": 1e-2,
            "train.patience": 10,
            "model.hidden": 256,
            "model.layers": 2,
            "model.dropout": 0.1,
            "model.numeric_embedding": "periodic",
        },
        is_divided=True,
    ),
    "tabm": CatalogueEntry(
        "models.nets.tabm:build",
        ("table",),
        {
            "model.hidden": Dimension(choices=[64, 128, 256]),
            "model.layers": Dimension(low=1, high=3, integer=True),
            "model.dropout": Dimension(low=0.0, high=0.5),
        },
        defaults={
            "train.lr": 2e-3,
            "train.weight_decay": 1e-2,
            "train.patience": 10,
            "model.hidden": 128,
            "model.layers": 2,
            "model.dropout": 0.1,
        },
        steps_an_epoch=20,
    ),
    "cnn": CatalogueEntry(
        "models.nets.cnn:build",
        ("image",),
        {
            "model.width": Dimension(choices=[16, 32, 48]),
            "model.stages": Dimension(low=2, high=3, integer=True),
            "model.dropout": Dimension(low=0.0, high=0.5),
        },
    ),
    "gru": CatalogueEntry(
        "models.nets.rnn:build_gru",
        ("series", "text"),
        _RECURRENT_SPACE,
        defaults={
            "train.lr": 1e-3,
            "train.weight_decay": 1e-2,
            "train.patience": 10,
            "model.hidden": 64,
            "model.layers": 1,
            "model.dropout": 0.0,
        },
    ),
    "lstm": CatalogueEntry("models.nets.rnn:build_lstm", ("series", "text"), _RECURRENT_SPACE),
    "transformer": CatalogueEntry(
        "models.nets.transformer:build",
        ("table", "image", "series"),
        {
            "model.width": Dimension(choices=[32, 64, 128]),
            "model.layers": Dimension(low=1, high=4, integer=True),
            "model.dropout": Dimension(low=0.0, high=0.3),
        },
        defaults={
            "train.lr": 2e-3,
            "train.weight_decay": 1e-2,
            "train.patience": 3,
            "model.width": 32,
            "model.layers": 1,
            "model.dropout": 0.1,
        },
        is_divided=True,
        steps_an_epoch=100,
        fewest_epochs=2,
        reads_words=True,
    ),
    "decoder": CatalogueEntry(
        "models.nets.decoder:build",
        ("text",),
        {
            "model.width": Dimension(choices=[64, 128, 192]),
            "model.layers": Dimension(low=2, high=6, integer=True),
            "model.dropout": Dimension(low=0.0, high=0.3),
        },
        is_divided=True,
    ),
    "trees": CatalogueEntry(
        "models.training.trees:train_trees",
        ("table", "series"),
        {
            "model.learning_rate": Dimension(low=0.02, high=0.3, log=True),
            "model.num_leaves": Dimension(low=4, high=255, log=True, integer=True),
            "model.min_data_in_leaf": Dimension(low=5, high=200, log=True, integer=True),
            "model.lambda_l2": Dimension(low=1e-3, high=10.0, log=True),
            "model.feature_fraction_bynode": Dimension(low=0.3, high=1.0),
            "model.extra_trees": Dimension(choices=[False, True]),
            OBJECTIVE: Dimension(choices=["auto", "regression"]),
        },
        arguments="models.training.tree_parameters:TreeArguments",
        defaults={
            "model.rounds": 1000,
            "train.epochs": 20,
            "model.learning_rate": 0.05,
            "model.num_leaves": 31,
            "model.min_data_in_leaf": 20,
            "model.lambda_l2": 1.0,
            "model.feature_fraction_bynode": 0.5,
            "model.extra_trees": False,
            OBJECTIVE: "auto",
        },
        starts=(
            {OBJECTIVE: "regression"},
            {"model.num_leaves": 7, "model.min_data_in_leaf": 10},
            {"model.extra_trees": True},
        ),
        of_tables=("model.feature_fraction_bynode", "model.extra_trees", OBJECTIVE),
    ),
    "linear": CatalogueEntry(
        "models.nets.linear:build",
        ("table", "series"),
        {"model.l2": Dimension(low=1e-2, high=1e3, log=True)},
        defaults={"model.l2": 1.0},
        self_tuned=("series",),
    ),
}
NETS: dict[str, str] = {name: net.reference for name, net in CATALOGUE.items()}
FAMILIES = ("trees", "linear", "mlp")
"""What `auto` of a table chooses from, in the order in which a search tries them."""
FAMILIES_OF: dict[Kind, tuple[str, ...]] = {"table": FAMILIES, "series": ("trees", "linear", "gru")}
"""The same for each kind of data that has a choice."""
OF_TEXTS = "transformer"
"""A further family of tables with a declared text column: it reads the words, beside the linear scores of n-grams."""
ENSEMBLE = "ensemble"
"""The net of a model that a search joined from several families: see models/training/ensemble.py."""
_DEFAULT: dict[Kind, str] = {"table": FAMILIES[0], "image": "cnn", "series": "trees", "text": "decoder"}
_OF_STEPS = {"batch", "accumulate", "optimiser", "momentum", "nesterov", "weight_decay", "clip_norm"}
_OF_RATES = {"lr", "schedule", "cycles", "decay", "warmup", "plateau_patience"}
_OF_PASSES = {"augment", "label_smoothing", "precision", "recompute", "compile"}
_OF_DESCENT = _OF_STEPS | _OF_RATES | _OF_PASSES
_OF_REFITS = {"refit"}


def net_name(net: str, kind: Kind) -> str:
    """Return `net` with `auto` resolved: a key of `NETS` or a reference to the user's code.

    Raises:
        UsageError: The net does not exist, or does not accept this kind of data.
    """
    name = _DEFAULT[kind] if net == "auto" else net
    if name == ENSEMBLE:
        return name
    if name in CATALOGUE:
        if kind not in CATALOGUE[name].kinds:
            fitting = ", ".join(family_name for family_name, family in CATALOGUE.items() if kind in family.kinds)
            raise UsageError(f"model.net: got {name}, which takes no data of kind {kind}, expected one of {fitting}")
    elif not is_own_code(name):
        try:
            resolve(name, Path(), NETS)
        except UsageError as error:
            raise UsageError(f"model.net: {error}") from None
    return name


def is_trees(net: str) -> bool:
    """Return whether the net is LightGBM's trees, which are no torch net."""
    return net == "trees"


def is_descent(net: str) -> bool:
    """Return whether the net is trained by gradient descent over batches, on ranks; otherwise one process fits it."""
    return net not in WITHOUT_DESCENT


def can_begin(net: str, other_net: str, partial: bool = False) -> bool:
    """Return whether a net can begin with the weights of another model, both by their resolved names.

    Trees, linear models and ensembles have no weights for a net, and take none. An own net may have the layers of any
    other net, and with `partial` (`train.start.partial`) some layers are enough: the load tells.
    """
    are_nets = is_descent(net) and is_descent(other_net) and ENSEMBLE not in (net, other_net)
    return are_nets and (net == other_net or partial or not {net, other_net} <= CATALOGUE.keys())


def reads_words(net: str) -> bool:
    """Return whether a net, by its resolved name, gets the words of a table's texts; an own net may leave them out."""
    return CATALOGUE[net].reads_words if net in CATALOGUE else bool(net)


def is_self_tuned(net: str, kind: Kind) -> bool:
    """Return whether the fit of a net chooses its arguments itself."""
    return net in CATALOGUE and kind in CATALOGUE[net].self_tuned


def unused(net: str, names: Iterable[str]) -> list[str]:
    """Return those of the `train` keys `names` that the training of a net does not use."""
    return sorted((_OF_REFITS if is_descent(net) else _OF_DESCENT) & {*names})


def default_space(net: str) -> dict[str, Dimension]:
    """Return the search space if the spec has none: spec paths and their ranges.

    Args:
        net: A key of `NETS`, or a reference to the user's code, with a search of learning rate and decay only.
    """
    family = CATALOGUE.get(net)
    if family is None:
        return dict(_TRAIN_SPACE)
    return {**(_TRAIN_SPACE if is_descent(net) else {}), **family.space}
