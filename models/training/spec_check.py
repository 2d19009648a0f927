"""Checks of a spec, the user's code and the data's header together, before anything costly runs."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from pydantic import TypeAdapter, ValidationError

from models.cores import usable_cores, usable_gpus
from models.data.header import check_names
from models.errors import DataError, UsageError, did_you_mean
from models.inputs.records import check_kinds
from models.judge.goal_check import certain_task_of, check_goal, check_goal_of_target
from models.kinds.task import TASKS, refusal
from models.nets.arguments import argument_types, check_own_net, whole_numbers, width_unit
from models.nets.catalogue import CATALOGUE, ENSEMBLE, by_descent, net_name, row_of
from models.project_spec.blocks import Data, Spec
from models.project_spec.parallel_dims import check_gpus
from models.project_spec.reader import place_of, read_spec
from models.project_spec.references import ESTIMATOR_PACKAGES, NetSort, sort_of_net
from models.project_spec.search import Dimension, Search
from models.project_spec.user_code import check_own_code, factory_of
from models.sources.schemes import scheme_of
from models.sources.source import Source
from models.training.costs.source_memory import check_source
from models.training.costs.spec_memory import check_weights
from models.training.families import FURTHER, families_of, search_space
from models.training.search_space import FOLDS, MEMBERS, NET, WEIGHT, check_space, with_params
from models.training.tree_parameters import (
    INTERACTIONS,
    MONOTONE,
    NAMED_GOALS,
    check_constrained,
    no_monotone,
    wrong_objective,
)
from models.validation.expectation_arguments import check_expectations

WEIGHT_ERROR = 1e-3
"""Of the sum of an ensemble's weights: people round them."""
_OF_ENSEMBLES = (NET, f"model.{MEMBERS}", f"model.{FOLDS}")


def read_checked(
    path: Path,
    overrides: Sequence[str] = (),
    shown_as: str | None = None,
    *,
    is_for_here: bool = True,
    visible_gpus: str | None = None,
) -> Spec:
    """A spec that was read (`read_spec`) and checked (`check_spec`); errors name file and line.

    Raises:
        UsageError: The file is not a spec, or its run would fail.
        DataError: The source has no such column, or its header cannot be read.
    """
    spec = read_spec(path, overrides, shown_as)
    try:
        check_spec(spec, path.parent, is_for_here=is_for_here, visible_gpus=visible_gpus)
    except (UsageError, DataError) as error:
        where = place_of(str(error).partition(":")[0], path, overrides, shown_as)
        if not where:
            raise  # `from` itself, it would be its own cause for ever
        raise type(error)(f"{where}: {error}") from error
    return spec


def check_spec(spec: Spec, base: Path, *, is_for_here: bool = True, visible_gpus: str | None = None) -> None:
    """Refuse what can be known to fail from the spec, the project's own files and the header of a local table.

    Checks net, arguments, metric, search space, ranks, weights, references, and the columns that the spec names. No
    code of the user runs.

    Args:
        spec: The project's.
        base: The folder that holds the spec.
        is_for_here: Whether training is to run on this machine, so that its cores and devices count.
        visible_gpus: The value of CUDA_VISIBLE_DEVICES, if it is set.

    Raises:
        UsageError: Says the key, what was got, what was expected.
        DataError: The source has no such column, or its header cannot be read.
    """
    check_own_code(spec, base)
    check_kinds(spec.data.features.kinds)
    _check_forms(spec)
    if spec.model.net == ENSEMBLE:
        raise UsageError(
            f"model.net: {ENSEMBLE} is what a search joins from several families: say auto; to train that of an "
            "earlier search again, give its settings in search.settings"
        )
    nets = families_of(spec)
    for net in nets:
        checks = _CHECKS[sort_of_net(net)]
        checks.net(spec, net, base)
        checks.arguments(net, "model.arguments", spec.model.arguments, base)
        _check_widths(spec, net)
        _check_parallel(spec, net)
    check_goal(spec, base)
    check_expectations(spec.data.expectations)
    _check_lags(spec, nets)
    _check_sampler(spec, nets)
    _check_own_augmentation(spec, base)
    for net in nets:
        _check_search(spec, net, base)
    _check_settings(spec, base)
    _check_objective(spec)
    if is_for_here and spec.train.on == "here":
        gpus = usable_gpus(visible_gpus)
        _check_ranks(spec, gpus if by_descent(nets) else 0)
        _check_precision(spec, gpus)
        if gpus is not None:
            for net in nets:
                check_weights(spec, net, base, gpus)
        check_source(spec, base)
    _check_columns(spec, base)


