"""The families that `model.net: auto` chooses from: which fit the spec, and what is searched in each."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, NamedTuple

from models.errors import UsageError, did_you_mean
from models.nets.arguments import argument_types
from models.nets.catalogue import (
    CATALOGUE,
    ENSEMBLE,
    FAMILIES_OF,
    OBJECTIVE,
    OF_TEXTS,
    full_row_of,
    net_name,
    row_of,
    unused,
)
from models.project_spec.blocks import Spec
from models.project_spec.references import is_own_code
from models.project_spec.search import Dimension
from models.training.job import InitialWeights
from models.training.optimisation.course import (
    AUGMENT,
    CEILINGS_S,
    CHOICE_CEILINGS_S,
    EPOCHS,
    PATIENCE,
    course,
    patience_of,
)
from models.training.search_course import budget_s
from models.training.search_space import MEMBERS, NET, Trial, TrialSuggestions, member_names, member_nets, suggest
from models.training.tree_parameters import check_parameter, is_parameter

TAKE_A_NET = "take a net, such as gru"
"""The cure for what trees on series do not do."""
TEXTS_PATIENCE = 1
"""Trials without an improvement after which a search ends where texts are all inputs: scores leave little to tune."""


class FurtherArguments(NamedTuple):
    """What a family takes beside the arguments that its row declares.

    `check(name, value, names, key)` refuses a value, or a name that the family's library does not know.
    """

    has: Callable[[str], bool]
    check: Callable[[str, Any, Sequence[str], str], None]


FURTHER = {"trees": FurtherArguments(is_parameter, check_parameter)}


@dataclass(frozen=True)
class Family:
    """What is searched in one family, the values of its first trial for keys that the spec does not set, and changes.

    Each of `starts` changes some of these values for a further trial. `names`: a dimension's name in the study, where
    it is not its path. `epochs`: of the first trial, if they follow from the number of training examples; else 0.
    `ceiling_s`: work that these may take whatever the budget, in seconds of a reference core.
    """

    dimensions: Mapping[str, Dimension]
    defaults: Mapping[str, Any]
    starts: Sequence[Mapping[str, Any]] = ()
    names: Mapping[str, str] = field(default_factory=dict)
    epochs: int = 0
    ceiling_s: float = 0.0

    def named(self, values: Mapping[str, Any]) -> dict[str, Any]:
        """Return values by their paths as values by their names in the study."""
        return {self.names.get(path, path): value for path, value in values.items()}

    def of_epochs(self, epochs: int) -> Family:
        """Return the family with so many default epochs, and the patience of its course."""
        patience = {PATIENCE: patience_of(epochs)} if self.ceiling_s and PATIENCE in self.defaults else {}
        return replace(self, defaults={**self.defaults, EPOCHS: epochs, **patience})

    def by_path(self, values: Mapping[str, Any]) -> dict[str, Any]:
        """Return values by their names in the study as values by their paths."""
        paths = {name: path for path, name in self.names.items()}
        return {paths.get(name, name): value for name, value in values.items()}


@dataclass(frozen=True)
class SearchSpace:
    """A space for each family, by its net, in the order in which they are tried; a named net is one family.

    `patience`: trials without an improvement after which the search ends, if that is not the usual number.
    """

    families: Mapping[str, Family]
    is_auto: bool
    patience: int | None = None

    @property
    def is_choice(self) -> bool:
        """Whether the net is itself a dimension."""
        return len(self.families) > 1

    @property
    def has_whole_trials(self) -> bool:
        """Whether each trial has the length of the training, so that the best one is not trained again."""
        return self.is_choice or any(family.epochs for family in self.families.values())

    def trial_epochs(self, epochs: int) -> int:
        """Return the epochs of a trial whose training has so many: all of them, else half."""
        return epochs if self.has_whole_trials else max(1, epochs // 2)

    def budget_s(self, trials: Sequence[Trial]) -> float:
        """Return the default budget in work; infinite without one."""
        return budget_s(trials, self.is_choice) if self.has_whole_trials else math.inf

    @property
    def begins_with(self) -> dict[str, Any] | None:
        """The values of the first trial of a net that counts its steps; None if it has no default for each."""
        net, family = next(iter(self.families.items()))
        first = self.first(net)
        first.pop(NET)
        return first if family.epochs and first.keys() == family.dimensions.keys() else None

    @property
    def names(self) -> dict[str, str]:
        """The name of each family for people; no two have the same."""
        return dict(zip(self.families, member_names([*self.families]), strict=True))

    @property
    def dimensions(self) -> dict[str, Dimension]:
        """The dimensions of all families, by their names in the study."""
        return {name: dim for family in self.families.values() for name, dim in family.named(family.dimensions).items()}

    def suggest(self, trial: TrialSuggestions) -> dict[str, Any]:
        """Draw a trial's values: the family, if there is a choice, then the dimensions of this family alone."""
        if not self.is_choice:
            return suggest(trial, self.dimensions)
        net = str(trial.suggest_categorical(NET, list(self.families)))
        family = self.families[net]
        return {NET: net, **suggest(trial, family.named(family.dimensions))}

    def first(self, net: str) -> dict[str, Any]:
        """Return the values of a family's first trial; a dimension without a default is left to be drawn."""
        family = self.families[net]
        defaults = {path: family.defaults[path] for path in family.dimensions if path in family.defaults}
        return {NET: net, **family.named(defaults)}

    def starts(self, net: str) -> list[dict[str, Any]]:
        """Return the values of the trials after a family's first one, of which none is drawn."""
        family = self.families[net]
        starts = [start for start in family.starts if start.keys() <= family.dimensions.keys()]
        return [{**self.first(net), **family.named(start)} for start in starts]

    def tuned(self, nets: Sequence[str]) -> Sequence[str]:
        """Return those of the families that have something to search; all, if none has."""
        return [net for net in nets if self.families[net].dimensions] or nets

    def settings(self, params: Mapping[str, Any]) -> dict[str, Any]:
        """Return all settings of a trial: its family, that family's defaults, then the drawn values."""
        if not self.is_auto:
            return {**next(iter(self.families.values())).defaults, **params} if self.families else dict(params)
        net = params.get(NET) or self._first_with(params)
        if net not in self.families:
            return {NET: net, **params}
        family = self.families[net]
        return {NET: net, **family.defaults, **family.by_path(params)}

    def within(self, budget: float, epoch_s: Mapping[str, float]) -> SearchSpace:
        """Return the space with fewer default epochs for a net of which they would take more than the whole budget.

        Args:
            budget: Of the search, in seconds of a reference core.
            epoch_s: What an epoch of a net takes of it; 0 if that is not known.
        """
        families = dict(self.families)
        for net, seconds in epoch_s.items():
            usual, limit_s = families[net].epochs, max(budget, families[net].ceiling_s)
            fitting = max(row_of(net).fewest_epochs, int(limit_s / seconds)) if seconds else usual
            families[net] = families[net].of_epochs(min(usual, fitting))
        return replace(self, families=families)

    @property
    def augments(self) -> bool:
        """Whether pictures are augmented by default."""
        return any(AUGMENT in family.defaults for family in self.families.values())

    def flipped(self) -> SearchSpace:
        """Return the space with pictures that are flipped too, where they are augmented by default."""
        families = {
            net: replace(family, defaults={**family.defaults, AUGMENT: {**family.defaults[AUGMENT], "flip": True}})
            for net, family in self.families.items()
            if AUGMENT in family.defaults
        }
        return replace(self, families={**self.families, **families})

    def _first_with(self, params: Mapping[str, Any]) -> str:
        """Return the first family that has the arguments among the values, which name no net."""
        arguments = [path.partition(".")[2] for path in params if path.startswith("model.")]
        fitting = (net for net in self.families if not self.is_choice or not _unknown(net, arguments))
        return next(fitting, next(iter(self.families)))


