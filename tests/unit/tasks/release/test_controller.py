"""The follower, look by look, without workers: what it brings, lets in, refuses, and takes back."""

import json
import subprocess
import sys
import threading
import time
from types import SimpleNamespace

import pytest

from models.files import sha256, write_json
from models.serving.registry import FILES
from models.serving.registry_comparison import Projection
from models.serving.releases import PLAN, Canary, ReleasePlan
from tasks.host import database, processes
from tasks.release import controller
from tasks.release.controller import SWAPS_FILE, Background, ReleaseController, follow
from tasks.release.settings import ServerSettings
from tasks.release.shared_state import VersionOutcomes, WorkerReport
from tasks.state import champion_moves, registered_models, shadows
from tests.alias_server import alias_server
from tests.served_models import write_served
from tests.serving import crown, register
from tests.unit.tasks.release.test_shadow import log


@pytest.fixture(autouse=True)
def tried(monkeypatch):
    """Versions that were tried out: in this process, and none is refused."""
    found = []
    monkeypatch.setattr(controller, "try_out", lambda model, number, folder: found.append(number))
    return found


@pytest.fixture
def mlflow(monkeypatch):
    """MLflow's server, where the alias is followed."""
    with alias_server() as (registry, url):
        monkeypatch.setenv("MLFLOW_TRACKING_URI", url)
        yield registry


@pytest.fixture(params=["moves", "alias"])
def enrol(workspace, request):
    """Register a version with an alias; gives the folder of the store."""
    put_version = register if request.param == "moves" else request.getfixturevalue("mlflow").register

    def put(number, alias="champion", plan=None, **serve):
        folder = workspace.root / "store" / number
        write_served(folder)
        write_json(folder / "spec.json", {"serve": serve})
        tags = {FILES: json.dumps({path.name: sha256(path) for path in folder.iterdir()})}
        put_version(workspace, "tiny", number, {**tags, PLAN: plan.model_dump_json() if plan else ""}, folder, alias)
        return folder

    return put


@pytest.fixture
def lead(workspace, monkeypatch, request):
    if "enrol" in request.fixturenames:
        request.getfixturevalue("enrol")  # it says which registry is followed
    found = ReleaseController(ServerSettings(str(workspace.root), ("tiny",)), "tiny")
    found.shadowed = []
    monkeypatch.setattr(found._background, "shadow", found.shadowed.append)
    monkeypatch.setattr(found._background, "give_back", lambda *_: None)
    monkeypatch.setattr(found, "_look_first", lambda: None)
    yield found
    found.end()


def after(lead):
    lead.guard()
    lead.step()
    return lead.release_state.release()


def test_the_first_champion_needs_no_trial_the_next_ones_do_once(lead, enrol, tried):
    assert after(lead) is None, "there is no registry yet"
    enrol("1")
    assert (after(lead).stable, tried) == ("1", [])
    for number in ("2", "1", "2"):
        enrol(number)
        assert after(lead).stable == number
    assert tried == ["2"]
    assert (after(lead).generation, lead.release_state.switch.value) == (4, 4)
    swaps = [json.loads(line) for line in (lead.release_state.folder / SWAPS_FILE).read_text().splitlines()]
    assert [(swap["before"], swap["stable"]) for swap in swaps] == [(None, "1"), ("1", "2"), ("2", "1"), ("1", "2")]


def test_a_refused_version_is_tried_again_after_a_pause(lead, enrol, monkeypatch):
    enrol("1")
    after(lead)
    store = enrol("2")
    whole = (store / "model.onnx").read_bytes()
    (store / "model.onnx").write_bytes(b"tampered")
    assert "model.onnx is changed" in after(lead).refused["2"]
    (store / "model.onnx").write_bytes(whole)
    assert after(lead).stable == "1", "not at once"
    monkeypatch.setattr(lead._refused["2"], "until", 0.0)
    now = after(lead)
    assert (now.stable, now.refused) == ("2", {})


def test_while_the_registry_is_away_everything_goes_on_and_a_start_takes_the_cache(lead, enrol, workspace, monkeypatch):
    enrol("1")
    after(lead)
    lose_registry(workspace, monkeypatch)
    now = after(lead)
    assert (now.stable, now.away.endswith(": the version that answers stays")) == ("1", True)
    lead._lock.release()
    lead.release_state.release_path.unlink()
    write_json(workspace.cache / "models" / "tiny" / "aliases.json", {"champion": "1"})
    now = after(ReleaseController(ServerSettings(str(workspace.root), ("tiny",)), "tiny"))
    assert (now.stable, now.away.endswith(": beginning with version 1 from the cache")) == ("1", True)


