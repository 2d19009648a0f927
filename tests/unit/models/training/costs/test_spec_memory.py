"""A net whose weights cannot fit is refused when the spec is read; most specs are judged without torch."""

from pathlib import Path
from typing import Any

import pytest

from models.data.preparation import Preparation
from models.errors import UsageError
from models.nets.build import draft_net
from models.nets.catalogue import CATALOGUE
from models.nets.sizes import Sizes
from models.planner.profile import Profiler
from models.project_spec.blocks import Model, Spec
from models.training.costs import spec_memory
from models.training.costs.spec_memory import (
    batch_may_exceed,
    check_weights,
    examples_of_step,
    gpu_memory,
    least_sizes,
)
from tests.tiny_jobs import job_maker
from tests.wide import wide

SEVEN_BILLION = {"width": 4096, "layers": 32, "heads": 32}
WINDOW = {"kind": "series", "window": {"length": 4}, "split": {"by": "time", "column": "day"}}


def spec_of(arguments: dict[str, Any], data: dict[str, Any], **train: Any) -> Spec:
    data = {"source": "rows.csv", **({} if data.get("kind") == "text" else {"target": "y"}), **data}
    return Spec.model_validate({"name": "large", "data": data, "model": {"arguments": arguments}, "train": train})


def machine(monkeypatch: pytest.MonkeyPatch, memory: float) -> list[float]:
    """Pretend that this machine, and its GPU, has so much memory; return what was built for."""
    built: list[float] = []
    real = spec_memory._build_and_compare

    def build(*arguments: Any) -> None:
        built.append(memory)
        real(*arguments)

    monkeypatch.setattr(spec_memory, "usable_memory", lambda: memory)
    monkeypatch.setattr(spec_memory, "gpu_memory", lambda: memory)
    monkeypatch.setattr(spec_memory, "_build_and_compare", build)
    return built


