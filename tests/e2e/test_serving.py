"""The guide's tour of serving: an answer, its label, monitoring that counts both; a promotion under load, and back."""

from __future__ import annotations

import json
import os
import re
import signal
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import urlsplit

import pandas as pd
import pytest

import loopline
from loopline import session
from loopline.session import PROGRAM
from tasks.host import ports
from tasks.host.http_guard import SERVE_TOKEN, token_path
from tasks.host.workspace import Workspace
from tasks.loop.history import last_loop
from tests import running
from tests.running import PENGUINS, ROOT, Loopline, leftovers
from tests.serving import LiveServer, Reply

pytestmark = pytest.mark.e2e

PAUSE_S = 0.01  # between two questions: the loop beside them is to come on
JSON = {"Content-Type": "application/json"}
TOUR = dict(re.findall(r"curl localhost:8000(/\S+) [^']*'Content-Type: application/json' -d '(.*?)'", (
    ROOT / "docs/how-to/serving.md").read_text(), re.DOTALL))  # fmt: skip


@pytest.fixture(scope="module")
def home(copy_whole) -> Loopline:
    """A workspace whose project has a champion."""
    return copy_whole("serving")


@pytest.fixture(scope="module")
def server(home: Loopline) -> Iterator[LiveServer]:
    port = ports.any_free([])
    running = home.start("serve", "whole", "--port", str(port))
    token = token_path(Workspace(home.home), SERVE_TOKEN)
    found = LiveServer(running.process, port, running.err, token=token)
    found.wait_until(lambda: found.get("/ping").status == 200)
    yield found
    assert found.end() == 0


@pytest.fixture(params=["loopline"])
def script(
    home: Loopline, request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[None]:
    """This process stands for a script of the workspace, which asks the program: a forked one, or that of a user."""
    running.write_program(tmp_path)
    for name, value in {**home.environment, PROGRAM: str(tmp_path / request.param)}.items():
        monkeypatch.setenv(name, value)
    yield
    session.end()


from_cold = pytest.mark.parametrize("script", [running.PROGRAM], indirect=True, ids=["cold"])


@pytest.mark.usefixtures("script")
def test_import_loopline_tells_a_loop_that_had_nothing_to_do():
    again = loopline.run(name="whole")
    assert (again.ran, again.verdict, again.version) == (False, "promoted", "1")
    assert Path(urlsplit(again.addresses["card"]).path).is_file()
    assert "<iframe srcdoc" in again._repr_html_()


def test_an_answer_and_its_label_are_what_monitoring_counts(home: Loopline, server: LiveServer):
    told = server.post("/invocations", TOUR["/invocations"].encode(), **JSON).ok().json
    assert told["predictions"][0]["label"] == "Gentoo"
    assert (told["model"], told["version"]) == ("whole", "1")
    label = TOUR["/feedback"].replace("THE ID", told["ids"][0]).encode()
    assert server.post("/feedback", label, **JSON).ok().json["accepted"] == 1
    found = home("monitor", "whole").ok().out
    assert "1 prediction, 1 labelled, so far" in found
    assert "1 prediction, 1 labelled, so far" in (ROOT / "docs/how-to/serving.md").read_text()


@pytest.mark.usefixtures("script")
def test_import_loopline_has_the_same_model_and_leaves_no_trace(home: Loopline, server: LiveServer):
    model = loopline.load("whole")
    rows = pd.read_csv(PENGUINS).iloc[5:25:2].dropna()
    predicted = model.predict(rows)
    assert predicted.index.equals(rows.index)
    question = json.dumps({"dataframe_records": rows[model.inputs].to_dict("records")}).encode()
    served = server.post("/invocations", question, **JSON).ok().json["predictions"]
    assert [row["label"] for row in served] == predicted.label.tolist()
    with pytest.raises(loopline.LooplineError, match=r"^the frame: .*'island'") as caught:
        model.predict(rows.drop(columns="island"))
    assert "\n" not in str(caught.value)
    logged = home("monitor", "whole").ok().out
    assert model.predict(rows, log=True).label.equals(predicted.label)
    assert home("monitor", "whole").ok().out != logged


@pytest.mark.wide
@from_cold
@pytest.mark.usefixtures("script")
def test_ctrl_c_ends_a_loop_with_its_books_closed(home: Loopline, capfd: pytest.CaptureFixture[str]):
    def interrupt() -> None:
        while "train " not in capfd.readouterr().err:
            time.sleep(PAUSE_S)
        os.kill(os.getpid(), signal.SIGINT)

    threading.Thread(target=interrupt, daemon=True).start()
    with pytest.raises(KeyboardInterrupt):
        loopline.run(name="whole", settings={"train.epochs": 100_000, "train.patience": 100_000})
    last = last_loop(Workspace(home.home).state / "projects" / "whole")
    assert last is not None
    assert last.state in ("cancelled", "failed"), "by itself, or by the reaper after four seconds"
    assert loopline.load("whole").version == "1"
    assert not [line for line in leftovers(home.home) if "flows.cli run" in line]


@pytest.mark.wide
def test_a_promotion_and_a_rollback_under_load_cost_no_answer(home: Loopline, server: LiveServer):
    replies: list[Reply] = []
    over = threading.Event()

    def ask() -> None:
        while not over.is_set():
            replies.append(server.post("/invocations", TOUR["/invocations"].encode(), **JSON))
            time.sleep(PAUSE_S)

    def version() -> str:
        return replies[-1].headers["x-loopline-version"] if replies else ""

    asking = threading.Thread(target=ask)
    asking.start()
    try:
        home("run", "whole", "-s", "train.seed=7", "-s", "judge.margin=0.3", "--json").ok()
        assert home.aliases("whole")["champion"] == 2
        server.wait_until(lambda: version() == "2")
        home("rollback", "whole").ok()
        server.wait_until(lambda: version() == "1")
    finally:
        over.set()
        asking.join()
    assert {reply.status for reply in replies} == {200}
    assert all(reply.json["version"] == reply.headers["x-loopline-version"] for reply in replies)
