"""The training of what learns by rounds, such as boosted trees: epochs, early stopping, checkpoints, exact resume."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from models.data.preparation import Preparation
from models.metrics.metrics import Metric
from models.training.batches.example_set import ExampleSet
from models.training.job import TrainingJob


@dataclass(frozen=True)
class LearnerInputs:
    """What a learner is opened with."""

    job: TrainingJob
    preparation: Preparation
    metric: Metric
    train: ExampleSet
    validation: ExampleSet


class Learner(Protocol):
    """A model that grows by rounds, in one process.

    Attributes:
        rounds: All rounds; 1 where the library has none.
        can_cut: Whether `state` gives the model after an earlier round. Of a model that cannot be cut, the state after
            the best epoch is kept, and it is evaluated after whole epochs alone.
    """

    rounds: int
    can_cut: bool

    def resume(self, state: bytes, rounds: int) -> None:
        """Go on from a state after so many rounds."""
        ...

    def can_resume(self, rounds: int) -> bool:
        """Return whether a training that resumes after so many rounds ends with the same bits."""
        ...

    def looks(self, first: int, stop: int) -> Iterator[tuple[int, int]]:
        """Yield the ranges of rounds of an epoch, each followed by an evaluation of the validation examples."""
        ...

    def grow(self, first: int, stop: int) -> None:
        """Learn rounds `first` to `stop`.

        Raises:
            TrainingError: The library refuses the data or an argument.
        """
        ...

    def outputs(self) -> NDArray[np.float64]:
        """Return the outputs for the validation examples after all rounds so far, float64 (example, output)."""
        ...

    def train_loss(self) -> float:
        """Return the mean loss of the training examples after all rounds so far."""
        ...

    def state(self, rounds: int | None = None) -> bytes:
        """Return the model after so many rounds, by default after all so far; equal models give equal bytes."""
        ...

    def values(self) -> dict[str, float]:
        """Return what an epoch reports beside the losses, such as the learning rate `lr`."""
        ...

    def num_parameters(self, state: bytes) -> int:
        """Return the number of learnt numbers in a state."""
        ...

    def environment(self) -> dict[str, Any]:
        """Return what else decides the bits: the library's version and the arguments."""
        ...


OpenLearner = Callable[[LearnerInputs], Learner]
