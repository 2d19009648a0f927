"""The tensors that all jobs of a loop share: made once for a dataset version, anew by another encoder."""

from __future__ import annotations

import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import numpy as np
import pyarrow as pa
import pytest

from models.data.prepare import prepare
from models.pipeline.steps import ENCODING_CODE
from models.project_spec.blocks import Model, Spec, Train
from models.sources.read import write_table
from models.training.job import InitialWeights, TrainingJob
from tasks.loop import jobs
from tasks.loop.inputs import Input
from tasks.loop.loop import Loop
from tests.tiny_jobs import job_maker


@pytest.fixture
def loop(tmp_path: Path) -> Loop:
    random = np.random.default_rng(0)
    write_table(pa.table({"x": random.normal(size=100), "y": random.integers(0, 2, 100)}), tmp_path / "raw.parquet")
    spec = Spec.model_validate({"name": "t", "data": {"source": "x.csv", "target": "y"}})
    prepare(tmp_path / "raw.parquet", spec, tmp_path, tmp_path / "prepared")
    made: Any = SimpleNamespace(
        state=tmp_path / "state", spec=spec, project=SimpleNamespace(folder=tmp_path), workspace=None
    )
    return cast("Loop", made)


@pytest.fixture
def prepared(tmp_path: Path) -> Input:
    made: Any = SimpleNamespace(digest="d" * 64, folder=tmp_path / "prepared")
    return cast("Input", made)


def test_tensors_are_made_once(loop: Loop, prepared: Input) -> None:
    first = jobs.tensors(loop.state, prepared)
    assert sorted(first) == ["test", "train", "validation"]
    stamp = first["train"].stat().st_mtime_ns
    assert jobs.tensors(loop.state, prepared) == first
    assert first["train"].stat().st_mtime_ns == stamp


def test_a_job_has_the_name_of_its_net_and_begins_with_weights_of_the_same(
    loop: Loop, prepared: Input, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(jobs, "read_speeds", lambda _: ())
    monkeypatch.setattr(jobs, "cpu_peak", lambda *_: None)
    loop.rank_pool = cast("Any", None)
    start = InitialWeights(
        weights=tmp_path, sha256="0", label="version 3", model=Model(net="mlp", arguments={"hidden": 8, "layers": 1})
    )

    def made(net: str) -> TrainingJob:
        model = Model(net=net, arguments={"layers": 2} if net == "mlp" else {})
        return jobs.job(loop, prepared, tmp_path / "job", model, Train(), start=start)

    assert (made("auto").model.net, made("auto").start) == ("trees", None)
    assert (made("mlp").start, made("mlp").model.arguments) == (start, {"hidden": 8, "layers": 2})


def test_trials_that_begin_at_once_read_the_encoder_once(
    loop: Loop, prepared: Input, monkeypatch: pytest.MonkeyPatch
) -> None:
    jobs.tensors(loop.state, prepared)
    begin, reads = threading.Barrier(4), []

    def read_slowly(modules: list[str]) -> dict[str, str]:
        reads.extend(modules)
        time.sleep(0.05)
        return {"code:encode.py": "one"}

    def wanted(_: int) -> dict[str, Path]:
        begin.wait()
        return jobs.tensors(loop.state, prepared)

    monkeypatch.setattr(jobs, "code_parts", read_slowly)
    jobs._encoder.cache_clear()
    with ThreadPoolExecutor(4) as pool:
        made = list(pool.map(wanted, range(4)))
    jobs._encoder.cache_clear()
    assert reads == [*ENCODING_CODE]
    assert made == [made[0]] * 4


def test_another_encoder_makes_them_anew(loop: Loop, prepared: Input, monkeypatch: pytest.MonkeyPatch) -> None:
    first = jobs.tensors(loop.state, prepared)
    asked = []
    monkeypatch.setattr(jobs, "code_parts", lambda modules: asked.extend(modules) or {"code:encode.py": "edited"})
    jobs._encoder.cache_clear()
    second = jobs.tensors(loop.state, prepared)
    jobs._encoder.cache_clear()
    assert asked == [*ENCODING_CODE]
    assert second["train"].parent != first["train"].parent
    assert second["train"].read_bytes() == first["train"].read_bytes()


@pytest.mark.parametrize(
    ("gpus", "batch", "is_estimated"),
    [(0, 32, False), (0, 1_000_000, True), (1, 1_000_000, False), (None, 1_000_000, False)],
    ids=["usual", "large", "on a GPU", "unknown device"],
)
def test_only_a_batch_that_may_be_too_large_is_estimated(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, gpus: int | None, batch: int, is_estimated: bool
) -> None:
    calls: list[Any] = []
    pool: Any = SimpleNamespace(call=lambda reference, job, memory: calls.append((reference, job["train"], memory)))
    monkeypatch.setattr(jobs, "usable_gpus", lambda _: gpus)
    monkeypatch.setattr(jobs, "usable_memory", lambda: 8e9)
    job = job_maker(tmp_path)(net="mlp", batch=batch)
    jobs.check_batch(pool, job)
    expected = "models.planner.batch_check:refuse_batch", job.train.model_dump(mode="json"), 8e9
    assert calls == [expected] * is_estimated