def lose_registry(workspace, monkeypatch):
    monkeypatch.setenv("MLFLOW_TRACKING_URI", "http://127.0.0.1:1")
    (workspace.state / database.FILE).write_text("no database")


def test_once_moves_were_read_a_lost_database_leads_nobody_back_to_the_alias(mlflow, lead, workspace):
    """Nor one that was restored from before the first move."""
    crown(workspace, "tiny", "1")
    after(lead)
    for path in workspace.state.glob(f"{database.FILE}*"):
        path.unlink()
    mlflow.register(workspace, "tiny", "2", {}, workspace.root, "champion")
    now = after(lead)
    assert (now.stable, now.refused) == ("1", {})
    assert "holds no move of tiny any more" in now.away
    assert after(lead) == now, "it is told once"
    crown(workspace, "tiny", "3")
    now = after(lead)
    assert (now.stable, now.away) == ("3", "")


def test_a_registry_that_has_no_champion_any_more_changes_nothing(mlflow, lead, enrol, workspace, caplog):
    enrol("1")
    after(lead)
    with database.writing(workspace.state) as connection:
        if champion_moves.read(connection, "tiny"):
            champion_moves.record(connection, "tiny", 1, action="removed", before="1", after=None)
    mlflow.aliases.clear()
    assert after(lead).stable == "1"
    assert "the registry has no champion" in caplog.text


def test_what_is_planned_is_brought_and_what_cannot_be_is_said(lead, enrol):
    enrol("2", None)
    enrol("1", plan=ReleasePlan(canary=Canary(version="2", share=0.25), shadow="9"))
    now = after(lead)
    assert (now.stable, now.canary, now.shadow) == ("1", Canary(version="2", share=0.25), None)
    assert now.refused == {"9": "tiny: there is no version 9: end its trial by `loopline release tiny --end`"}


def test_by_its_spec_a_promotion_is_let_in_by_degrees_and_a_challenger_is_a_shadow(lead, enrol, monkeypatch):
    enrol("1", shadow=True)
    enrol("3", "challenger")
    after(lead)
    assert (after(lead).shadow, lead.shadowed[-1]) == ("3", "3")
    enrol("2", canary={"share": 0.25, "minutes": 60})
    now = after(lead)
    assert (now.stable, now.canary.version, now.canary.share) == ("1", "2", 0.25)
    assert after(lead) == now
    monkeypatch.setattr(controller.time, "time", lambda: now.canary.until)
    assert (after(lead).stable, after(lead).canary) == ("2", None)


def test_what_fails_gives_its_place_back_and_stays_out_while_it_is_champion(lead, enrol):
    enrol("1")
    after(lead)
    enrol("2")
    after(lead)
    after(lead)
    lead.release_state.report(
        WorkerReport(
            process=processes.identity(), loaded=["1", "2"], tallies={"2": VersionOutcomes(answers=50, failed=50)}
        )
    )
    now = after(lead)
    assert (now.stable, list(now.returned)) == ("1", ["2"])
    assert after(lead) == now
    enrol("1")
    assert after(lead).returned == {}


def test_a_version_that_a_worker_cannot_load_is_refused(lead, enrol):
    enrol("1")
    after(lead)
    lead.release_state.report(WorkerReport(process=processes.identity(), loaded=["1"], failed={"2": "out of memory"}))
    enrol("2")
    lead.step()
    now = after(lead)
    assert (now.stable, now.refused, lead.release_state.next()) == ("1", {"2": "out of memory"}, None)


def test_a_worker_that_does_not_answer_is_waited_for_only_so_long(lead, enrol, monkeypatch, caplog):
    enrol("1")
    after(lead)
    lead.release_state.report(WorkerReport(process=processes.identity(), loaded=["1"]))
    monkeypatch.setattr(controller, "PREPARE_S", 0.05)
    enrol("2")
    assert after(lead).stable == "2"
    assert "swapping without the workers" in caplog.text


def test_a_look_that_fails_again_and_again_is_one_line_a_minute(monkeypatch, caplog):
    stop, looks = threading.Event(), []

    class Failing:
        project, looked = "tiny", threading.Event()
        watcher = SimpleNamespace(pause_s=0.0)

        def step(self):
            looks.append(1)
            if len(looks) == 5:
                stop.set()
            raise OSError(24, "Too many open files", f"file-{len(looks)}")

        def end(self):
            """Nothing works in the background."""

    follow(Failing(), stop)
    (record,) = [one for one in caplog.records if one.levelname == "ERROR"]
    assert "tiny: the version that answers stays: [Errno 24]" in record.getMessage()


LONGEST_S = 60.0