def families_of(spec: Spec) -> tuple[str, ...]:
    """Return the nets that the search may choose, the first one first: one for a named net, several for `auto`.

    `auto` of a table, a series or images takes the families of `search.families` (default: all) that have the spec's
    arguments and searched keys; methods that need gradient descent, such as `train.pretrain`, leave only nets trained
    by it. To begin with an alias, such as the champion, is none of them: it may be of any family.

    Raises:
        UsageError: The net does not exist, no family fits, or one that `search.families` names does not fit.
    """
    names = spec.search.families
    if spec.model.net == ENSEMBLE:  # of a replay, which trains what a search found; `check_spec` refuses it in a spec
        members = spec.model.arguments.get(MEMBERS)
        listed = members if isinstance(members, list) else []
        return member_nets(setting for setting in listed if isinstance(setting, dict) and NET in setting)
    if not is_auto(spec):
        if names:
            raise UsageError(
                f"search.families: is for `model.net: auto` of a table, a series or images, got {spec.model.net} of "
                f"kind {spec.data.kind}: drop it"
            )
        net = net_name(spec.model.net, spec.data.kind)
        if misfit := _unlearnable(spec, net, is_choice=False):
            raise UsageError(misfit.of_named)
        return (net,)
    usual = usual_families(spec)
    _refuse_names(names or ())
    _refuse_unknown(spec, names or usual)
    reasons = {net: _misfit(spec, net) for net in names or usual}
    fitting = tuple(net for net, reason in reasons.items() if not reason)
    refused = [f"{net}: {reason}" for net, reason in reasons.items() if reason]
    if not fitting or (names and refused):
        raise UsageError(f"{'search.families' if names else 'model.net: auto'}: {'; '.join(refused)}")
    return fitting


