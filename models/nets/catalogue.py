"""The families: ready nets and what a spec names by reference, each with what a stage asks of it.

This module does not import torch: the process that plans a search reads the spaces without that cost.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, NamedTuple, get_args

from models.errors import UsageError
from models.project_spec.blocks import Kind
from models.project_spec.references import FamilyPart, NetSort, is_own_code, resolve, sort_of_net
from models.project_spec.search import Dimension

OBJECTIVE = "model.objective"
"""The path of the objective of trees, which is searched where the goal is the absolute error."""
BAG_S = 20.0
"""Seconds of a reference core for all models of the bags of a small table: about 7 CPU-s (docs/decisions/0098)."""
_TRAIN_SPACE = {
    "train.lr": Dimension(low=1e-4, high=1e-2, log=True),
    "train.weight_decay": Dimension(low=1e-6, high=1e-1, log=True),
}
_RECURRENT_SPACE = {
    **_TRAIN_SPACE,
    "model.hidden": Dimension(choices=[32, 64, 128]),
    "model.layers": Dimension(low=1, high=2, integer=True),
    "model.dropout": Dimension(low=0.0, high=0.4),
}


_OF_STEPS = {"batch", "accumulate", "optimiser", "momentum", "nesterov", "weight_decay", "clip_norm"}
_OF_RATES = {"lr", "schedule", "cycles", "decay", "warmup", "plateau_patience"}
_OF_PASSES = {"augment", "label_smoothing", "precision", "recompute", "compile"}
_OF_DESCENT = frozenset(_OF_STEPS | _OF_RATES | _OF_PASSES)
_OF_REFITS = frozenset({"refit"})


class FitMemory(NamedTuple):
    """Bytes that a fit which holds its rows in memory needs for a row of a table (docs/decisions/0126).

    Attributes:
        number: For each numeric input.
        category: For each categorical input; of one-hot categories for each of its values.
        row: Beside the inputs.
        output: For each output or class.
        joined_cell, joined_row: The same of a refit, which copies training and validation rows into one.
    """

    number: float = 0
    category: float = 0
    row: float = 0
    output: float = 0
    joined_cell: float = 4
    joined_row: float = 16


IN_BATCHES = FitMemory(joined_cell=0, joined_row=0)


@dataclass(frozen=True)
class CatalogueEntry:
    """A family: what a stage asks of it, and its code by references."""

    reference: str
    """What declares `model.arguments` of a ready family: a factory of torch nets, or a class with these fields."""
    kinds: tuple[Kind, ...]
    """The kinds of data that it takes."""
    space: dict[str, Dimension]
    """Its default search space, by spec path."""
    by_descent: bool = True
    """Whether it learns by gradient descent over batches, on ranks; otherwise one process fits it."""
    unused: frozenset[str] = _OF_REFITS
    """The keys of `train` without an effect."""
    fit: str = "models.training.rank:run_job"
    """(job, report, restarts) -> TrainingResult, in one process; ranks run that of nets by descent."""
    outputs: str = "models.export.trained:net_outputs"
    """(job, preparation, positions) -> raw outputs of a finished job for validation examples (example, output)."""
    graphs: str = "models.export.net_graph:net_graphs"
    """(jobs of equal settings, preparation) -> each trained model as a GraphBuilder, and the name of its output."""
    weights: str = "weights.safetensors"
    """The file of the weights in a job's folder."""
    modules: tuple[str, ...] = ()
    """What a training imports beside torch, once for all children of the fork server."""
    libraries: tuple[str, ...] = ()
    """Those that decide the result beside torch."""
    no_gpu: str = ""
    """Why it uses no GPU."""
    reader: str = "models.nets.catalogue:as_listed"
    """(row, net, folder of the spec) -> the row with the space, the defaults and the libraries that a source tells."""
    defaults: dict[str, Any] = field(default_factory=dict)
    """The values of its first trial, by spec path, where a search chooses between families."""
    starts: tuple[dict[str, Any], ...] = ()
    """Each changes the defaults for a further trial of a table, before values are drawn."""
    of_tables: tuple[str, ...] = ()
    """Paths that have a default and are searched for tables alone: of series, the fit itself chooses them."""
    shared_by: tuple[str, ...] = ("tp", "pp")
    """The parts of `train.parallel` by which ranks can share its layers or blocks; own nets are asked when built."""
    steps_an_epoch: int = 0
    """Steps that an epoch of a small table has at least, by smaller batches; 0: the usual batch."""
    fewest_epochs: int = 5
    """Epochs of its first trial, however many examples there are and however long one takes."""
    continues_window: bool = False
    """Whether of series it maps the target's window, as the linear reference forecast does."""
    counts_steps: bool = False
    """Whether its default epochs make so many steps where a spec names it, too; else they are the spec's ten."""
    bag_s: float = 0.0
    """Seconds of a reference core that the bags of a search with it may take; 0 where its cost is not known before."""
    reads_words: bool = False
    """Whether it takes the words of a table's texts in their order, beside the features of the texts."""
    fewest_rows: int = 0
    """Training rows from which a search that names no families tries it."""
    memory: FitMemory = IN_BATCHES
    """What a row of a table takes while it is fitted; 0 where batches are read."""

    def code(self, parts: Iterable[FamilyPart]) -> list[str]:
        """Return the references of the family's code that a step runs, with what declares its arguments."""
        functions: dict[FamilyPart, str] = {"fit": self.fit, "outputs": self.outputs, "graph": self.graphs}
        named = filter(None, (self.reference, self.reader))
        return [*named, *(functions[part] for part in parts)]


