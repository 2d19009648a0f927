"""Explanations over HTTP, from a live server."""

from collections.abc import Iterator

import pytest

from tasks.host.workspace import Workspace
from tests.serving import LiveServer, crown, live_server

ROWS = {"dataframe_records": [{"x": 2.0, "c": "u"}, {"x": -1.0, "c": "w"}]}


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LiveServer]:
    workspace = Workspace(tmp_path_factory.mktemp("explained"))
    workspace.make()
    for task in ("binary", "series", "image"):
        crown(workspace, task, "1", task)
    with live_server(workspace, "binary", "series", "image") as live:
        yield live


def test_an_answer_has_its_explanations_where_they_are_asked_for(server: LiveServer) -> None:
    plain = server.post("/models/binary/invocations", ROWS).ok().json
    told = server.post("/models/binary/invocations?explain=1", ROWS).ok().json
    assert "explanations" not in plain
    assert told["predictions"] == plain["predictions"]
    for prediction, each in zip(told["predictions"], told["explanations"], strict=True):
        assert each["value"] == pytest.approx(prediction[each["of"]])
        assert each["base"] + sum(each["contributions"].values()) == pytest.approx(each["value"])


def test_a_window_of_a_series_is_explained_by_column(server: LiveServer) -> None:
    steps = [{"x": float(at), "y": 1.0} for at in range(3)]
    (told,) = server.post("/models/series/invocations?explain=1", steps).ok().json["explanations"]
    assert told["of"] == "prediction"
    assert set(told["contributions"]) == {"x", "y"}


@pytest.mark.parametrize(
    ("path", "body", "words"),
    [
        ("/models/image/invocations?explain=1", {"instances": [[[[0], [0], [0]]] * 2]}, "only tables and series"),
        ("/models/binary/invocations?explain=1", [{"x": 1.0, "c": "u"}] * 2000, "expected"),
        ("/models/binary/invocations?explain=2", ROWS, "expected 1 or 0"),
    ],
)
def test_what_cannot_be_explained_is_refused(server: LiveServer, path: str, body: object, words: str) -> None:
    reply = server.post(path, body)
    assert reply.status == 400
    assert words in reply.json["error"]


def test_the_description_names_it_where_it_can_be_asked(server: LiveServer) -> None:
    paths = server.get("/openapi.json").ok().json["paths"]
    named = {name: paths[f"/models/{name}/invocations"]["post"]["parameters"] for name in ("binary", "image")}
    assert [any(each["name"] == "explain" for each in found) for found in named.values()] == [True, False]