def usual_families(spec: Spec) -> tuple[str, ...]:
    """Return the families that `auto` chooses from by default; a declared text that is an input adds one of words."""
    features = spec.data.features
    texts = {name for name, kind in features.kinds.items() if kind == "text"} - {*features.drop}
    has_texts = bool(texts if features.columns is None else texts & {*features.columns})
    return (*FAMILIES_OF[spec.data.kind], *((OF_TEXTS,) if has_texts else ()))


def chosen_net(spec: Spec, params: Mapping[str, Any]) -> str:
    """Return the net of a search's result: the one it names, or the spec's own if there was nothing to choose."""
    return str(params.get(NET) or families_of(spec)[0])


def nets_of(spec: Spec, params: Mapping[str, Any]) -> tuple[str, ...]:
    """Return the nets of a search's result, of an ensemble its members; none if the spec no longer chooses from them.

    A spec that changed since, such as by `train.ema`, may have other families.
    """
    nets = member_nets(params.get(f"model.{MEMBERS}", ())) or (chosen_net(spec, params),)
    return nets if {*nets} <= {*families_of(spec)} else ()


def is_auto(spec: Spec) -> bool:
    """Return whether the net of the spec comes from the search's result."""
    return spec.model.net == "auto" and spec.data.kind in FAMILIES_OF


def search_space(
    spec: Spec,
    start: InitialWeights | None = None,
    num_train: int = 0,
    metric: str = "",
    base: Path = Path(),
    is_of_texts: bool = False,
) -> SearchSpace:
    """Return the space of a search: the spec's own, or the default space of each family.

    Args:
        spec: The project's spec.
        start: Initial weights: a net that begins with them keeps their shape and has their arguments.
        num_train: Training examples, from which a net's default number of epochs follows; 0: not known yet.
        metric: Short name of the goal's metric: of the absolute error, trees search their objective too.
        base: The folder of the spec, from which the files of references start.
        is_of_texts: Whether columns of texts are all inputs: each family then has one trial before they are compared.
    """
    nets = families_of(spec)
    if num_train and start is None and spec.search.trials and not spec.search.families:
        nets = tuple(net for net in nets if row_of(net).fewest_rows <= num_train) or nets
    set_paths = {f"train.{name}" for name in spec.train.model_fields_set}
    set_paths |= {f"model.{name}" for name in spec.model.arguments}
    set_paths |= set() if metric == "mae" and spec.train.loss is None else {OBJECTIVE}
    is_table, families = spec.data.kind == "table", {}
    for net in nets:
        family = full_row_of(net, base)
        left_out = set_paths | set(() if is_table else family.of_tables)
        begins = start is not None and start.suit(net, spec.train)
        usual = _usual_space(family.space, begins)
        dimensions = spec.search.space or {path: dimension for path, dimension in usual.items() if path not in left_out}
        is_alone = len(nets) == 1
        if is_alone and not (num_train and family.counts_steps):
            families[net] = Family(dimensions, {})
            continue
        passes = course(spec, net, num_train)
        defaults = {**(_of_training(family.defaults, passes) if is_alone else family.defaults), **passes}
        if start is not None and begins:
            defaults = {path: value for path, value in defaults.items() if path in usual or path.startswith("train.")}
            defaults |= {f"model.{name}": value for name, value in start.arguments(net).items()}
        defaults_left = {path: value for path, value in defaults.items() if path not in left_out}
        epochs = passes.get(EPOCHS, 0) if EPOCHS in defaults_left else 0
        starts = family.starts if is_table and not is_of_texts else ()
        ceiling = (CEILINGS_S if is_alone else CHOICE_CEILINGS_S)[spec.data.kind]
        families[net] = Family(dimensions, defaults_left, starts, epochs=epochs, ceiling_s=ceiling)
    return _apart(SearchSpace(families, is_auto(spec), TEXTS_PATIENCE if is_of_texts and len(nets) > 1 else None))


def _of_training(defaults: Mapping[str, Any], passes: Mapping[str, Any]) -> dict[str, Any]:
    """Return the defaults of `train`, with a patience: a net that the spec names keeps its own arguments."""
    return {PATIENCE: patience_of(passes[EPOCHS])} | {
        path: value for path, value in defaults.items() if path.startswith("train.")
    }


