"""Fine-tuning: starts from the weights of another training; frozen layers keep the same bits."""

from __future__ import annotations

import types
from collections.abc import Hashable, Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file
from torch import nn

from models.data.preparation import PREPARATION_FILE, Preparation
from models.data.target_encoding import TargetEncoding
from models.distributed.precision import BATCH_NORMS
from models.errors import StoreError, TrainingError, UsageError, first_of
from models.inputs.record import CategoryRecord, InputRecord
from models.inputs.records import RECORDS
from models.inputs.text.record import TextColumn
from models.nets.adapters import ADAPTER_PREFIX
from models.ngrams.words import FIRST_WORD
from models.project_spec.blocks import Train
from models.training.checkpoints.weights import weights_sha256
from models.training.job import InitialWeights
from models.training.optimisation.optimisers import fits

Tensors = dict[str, torch.Tensor]

# The prefix of the net in the pretraining wrapper; the wrapper's other part, which reconstructs inputs, is dropped.
PRETRAINED = "net."
_SHOWN = 6
_WRAPPERS = ("module.", "_orig_mod.")
"""What DistributedDataParallel and torch.compile put before the names of a net that is saved inside them."""
_WITH_STATISTICS = (*BATCH_NORMS, nn.InstanceNorm1d, nn.InstanceNorm2d, nn.InstanceNorm3d)


def load_origin(net: nn.Module, name: str, origin: InitialWeights, preparation: Preparation, partial: bool) -> None:
    """Load the weights of `origin` into `net`; categories are matched by name, new ones keep their initial weights.

    Args:
        net: As built, with initial weights.
        name: The resolved name of the net.
        origin: The weights; their preparation is in the same folder, if it is known.
        preparation: The preparation of the current training data.
        partial: Layers that do not fit keep their initial weights; otherwise they are an error.

    Raises:
        StoreError: The file cannot be read, or its hash differs.
        TrainingError: The weights do not fit; the message names the layers or the inputs that differ.
    """
    state = net.state_dict()
    tensors = _by_prefix(_read(origin), state)
    preparation_file = origin.weights.parent / PREPARATION_FILE
    if preparation_file.exists():
        before = Preparation.load(preparation_file.parent)
        _check_inputs(before, preparation, origin, partial)
        tensors = _by_name(tensors, state, before, preparation)
        tensors = _without_other_classes(tensors, state, before.target, preparation.target)
    misfits = _misfits(tensors, state)
    fitting = {key: tensor for key, tensor in tensors.items() if key in state and state[key].shape == tensor.shape}
    is_other = not fitting or (origin.model is not None and origin.model.net != name)
    if is_other and not (fitting and (partial or not misfits)):
        raise TrainingError(_of_another_net(name, state, origin, tensors, bool(fitting)))
    if misfits and not partial:
        raise TrainingError(
            f"train.start: {origin.label} does not fit the net: {first_of(misfits, _SHOWN)}: give "
            "model.arguments as they were, or say `partial: true` to begin these layers fresh"
        )
    net.load_state_dict(fitting, strict=False)


def freeze(net: nn.Module, train: Train) -> None:
    """Freeze the layers of `train.start.freeze`, including the statistics of their norm layers.

    Raises:
        UsageError: A pattern matches no layer, or no parameter is left to train.
    """
    names = [name for name, _ in net.named_parameters()]
    patterns = train.start.freeze if train.start else []
    for pattern in [*patterns, *(train.start.lr_scale if train.start else {})]:
        if not any(fits(name, pattern) for name in names):
            raise UsageError(
                f"train.start: {pattern!r} fits no layer of the net, which has {', '.join(names)}: correct the pattern"
            )
    for name, parameter in net.named_parameters():
        if any(fits(name, pattern) for pattern in patterns):
            parameter.requires_grad_(False)
    if not any(parameter.requires_grad for parameter in net.parameters()):
        raise UsageError(f"train.start.freeze: {patterns} freezes the whole net: leave something to train")
    for name, module in net.named_modules():
        if isinstance(module, _WITH_STATISTICS) and any(fits(f"{name}.x", p) for p in patterns):
            _stay_in_evaluation(module)