def _check_parallel(spec: Spec, net: str) -> None:
    """Refuse to divide the layers or blocks of a ready net that cannot be divided; own nets are asked when built."""
    shared = {"tp", "pp"} & {*spec.train.parallel.split("+")}
    if shared - {*row_of(net).shared_by}:
        fitting = ", ".join(name for name in by_descent(CATALOGUE) if shared <= {*row_of(name).shared_by})
        raise UsageError(
            f"train.parallel: got {spec.train.parallel}, but the ranks cannot share {net}: say ddp, fsdp or hsdp, or "
            f"take {fitting}"
        )


def _check_forms(spec: Spec) -> None:
    """Refuse what is meant for a class of another package and written in another form."""
    for net in (spec.model.net, *(spec.search.families or ())):
        if net.replace(":", ".").partition(".")[0] in (*ESTIMATOR_PACKAGES, "lightgbm", "scikit-learn"):
            from models.estimators.checks import check_form  # as of all specs without a reference, nothing is read

            check_form(net, _key_of(spec, net))


def _check_estimator(spec: Spec, net: str, base: Path) -> None:
    from models.estimators.checks import check_estimator

    check_estimator(spec, net, base, _key_of(spec, net))


def _key_of(spec: Spec, net: str) -> str:
    """Return where a spec names a net."""
    return "model.net" if net == spec.model.net else "search.families"


def _check_arguments_of_estimator(net: str, key: str, arguments: Mapping[str, Any], base: Path) -> None:
    """Check the names: the source of the class or the row tells them."""
    from models.estimators.checks import check_arguments
    from models.estimators.source import row_of_source

    check_arguments(row_of_source(net, base), net, arguments, key)


def _check_arguments_of_ready(net: str, key: str, arguments: Mapping[str, Any], base: Path) -> None:
    """Check the arguments of a ready net: its parameters are read from the source, without importing torch."""
    del base
    types, further = argument_types(net), FURTHER.get(net)
    assert types is not None
    for name, value in arguments.items():
        if name not in types and further:
            further.check(name, value, list(types), key)
            continue
        if name not in types:
            cure = did_you_mean(name, types, f"expected one of {', '.join(types)}")
            raise UsageError(f"{key}.{name}: {net} has no argument {name!r}: {cure}")
        try:
            TypeAdapter(types[name]).validate_python(value, strict=True)
        except ValidationError as error:
            expected = error.errors()[0]["msg"].removeprefix("Input should be ")
            raise UsageError(f"{key}.{name}: got {value!r}, expected {expected}, as {net} takes it") from error


def _check_widths(spec: Spec, net: str) -> None:
    """Every width that a training may have can be divided among its heads."""
    space, named = spec.search.space or {}, spec.model.arguments
    drawn = {name: _values(space[f"model.{name}"]) for name in ("width", "heads") if f"model.{name}" in space}
    choices_of_size = [[{name: value} for value in values] for name, values in drawn.items()]
    for chosen in itertools.product([{}], *choices_of_size):
        arguments = {**named, **{name: value for parameter in chosen for name, value in parameter.items()}}
        unit, width = width_unit(net, arguments), whole_numbers(net, arguments).get("width", 0)
        if width % unit:
            key = "search.space.model.width" if "width" in drawn else "model.arguments.width"
            raise UsageError(f"{key}: got {width}, expected a multiple of {unit} for the heads of {net}: change either")
    range_of = space.get("model.width")
    if range_of is not None and range_of.choices is None and (range_of.step or 1) % width_unit(net, named):
        raise UsageError(
            f"search.space.model.width: a range in steps of {range_of.step or 1:g} has widths that the heads of {net} "
            f"do not divide: say `step: {width_unit(net, named)}`, or name `choices`"
        )


