"""A loop with its bytes on S3 and its state in Postgres against one on the local disk; the S3 server is moto's."""

from __future__ import annotations

import os
import shutil
import sys
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from unittest import mock

from models.files import Hashes
from models.pipeline.records import StepRecord
from models.pipeline.steps import STEPS
from tasks.host.object_store import ObjectStore
from tasks.host.store_addresses import OPTUNA_STORAGE, ROOT, STATE_URL, TRACKING_URI
from tasks.host.workspace import Workspace
from tasks.state.step_records import StepRecords
from tasks.state.step_store import StepStore
from tests.bench.measure import Measured, measure
from tests.postgres import new_database, postgres
from tests.s3 import BUCKET, s3

PROJECT = Path(__file__).parents[2] / "projects" / "penguins"
PROGRAM = str(Path(sys.executable).with_name("loopline"))
FEW = ("-s", "search.trials=0", "-s", "train.epochs=30")


@dataclass(frozen=True)
class StoreCosts:
    """The same loop with each kind of store, then with one more step's setting changed on an emptied disk."""

    local: Measured
    on_postgres: Measured
    on_s3: Measured
    uploaded_mb: float
    objects: int
    first_use_s: float
    upload_s: float
    fetch_s: float
    local_after: Measured
    emptied_after: Measured


def compared(place: Path) -> StoreCosts:
    """Run the loops, each in a workspace of its own."""
    with postgres() as server, s3() as environ:
        on_postgres, on_s3 = ({name: new_database(server, f"{kind}{index}") for index, name in enumerate(
            (STATE_URL, TRACKING_URI, OPTUNA_STORAGE))} for kind in ("plain", "rooted"))  # fmt: skip
        address = f"s3://{BUCKET}/bench"
        on_s3 |= {**environ, ROOT: address}
        local = _loop(place / "local", {})
        plain = _loop(place / "plain", on_postgres)
        rooted = _loop(place / "rooted", on_s3)
        with mock.patch.dict(os.environ, environ):
            first_use_s, upload_s, fetch_s = _moved(place / "local", place / "elsewhere")
            objects = ObjectStore(address).listed("projects")
        local_after = _loop(place / "local", {}, "-s", "judge.margin=0.2")
        shutil.rmtree(place / "rooted" / ".loopline")
        emptied_after = _loop(place / "rooted", on_s3, "-s", "judge.margin=0.2")
    size = sum(one.size for one in objects.values()) / 1e6
    return StoreCosts(
        local, plain, rooted, size, len(objects), first_use_s, upload_s, fetch_s, local_after, emptied_after
    )


def _moved(home: Path, elsewhere: Path) -> tuple[float, float, float]:
    """Seconds until S3 is first reached, to upload the steps of a loop, and to fetch them into an empty workspace."""
    began = time.perf_counter()
    store = ObjectStore(f"s3://{BUCKET}/moved")
    store.check()
    reached = time.perf_counter()
    (state, records), (other, others) = (_records(root) for root in (home, elsewhere))
    hashes = Hashes(elsewhere / "hashes.json")
    done = [record for step in STEPS if (record := records.latest(step.name))]
    stored = [StepStore(store, state, records, hashes).upload(one, _work(state, one), 1) for one in done]
    uploaded = time.perf_counter()
    for record in filter(lambda one: one.snapshot, stored):
        StepStore(store, other, others, hashes).fetch(record, _work(other, record))
    return reached - began, uploaded - reached, time.perf_counter() - uploaded


def _records(root: Path) -> tuple[Path, StepRecords]:
    state = Workspace(root).state / "projects" / PROJECT.name
    return state, StepRecords(state, root)


def _work(state: Path, record: StepRecord) -> Path:
    return state / "work" / record.step / record.key[:16]


def _loop(home: Path, environ: Mapping[str, str], *more: str) -> Measured:
    if not home.exists():
        shutil.copytree(PROJECT, home / "projects" / PROJECT.name, ignore=shutil.ignore_patterns("data"))
    env = {**os.environ, "LOOPLINE_HOME": str(home), "LOOPLINE_SERVER_IDLE_S": "5", **environ}
    return measure([PROGRAM, "run", PROJECT.name, *FEW, *more], env, home, memory=False)