_OF_WINDOW = CatalogueEntry(
    "models.nets.linear:build_naive",
    ("series",),
    {},
    by_descent=False,
    unused=_OF_DESCENT | _OF_REFITS,
    fit="models.training.linear:fit_naive",
    no_gpu="it is a mean of steps of the window",
    continues_window=True,
)
CATALOGUE: dict[str, CatalogueEntry] = {
    "mlp": CatalogueEntry(
        "models.nets.mlp:build",
        ("table", "image", "series"),
        {
            **_TRAIN_SPACE,
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
        bag_s=BAG_S,
    ),
    "tabm": CatalogueEntry(
        "models.nets.tabm:build",
        ("table",),
        {
            **_TRAIN_SPACE,
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
        shared_by=(),
    ),
    "cnn": CatalogueEntry(
        "models.nets.cnn:build",
        ("image",),
        {
            **_TRAIN_SPACE,
            "model.width": Dimension(choices=[16, 32, 48]),
            "model.stages": Dimension(low=2, high=3, integer=True),
            "model.dropout": Dimension(low=0.0, high=0.5),
        },
        defaults={
            "train.lr": 1e-3,
            "train.weight_decay": 1e-2,
            "train.patience": 10,
            "model.width": 32,
            "model.stages": 2,
            "model.dropout": 0.25,
        },
        shared_by=(),
        counts_steps=True,
    ),
    "resnet": CatalogueEntry(
        "models.nets.resnet:build",
        ("image",),
        {
            "train.lr": Dimension(low=3e-3, high=3e-2, log=True),
            "train.weight_decay": Dimension(low=1e-2, high=2e-1, log=True),
        },
        defaults={"train.lr": 1e-2, "train.weight_decay": 5e-2},
        shared_by=(),
        fewest_epochs=1,
        counts_steps=True,
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
        shared_by=(),
        counts_steps=True,
    ),
    "lstm": CatalogueEntry(
        "models.nets.rnn:build_lstm", ("series", "text"), _RECURRENT_SPACE, shared_by=(), counts_steps=True
    ),
    "transformer": CatalogueEntry(
        "models.nets.transformer:build",
        ("table", "image", "series"),
        {
            **_TRAIN_SPACE,
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
        steps_an_epoch=100,
        fewest_epochs=2,
        fewest_rows=20_000,  # so many texts n-grams learn from, and no more
        reads_words=True,
    ),
    "decoder": CatalogueEntry(
        "models.nets.decoder:build",
        ("text",),
        {
            **_TRAIN_SPACE,
            "model.width": Dimension(choices=[64, 128, 192]),
            "model.layers": Dimension(low=2, high=6, integer=True),
            "model.dropout": Dimension(low=0.0, high=0.3),
        },
        counts_steps=True,
    ),
    "trees": CatalogueEntry(
        "models.training.tree_parameters:TreeArguments",
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
        by_descent=False,
        unused=_OF_DESCENT,
        fit="models.training.trees:train_trees",
        outputs="models.training.trees:trees_outputs",
        graphs="models.export.trees:trees_graphs",
        weights="trees.txt",
        modules=("lightgbm",),
        libraries=("lightgbm",),
        no_gpu="trees grow in one process; LightGBM's GPU build is another package",
        memory=FitMemory(number=6.3, category=8, row=74, output=24),
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
        bag_s=BAG_S,
    ),
    "linear": CatalogueEntry(
        "models.nets.linear:build",
        ("table", "series"),
        {"model.l2": Dimension(low=1e-2, high=1e3, log=True)},
        by_descent=False,
        unused=_OF_DESCENT,
        fit="models.training.linear:fit_linear",
        no_gpu="a linear model is fitted by few passes over all rows, in one process",
        memory=FitMemory(number=0.7, category=16, row=36, output=16),
        defaults={"model.l2": 1.0},
        of_tables=("model.l2",),
        continues_window=True,
        bag_s=BAG_S,
    ),
    "naive": _OF_WINDOW,
    "smoothing": replace(_OF_WINDOW, fit="models.training.linear:fit_smoothing"),
    "descriptors": CatalogueEntry(
        "models.nets.descriptors:build",
        ("image",),
        {},
        by_descent=False,
        unused=_OF_DESCENT,
        fit="models.training.convex.descriptors:fit_descriptors",
        no_gpu="a linear model is fitted by few passes over all rows, in one process",
    ),
}
OWN_NET = CatalogueEntry(
    "",
    get_args(Kind),
    _TRAIN_SPACE,
    defaults={"train.lr": 1e-3, "train.weight_decay": 1e-2, "train.patience": 10},
    counts_steps=True,
    reads_words=True,
)
ESTIMATOR = CatalogueEntry(
    "",
    ("table", "series"),
    {},
    by_descent=False,
    unused=_OF_DESCENT,
    fit="models.training.by_rounds.estimators:fit_estimator",
    outputs="models.training.by_rounds.estimators:estimator_outputs",
    graphs="models.export.estimators:estimator_parts",
    weights="family.bin",
    no_gpu="an estimator is fitted in one process",
    memory=FitMemory(number=16, category=16, row=84, output=16),
    reader="models.estimators.search:read_row",
)
_REFERENCES: dict[NetSort, CatalogueEntry] = {
    "ready": OWN_NET,
    "net": OWN_NET,
    "class": ESTIMATOR,
    "row": ESTIMATOR,
}
"""The rows of nets that are not in the catalogue; the only ready one is an ensemble."""
NETS: dict[str, str] = {name: net.reference for name, net in CATALOGUE.items()}
FAMILIES = ("trees", "linear", "mlp")
"""What `auto` of a table chooses from, in the order in which a search tries them."""
FAMILIES_OF: dict[Kind, tuple[str, ...]] = {
    "table": FAMILIES,
    "series": ("trees", "linear", "gru", "smoothing"),
    "image": ("descriptors", "resnet"),
}
"""The same for each kind of data that has a choice."""
OF_TEXTS = "transformer"
"""A further family of tables with a declared text column: it reads the words, beside the linear scores of n-grams."""
FALLBACKS = frozenset({"naive", "smoothing"})
"""Families that ensembles fall back on whose weights few examples chose."""
ENSEMBLE = "ensemble"
"""The net of a model that a search joined from several families: see models/training/ensemble.py."""
_DEFAULT: dict[Kind, str] = {"table": FAMILIES[0], "image": "resnet", "series": "trees", "text": "decoder"}


def net_name(net: str, kind: Kind) -> str:
    """Return `net` with `auto` resolved: a key of `NETS` or a reference to the user's code.

    Raises:
        UsageError: The net does not exist, or does not accept this kind of data.
    """
    name = _DEFAULT[kind] if net == "auto" else net
    if name == ENSEMBLE:
        return name
    if name not in CATALOGUE and not is_own_code(name):
        try:
            resolve(name, Path(), dict.fromkeys(CATALOGUE, ""))
        except UsageError as error:
            raise UsageError(f"model.net: {error}") from None
    if kind not in row_of(name).kinds:
        fitting = ", ".join(family_name for family_name, family in CATALOGUE.items() if kind in family.kinds)
        raise UsageError(f"model.net: got {name}, which takes no data of kind {kind}, expected one of {fitting}")
    return name


def is_ready(name: str) -> bool:
    """Return whether a spec's name of a family is Loopline's own."""
    return name in CATALOGUE or name in ("auto", ENSEMBLE)


def row_of(net: str) -> CatalogueEntry:
    """Return the row of a net by its resolved name: of a ready one, or of what a reference names."""
    return CATALOGUE.get(net) or _REFERENCES[sort_of_net(net)]


def full_row_of(net: str, base: Path) -> CatalogueEntry:
    """Return the row of a net with what its source tells, which `row_of` leaves out for references.

    Args:
        net: By its resolved name.
        base: The folder of the spec.

    Raises:
        UsageError: The reference names nothing that can be a family.
    """
    row = row_of(net)
    full: CatalogueEntry = resolve(row.reader, base)(row, net, base)
    return full


def as_listed(row: CatalogueEntry, net: str, base: Path) -> CatalogueEntry:
    """Return the row of a family whose facts all stand in it."""
    del net, base
    return row


def can_begin(net: str, other_net: str, partial: bool = False) -> bool:
    """Return whether a net can begin with the weights of another model, both by their resolved names.

    Trees, linear models and ensembles have no weights for a net, and take none. An own net may have the layers of any
    other net, and with `partial` (`train.start.partial`) some layers are enough: the load tells.
    """
    have_layers = by_descent((net, other_net)) == [net, other_net] and ENSEMBLE not in (net, other_net)
    return have_layers and (net == other_net or partial or not {net, other_net} <= CATALOGUE.keys())


def reads_words(net: str) -> bool:
    """Return whether a net, by its resolved name, gets the words of a table's texts; an own net may leave them out."""
    return row_of(net).reads_words and bool(net)


def by_descent(nets: Iterable[str]) -> list[str]:
    """Return those of the nets that learn by gradient descent."""
    return [net for net in nets if row_of(net).by_descent]


def unused(net: str, names: Iterable[str]) -> list[str]:
    """Return those of the `train` keys `names` that the training of a net does not use."""
    return sorted(row_of(net).unused & {*names})
