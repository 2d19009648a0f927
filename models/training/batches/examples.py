"""Examples in memory-mapped tensors, gathered into batches by index, never row by row."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from safetensors import SafetensorError, safe_open

from models.data.preparation import Preparation
from models.data.tensor_file import places
from models.distributed.order import SampleOrder, seed_of
from models.errors import DataError, TrainingError
from models.inputs.numeric.rows import encode_numeric
from models.metrics.ranking import groups_of, has_order
from models.nets.catalogue import is_descent, reads_words
from models.nets.sizes import WHOLE_NUMBERS
from models.project_spec.blocks import Kind
from models.training.batches.selection import FIRST_KEY, KEY, fold_of, is_chosen, recent_of
from models.training.batches.stream import Shards, Stream, StreamOrder
from models.training.batches.transfer import rows_on
from models.training.job import TrainingJob

Inputs = dict[str, torch.Tensor]

# The original targets of a regression, float64: the scaled targets for training have lost digits.
VALUE = "value"
WEIGHT = "weight"

# Most examples in one pass without gradients.
LARGEST_PASS = 4096
# Kinds whose examples do not overlap; windows of a series or a text overlap, so these files stay mapped.
_ROWS_APART = ("table", "image")


@dataclass(frozen=True)
class ExampleSet:
    """The tensors of one split and the examples in it that count.

    Attributes:
        tensors: Tensors of `models/data/encode.py`, memory-mapped, or the buffers of `stream`.
        keep: Positions of the examples that count, int64; None for all.
        target: The training target of every example in the file or in the buffers. For text, the start of each window:
            the targets are cut from the tokens.
        value: The target of every example in the file in its own unit, on the CPU; None for classes and characters.
        target_type: The type that the loss needs: float32 (binary, regression) or int64 (classes, characters).
        window: Steps in a window of a series, or characters in a window of a text.
        fill: Stands for a value of a series that is missing since the window began (feature,); None if all are there.
        stream: Reads a file that is too large for memory; None for a file that is mapped whole.
        device: The device of the batches.
    """

    kind: Kind
    tensors: Inputs
    target: torch.Tensor
    keep: torch.Tensor | None
    value: torch.Tensor | None = None
    window: int = 0
    fill: torch.Tensor | None = None
    mean: torch.Tensor | None = None
    std: torch.Tensor | None = None
    target_type: torch.dtype = torch.float32
    stream: Stream | None = None
    device: torch.device = field(default_factory=lambda: torch.device("cpu"))

    def __len__(self) -> int:
        if self.stream is not None:
            return len(self.stream)
        return len(self.target) if self.keep is None else len(self.keep)

    def order(self, epoch: int, plan: SampleOrder) -> torch.Tensor | StreamOrder:
        """Return the positions of the examples in the order of `epoch`; pass slices of it to `gather`."""
        return plan.epoch(epoch).to(self.device) if self.stream is None else self.stream.order(*plan.part(epoch))

    def targets(self) -> torch.Tensor:
        """Return the targets of all examples that count, in file order; for text (examples, window)."""
        if self.kind == "text":
            return self.gather_target(torch.arange(len(self), device=self.target.device))
        if self.stream is not None:
            return torch.cat([part.to(self.target_type) for part in self.stream.read("target")]).to(self.device)
        return self.target if self.keep is None else self.target.index_select(0, self.keep)

    def values(self) -> NDArray[np.int64] | NDArray[np.float64]:
        """Return the targets of all examples that count, for metrics: class indices, or exact values in their unit."""
        if self.value is None:
            return self.targets().long().cpu().numpy()
        if self.stream is not None:
            return torch.cat(list(self.stream.read(VALUE))).numpy()
        return (self.value if self.keep is None else self.value.index_select(0, self.keep.cpu())).numpy()

    def weights(self) -> torch.Tensor | None:
        """Return the weights of all examples that count, float32 in file order, on the CPU; None without weights."""
        if WEIGHT not in self.tensors:
            return None
        if self.stream is not None:
            return torch.cat(list(self.stream.read(WEIGHT)))
        weights = self.tensors[WEIGHT]
        return (weights if self.keep is None else weights.index_select(0, self.keep)).cpu()

    @property
    def total_weight(self) -> float:
        """The sum of the weights of all examples that count, or their number; NaN if all weigh 0."""
        weights = self.weights()
        return float(len(self)) if weights is None else float(weights.double().sum()) or float("nan")

    def gather_weight(self, positions: torch.Tensor) -> torch.Tensor | None:
        """Return the weights of the examples at `positions`, float32 (examples,); None without weights."""
        return self._select(WEIGHT, self._at(positions)) if WEIGHT in self.tensors else None

    def gather(self, positions: torch.Tensor, change: Callable[[torch.Tensor], torch.Tensor] | None = None) -> Inputs:
        """Return the net's inputs for the examples at `positions`; `change` alters images in [0, 1] before scaling."""
        at = self._at(positions)
        if self.kind == "table":
            whole = {name: self._select(name, at).long() for name in self._whole_numbers()}
            return {"numeric": self._select("numeric", at), **whole}
        if self.kind == "series":
            return {"series": self._windows(at)}
        if self.kind == "text":
            return {"tokens": self._cut(at, 0)}
        assert self.mean is not None
        assert self.std is not None
        image = self._select("image", at).float().div_(255)
        return {"image": (change(image) if change else image).sub_(self.mean).div_(self.std)}

    def inputs(self) -> Inputs:
        """Return the net's inputs for all examples that count; the numbers of a whole table are not copied."""
        if self.kind != "table" or self.keep is not None or self.stream is not None:
            return self.gather(torch.arange(len(self)))
        whole = {name: self.tensors[name].long() for name in self._whole_numbers()}
        return {"numeric": self.tensors["numeric"], **whole}

    def gather_target(self, positions: torch.Tensor) -> torch.Tensor:
        """Return the targets of the examples at `positions`: for text the next characters, int64 (examples, window)."""
        if self.kind == "text":
            return self._cut(self._at(positions), 1)
        at = self._at(positions)
        if self.stream is not None:
            return rows_on(self.device, self.target, at).to(self.target_type)
        return self.target.index_select(0, at).to(self.target_type)

    def to(self, device: torch.device) -> ExampleSet:
        """Return the same examples on another device; for the CPU nothing is copied."""
        if device.type == "cpu":
            return self
        keep, mean, std, fill = (
            None if part is None else part.to(device) for part in (self.keep, self.mean, self.std, self.fill)
        )
        if self.stream is not None:
            return replace(self, mean=mean, std=std, device=device)
        tensors = {name: tensor.to(device) for name, tensor in self.tensors.items()}
        target = self.target.to(device)
        return replace(self, tensors=tensors, target=target, keep=keep, mean=mean, std=std, fill=fill, device=device)

    def _whole_numbers(self) -> list[str]:
        return [name for name in WHOLE_NUMBERS if name in self.tensors]

    def _at(self, positions: torch.Tensor) -> torch.Tensor:
        if self.stream is not None:
            return self.stream.at(positions)
        return positions if self.keep is None else self.keep.index_select(0, positions)

    def _select(self, name: str, at: torch.Tensor) -> torch.Tensor:
        if self.stream is not None:
            return rows_on(self.device, self.tensors[name], at)
        return self.tensors[name].index_select(0, at)

    def with_more(self, tensors: Inputs, target: torch.Tensor) -> ExampleSet:
        """Return these examples with more examples of the same kind appended. Cost: a copy of all tensors."""
        count = len(self.target)
        joined = {name: torch.cat([tensor, tensors[name]]) for name, tensor in self.tensors.items()}
        keep = self.keep
        if keep is not None:
            keep = torch.cat([keep, torch.arange(count, count + len(target))])
        return replace(self, tensors=joined, target=torch.cat([self.target, target]), keep=keep)

    def _windows(self, at: torch.Tensor) -> torch.Tensor:
        ends = self.tensors["end"].index_select(0, at)
        steps = torch.arange(1 - self.window, 1, device=at.device)
        flat = self.tensors["series"].index_select(0, (ends.unsqueeze(1) + steps).flatten())
        windows = flat.view(len(at), self.window, -1)
        return windows if self.fill is None else carried_forward(windows, self.fill)

    def _cut(self, at: torch.Tensor, shift: int) -> torch.Tensor:
        starts = self.target.index_select(0, at)
        places = (starts.unsqueeze(1) + torch.arange(shift, self.window + shift, device=at.device)).flatten()
        return self.tensors["tokens"].index_select(0, places).view(len(at), self.window).long()