def _check_sampler(spec: Spec, nets: Sequence[str]) -> None:
    """Refuse samplers that draw from one space only, where the net is itself a dimension."""
    if len(nets) > 1 and spec.search.trials and spec.search.sampler not in ("tpe", "random"):
        raise UsageError(
            f"search.sampler: {spec.search.sampler} cannot choose between {', '.join(nets)}: say tpe or random, or "
            "name one in model.net"
        )


def _check_own_augmentation(spec: Spec, base: Path) -> None:
    """The user's function takes a batch alone; a session tries it before it trains."""
    reference = spec.train.augment.function
    if reference is None:
        return
    file, _, name = reference.rpartition(":")
    function = factory_of(base / file, name) if file.endswith(".py") else None
    if function is None or name[:1].isupper():  # made elsewhere, or a class
        return
    arguments = [*function.args.posonlyargs, *function.args.args]
    num_needed = len(arguments) - len(function.args.defaults)
    if num_needed > 1 or (not arguments and function.args.vararg is None):
        raise UsageError(
            f"train.augment.function: {reference} takes "
            f"{', '.join(parameter.arg for parameter in arguments) or 'nothing'}, "
            "expected one argument, a batch: give the others defaults"
        )


def _check_search(spec: Spec, net: str, base: Path) -> None:
    """Every value that a trial may draw fits its key: one that does not would end the search at that trial."""
    space = spec.search.space or {}
    _check_reaches_trials(spec.search, space)
    check_space(space, net)
    for path, dimension in space.items():
        for value in _values(dimension):
            with_params(spec.model, spec.train, {path: value})
            if path.startswith("model."):
                check_arguments = _CHECKS[sort_of_net(net)].arguments
                check_arguments(net, "search.space.model", {path.partition(".")[2]: value}, base)


def _check_reaches_trials(search: Search, space: Collection[str]) -> None:
    """A trial shows the worth of the values that it trains with; of others, the choice would be left to chance."""
    if "train.refit" in space:
        raise UsageError("search.space.train.refit: has no effect, for no trial is fitted again: set train.refit")
    if search.epochs and "train.epochs" in space:
        raise UsageError(
            f"search.space.train.epochs: has no effect, for each trial has the {search.epochs} epochs of "
            "search.epochs: drop one of them"
        )


def _check_settings(spec: Spec, base: Path) -> None:
    """The settings of an earlier search fit their keys; the members of an ensemble are ready nets with weights."""
    settings, key = spec.search.settings or {}, "search.settings"
    if settings.get(NET) != ENSEMBLE:
        _check_setting(spec, settings, key, base)
        return
    _check_setting(spec, {path: value for path, value in settings.items() if path not in _OF_ENSEMBLES}, key, base)
    members, key = settings.get(f"model.{MEMBERS}"), f"{key}.model.{MEMBERS}"
    if reason := refusal(spec.data.task, "ensemble"):
        raise UsageError(f"{key}: {reason}")
    fewest = 1 if _has_folds(spec, settings) else 2
    if not isinstance(members, list) or len(members) < fewest or not all(isinstance(part, dict) for part in members):
        count = "one member" if fewest == 1 else "two members"
        raise UsageError(f"{key}: got {members!r}, expected a list of at least {count} with settings and a weight")
    names = [str(member.get(NET)) for member in members]
    if not {*names} <= {*CATALOGUE, *families_of(spec)}:
        raise UsageError(
            f"{key}: got the nets {', '.join(names)}, expected ready nets, each by its name, and those that "
            "search.families names by reference"
        )
    weights = [member.get(WEIGHT) for member in members]
    shares = [float(weight) for weight in weights if isinstance(weight, int | float) and weight > 0]
    if len(shares) < len(weights) or abs(sum(shares) - 1) > WEIGHT_ERROR:
        raise UsageError(
            f"{key}: got the weights {', '.join(map(str, weights))}, expected shares above 0 whose sum is 1"
        )
    for member in members:
        _check_setting(spec, {path: value for path, value in member.items() if path != WEIGHT}, key, base)


