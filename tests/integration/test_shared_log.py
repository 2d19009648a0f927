"""The log of several serving hosts on S3: nothing twice, nothing lost when a host is killed."""

from __future__ import annotations

import signal
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import orjson
import pytest

from models.errors import StoreError
from models.serving.records import label_record
from tasks.host.store_addresses import ROOT
from tasks.state.delta.shared_log import shared_log
from tasks.state.ingest_segments import move, moving, receive, share_labels
from tasks.state.predictions import label_store, prediction_log
from tasks.state.segments import SegmentWriter, segments_folder
from tests.conftest import Processes
from tests.s3 import BUCKET, s3

KILLED = """
import os, signal, sys
from pathlib import Path
from tasks.state import ingest_segments
from tasks.state.segments import Segment
Segment.note_moved = lambda *_: os.kill(os.getpid(), signal.SIGKILL)
ingest_segments.move(Path(sys.argv[1]))
"""
"""Moves a host's records, and dies after the commit on S3, before anything on the host says so."""


@pytest.fixture
def bucket(monkeypatch: pytest.MonkeyPatch):
    with s3() as environ:
        for name, value in {**environ, ROOT: f"s3://{BUCKET}/ws"}.items():
            monkeypatch.setenv(name, value)
        yield environ


def use_a_profile(bucket: dict[str, str], path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Name the keys and the endpoint as `aws configure` and other programs may, not by the usual variables."""
    keys = [f"{name.lower()}={bucket[name]}" for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY")]
    path.write_text("\n".join(["[lab]", *keys]))
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_ENDPOINT_URL"):
        monkeypatch.delenv(name)
    monkeypatch.setenv("AWS_PROFILE", "lab")
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(path))
    monkeypatch.setenv("AWS_ENDPOINT_URL_S3", bucket["AWS_ENDPOINT_URL"])


def predicted(*ids: str) -> bytes:
    record = {"ids": ids, "at": 1, "version": "1", "score": [0.5] * len(ids)}
    return orjson.dumps({**record, "names": ["x"], "numbers": [1.0] * len(ids), "texts": {}, "raw": {}})


def host(place: Path, name: str) -> Path:
    return place / name / ".loopline" / "projects" / "tiny"


def ids_of(state: Path) -> list[str]:
    return [one for table in prediction_log(state).scan(columns=["id"]) for one in table.column("id").to_pylist()]


def labels_of(state: Path) -> dict[str, str]:
    return {row["id"]: row["label"] for table in label_store(state).scan() for row in table.to_pylist()}


def test_hosts_write_one_log_and_each_record_comes_once(
    bucket: dict[str, str], tmp_path: Path, at_once: Processes, monkeypatch: pytest.MonkeyPatch
) -> None:
    ada, bob, reader = (host(tmp_path, name) for name in ("ada", "bob", "reader"))
    writers = {state: SegmentWriter(segments_folder(state)) for state in (ada, bob)}
    writers[ada].write(predicted("a1", "a2"))
    writers[bob].write(predicted("b1"))
    SegmentWriter(segments_folder(bob, "labels")).write(label_record([("a1", "yes")], 5, "http"))

    (killed,) = at_once(f"import sys; sys.argv[1:] = {[str(ada)]!r}\n{KILLED}")
    assert killed.returncode == -signal.SIGKILL
    writers[ada].write(predicted("a3"))
    with ThreadPoolExecutor() as pool:  # both commit at once: one is refused and takes the next number
        list(pool.map(move, (ada, bob)))
    assert [move(ada), move(bob)] == [0, 0]

    assert receive(reader) == 5
    assert sorted(ids_of(reader)) == ["a1", "a2", "a3", "b1"]
    assert labels_of(reader) == {"a1": "yes"}
    (reader / "serving" / "received.json").unlink()
    assert receive(reader) == 0, "the log itself says what it has"
    assert sorted(ids_of(reader)) == ["a1", "a2", "a3", "b1"]

    with moving(reader):
        brought = next(label_store(reader).scan())
        share_labels(reader, brought.set_column(1, "label", [["no"]]))
    receive(ada)
    assert labels_of(ada) == {"a1": "no"}
    assert sorted(ids_of(ada)) == ["a1", "a2", "a3", "b1"]

    monkeypatch.setenv("AWS_ENDPOINT_URL", "http://127.0.0.1:9")
    writers[bob].write(predicted("b2"))
    with pytest.raises(StoreError, match="waits on this disk"):
        move(bob)
    monkeypatch.setenv("AWS_ENDPOINT_URL", "127.0.0.1:9")
    with pytest.raises(StoreError, match="correct the settings of AWS"):
        move(bob)
    use_a_profile(bucket, tmp_path / "credentials", monkeypatch)
    assert move(bob) == 1
    assert receive(reader) == 2
    assert sorted(ids_of(reader)) == ["a1", "a2", "a3", "b1", "b2"]
    log = shared_log(ada)
    assert log is not None
    assert log.cursor() == 6
