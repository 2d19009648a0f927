"""Opens the examples of a job: whole files mapped into memory or streamed, folds, samples, and the rows of methods."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import torch
from safetensors import SafetensorError, safe_open

from models.data.preparation import Preparation
from models.data.tensor_file import places
from models.distributed.order import seed_of
from models.errors import DataError, TrainingError
from models.kinds.data_kind import DATA_KINDS
from models.kinds.task import TASKS, TargetType, Task
from models.metrics.ranking import groups_of, has_order
from models.nets.catalogue import reads_words, row_of
from models.project_spec.blocks import Kind, Model
from models.training.batches.example_set import EXAMPLES, VALUE, ExampleSet, Inputs
from models.training.batches.selection import (
    COMPLETED,
    FIRST_KEY,
    KEY,
    Completion,
    fold_of,
    is_chosen,
    learnt_rows,
    recent_of,
    sampled_rows,
)
from models.training.batches.stream import Shards, Stream
from models.training.job import TrainingJob

# Most examples in one pass without gradients.
LARGEST_PASS = 4096
_TARGET_TYPES: dict[TargetType, torch.dtype] = {"float32": torch.float32, "int64": torch.int64}


def open_examples(job: TrainingJob, preparation: Preparation) -> tuple[ExampleSet, ExampleSet]:
    """Return the training and the validation examples, selected by `job.fold`, `job.sample` and the methods.

    Pretraining uses the inputs of all training rows and of the unlabelled rows. A student also uses the rows that its
    teacher labelled. `train.recent` leaves out most of the older rows. A refit trains on the validation examples too.

    Raises:
        DataError: A tensor file cannot be read, or a split is empty.
    """
    if job.refit is not None:
        train = _examples(
            job.model,
            preparation,
            _joined(job.tensors, preparation.kind, preparation.task, job.train.rows, job.train.seed),
            None,
        )
        validation = _opened(job, preparation, "validation")
    elif job.fold is None:
        train = _opened(job, preparation, "train")
        validation = _opened(job, preparation, "validation")
    else:
        train, validation = _fold(job, preparation)
    train = _with_more(_sampled(train, job, TASKS[preparation.task].is_grouped, COMPLETED[preparation.task]), job)
    for side, examples in (("train", train), ("validation", validation)):
        if not len(examples):
            raise DataError(f"{job.tensors.get(side, side)}: no examples to {side} on: change data.split")
    return train, validation


def _opened(job: TrainingJob, preparation: Preparation, split: str) -> ExampleSet:
    """Open a split: streamed if it is larger than `train.memory_mb` and its rows do not overlap, else mapped whole."""
    path, limit = job.tensors[split], job.train.memory_mb << 20
    is_large = path.exists() and path.stat().st_size > limit
    is_part = split == "train" and (job.sample < 1 or job.train.rows is not None or is_chosen(job))
    if not is_large or is_part or not DATA_KINDS[preparation.kind].rows_apart or not row_of(job.model.net).by_descent:
        if split != "train":
            return _examples(job.model, preparation, _mapped(path), None)
        tensors = _learnt(path, preparation.kind, preparation.task, job.train.rows, job.train.seed)
        return _examples(job.model, preparation, tensors, recent_of(tensors, None, job))
    locations = places(path)
    row_bytes = sum(place.row_bytes for place in locations.values())
    smallest_shard = max(job.train.batch + job.train.batch // 8, LARGEST_PASS)
    shards = Shards.fitting(locations["target"].shape[0], row_bytes, limit // 2, smallest_shard, job.train.seed)
    stream = Stream(path, shards)
    return replace(
        _examples(job.model, preparation, stream.buffers, None), target=stream.buffers["target"], stream=stream
    )


def _mapped(path: Path) -> Inputs:
    try:
        with safe_open(path, framework="pt") as file:
            return {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118  not a dict
    except (OSError, SafetensorError) as error:
        raise DataError(f"{path}: cannot be read as tensors ({error}): remove it and run again") from error


def _examples(model: Model, preparation: Preparation, tensors: Inputs, keep: torch.Tensor | None) -> ExampleSet:
    examples = EXAMPLES[preparation.kind]
    name = examples.TARGET
    unused = {name, KEY, FIRST_KEY, VALUE} | (set() if reads_words(model.net) else {"words"})
    kind = _TARGET_TYPES[TASKS[preparation.task].target_type]
    return examples(
        tensors={key: tensor for key, tensor in tensors.items() if key not in unused},
        target=tensors[name].to(kind),
        target_type=kind,
        keep=keep,
        value=tensors.get(VALUE),
        **examples.facts(preparation, tensors),
    )


def _fold(job: TrainingJob, preparation: Preparation) -> tuple[ExampleSet, ExampleSet]:
    """Return a fold's two sides; in the order of time, a block is judged after training on all before it."""
    assert job.fold is not None
    index, num_folds = job.fold
    joined = _joined(job.tensors, preparation.kind, preparation.task, job.train.rows, job.train.seed)
    kind = EXAMPLES[preparation.kind]
    rolls = job.rolls(preparation.kind)
    key = joined.get(KEY)
    groups = key if job.fold_by == "groups" else None
    target = joined[kind.TARGET]
    _check_fold(index, num_folds, target, key if rolls else None, rolls)
    ordered = _ordered(joined[VALUE], num_folds) if TASKS[preparation.task].is_grouped else None
    fold = fold_of(
        target, num_folds + rolls, job.train.seed, job.cuts_blocks(preparation.kind), groups, times=key, ordered=ordered
    )
    is_validation = fold == index + rolls
    is_train = fold < index + rolls if rolls else ~is_validation
    train, validation = torch.nonzero(is_train).flatten(), torch.nonzero(is_validation).flatten()
    train = kind.apart(train, validation, joined, preparation)
    if FIRST_KEY in joined:
        train = _without_shared_targets(train, joined[KEY], joined[FIRST_KEY][validation].min())
    recent = recent_of(joined, train, job)
    return _examples(job.model, preparation, joined, recent), _examples(job.model, preparation, joined, validation)