def carried_forward(windows: torch.Tensor, fill: torch.Tensor) -> torch.Tensor:
    """Return windows (example, step, feature) with the last known value of the window in place of a missing one.

    Where none is known yet, `fill` (feature,) takes its place. The exported graph does the same.
    """
    steps = torch.arange(windows.shape[1], device=windows.device).view(1, -1, 1)
    last = torch.where(windows.isnan(), -1, steps).cummax(dim=1).values
    return torch.where(last < 0, fill, windows.gather(1, last.clamp(min=0)))


def open_examples(job: TrainingJob, preparation: Preparation) -> tuple[ExampleSet, ExampleSet]:
    """Return the training and the validation examples, selected by `job.fold`, `job.sample` and the methods.

    Pretraining uses the inputs of all training rows and of the unlabelled rows. A student also uses the rows that its
    teacher labelled. `train.recent` leaves out most of the older rows. A refit trains on the validation examples too.

    Raises:
        DataError: A tensor file cannot be read, or a split is empty.
    """
    if job.refit is not None:
        train = _examples(job, preparation, _joined(job, preparation), None)
        validation = _opened(job, preparation, "validation")
    elif job.fold is None:
        train = _opened(job, preparation, "train")
        validation = _opened(job, preparation, "validation")
    else:
        train, validation = _fold(job, preparation)
    train = _with_more(_sampled(train, job, preparation.task == "ranking"), job)
    for side, examples in (("train", train), ("validation", validation)):
        if not len(examples):
            raise DataError(f"{job.tensors.get(side, side)}: no examples to {side} on: change data.split")
    return train, validation


