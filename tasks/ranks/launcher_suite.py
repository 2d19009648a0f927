"""The conformance suite of launchers: tiny jobs of two ranks, on a place of `places.yaml`."""

from __future__ import annotations

import shutil
import time
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import numpy as np

from models.data.preparation import Preparation
from models.data.target_encoding import TargetEncoding
from models.errors import LooplineError, TrainingError
from models.inputs.numeric.record import NumericInput
from models.project_spec.blocks import Model, Train
from models.project_spec.conformance import Claim
from models.training.job import EpochReport, TrainingJob, TrainingResult
from models.training.node import read_progress
from tasks.ranks.launcher import JobOwner, Place, State, key_of_folder, train_at
from tasks.ranks.rank_pool import RankPool, StoppedWaitingError

EPOCHS, PATIENCE_S = 12, 120
_WAIT_S = 0.5
_WORDS = "the sky is falling"
NET = """
import time
import torch


class Net(torch.nn.Module):
    def __init__(self, num_numeric, num_outputs):
        super().__init__()
        self.layer = torch.nn.Linear(num_numeric, num_outputs)
        self.dropout = torch.nn.Dropout(0.2)

    def forward(self, numeric):
        if self.training:
            time.sleep(0.02)
        return self.layer(self.dropout(numeric))
"""
"""A net whose steps take so long that an epoch can be interrupted."""


def launcher_claims(place: Place, folder: Path, workspace: str) -> Iterator[Claim]:
    """Yield the claims on the launcher of a place; the last ones need the result of those before.

    Args:
        place: Of `places.yaml`, whose engine starts jobs by itself.
        folder: For the jobs: it is emptied, and all nodes share it.
        workspace: The workspace's id.

    Cost: four trainings of a few seconds, and the engine's time to start each.
    """
    stage = _Stage(place, folder, JobOwner(workspace, confirm=_nobody_else))
    yield Claim("a job that nobody has submitted is ended", stage.absent_job_is_ended)
    yield Claim("to cancel a job that is not there does nothing", stage.absent_job_can_be_cancelled)
    yield Claim("a job of two ranks ends with the weights of this machine", stage.job_has_the_weights_of_this_machine)
    yield Claim("a job is queued or running as long as it computes, and then ended", stage.states_are_told)
    yield Claim("a job that is cancelled computes no further", stage.cancelled_job_ends)
    yield Claim("a cancelled job goes on from its checkpoint when it is submitted again", stage.cancelled_job_goes_on)
    yield Claim("an error of a rank reaches who waits", stage.error_of_a_rank_is_raised)