def _stay_in_evaluation(module: nn.Module) -> None:
    """Keep a frozen norm layer in evaluation mode in every mode of the net, so that its statistics never change."""

    def train(self: nn.Module, mode: bool = True) -> nn.Module:
        del mode
        return self

    module.eval()
    module.train = types.MethodType(train, module)  # type: ignore[method-assign]


def _read(origin: InitialWeights) -> Tensors:
    if weights_sha256(origin.weights) != origin.sha256:
        raise StoreError(
            f"{origin.weights}: is not {origin.label}: its hash differs; restore it, or train from another"
        )
    try:
        tensors: Tensors = load_file(origin.weights)
    except (OSError, SafetensorError) as error:
        raise StoreError(f"{origin.weights}: cannot be read ({error}): train from another") from error
    if any(name.startswith("give_back.") for name in tensors):
        return {name.removeprefix(PRETRAINED): t for name, t in tensors.items() if name.startswith(PRETRAINED)}
    return tensors


def _by_prefix(tensors: Tensors, state: Tensors) -> Tensors:
    """Return the tensors by the names of the net: with or without the prefix of an adapter, or of a torch wrapper.

    The form is taken in which most tensors have the name and the shape of one of the net's; as they are wins a tie.
    """
    forms = [tensors, {ADAPTER_PREFIX + name: tensor for name, tensor in tensors.items()}]
    for prefix in (ADAPTER_PREFIX, *_WRAPPERS):
        if all(name.startswith(prefix) for name in tensors):
            bare = {name.removeprefix(prefix): tensor for name, tensor in tensors.items()}
            forms += [bare, {ADAPTER_PREFIX + name: tensor for name, tensor in bare.items()}]

    def fitting(form: Tensors) -> int:
        return sum(name in state and state[name].shape == tensor.shape for name, tensor in form.items())

    return max(forms, key=fitting)


def _check_inputs(before: Preparation, now: Preparation, origin: InitialWeights, partial: bool) -> None:
    """Reject weights of other inputs: tensors have no column names, only positions."""
    facts: list[tuple[str, list[str], list[str]]] = [
        ("kind of data", [before.kind], [now.kind]),
        ("task", [before.task], [now.task]),
    ]
    facts += [
        (record.PLURAL, _names(before.inputs, kind), _names(now.inputs, kind)) for kind, record in RECORDS.items()
    ]
    for feature, was, there in facts:
        if was != there and not (partial and feature == "task"):
            lost, new = [x for x in was if x not in there], [x for x in there if x not in was]
            then, current = ", ".join(lost or was[:_SHOWN]), ", ".join(new or there[:_SHOWN])
            raise TrainingError(
                f"train.start: {origin.label} was trained on other {feature} (then {then}, now {current}): "
                "begin from another version, or make the features the same"
            )


def _names(inputs: list[InputRecord], kind: str) -> list[str]:
    """Return the names of the inputs of one kind."""
    return [part.name for part in inputs if part.kind == kind]


def _of_another_net(name: str, state: Tensors, origin: InitialWeights, tensors: Tensors, fits_in_part: bool) -> str:
    """Return the message about weights of another net than the one that is trained."""

    def layers(tensors: Tensors) -> str:
        return first_of(list(dict.fromkeys(name.rpartition(".")[0] or name for name in tensors)), _SHOWN)

    theirs = f"model.net {origin.model.net}" if origin.model is not None else "another net"
    cure = ", or say `partial: true` to begin with the layers that fit" if fits_in_part else ""
    return (
        f"train.start: {origin.label} is of {theirs} with the layers {layers(tensors)}, and model.net {name}, which is "
        f"trained, has {layers(state)}: begin from weights of {name}, or name the net of these weights in "
        f"model.net{cure}"
    )