def until(holds):
    deadline = time.monotonic() + LONGEST_S
    while not holds():
        assert time.monotonic() < deadline
        time.sleep(0.02)


@pytest.fixture
def background(workspace):
    found = Background(workspace, "tiny")
    yield found
    found.end()


def test_a_shadow_answers_from_the_log_until_it_is_not_wanted_any_more(workspace, background):
    crown(workspace, "tiny", "2")
    state = workspace.state / "projects" / "tiny"
    log(state, ["a", "b"])
    background.shadow("2")
    process = background._shadow
    until(lambda: shadows.place_of(state, "2") == 1)
    background.shadow("2")
    assert background._shadow is process, "it runs already"
    assert shadows.answers(state, "2")[0] == ["a", "b"]
    background.shadow(None)
    assert process.returncode is not None
    assert background._shadow is None


def ending(code):
    return lambda *_: subprocess.Popen([sys.executable, "-c", f"raise SystemExit({code})"])


@pytest.mark.parametrize(("code", "told"), [(1, 2), (0, 2), (controller.REFUSED, 1)])
def test_the_registry_is_told_again_until_it_heard_or_refused(background, monkeypatch, code, told):
    monkeypatch.setattr(controller, "AGAIN_S", 0.0)
    started = []
    monkeypatch.setattr(background, "_start", lambda *given: started.append(given) or ending(code)())
    background.give_back("2", "errors")
    background.give_back("2", "errors")
    assert started == [("tasks.release.registry_jobs", "rollback", "2", "errors", "")], "one at a time"
    background._giving.wait()
    background.give_back("2", "errors")
    assert len(started) == told
    if background._giving is not None:
        background._giving.wait()
    background.forget(set())
    background.give_back("2", "errors")
    assert len(started) == told + 1, "another return is told anew"
    background._giving.wait()


def test_between_two_tries_there_is_a_pause(background, monkeypatch):
    started = []
    monkeypatch.setattr(background, "_start", lambda *given: started.append(given) or ending(1)())
    for _ in range(3):
        background.give_back("2", "errors")
        if background._giving is not None:
            background._giving.wait()
    assert len(started) == 1


def test_while_a_version_is_brought_and_loaded_a_failing_one_is_rolled_back(lead, enrol, monkeypatch):
    """The rollback stands: what was made ready from the release before it is not published."""
    enrol("1")
    after(lead)
    enrol("2")
    after(lead)
    lead.guard()
    report = WorkerReport(process=processes.identity(), loaded=["1", "2"])
    lead.release_state.report(report)
    enrol("3")
    follower = threading.Thread(target=lead.step)
    follower.start()
    until(lambda: lead.release_state.next() is not None)
    failing = {"2": VersionOutcomes(answers=50, failed=50)}
    lead.release_state.report(report.model_copy(update={"tallies": failing}))
    lead.guard()
    now = lead.release_state.release()
    assert (now.stable, list(now.returned)) == ("1", ["2"])
    follower.join(LONGEST_S)
    assert (lead.release_state.release(), lead.release_state.next()) == (now, None)
    lead.release_state.report(report.model_copy(update={"loaded": ["1", "2", "3"]}))
    assert after(lead).stable == "3", "the next step begins with what the guard left"


def test_what_mlflow_tells_is_looked_for_once_more_after_a_look_that_runs(lead, workspace, monkeypatch):
    started = []
    monkeypatch.setattr(lead._background, "_start", lambda *given: started.append(given) or sleeping())
    lead.release_state.nudge()
    assert (lead.was_nudged(), lead.was_nudged(), started) == (True, False, []), "without moves the alias is followed"
    crown(workspace, "tiny", "1")
    lead.step()
    for _ in range(2):
        lead.release_state.nudge()
        assert lead.was_nudged()
        lead.release_state.nudge()
        assert not lead.was_nudged(), "a look runs"
        lead._background._looking.kill()
        lead._background._looking.wait()
    assert started == [("tasks.release.registry_jobs", "look")] * 2


def sleeping():
    return subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"])


def test_moves_that_only_mlflow_holds_are_read_at_the_start(workspace, monkeypatch):
    """As after an update from an older Loopline, whose moves are in MLflow's tags."""
    looks = []
    monkeypatch.setattr(Background, "look", lambda _: looks.append("look"))
    for looked in (None, 1.0):
        with database.writing(workspace.state) as connection:
            registered_models.save(connection, "tiny", Projection(looked=looked))
        lead = ReleaseController(ServerSettings(str(workspace.root), ("tiny",)), "tiny")
        lead.step()
        lead._lock.release()
        assert looks == ["look"]