def _has_folds(spec: Spec, settings: Mapping[str, Any]) -> bool:
    """Return whether members are bags; their folds are at least two, of rows without an order."""
    key, split = f"search.settings.model.{FOLDS}", spec.data.split
    folds = settings.get(f"model.{FOLDS}")
    if folds is None:
        return False
    if not isinstance(folds, int) or folds < 2:
        raise UsageError(f"{key}: got {folds!r}, expected a whole number of at least 2, or leave it out")
    if split.by in ("time", "position"):
        raise UsageError(f"{key}: bags are of rows without an order, and data.split.by is {split.by}: drop it")
    return True


def _check_setting(spec: Spec, settings: Mapping[str, Any], key: str, base: Path) -> None:
    """The settings of one net are keys of `train` and arguments of the net, which is named or follows from them."""
    for path in settings:
        if path.partition(".")[0] not in ("train", "model") or path.count(".") != 1:
            raise UsageError(f"{key}: got {path!r}, expected train.<key> or model.<argument>")
    net = settings.get(NET, spec.model.net)
    nets = [*dict.fromkeys([*CATALOGUE, *families_of(spec)])]
    if net != spec.model.net and net not in nets:
        raise UsageError(
            f"{key}.{NET}: got {net!r}, expected one of {', '.join(nets)}: a reference is named in search.families too"
        )
    with_params(spec.model, spec.train, settings, key)
    chosen = search_space(spec, base=base).settings(settings)
    name = net_name(str(chosen.get(NET, net)), spec.data.kind)
    paths = [path for path in settings if path.startswith("model.") and path != NET]
    arguments = {path.removeprefix("model."): settings[path] for path in paths}
    _CHECKS[sort_of_net(name)].arguments(name, f"{key}.model", arguments, base)


def _check_objective(spec: Spec) -> None:
    """An objective is named for goals that have two; without a goal, the data decides (models/training/boosters.py)."""
    named, goal = spec.model.arguments.get("objective", "auto"), spec.goal.reference
    if named != "auto" and goal is not None and goal not in NAMED_GOALS:
        raise wrong_objective(named, goal)


def _values(dimension: Dimension) -> Iterator[Any]:
    yield from dimension.choices or ()
    for end in (dimension.low, dimension.high):
        if end is not None:
            yield int(end) if dimension.integer else end


def _check_ranks(spec: Spec, gpus: int | None) -> None:
    """Ranks of one job need a GPU each, where there are GPUs; jobs of one rank may share a GPU.

    Without a GPU, more ranks than any machine of these cores can hold are a slip: each is a process with torch in it.
    """
    ranks, limit = spec.train.ranks, max(64, 8 * usable_cores())
    if gpus and ranks > 1:
        check_gpus(ranks, gpus, "this machine")
        workers = min(spec.search.workers, spec.search.trials)
        if workers * ranks > gpus:
            raise UsageError(
                f"search.workers: got {workers} with train.ranks {ranks}, which is {workers * ranks} ranks at a time, "
                f"but this machine has {gpus} GPU{'s' * (gpus > 1)}: expected at most {gpus // ranks}"
            )
    elif ranks > limit:
        raise UsageError(
            f"train.ranks: got {ranks}, expected at most {limit} on this machine, which has {usable_cores()} "
            "cores: one a GPU, or one a core or two"
        )


def _check_precision(spec: Spec, gpus: int | None) -> None:
    """fp16 needs a GPU: `models/distributed/precision.py` refuses it on the device itself, after the data is made."""
    dimension = (spec.search.space or {}).get("train.precision")
    choices = dimension.choices or () if dimension else ()
    if (spec.train.precision == "fp16" or "fp16" in choices) and gpus == 0:
        key = "train.precision" if spec.train.precision == "fp16" else "search.space.train.precision"
        raise UsageError(f"{key}: got fp16, and this machine has no GPU: take bf16 or fp32")


