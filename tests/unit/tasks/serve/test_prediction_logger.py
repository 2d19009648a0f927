"""The book writes down what the version's spec wants written, before the caller hears of it."""

import uuid
from dataclasses import replace

import numpy as np
import orjson
import pytest

from models.errors import StoreError
from models.files import write_json
from models.inference.input_schema import InputRows
from models.inference.loaded_model import LoadedModel
from models.serving.framing import unframed
from tasks.release.settings import ServerSettings
from tasks.serve import prediction_logger as module
from tasks.serve.prediction_logger import PredictionLogger, new_ids
from tasks.state.segments import segments, segments_folder
from tests.served_models import write_served

IDS = [f"id-{number}" for number in range(200)]
FEED = {"x": np.linspace(0, 1, 200), "c": np.array(["u"] * 200, object)}
EXTRA = {"name": ["Ada"] * 200}


@pytest.fixture
def settings(tmp_path):
    return ServerSettings(str(tmp_path), ("tiny",))


@pytest.fixture
def served(settings):
    """A function that gives a version whose spec has such a block `serve.log`."""

    def made(log=None):
        folder = settings.workspace.cache / "models" / "tiny" / "1"
        write_served(folder)
        if log is not None:
            write_json(folder / "spec.json", {"serve": {"log": log}})
        return LoadedModel("tiny", "1", folder)

    return made


def written(settings, kind="predictions"):
    found = segments(segments_folder(settings.state("tiny"), kind))
    return [orjson.loads(payload) for one in found for _, payload in unframed(one.read(0))]


def enter(settings, served) -> bool:
    loop_state = PredictionLogger(settings, "tiny")
    told = loop_state.enter(served, IDS, InputRows(FEED, EXTRA), served.answer(FEED))
    loop_state.close()
    return told


def test_every_row_is_written_where_the_spec_says_nothing(settings, served):
    assert enter(settings, served())
    (record,) = written(settings)
    assert (record["ids"], record["raw"], len(record["score"])) == (IDS, EXTRA, 200)


def test_a_share_and_no_redacted_column(settings, served):
    assert enter(settings, served({"share": 0.2, "redact": ["name", "c"]}))
    (record,) = written(settings)
    kept = [IDS.index(one) for one in record["ids"]]
    assert 15 < len(kept) < 70
    assert (record["names"], record["numbers"]) == (["x"], FEED["x"][kept].tolist())
    assert (record["texts"], record["raw"]) == ({}, {})
    assert b"Ada" not in b"".join(one.read(0) for one in segments(segments_folder(settings.state("tiny"))))


def test_a_request_none_of_whose_rows_are_drawn_writes_nothing(settings, served):
    found = served({"share": 1e-9})
    assert enter(settings, found)
    assert written(settings) == []


@pytest.mark.parametrize("when_full", ["refuse", "answer"])
def test_a_full_disk_refuses_or_answers_and_is_said_once_in_a_while(settings, served, monkeypatch, caplog, when_full):
    found, loop_state = served({"when_full": when_full}), PredictionLogger(settings, "tiny")
    answer = found.answer(FEED)

    def full(*_):
        raise StoreError("the disk is full: free some space and run again")

    monkeypatch.setattr(module.SegmentWriter, "write", full)
    for _ in range(3):
        if when_full == "refuse":
            with pytest.raises(StoreError):
                loop_state.enter(found, IDS, InputRows(FEED, EXTRA), answer)
        else:
            assert not loop_state.enter(found, IDS, InputRows(FEED, EXTRA), answer)
    with pytest.raises(StoreError):
        loop_state.note([("a", "yes")], "Ada")
    assert caplog.text.count("the disk is full") == 1
    monkeypatch.undo()
    assert loop_state.enter(found, IDS, InputRows(FEED, EXTRA), answer)
    loop_state.close()
    assert len(written(settings)) == 1


def test_labels(settings):
    loop_state = PredictionLogger(settings, "tiny")
    loop_state.note([("a", "yes"), ("b", "no")], "Ada")
    loop_state.close()
    (record,) = written(settings, "labels")
    assert (record["ids"], record["labels"], record["by"]) == (["a", "b"], ["yes", "no"], "Ada")


def test_ids_sort_by_time_and_are_of_version_7():
    ids = new_ids(1000)
    assert len(set(ids)) == 1000
    assert {(uuid.UUID(one).version, uuid.UUID(one).variant) for one in ids} == {(7, uuid.RFC_4122)}
    assert [str(uuid.UUID(one)) for one in ids] == ids
    assert new_ids(1)[0][:13] >= ids[-1][:13]


def test_what_the_projects_spec_says_now_counts_before_what_the_version_came_with(settings, served):
    found = served({"redact": ["name"]})
    assert enter(replace(settings, logs={"tiny": {"redact": ["c"]}, "other": {"share": 0.1}}), found)
    (record,) = written(settings)
    assert (record["texts"], record["raw"]) == ({}, EXTRA)


def test_what_waits_for_the_compactor_is_known_in_bytes(settings, served):
    loop_state = PredictionLogger(settings, "tiny")
    assert loop_state.waiting_bytes() == 0
    enter(settings, served())
    (segment,) = segments(segments_folder(settings.state("tiny")))
    assert loop_state.waiting_bytes() == segment.size > 0
    segment.note_moved(segment.size - 7)
    assert loop_state.waiting_bytes() == 7