@pytest.mark.parametrize(
    ("gpus", "net", "data", "message"),
    [
        (0, "transformer", WINDOW, r"over 1 rank\(s\) holds 103 GB .* this machine's memory is 80 GB; what would fit"),
        wide(1, "transformer", WINDOW, r"holds 103 GB of weights, .* but the GPU's memory is 80 GB"),
        wide(1, "decoder", {"kind": "text"}, r"holds 103 GB"),
        wide(1, "transformer", {"kind": "image", "image": {"height": 28, "width": 28}}, r"holds 103 GB"),
        (1, "transformer", {}, r"holds 103 GB"),
    ],
)
def test_seven_billion_weights_are_refused_before_any_data(
    gpus: int, net: str, data: dict[str, Any], message: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    machine(monkeypatch, 80e9)
    with pytest.raises(UsageError, match=message):
        check_weights(spec_of(SEVEN_BILLION, data), net, Path(), gpus)


def test_shards_of_four_gpus_may_fit_what_one_cannot_hold(monkeypatch: pytest.MonkeyPatch) -> None:
    built = machine(monkeypatch, 30e9)
    with pytest.raises(UsageError, match=r"what would fit: train\.parallel=fsdp"):
        check_weights(spec_of(SEVEN_BILLION, WINDOW, ranks=4), "transformer", Path(), gpus=4)
    check_weights(spec_of(SEVEN_BILLION, WINDOW, ranks=4, parallel="fsdp"), "transformer", Path(), gpus=4)
    assert len(built) == 2


@pytest.mark.parametrize("net", [name for name, entry in CATALOGUE.items() if "table" in entry.kinds])
def test_a_usual_net_needs_no_torch(net: str, monkeypatch: pytest.MonkeyPatch) -> None:
    built = machine(monkeypatch, 8e9)
    for arguments in ({}, {"hidden": 1024, "layers": 4}, {"width": 512, "layers": 8}):
        check_weights(spec_of(arguments, {}), net, Path(), gpus=1)
    assert built == []


IMAGE = {"kind": "image", "image": {"height": 28, "width": 28}}
LARGE_IMAGE = {"kind": "image", "image": {"height": 1000, "width": 1200, "channels": 3}}


@pytest.mark.parametrize(
    ("net", "data", "arguments"),
    [
        ("mlp", {}, {}),
        ("mlp", {}, {"hidden": 4096, "layers": 1}),
        ("tabm", {}, {"members": 512}),
        ("cnn", IMAGE, {"stages": 8}),
        ("cnn", IMAGE, {"width": 256, "stages": 1}),
        ("cnn", LARGE_IMAGE, {}),
        ("gru", WINDOW, {"hidden": 512, "layers": 3}),
        ("lstm", {"kind": "text"}, {"hidden": 512}),
        ("transformer", IMAGE, {"width": 256}),
        wide("decoder", {"kind": "text"}, {"layers": 12}),
    ],
)
def test_no_net_has_more_weights_than_the_bound_whose_arguments_it_is_read_from(
    net: str, data: dict[str, Any], arguments: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where the memory is what the weights need, the bound alone does not let the net through."""
    spec = spec_of(arguments, data)
    drafted = draft_net(Model(net=net, arguments=arguments), least_sizes(spec), Path())
    needed = 16.0 * sum(each.numel() for each in drafted.net.parameters())
    built = machine(monkeypatch, needed)
    check_weights(spec, net, Path(), gpus=0)
    assert built == [needed]


def test_channels_that_a_cnn_doubles_by_default_are_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    machine(monkeypatch, 80e9)
    with pytest.raises(UsageError, match="this machine's memory is 80 GB"):
        check_weights(spec_of({"stages": 12}, IMAGE), "cnn", Path(), gpus=0)
    with pytest.raises(UsageError, match=r"model\.arguments: cnn is too large .* overflowed .*: take a smaller net"):
        check_weights(spec_of({"stages": 30}, IMAGE), "cnn", Path(), gpus=0)


def test_a_large_net_that_fits_is_let_through(monkeypatch: pytest.MonkeyPatch) -> None:
    built = machine(monkeypatch, 200e9)
    check_weights(spec_of(SEVEN_BILLION, WINDOW), "transformer", Path(), gpus=1)
    assert built == [200e9]
    machine(monkeypatch, 1e9)
    check_weights(spec_of({**SEVEN_BILLION, "heads": 31}, WINDOW), "transformer", Path(), gpus=0)  # refused elsewhere
    check_weights(spec_of({"hidden": 10**6}, {}), "./net.py:Net", Path(), gpus=0)  # what its numbers mean is not known


def test_the_memory_of_the_largest_gpu_is_asked_of_the_driver(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    assert gpu_memory() is None
    program = tmp_path / "nvidia-smi"
    program.write_text("#!/bin/sh\necho 40960\necho 81559\n")
    program.chmod(0o755)
    assert gpu_memory() == 81559 * 2**20
    program.write_text("#!/bin/sh\necho '[N/A]'\n")
    assert gpu_memory() is None


@pytest.mark.parametrize(
    ("kind", "task", "net", "arguments"),
    [
        ("table", "binary", "mlp", {"numeric_embedding": "periodic"}),
        wide("table", "binary", "transformer", {"layers": 1}),
        ("image", "multiclass", "cnn", {"stages": 3}),
        wide("image", "multiclass", "transformer", {}),
        ("series", "regression", "gru", {}),
        wide("series", "regression", "lstm", {"hidden": 512}),
        wide("series", "regression", "transformer", {"dropout": 0.1}),
        ("text", "language", "decoder", {"dropout": 0.1}),
        ("table", "binary", "mlp", {"layers": 0, "numeric_embedding": "periodic"}),
        ("table", "binary", "tabm", {"members": 4}),
    ],
)
def test_the_bound_of_a_batch_is_above_the_estimate(
    tmp_path: Path, kind: str, task: str, net: str, arguments: dict[str, Any]
) -> None:
    """And not so far above that usual trainings are looked at with torch."""
    job = job_maker(tmp_path)(kind, task, net, arguments, batch=512)
    sizes = Sizes.of(Preparation.load(job.prepared))
    estimate = Profiler(job.model, sizes, job.project, "fp32").exactly(512)
    assert batch_may_exceed(job, estimate.peak)
    assert not batch_may_exceed(job, 1e9)


def test_what_the_planner_cannot_say_is_let_through(tmp_path: Path) -> None:
    make = job_maker(tmp_path)
    assert batch_may_exceed(make(net="mlp", batch=512), 1e7)
    frozen = {"start": {"weights": "champion", "freeze": ["trunk.first"]}}
    for settings in ({"net": "trees"}, {"net": "./net.py:Net"}, {"batch": "auto"}, {"compile": True}, frozen,
                     {"ranks": 2, "parallel": "fsdp"}):  # fmt: skip
        assert not batch_may_exceed(make(**{"net": "mlp", "batch": 512, **settings}), 1e7), settings


@pytest.mark.parametrize(
    ("kind", "settings", "train", "num"),
    [
        ("table", {}, {}, 1000),
        ("table", {"sample": 0.25}, {}, 250),
        ("table", {"sample": 0.25}, {"recent": {"share": 0.2, "replay": 0.25}}, 100),
        ("table", {"fold": (1, 3)}, {}, 800),
        ("table", {"fold": (1, 3), "fold_by": "blocks"}, {}, 600),
        ("series", {"fold": (0, 2)}, {}, 400),
        ("text", {"fold": (0, 2), "fold_by": "blocks"}, {}, 600),
    ],
)
def test_a_step_holds_no_more_examples_than_there_are(
    tmp_path: Path, kind: str, settings: dict[str, Any], train: dict[str, Any], num: int
) -> None:
    tasks = {"series": "regression", "text": "language"}
    job = job_maker(tmp_path)(kind, tasks.get(kind, "binary"), batch=5000, job=settings, **train)
    preparation = Preparation.load(job.prepared)
    assert examples_of_step(job, preparation) == 5000
    rows = preparation.model_copy(update={"rows": {"train": 1000, "validation": 200}})
    assert examples_of_step(job, rows) == num


def test_many_characters_count_in_the_bound(tmp_path: Path) -> None:
    job = job_maker(tmp_path)("text", "language", "decoder", {"width": 8, "heads": 1, "layers": 1}, batch=256)
    preparation = Preparation.load(job.prepared)
    assert not batch_may_exceed(job, 1e7)
    alphabet = "".join(map(chr, range(0x4E00, 0x4E00 + 3000)))
    assert preparation.characters
    characters = preparation.characters.model_copy(update={"alphabet": alphabet})
    preparation.model_copy(update={"characters": characters}).save(job.prepared)
    profiler = Profiler(job.model, Sizes.of(Preparation.load(job.prepared)), job.project, "fp32")
    assert batch_may_exceed(job, profiler.exactly(256).peak)