@dataclass
class _Stage:
    """The jobs of the suite on a place."""

    place: Place
    folder: Path
    owner: JobOwner

    def __post_init__(self) -> None:
        shutil.rmtree(self.folder, ignore_errors=True)
        self.folder.mkdir(parents=True)
        (self.folder / "net.py").write_text(NET)
        raises = f'raise ValueError("{_WORDS}")'
        (self.folder / "broken.py").write_text(NET.replace("time.sleep(0.02)", raises))
        _write_data(self.folder)

    @cached_property
    def expected(self) -> str:
        """The weights of two ranks on this machine."""
        with RankPool() as pool:
            return pool.run(self.job("here")).weights_sha256

    def job(self, name: str, net: str = "net.py") -> TrainingJob:
        """Return a job of two ranks."""
        return TrainingJob(
            folder=self.folder / name,
            prepared=self.folder,
            tensors={side: self.folder / f"{side}.safetensors" for side in ("train", "validation")},
            project=self.folder,
            model=Model(net=f"./{net}:Net"),
            train=Train(epochs=EPOCHS, batch=32, lr=0.01, warmup=0.0, refit=False, ranks=2),
            metric="accuracy",
            direction="maximize",
            checkpoint_share=1.0,
        )

    def absent_job_is_ended(self) -> None:
        state = self._state(self.folder / "absent")
        if state != "ended":
            raise TrainingError(f"its state is {state}, expected ended")

    def absent_job_can_be_cancelled(self) -> None:
        self.place.cancel(key_of_folder(self.folder / "absent", self.owner.workspace))

    def job_has_the_weights_of_this_machine(self) -> None:
        result = self._trained("whole")
        if result.weights_sha256 != self.expected:
            raise TrainingError("its weights differ from those of this machine, expected ranks on the same kind of CPU")

    def states_are_told(self) -> None:
        states: set[State] = set()
        job = self.job("told")

        def on_epoch(_: EpochReport) -> bool:
            states.add(self._state(job.folder))
            return True

        train_at(self.place, job, self.owner, on_epoch)
        if not states <= {"queued", "running", "unknown"}:
            raise TrainingError(f"while it computed it was {', '.join(sorted(states))}, expected queued or running")
        self._wait_for_end(job.folder)

    def cancelled_job_ends(self) -> None:
        job, seen = self.job("cancelled"), list[int]()

        def on_epoch(report: EpochReport) -> bool:
            seen.append(report.epoch)
            return True

        try:
            train_at(self.place, job, self.owner, on_epoch, is_stopped=lambda: bool(seen), is_cancelled=lambda: True)
        except StoppedWaitingError:  # which has cancelled it
            self._wait_for_end(job.folder)
            before = len(read_progress(job.folder))
            time.sleep(10 * _WAIT_S)
            if len(read_progress(job.folder)) != before:
                raise TrainingError("its ranks compute on after its end: end them in `cancel`") from None
            return
        raise TrainingError("it ended before it was cancelled: run the check again on a machine with less to do")

    def cancelled_job_goes_on(self) -> None:
        result = self._trained("cancelled")
        if result.weights_sha256 != self.expected:
            raise TrainingError("its weights differ from those of a job that nobody cancelled, expected the same")

    def error_of_a_rank_is_raised(self) -> None:
        try:
            train_at(self.place, self.job("broken", "broken.py"), self.owner)
        except LooplineError as error:
            if _WORDS not in str(error):
                raise TrainingError(f"who waits gets {error}, expected the ValueError of the net") from error
            return
        raise TrainingError("who waits gets a result, expected the ValueError of the net")

    def _trained(self, name: str) -> TrainingResult:
        epochs: list[int] = []

        def on_epoch(report: EpochReport) -> bool:
            epochs.append(report.epoch)
            return True

        result = train_at(self.place, self.job(name), self.owner, on_epoch)
        if epochs != sorted({*epochs}):
            raise TrainingError(f"epochs are reported as {epochs}, expected each of them once")
        return result

    def _state(self, folder: Path) -> State:
        return self.place.state(key_of_folder(folder, self.owner.workspace))

    def _wait_for_end(self, folder: Path) -> None:
        end, state = time.monotonic() + PATIENCE_S, self._state(folder)
        while state != "ended" and time.monotonic() < end:
            time.sleep(_WAIT_S)
            state = self._state(folder)
        if state != "ended":
            raise TrainingError(f"{PATIENCE_S} s later it is {state}, expected ended")


def _nobody_else() -> None:
    """Do nothing: a suite needs no lease."""


def _write_data(folder: Path) -> None:
    """Write prepared rows of two classes that one number tells apart."""
    from safetensors.numpy import save_file

    target = TargetEncoding(name="y", classes=["no", "yes"])
    inputs = [NumericInput(name=f"x{place}", fill=0.0) for place in range(3)]
    Preparation(kind="table", task="binary", target=target, inputs=inputs).save(folder)
    for seed, (side, count) in enumerate((("train", 200), ("validation", 50))):
        numbers = np.random.default_rng(seed).normal(size=(count, 3)).astype(np.float32)
        save_file({"numeric": numbers, "target": (numbers[:, 0] > 0).astype(np.int64)}, folder / f"{side}.safetensors")
