"""The ready nets: their names, what data each takes, and where a search should look.

Nothing here imports torch: the process that plans a search reads spaces without paying for it.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from models.errors import UsageError
from models.project_spec.blocks import Kind
from models.project_spec.references import is_own_code, resolve
from models.project_spec.search import Dimension

_TRAIN_SPACE = {
    "train.lr": Dimension(low=1e-4, high=1e-2, log=True),
    "train.weight_decay": Dimension(low=1e-6, high=1e-1, log=True),
}


@dataclass(frozen=True)
class CatalogueEntry:
    """A ready net: its factory, the kinds of data it takes, and its own part of the default search space.

    `arguments` names the function whose parameters are `model.arguments`, where that is not the factory.
    """

    reference: str
    kinds: tuple[Kind, ...]
    space: dict[str, Dimension]
    gradient: bool = True
    arguments: str = ""


CATALOGUE: dict[str, CatalogueEntry] = {
    "mlp": CatalogueEntry(
        "models.nets.mlp:build",
        ("table", "image", "series"),
        {
            "model.hidden": Dimension(choices=[64, 128, 256, 512]),
            "model.layers": Dimension(low=1, high=4, integer=True),
            "model.dropout": Dimension(low=0.0, high=0.5),
        },
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
        {
            "model.hidden": Dimension(choices=[32, 64, 128]),
            "model.layers": Dimension(low=1, high=2, integer=True),
            "model.dropout": Dimension(low=0.0, high=0.4),
        },
    ),
    "lstm": CatalogueEntry(
        "models.nets.rnn:build_lstm",
        ("series", "text"),
        {
            "model.hidden": Dimension(choices=[32, 64, 128]),
            "model.layers": Dimension(low=1, high=2, integer=True),
            "model.dropout": Dimension(low=0.0, high=0.4),
        },
    ),
    "transformer": CatalogueEntry(
        "models.nets.transformer:build",
        ("table", "image", "series"),
        {
            "model.width": Dimension(choices=[32, 64, 128]),
            "model.layers": Dimension(low=1, high=4, integer=True),
            "model.dropout": Dimension(low=0.0, high=0.3),
        },
    ),
    "decoder": CatalogueEntry(
        "models.nets.decoder:build",
        ("text",),
        {
            "model.width": Dimension(choices=[64, 128, 192]),
            "model.layers": Dimension(low=2, high=6, integer=True),
            "model.dropout": Dimension(low=0.0, high=0.3),
        },
    ),
    "trees": CatalogueEntry(
        "models.training.trees:train_trees",
        ("table",),
        {
            "model.learning_rate": Dimension(low=0.02, high=0.3, log=True),
            "model.num_leaves": Dimension(low=8, high=255, log=True, integer=True),
            "model.min_data_in_leaf": Dimension(low=5, high=200, log=True, integer=True),
            "model.lambda_l2": Dimension(low=1e-3, high=10.0, log=True),
        },
        gradient=False,
        arguments="models.training.trees:settings",
    ),
}
NETS: dict[str, str] = {name: net.reference for name, net in CATALOGUE.items()}
_DEFAULT: dict[Kind, str] = {"table": "mlp", "image": "cnn", "series": "gru", "text": "decoder"}
_OF_STEPS = {"batch", "accumulate", "optimiser", "momentum", "nesterov", "weight_decay", "clip_norm"}
_OF_RATES = {"lr", "schedule", "cycles", "decay", "warmup", "plateau_patience"}
_OF_PASSES = {"augment", "label_smoothing", "precision", "recompute", "compile"}
_OF_DESCENT = _OF_STEPS | _OF_RATES | _OF_PASSES


def default_net(kind: Kind) -> str:
    """The ready net of `auto`."""
    return _DEFAULT[kind]


def net_name(net: str, kind: Kind) -> str:
    """`net` with `auto` put in words: a key of `NETS` or a reference to own code.

    Raises:
        UsageError: No such net, or one that does not take this kind of data.
    """
    name = default_net(kind) if net == "auto" else net
    if name in CATALOGUE:
        if kind not in CATALOGUE[name].kinds:
            fitting = ", ".join(other for other, entry in CATALOGUE.items() if kind in entry.kinds)
            raise UsageError(f"model.net: {name} does not take data of kind {kind}; those that do: {fitting}")
    elif not is_own_code(name):
        try:
            resolve(name, Path(), NETS)
        except UsageError as error:
            raise UsageError(f"model.net: {error}") from None
    return name


def is_trees(net: str) -> bool:
    """True for nets that are not trained by gradient descent on ranks."""
    return net in CATALOGUE and not CATALOGUE[net].gradient


def unused(net: str, names: Iterable[str]) -> list[str]:
    """Keys of `train` that have no effect for a net: trees have no gradient descent."""
    return sorted(_OF_DESCENT & {*names}) if is_trees(net) else []


def default_space(net: str) -> dict[str, Dimension]:
    """The default search space of a net: spec paths and their ranges.

    Args:
        net: A key of `NETS`, or a reference to own code, of which only learning rate and decay are searched.
    """
    entry = CATALOGUE.get(net)
    if entry is None:
        return dict(_TRAIN_SPACE)
    return {**(_TRAIN_SPACE if entry.gradient else {}), **entry.space}