class _NamedRows(NamedTuple):
    """What the rows of a tensor, along its last axis but one, stand for.

    Attributes:
        ending: The tensor's name, or the end of it.
        num_fixed: The first rows, of missing and of unknown values, which stay.
        before: What each further row of the weights stands for.
        now: What each further row of the net stands for.
        is_new: Whether the weights are of inputs without these.
    """

    ending: str
    num_fixed: int
    before: Sequence[Hashable]
    now: Sequence[Hashable]
    is_new: bool = False

    def moved(self, old: torch.Tensor, fresh: torch.Tensor) -> torch.Tensor:
        """Return `fresh` with the rows of `old` that stand for the same; `old` if the rows are others than these."""
        first = self.num_fixed
        sizes = (first + len(self.before), first + len(self.now))
        if old.ndim != fresh.ndim or old.shape[-1] != fresh.shape[-1] or (old.shape[-2], fresh.shape[-2]) != sizes:
            return old
        place = {name: row for row, name in enumerate(self.before, first)}
        shared_rows = [(row, place[name]) for row, name in enumerate(self.now, first) if name in place]
        pairs = torch.tensor([*((row, row) for row in range(first)), *shared_rows], dtype=torch.int64).view(-1, 2)
        return fresh.detach().index_copy(-2, pairs[:, 0], old.index_select(-2, pairs[:, 1]))


def _named_rows(before: Preparation, now: Preparation) -> Iterator[_NamedRows]:
    """Yield the rows of embeddings of categories, words and stems, then those of the positions of a table's tokens."""
    for position, (was, now_record) in enumerate(zip(before.of(CategoryRecord), now.of(CategoryRecord), strict=True)):
        yield _NamedRows(f"embeddings.{position}.weight", 1, was.categories, now_record.categories)
    is_new = not before.num_words
    if now.num_words:
        words, stems = zip(_words(before.texts), _words(now.texts), strict=True)
        yield _NamedRows("words.embeddings.0.weight", FIRST_WORD, *words, is_new)
        yield _NamedRows("words.embeddings.1.weight", FIRST_WORD, *stems, is_new)
        yield _NamedRows("positions", 0, _tokens(before), _tokens(now))


def _words(texts: list[TextColumn]) -> tuple[list[Hashable], list[Hashable]]:
    """Return the words and the stems of all texts, each with its column, in the order of their ids."""
    words: list[Hashable] = [(text.name, word) for text in texts for word in text.words]
    return words, [(text.name, stem) for text in texts for stem in text.stems]


def _tokens(preparation: Preparation) -> list[Hashable]:
    """Return the columns, by their places, then the place of each word in its text."""
    num_columns = preparation.num_numeric + len(preparation.cardinalities)
    return [
        *range(num_columns),
        *((text.name, position) for text in preparation.texts for position in range(text.length)),
    ]


def _by_name(tensors: Tensors, state: Tensors, before: Preparation, now: Preparation) -> Tensors:
    """Put the rows of categories, words and positions where the net has them; new ones stay as they are in the net."""
    moved = dict(tensors)
    for rows in _named_rows(before, now):
        for name in [name for name in state if name == rows.ending or name.endswith("." + rows.ending)]:
            if name in tensors:
                moved[name] = rows.moved(tensors[name], state[name])
            elif rows.is_new:
                moved[name] = state[name]
    return moved


def _without_other_classes(
    tensors: Tensors, state: Tensors, target_before: TargetEncoding, target: TargetEncoding
) -> Tensors:
    """Drop the last layer if the classes differ, because its outputs are classes by position."""
    if target_before.predicts_same(target):
        return tensors
    layer = list(state)[-1].rpartition(".")[0]
    return {name: tensor for name, tensor in tensors.items() if name.rpartition(".")[0] != layer}


def _misfits(tensors: Tensors, state: Tensors) -> list[str]:
    def shown(tensor: torch.Tensor | None) -> str:
        return "none" if tensor is None else str(tuple(tensor.shape))

    return [
        f"{name} has {shown(tensors.get(name))}, the net {shown(state.get(name))}"
        for name in sorted(tensors.keys() | state.keys())
        if shown(tensors.get(name)) != shown(state.get(name))
    ]


def origin_of(path: Path, label: str) -> InitialWeights:
    """Return the initial weights of a weights file, with its hash.

    Raises:
        StoreError: The file cannot be read.
    """
    return InitialWeights(weights=path, sha256=weights_sha256(path), label=label)
