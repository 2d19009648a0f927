"""Nets of known size and what torch's own tracker says that training them holds."""

import gc
import warnings
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from torch.distributed._tools.mem_tracker import MemTracker

from models.nets.build import build_net, example_inputs
from models.nets.sizes import Sizes
from models.planner.profile import Profiler
from models.project_spec.blocks import Model, Train
from models.training.optimisation.optimisers import make_optimiser

TABLE = Sizes("table", "binary", 16, (17, 4, 105))
SERIES = Sizes("series", "regression", 8, window=(32, 8))
IMAGE = Sizes("image", "multiclass", image=(1, 28, 28), num_outputs=10)

MakeProfiler = Callable[..., Profiler]


@pytest.fixture(autouse=True)
def _one_thread() -> None:
    torch.set_num_threads(1)


@pytest.fixture
def make_profiler() -> MakeProfiler:
    def make(net: str, sizes: Sizes, precision: str = "fp32", flash: bool = False, **arguments: object) -> Profiler:
        return Profiler(Model(net=net, arguments=dict(arguments)), sizes, Path(), precision, flash)

    return make


@pytest.fixture
def tracked() -> Callable[..., int]:
    """Bytes that torch's MemTracker finds at the peak of real optimiser steps, the first left out."""

    def track(net: str, sizes: Sizes, batch: int, **arguments: object) -> int:
        built = build_net(Model(net=net, arguments=dict(arguments)), sizes, Path())
        optimiser = make_optimiser(built, Train())
        inputs = example_inputs(sizes, batch)
        tracker = MemTracker()
        tracker.track_external(built, optimiser)
        with warnings.catch_warnings(action="ignore"), tracker:
            for step in range(2):
                if step == 1:
                    tracker.reset_mod_stats()
                output = built(**inputs)
                loss = output.log_softmax(-1).sum() if output.shape[-1] > 1 else output.square().sum()
                loss.backward()
                optimiser.step()
                optimiser.zero_grad(set_to_none=True)
                del output, loss
        gc.collect()
        return int(tracker.get_tracker_snapshot("peak")[torch.device("cpu")]["Total"])

    return track
