"""What a job leaves open (`auto`) and the machine that trains it chooses: once, kept in the job's folder.

A step's key holds `auto`, so a plan made on another machine repeats nothing. The job's folder holds the choice, so a
resumed job goes on with it, on whatever machine.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch

from models.distributed.precision import precision_for
from models.distributed.world import World
from models.errors import UsageError
from models.files import read_json, write_json
from models.training.compilation import choice_at_once, keep_choice, kept_choice
from models.training.job import CHOICES_FILE, TrainingJob


def settle_choices(job: TrainingJob, world: World) -> TrainingJob:
    """Return the job with `precision: auto` resolved, as its folder says or else by this device.

    Every rank must call it. Rank 0 writes the choice into the job's folder, and that of `compile: auto` too if it does
    not depend on the time of a step; the session makes it otherwise (`models/training/compilation.py`).

    Raises:
        UsageError: The job was begun in fp16 on a GPU, and this machine has none.
    """
    if "auto" not in (job.train.precision, job.train.compile):
        return job
    path = job.folder / CHOICES_FILE
    stored = read_json(path)
    if world.is_first and job.train.precision == "auto" and "precision" not in stored:
        precision, reason = precision_for(world.device)
        write_json(path, {**stored, "precision": {"value": precision, "why": reason}})
    world.gather(None)
    job = with_choices(job, world, read_json(path))
    if world.is_first and job.train.compile == "auto" and kept_choice(job.folder) is None:
        choice = choice_at_once(job, world.device)
        if choice is not None:
            keep_choice(job.folder, choice)
    world.gather(None)
    return job


def with_choices(job: TrainingJob, world: World, choices: dict[str, Any] | None = None) -> TrainingJob:
    """Return the job with the choices set; without `choices`, by this device, and nothing is kept."""
    if job.train.precision != "auto":
        return job
    precision = choices["precision"]["value"] if choices else precision_for(world.device)[0]
    if precision == "fp16" and world.device.type == "cpu":
        raise UsageError(
            f"train.precision: {job.folder} was begun in fp16 on a GPU, and this machine has none: run it again where "
            "it was begun, or remove the folder"
        )
    train = job.train.model_copy(update={"precision": precision})
    return job.model_copy(update={"train": train, "chosen": (*job.chosen, "precision")})


def cpu_despite_gpu(reason: str) -> dict[str, str]:
    """Return the choice of the CPU with its reason, as `reasons` does, if there is a GPU; without one, no choice."""
    return {"device": f"cpu ({reason})"} if torch.cuda.is_available() else {}


def reasons(folder: Path) -> dict[str, str]:
    """Return the choices of the job in a folder, each with its reason: `{"precision": "fp32 (on a CPU)"}`."""
    return {key: f"{choice['value']} ({choice['why']})" for key, choice in read_json(folder / CHOICES_FILE).items()}