def _learnt(path: Path, kind: Kind, task: Task, most: int | None, seed: int) -> Inputs:
    """Return the tensors of the training examples that `train.rows` leaves; a sample is a copy."""
    tensors = _mapped(path)
    targets, has_groups = tensors[EXAMPLES[kind].TARGET], TASKS[task].is_grouped
    rows = learnt_rows(most, seed, targets, task, tensors[VALUE][:, 1] if has_groups else None)
    return tensors if rows is None else {name: tensor.index_select(0, rows) for name, tensor in tensors.items()}


def _joined(tensors: dict[str, Path], kind: Kind, task: Task, most: int | None, seed: int) -> Inputs:
    """Return the tensors of the training examples, followed by those of the validation examples. Cost: a copy."""
    return EXAMPLES[kind].joined(_learnt(tensors["train"], kind, task, most, seed), _mapped(tensors["validation"]))


def _ordered(value: torch.Tensor, num_folds: int) -> torch.Tensor:
    """Return whether an example's group has an order, bool (example,).

    Raises:
        TrainingError: There are fewer of these groups than folds.
    """
    ordered = has_order(value.numpy())
    num = len(np.unique(value.numpy()[ordered, 1]))
    if num < num_folds:
        raise TrainingError(
            f"search.folds: got {num_folds}, but {num} groups hold different grades, expected one in each fold: "
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


def _check_fold(index: int, num_folds: int, target: torch.Tensor, times: torch.Tensor | None, rolls: bool) -> None:
    if not 0 <= index < num_folds <= len(target) - rolls:
        raise TrainingError(
            f"fold {index} of {num_folds} over {len(target)} examples: expected 0 <= fold < k <= examples"
        )
    if times is not None and (num := len(torch.unique(times))) <= num_folds:
        raise TrainingError(
            f"search.folds: got {num_folds}, but the rows have {num} different times, expected more times than folds: "
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
    return _examples(job.model, preparation, {**tensors, "target": target}, None)


def _sampled(train: ExampleSet, job: TrainingJob, has_groups: bool, complete: Completion) -> ExampleSet:
    """Return the job's share of the examples; of a ranking that of the groups with an order, and of those without."""
    if job.sample >= 1:
        return train
    generator = torch.Generator().manual_seed(seed_of("sample", job.train.seed))
    if has_groups:
        values = train.values()
        ordered, groups = has_order(values), groups_of(values)
        parts = [np.unique(groups[ordered]), np.unique(groups[~ordered])]
        chosen = [
            torch.from_numpy(part)[sampled_rows(len(part), max(1, round(job.sample * len(part))), generator)]
            for part in parts
            if len(part)
        ]
        some = torch.nonzero(torch.isin(torch.from_numpy(groups), torch.cat(chosen))).flatten()
    else:
        some = sampled_rows(len(train), max(1, round(job.sample * len(train))), generator)
        some = complete(some, train.targets, generator)
    keep = some if train.keep is None else train.keep[some]
    return replace(train, keep=keep)