def _opened(job: TrainingJob, preparation: Preparation, split: str) -> ExampleSet:
    """Open a split: streamed if it is larger than `train.memory_mb` and its rows do not overlap, else mapped whole."""
    path, limit = job.tensors[split], job.train.memory_mb << 20
    is_large = path.exists() and path.stat().st_size > limit
    is_part = split == "train" and (job.sample < 1 or is_chosen(job))
    if not is_large or is_part or preparation.kind not in _ROWS_APART or not is_descent(job.model.net):
        tensors = _mapped(path)
        return _examples(job, preparation, tensors, recent_of(tensors, None, job) if split == "train" else None)
    locations = places(path)
    row_bytes = sum(place.row_bytes for place in locations.values())
    least = max(job.train.batch + job.train.batch // 8, LARGEST_PASS)
    shards = Shards.fitting(locations["target"].shape[0], row_bytes, limit // 2, least, job.train.seed)
    stream = Stream(path, shards)
    return replace(_examples(job, preparation, stream.buffers, None), target=stream.buffers["target"], stream=stream)


def _mapped(path: Path) -> Inputs:
    try:
        with safe_open(path, framework="pt") as file:
            return {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118  not a dict
    except (OSError, SafetensorError) as error:
        raise DataError(f"{path}: cannot be read as tensors ({error}): remove it and run again") from error


def _examples(job: TrainingJob, preparation: Preparation, tensors: Inputs, keep: torch.Tensor | None) -> ExampleSet:
    name = _target_name(preparation)
    left = {name, KEY, FIRST_KEY, VALUE} | (set() if reads_words(job.model.net) else {"words"})
    kind = torch.int64 if preparation.task in ("multiclass", "language") else torch.float32
    pixels, window = preparation.pixels, preparation.window or preparation.characters
    return ExampleSet(
        kind=preparation.kind,
        tensors={key: tensor for key, tensor in tensors.items() if key not in left},
        target=tensors[name].to(kind),
        target_type=kind,
        keep=keep,
        value=tensors.get(VALUE),
        window=window.length if window else 0,
        fill=_fill(preparation) if preparation.window and tensors["series"].isnan().any() else None,
        mean=torch.tensor(pixels.mean).view(-1, 1, 1) if pixels else None,
        std=torch.tensor(pixels.std).view(-1, 1, 1) if pixels else None,
    )


def _fill(preparation: Preparation) -> torch.Tensor:
    return torch.from_numpy(np.stack([encode_numeric(np.array(np.nan), part) for part in preparation.numeric]))


def _target_name(preparation: Preparation) -> str:
    return "start" if preparation.kind == "text" else "target"


def _fold(job: TrainingJob, preparation: Preparation) -> tuple[ExampleSet, ExampleSet]:
    """Return a fold's two sides; in the order of time, a block is judged after training on all before it."""
    assert job.fold is not None
    index, k = job.fold
    joined = _joined(job, preparation)
    is_text = preparation.kind == "text"
    rolls = job.rolls(preparation.kind)
    key = joined.get(KEY)
    groups = key if job.fold_by == "groups" else None
    target = joined[_target_name(preparation)]
    _check_fold(index, k, target, key if rolls else None, rolls)
    ordered = _ordered(joined[VALUE], k) if preparation.task == "ranking" else None
    fold = fold_of(target, k + rolls, job.train.seed, rolls or is_text, groups, times=key, ordered=ordered)
    is_validation = fold == index + rolls
    is_train = fold < index + rolls if rolls else ~is_validation
    train, validation = torch.nonzero(is_train).flatten(), torch.nonzero(is_validation).flatten()
    if preparation.characters is not None:
        starts, length = joined["start"], preparation.characters.length
        low, high = starts[validation[0]], starts[validation[-1]]
        train = train[(starts[train] - low <= -length) | (starts[train] - high >= length)]
    if FIRST_KEY in joined:
        train = _without_shared_targets(train, joined[KEY], joined[FIRST_KEY][validation].min())
    recent = recent_of(joined, train, job)
    return _examples(job, preparation, joined, recent), _examples(job, preparation, joined, validation)


def _joined(job: TrainingJob, preparation: Preparation) -> Inputs:
    """Return the tensors of the training examples, followed by those of the validation examples. Cost: a copy."""
    sides = [_mapped(job.tensors[name]) for name in ("train", "validation")]
    joined = {
        name: sides[0][name] if name == "series" else torch.cat([side[name] for side in sides]) for name in sides[0]
    }
    if preparation.kind == "text":
        joined["start"][len(sides[0]["start"]) :] += len(sides[0]["tokens"])
    return joined


def _ordered(value: torch.Tensor, k: int) -> torch.Tensor:
    """Return whether an example's group has an order, bool (example,).

    Raises:
        TrainingError: There are fewer of these groups than folds.
    """
    ordered = has_order(value.numpy())
    num = len(np.unique(value.numpy()[ordered, 1]))
    if num < k:
        raise TrainingError(
            f"search.folds: got {k}, but {num} groups hold different grades, expected one in each fold: "
            f"take search.folds: {max(1, num)} or fewer"
        )
    return torch.from_numpy(ordered)


def _without_shared_targets(train: torch.Tensor, times: torch.Tensor, first: torch.Tensor) -> torch.Tensor:
    """Return the training examples of series that predict no step which a validation example predicts too.

    At several horizons, the first examples of a fold predict steps that the last ones before it also predict.

    Args:
        train: The training examples.
        times: The time of the last horizon of each example.
        first: The earliest time that the fold predicts.

    Raises:
        TrainingError: No training example is left.
    """
    apart = train[times[train] < first]
    if not len(apart):
        raise TrainingError(
            f"search.folds: each of the {len(train)} examples before a fold predicts a step that an example of the fold"
            " predicts too: take fewer folds, or horizons that are nearer to each other"
        )
    return apart


def _check_fold(index: int, k: int, target: torch.Tensor, times: torch.Tensor | None, rolls: bool) -> None:
    if not 0 <= index < k <= len(target) - rolls:
        raise TrainingError(f"fold {index} of {k} over {len(target)} examples: expected 0 <= fold < k <= examples")
    if times is not None and (num := len(torch.unique(times))) <= k:
        raise TrainingError(
            f"search.folds: got {k}, but the rows have {num} different times, expected more times than folds: "
            f"take search.folds: {max(1, num - 1)} or fewer"
        )


def _with_more(train: ExampleSet, job: TrainingJob) -> ExampleSet:
    """Return the training examples, followed by the unlabelled or teacher-labelled rows that this stage uses."""
    if job.stage == "pretrain" and "unlabelled" in job.tensors:
        more = _mapped(job.tensors["unlabelled"])
        return train.with_more(more, train.target.new_zeros(len(next(iter(more.values()))), *train.target.shape[1:]))
    if job.pseudo:
        labels = _mapped(job.tensors["pseudo"])
        unlabelled = _mapped(job.tensors["unlabelled"])
        chosen = {name: tensor.index_select(0, labels["position"]) for name, tensor in unlabelled.items()}
        return train.with_more(chosen, labels["target"].to(train.target.dtype))
    return train


def open_unlabelled(job: TrainingJob, preparation: Preparation) -> ExampleSet:
    """Return the unlabelled examples; all their targets are 0.

    Raises:
        DataError: There are no unlabelled rows, or the file cannot be read.
    """
    if "unlabelled" not in job.tensors:
        raise DataError("train.pseudo_labels: no row without a target: leave `pseudo_labels` out, or give such rows")
    tensors = _mapped(job.tensors["unlabelled"])
    target = torch.zeros(len(next(iter(tensors.values()))), dtype=torch.int64)
    return _examples(job, preparation, {**tensors, "target": target}, None)


def _sampled(train: ExampleSet, job: TrainingJob, has_groups: bool) -> ExampleSet:
    """Return the job's share of the examples; of a ranking that of the groups with an order, and of those without."""
    if job.sample >= 1:
        return train
    generator = torch.Generator().manual_seed(seed_of("sample", job.train.seed))
    units, strata = torch.arange(len(train)), [torch.arange(len(train))]
    if has_groups:
        values = train.values()
        ordered, groups = has_order(values), groups_of(values)
        parts = [np.unique(groups[ordered]), np.unique(groups[~ordered])]
        units, strata = torch.from_numpy(groups), [torch.from_numpy(part) for part in parts if len(part)]
    chosen = [
        part[torch.randperm(len(part), generator=generator)[: max(1, round(job.sample * len(part)))]] for part in strata
    ]
    some = torch.nonzero(torch.isin(units, torch.cat(chosen))).flatten()
    keep = some if train.keep is None else train.keep[some]
    return replace(train, keep=keep)