def _check_columns(spec: Spec, base: Path) -> None:
    """The columns that the spec names, in a source that tells its header; others are read first."""
    data, source, scheme = spec.data, Source(spec.data.source, base), scheme_of(spec.data.source)
    path = scheme.local(source)
    if data.features.make or data.kind == "text":
        return
    try:
        names = scheme.header(source)
    except (OSError, DataError):
        return  # ingest says what is wrong with the file
    if names is not None:
        check_names(names, data, spec.judge.slices)
    if names is not None and path is not None:
        _check_constraints(spec, names, path)
        _check_series_types(data, path)
        check_goal_of_target(spec, path, base)
        for net in families_of(spec):
            _CHECKS[sort_of_net(net)].task(spec, net, path, base)


def _check_task(spec: Spec, net: str, path: Path, base: Path) -> None:
    """Refuse an estimator that does not learn the task which the first rows of a table make certain."""
    from models.estimators.checks import check_task
    from models.estimators.source import row_of_source

    check_task(row_of_source(net, base), net, certain_task_of(spec.data, path), _key_of(spec, net))


def _check_series_types(data: Data, path: Path) -> None:
    """Columns of series that are no numbers, as their first rows show."""
    names = {*data.past_targets, *data.known_future} - {*data.decimal_commas}
    if not names:
        return
    from models.data.check import check_series_types  # Arrow: a spec of a table is checked without it
    from models.sources.row_batches import first_values

    first = {name: first_values(path, name) for name in names}
    types = {name: values.type for name, values in first.items() if values is not None}
    check_series_types({name: kind for name, kind in types.items() if str(kind) != "null"}, data)


def _check_lags(spec: Spec, nets: Sequence[str]) -> None:
    """Trees on series read features of a window, which no constraint can name."""
    if spec.data.window is None or "trees" not in nets:
        return
    for name in (MONOTONE, INTERACTIONS):
        searched = f"search.space.model.{name}" if f"model.{name}" in (spec.search.space or {}) else None
        key = f"model.arguments.{name}" if spec.model.arguments.get(name) else searched
        if key:
            raise UsageError(f"{key}: trees on series read lags, not columns: remove it")


def _check_constraints(spec: Spec, names: Sequence[str], path: Path) -> None:
    """Constraints of trees name columns of the table, and LightGBM knows them for the goal's loss."""
    if "trees" not in families_of(spec):
        return
    if spec.data.features.fit is None:
        check_constrained(spec.model.arguments, names)
    if not spec.model.arguments.get(MONOTONE):
        return
    task = certain_task_of(spec.data, path)
    metric = spec.goal.metric or (task and TASKS[task].metric)
    is_squared = metric == "mae" and spec.model.arguments.get("objective") == "regression"
    if metric in ("mae", "mape", "pinball") and not is_squared:
        raise no_monotone(metric)


def _accept(*_: object) -> None:
    """Refuse nothing."""


class _NetChecks(NamedTuple):
    """What a spec may say and cannot be, by what its net is."""

    net: Callable[[Spec, str, Path], None]
    """(spec, net, its folder): the net itself."""
    arguments: Callable[[str, str, Mapping[str, Any], Path], None]
    """(net, key of the spec, arguments, its folder)"""
    task: Callable[[Spec, str, Path, Path], None]
    """(spec, net, file of the source, its folder): the task that the first rows show."""


_OF_ESTIMATORS = _NetChecks(_check_estimator, _check_arguments_of_estimator, _check_task)
_CHECKS: dict[NetSort, _NetChecks] = {
    "ready": _NetChecks(_accept, _check_arguments_of_ready, _accept),
    "net": _NetChecks(check_own_net, _accept, _accept),
    "class": _OF_ESTIMATORS,
    "row": _OF_ESTIMATORS,
}