def _usual_space(space: Mapping[str, Dimension], is_fixed: bool) -> dict[str, Dimension]:
    """Return a default space; of a net that begins with existing weights without what changes its shape."""
    return {
        path: dimension
        for path, dimension in space.items()
        if not is_fixed or path == "model.dropout" or not path.startswith("model.")
    }


def _apart(space: SearchSpace) -> SearchSpace:
    """Return a space in which dimensions of the same path and another form have names of their own.

    Optuna takes a name with other bounds, but not with other choices or another scale.
    """
    first: dict[str, tuple[Any, ...]] = {}
    families = {}
    for net, family in space.families.items():
        forms = {path: (dim.choices, dim.log, dim.integer) for path, dim in family.dimensions.items()}
        renamed = [path for path, form in forms.items() if first.setdefault(path, form) != form]
        families[net] = replace(family, names={path: f"{path} of {space.names[net]}" for path in renamed})
    return replace(space, families=families)


def _misfit(spec: Spec, net: str) -> str:
    """Return why a family does not fit the spec; empty if it does."""
    kind = spec.data.kind
    is_ready = net in CATALOGUE
    if kind not in row_of(net).kinds or (kind == "series" and is_ready and net not in FAMILIES_OF[kind]):
        return f"is no family of kind {kind}, expected {', '.join(FAMILIES_OF[kind])}"
    if misfit := _unlearnable(spec, net, is_choice=True):
        return misfit.of_choice
    searched = [path.partition(".") for path in spec.search.space or ()]
    arguments = [*spec.model.arguments, *(key for block, _, key in searched if block == "model")]
    for name in _unknown(net, arguments):
        return f"has no argument {name!r}"
    for name in unused(net, [key for block, _, key in searched if block == "train"]):
        return f"does not use train.{name}, which search.space names"
    return ""


class _Misfit(NamedTuple):
    """Why a net does not learn what the spec says: where it is named, and where it is one of several to choose from."""

    of_named: str
    of_choice: str


def _unlearnable(spec: Spec, net: str, *, is_choice: bool) -> _Misfit | None:
    """Return why a net does not learn what the spec says; None if it does.

    Where it is one of several, the training may begin with an alias, such as the champion, if the chosen net can.
    """
    loss, window, start = spec.train.loss, spec.data.window, spec.train.start
    if row_of(net).by_descent:
        return None
    if window is not None:
        if row_of(net).continues_window and window.reference == "none":
            reason = "continues the window, but data.window.reference is none"
            return _Misfit(f"model.net: {net} {reason}: leave the reference out, or {TAKE_A_NET}", reason)
        if loss is not None:
            of_named = f"train.loss: got {loss}, but {net} takes no own loss of series: {TAKE_A_NET}"
            return _Misfit(of_named, f"takes no own loss (train.loss) of series: {TAKE_A_NET}")
    is_wish = is_choice and start is not None and not start.needs_net
    keys = ["retrain.start"] if spec.retrain.start == "champion" and not is_choice else []
    keys += [f"train.{name}" for name in spec.train.methods if not (is_wish and name == "start")]
    if not keys:
        return None
    of_named = f"{keys[0]}: is for nets trained by gradient descent, but model.net is {net}: drop it"
    return _Misfit(of_named, f"is not trained by gradient descent, which {keys[0]} needs")


def _refuse_names(names: Iterable[str]) -> None:
    """Refuse a family that is neither ready nor a reference.

    Raises:
        UsageError: Names the nearest family.
    """
    for name in names:
        if name not in CATALOGUE and not is_own_code(name):
            cure = did_you_mean(name, CATALOGUE, f"expected one of {', '.join(CATALOGUE)}, or a reference")
            raise UsageError(f"search.families: there is no {name!r}: {cure}")


def _refuse_unknown(spec: Spec, nets: Sequence[str]) -> None:
    """Refuse an argument that none of the families has.

    Raises:
        UsageError: Names the key and the nearest argument.
    """
    searched = [path for path in spec.search.space or () if path.startswith("model.")]
    keys = {f"model.arguments.{name}": name for name in spec.model.arguments}
    keys |= {f"search.space.{path}": path.partition(".")[2] for path in searched}
    for key, name in keys.items():
        if all(_unknown(net, [name]) for net in nets):
            names = [name for net in nets for name in argument_types(net) or ()]
            cure = did_you_mean(name, names, f"expected one of {', '.join(names)}")
            raise UsageError(f"{key}: {', '.join(nets)} have no argument {name!r}: {cure}")


def _unknown(net: str, arguments: Iterable[str]) -> list[str]:
    types = argument_types(net)
    names = [] if types is None else [name for name in arguments if name not in types]
    further = FURTHER.get(net)
    return [name for name in names if not (further and further.has(name))]
