"""A launcher of a team's own: a row beside places.yaml, read before a run and called for each job."""

from __future__ import annotations

from pathlib import Path

import pytest

from models.errors import UsageError, UserCodeError
from models.project_spec import own_reads
from models.project_spec.blocks import Spec, Train
from models.project_spec.search import Search
from tasks.ranks.launcher import SchedulerAwayError, Shape
from tasks.ranks.own_place import OwnPlace
from tasks.ranks.places import check_places, find_place, find_search_place

CODE = """\
from pathlib import Path


def submit(job, settings):
    with open(settings["log"], "a") as log:
        log.write(f"{job['name']} {job['nodes']} {job['ranks']} {settings['queue']}\\n")
    return job["command"]("2", "head:29400", "7")


def state(name, settings):
    if name == "loopline-away":
        raise ConnectionRefusedError("nobody listens")
    return "running" if name in Path(settings["log"]).read_text() else settings["otherwise"]


def cancel(name, settings):
    raise KeyError(name)


def check(settings):
    if settings["queue"] == "closed":
        raise ValueError(f"no queue {settings['queue']}")


LAUNCHER = {
    "submit": submit,
    "state": state,
    "cancel": cancel,
    "check": check,
    "settings": {"queue": "default", "log": None, "gpus": 2, "otherwise": "ended"},
}
PLAIN_LAUNCHER = {"submit": submit, "state": state, "cancel": cancel, "programs": ["no-such-program"]}
"""


@pytest.fixture
def places(workspace):
    """Writes the entry `own` of places.yaml, and returns the workspace."""
    (workspace.root / "engine.py").write_text(CODE)
    (workspace.root / "log").touch()

    def write(entry: str = "", row: str = "LAUNCHER"):
        log = "" if "log" in entry or row != "LAUNCHER" else f"log: {workspace.root / 'log'}, "
        (workspace.root / "places.yaml").write_text(f'own: {{engine: "./engine.py:{row}", {log}{entry}}}\n')
        return workspace

    return write


def place_of(workspace) -> OwnPlace:
    place = find_place(workspace, Train(on="own"))
    assert isinstance(place, OwnPlace)
    return place


def test_a_row_submits_tells_and_cancels_by_its_own_functions(places) -> None:
    workspace = places("queue: long")
    place = place_of(workspace)
    said = place.submit("a", Path("/jobs/a"), Shape((1, 2), 4, 1, 3))
    assert "--nnodes=2 --nproc-per-node=4 --max-restarts=3" in said
    assert said.endswith("/models/launch.py models.training.node /jobs/a")
    assert (workspace.root / "log").read_text() == "loopline-a (1, 2) 4 long\n"
    assert (place.state("a"), place.state("b"), place.state("away")) == ("running", "ended", "unknown")
    assert find_search_place(workspace, Search(on="own")) == place
    with pytest.raises(UserCodeError, match=r"engine.py:LAUNCHER cancel raised KeyError: .*engine\.py:\d+"):
        place.cancel("a")


def test_an_engine_that_is_away_is_waited_for(places) -> None:
    place = place_of(places())
    with pytest.raises(SchedulerAwayError, match=r"engine.py:LAUNCHER state: the engine is away \(nobody listens\)"):
        place._call("state", "loopline-away")


def test_what_a_launcher_reads_is_no_input_of_the_step(places) -> None:
    place = place_of(places())
    with own_reads.collecting() as reads:
        place.state("a")
    assert len(reads) == 0


def test_the_row_judges_its_settings_before_a_run(places) -> None:
    spec = Spec.model_validate({"name": "a", "data": {"source": "a.csv", "target": "y"}, "train": {"on": "own"}})
    check_places(places(), spec)
    with pytest.raises(UsageError, match=r"places.yaml:1: own: .*the engine refuses it: no queue closed: correct pl"):
        check_places(places("queue: closed"), spec)
    ranks = spec.model_copy(update={"train": Train(on="own", ranks=4)})
    with pytest.raises(UsageError, match=r"places.yaml:1: own: train.ranks: got 4, but a node of this place has 2 GPU"):
        check_places(places(), ranks)


@pytest.mark.parametrize(
    ("entry", "row", "message"),
    [
        ("quue: a", "LAUNCHER", r"places.yaml:1: own.quue: unknown key: did you mean 'queue'\?"),
        ("gpus: many", "LAUNCHER", r"places.yaml:1: own.gpus: got 'many', expected a value such as 2"),
        ("log: null", "LAUNCHER", r"places.yaml:1: own.log: is missing, expected a value: add it"),
        ("", "LAUNCHERS", r"places.yaml:1: own.engine: got './engine.py:LAUNCHERS', expected one of slurm, .* or ./f"),
        ("", "MY_LAUNCHER", r"places.yaml:1: own.engine: ./engine.py:MY_LAUNCHER: ./engine.py has no 'MY_LAUNCHER'"),
        ("", "PLAIN_LAUNCHER", r"places.yaml:1: own: this machine has no no-such-program"),
    ],
)
def test_a_wrong_entry_is_refused_with_its_line(places, entry: str, row: str, message: str) -> None:
    with pytest.raises(UsageError, match=message):
        find_place(places(entry, row), Train(on="own"))


def test_a_state_that_is_none_is_an_error_of_the_row(places) -> None:
    with pytest.raises(UserCodeError, match="state returned 'gone', expected one of queued, running"):
        place_of(places("otherwise: gone")).state("b")
