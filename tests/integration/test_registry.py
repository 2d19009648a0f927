"""The registry in a real MLflow: one version a key, compare-and-swap, a journal that survives being killed."""

import contextlib
import os
import shutil
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from models.errors import GateRefused, LeaseLostError, StoreError, UsageError
from models.serving.registry import UNRECORDED
from models.serving.registry_comparison import JOURNAL, Projection, RegistryState
from tasks.host import database, stores
from tasks.host.leases import leased
from tasks.host.workspace import HOME, Workspace
from tasks.loop.champion import first_look, open_registry
from tasks.mlflow.carrier import Carrier
from tasks.mlflow.client import client
from tasks.mlflow.delivery import experiment_id
from tasks.mlflow.registry import Registry
from tasks.mlflow.registry_reader import RegisteredModel, aliased, files_at, registered
from tasks.mlflow.stored_versions import read_all
from tasks.state import registered_models, versions
from tasks.state.champion_moves import champion_of
from tasks.state.versions import address_of, challenger_of, version_of, versions_of
from tasks.state.workspace_id import workspace_id
from tests.conftest import Processes
from tests.wide import wide

pytestmark = pytest.mark.usefixtures("module_environment")


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory, empty_store: Path) -> Workspace:
    """A workspace with a tracking store that the tests share: each has a model of its own."""
    workspace = Workspace(tmp_path_factory.mktemp("registry"))
    workspace.make()
    shutil.copytree(empty_store, workspace.state / "mlflow")
    return workspace


@pytest.fixture
def tracked(home: Workspace, monkeypatch: pytest.MonkeyPatch) -> Workspace:
    """The same, which LOOPLINE_HOME names."""
    monkeypatch.setenv(HOME, str(home.root))
    stores.configure(home)
    return home


def register(workspace: Workspace, model: str, count: int = 1) -> Registry:
    made = open_registry(workspace, model)
    run = client().create_run(experiment_id(client(), workspace, model)).info
    for number in range(1, count + 1):
        source, tags = f"{run.artifact_uri}/model", {"loopline.loop_id": "l", "n": str(number)}
        stored = made.create(f"key-{number}", source, run.run_id, None, tags, "a model")
        assert stored.number == str(number)
    return made


def journal(made: Registry) -> list[tuple[str, str | None, str | None]]:
    return [(entry.action, entry.before, entry.after) for entry in made.journal()]


def alias(model: str, name: str = "champion") -> str | None:
    return registered(model).aliases.get(name)


class Killed(BaseException):
    """A kill of the process."""


@contextlib.contextmanager
def killed_before_mlflow(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """A move is killed when its row is written and MLflow has nothing of it yet."""

    def die(*_: object) -> None:
        raise Killed

    with monkeypatch.context() as patch, pytest.raises(Killed):  # noqa: PT012
        patch.setattr(Carrier, "_set", die)
        yield


def test_the_same_work_registered_twice_is_one_version(both: Workspace, model: str) -> None:
    made = register(both, model)
    assert made.find("key-1") == "1"
    assert made.find("key-2") is None
    again = made.create("key-1", "file:///nowhere", "", None, {"loopline.verdict": "promote"}, "")
    assert again.number == "1"
    assert made.tags("1")["loopline.verdict"] == "promote"
    assert len(client().search_model_versions(f"name = '{model}'")) == 1


def test_a_registered_version_is_a_row_and_the_challenger(both: Workspace, model: str) -> None:
    made = register(both, model, 2)
    rows = versions_of(both.state, model)
    assert [row.number for row in rows] == ["1", "2"]
    in_mlflow = read_all(client(), model, both.state)
    assert rows == [replace(row, place=address_of(both.state, row.place)) for row in in_mlflow]
    assert rows[0].tags == {"loopline.key": "key-1", "loopline.loop_id": "l", "n": "1"}
    assert rows[0].run == client().get_model_version(model, "1").run_id
    assert rows[0].place == files_at(model, "1")
    assert challenger_of(both.state, model) == rows[1]
    assert alias(model, "challenger") == "2"
    made.judge("1", {"loopline.verdict": "promote"})
    assert version_of(both.state, model, "1").registered.tags["loopline.verdict"] == "promote"
    assert read_all(client(), "no-such-model", both.state) == []


def test_what_mlflow_holds_is_read_once_after_an_update(place: Workspace, model: str) -> None:
    """Until then nobody says that there is no champion."""
    made = register(place, model, 2)
    made.promote("1", None)
    with database.writing(place.state) as connection:
        for table in ("champion_moves", "versions", "registered_models"):
            connection.exec_driver_sql(f"delete from {table} where project = ?", (model,))
        registered_models.save(connection, model, Projection())
    with pytest.raises(StoreError, match="must be read from MLflow first"):
        champion_of(place.state, model)
    first_look(place, [model])
    assert champion_of(place.state, model).number == "1"
    assert [row.number for row in versions_of(place.state, model)] == ["1", "2"]
    assert challenger_of(place.state, model).number == "2"
    looked = registered_models.projection_of(place.state, model).looked
    first_look(place, [model])
    assert registered_models.projection_of(place.state, model).looked == looked


def test_a_model_that_mlflow_holds_no_more_is_asked_for_once(place: Workspace, model: str) -> None:
    with database.writing(place.state) as connection:
        registered_models.save(connection, model, Projection())
    first_look(place, [model])
    assert champion_of(place.state, model) is None


def test_a_version_whose_row_was_not_written_is_found_by_its_key(place: Workspace, model: str) -> None:
    """Killed between MLflow and the row: MLflow says that no row names it, until the next run writes the row."""

    def killed(*_: Any) -> None:
        raise KeyboardInterrupt

    workspace_id(place.state)
    with pytest.MonkeyPatch.context() as patch, pytest.raises(KeyboardInterrupt):  # noqa: PT012
        patch.setattr(versions, "save", killed)
        register(place, model)
    assert UNRECORDED in client().get_model_version(model, "1").tags
    assert read_all(client(), model, place.state) == versions_of(place.state, model) == []
    register(place, model)
    assert [row.number for row in versions_of(place.state, model)] == ["1"]
    assert UNRECORDED not in client().get_model_version(model, "1").tags


def test_a_version_of_a_holder_that_lost_its_lease_is_named_by_no_row(place: Workspace, model: str) -> None:
    made = register(place, model)
    with leased(place.state, "loop:m") as lease:
        run = client().get_model_version(model, "1").run_id
        with pytest.raises(LeaseLostError, match="has taken it over"):
            made.create("key-2", "file:///nowhere", run, None, {}, "", replace(lease, epoch=lease.epoch - 1))
        assert [row.number for row in versions_of(place.state, model)] == ["1"]
        assert UNRECORDED in client().get_model_version(model, "2").tags
        assert challenger_of(place.state, model).number == "1"
        assert made.create("key-2", "file:///nowhere", run, None, {}, "", lease).number == "2", "the next holder's"


def test_a_version_deleted_in_mlflow_stops_no_promotion_and_no_rollback(both: Workspace, model: str) -> None:
    made = register(both, model, 5)
    for number in (1, 2, 3):
        made.promote(str(number), str(number - 1) if number > 1 else None)
    client().delete_model_version(model, "2")
    made.promote("4", "3")
    assert (alias(model), alias(model, "previous")) == ("4", "3")
    made.rollback("bad")
    assert (alias(model), alias(model, "previous")) == ("3", "1")
    made.rollback("bad too")
    assert (alias(model), alias(model, "previous")) == ("1", None)
    assert journal(made)[-1] == ("rollback", "3", "1")
    with pytest.raises(GateRefused, match="nobody was champion before version 1"):
        made.rollback()
    made.promote("5", "1")
    client().delete_model_version(model, "1")
    with pytest.raises(GateRefused, match="before version 5 none is left: they were deleted in MLflow"):
        made.rollback()
    assert len(made.journal()) == 7, "a refused rollback is no entry"


def test_where_the_champion_was_deleted_in_mlflow_there_is_none_until_somebody_chooses(
    place: Workspace, model: str
) -> None:
    made = register(place, model, 3)
    made.promote("1", None)
    made.promote("2", "1")
    client().delete_model_version(model, "2")
    with pytest.raises(GateRefused, match="there is no champion, not version 2"):
        made.promote("3", "2")
    assert alias(model) is None
    made.rollback("it was deleted")
    assert (alias(model), alias(model, "previous")) == ("1", None)
    made.promote("3", "1")
    assert (alias(model), alias(model, "previous")) == ("3", "1")


def test_what_a_person_rolled_back_is_not_promoted_again_by_the_loop_that_goes_on(place: Workspace, model: str) -> None:
    """It was killed after the champion had moved, and before it wrote that down."""
    made = register(place, model, 2)
    made.promote("1", None, loop_id="first")
    moved = made.promote("2", "1", loop_id="second")
    made.rollback("complaints")
    assert made.promote("2", "1", loop_id="second") == moved
    assert alias(model) == "1"
    assert made.promote("2", "1", loop_id="third").number == 4, "another loop's verdict may"


def test_nothing_registered_is_no_champion_and_no_journal(place: Workspace, model: str) -> None:
    made = open_registry(place, model)
    assert alias(model) is None
    assert made.journal() == []
    assert aliased(model) is None
    with pytest.raises(GateRefused, match="no champion so far"):
        made.rollback()
    with pytest.raises(UsageError, match="has no version '1': there is none yet"):
        made.tags("1")


def test_promotions_and_rollbacks_in_a_row(both: Workspace, model: str) -> None:
    made = register(both, model, 3)
    for version, expected in (("1", None), ("2", "1"), ("3", "2")):
        made.judge(version, {})
        entry = made.promote(version, expected, loop_id="l", reason="better")
        assert (entry.before, entry.after, entry.reason) == (expected, version, "better")
        assert alias(model, "challenger") is None
        seen = aliased(model)
        assert seen is not None
        assert (seen.number, seen.tags["n"]) == (version, version)
    assert (alias(model), alias(model, "previous")) == ("3", "2")
    assert made.rollback("worse in Boston").after == "2"
    assert (alias(model), alias(model, "previous")) == ("2", "1")
    assert made.rollback().after == "1"
    assert (alias(model), alias(model, "previous")) == ("1", None)
    with pytest.raises(GateRefused, match="nothing to roll back to"):
        made.rollback()
    assert made.promote("3", "1").after == "3"
    assert [entry.number for entry in made.journal()] == [1, 2, 3, 4, 5, 6]


@pytest.mark.parametrize("version", ["99", "abc"])
def test_a_version_that_is_not_there_is_no_fault_of_the_store(both: Workspace, model: str, version: str) -> None:
    with pytest.raises(UsageError, match=f"{model} has no version '{version}': there is 1, 2"):
        register(both, model, 2).tags(version)


def test_a_rollback_from_another_champion_than_the_one_seen_is_refused(place: Workspace, model: str) -> None:
    made = register(place, model, 3)
    for version, expected in (("1", None), ("2", "1"), ("3", "2")):
        made.promote(version, expected)
    with pytest.raises(GateRefused, match="the champion is version 3, not 2"):
        made.rollback(expected="2")
    assert made.rollback(expected="3").after == "2"


def test_the_story_tells_who_holds_which_place_and_since_when(place: Workspace, model: str) -> None:
    assert registered(model) == RegisteredModel({}, {})
    made = register(place, model, 3)
    for version, expected in (("1", None), ("2", "1")):
        made.promote(version, expected, loop_id="l", reason="better")
    made.judge("3", {})
    told = registered(model)
    assert told.aliases == {"champion": "2", "previous": "1", "challenger": "3"}
    assert made.tags("2")["n"] == "2"
    moves = [move for _, move in RegistryState(told.aliases, told.tags).journal()][::-1]
    assert [(move.number, move.before, move.after) for move in moves] == [(2, "1", "2"), (1, None, "1")]
    assert moves[:1] == [made.journal()[-1]]


def test_a_promotion_against_another_champion_is_refused(both: Workspace, model: str) -> None:
    made = register(both, model, 3)
    made.promote("1", None)
    made.promote("2", "1")
    for expected in ("1", None, "3"):
        with pytest.raises(GateRefused, match="the champion is version 2"):
            made.promote("3", expected)
    assert alias(model) == "2"
    assert len(made.journal()) == 2


def test_promoting_the_champion_again_changes_nothing(place: Workspace, model: str) -> None:
    made = register(place, model)
    first = made.promote("1", None, loop_id="first")
    assert made.promote("1", None, loop_id="first") == first
    assert made.promote("1", "1") == first
    assert len(made.journal()) == 1


def test_of_two_people_who_promote_the_same_version_only_the_first_is_told_yes(place: Workspace, model: str) -> None:
    """Both saw the same champion; the second one's reason would be in no journal."""
    made = register(place, model, 2)
    made.promote("1", None)
    made.promote("2", "1", reason="Ada asked")
    with pytest.raises(GateRefused, match="the champion is version 2, not version 1"):
        made.promote("2", "1", reason="Bob asked")
    assert [entry.reason for entry in made.journal()] == ["", "Ada asked"]


def test_a_promotion_killed_between_journal_and_alias_is_settled_by_the_next(
    both: Workspace, model: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = register(both, model, 3)
    made.promote("1", None)
    with killed_before_mlflow(monkeypatch):
        made.promote("2", "1")
    assert alias(model) == "1"
    after = open_registry(both, model)
    with pytest.raises(GateRefused, match="the champion is version 2"):
        after.promote("3", "1")
    assert (alias(model), alias(model, "previous")) == ("2", "1")
    assert after.promote("2", "2").number == 2, "the killed promotion is done"


def test_a_killed_rollback_is_settled_too(place: Workspace, model: str, monkeypatch: pytest.MonkeyPatch) -> None:
    made = register(place, model, 2)
    made.promote("1", None)
    made.promote("2", "1")
    with killed_before_mlflow(monkeypatch):
        made.rollback()
    assert alias(model) == "2"
    with pytest.raises(GateRefused):
        open_registry(place, model).rollback()
    assert alias(model) == "1"


def test_an_alias_that_a_person_set_in_mlflow_is_no_crash(place: Workspace, model: str) -> None:
    made = register(place, model, 2)
    client().set_registered_model_alias(model, "champion", "1")
    entry = made.promote("1", "1")
    assert (entry.after, alias(model)) == ("1", "1")
    assert made.promote("2", "1").before == "1"
    assert made.rollback().after == "1"


@pytest.mark.parametrize("chosen", [wide("1"), "3"])
def test_a_champion_that_a_person_chose_in_mlflow_stays_and_is_in_the_journal(
    place: Workspace, model: str, chosen: str
) -> None:
    made = register(place, model, 4)
    made.promote("1", None)
    made.promote("2", "1")
    client().set_registered_model_alias(model, "champion", chosen)
    with pytest.raises(GateRefused, match=f"the champion is version {chosen}"):
        made.promote("4", "2")
    assert (alias(model), alias(model, "previous")) == (chosen, "2")
    told = made.journal()[-1]
    assert (told.before, told.after, told.reason) == ("2", chosen, "the alias was moved in MLflow")
    assert made.promote("4", chosen).before == chosen
    client().set_registered_model_alias(model, "champion", "3")
    assert (made.rollback().after, made.rollback().after) == ("4", chosen)


RACE = """
import os, sys, time
from pathlib import Path
from models.errors import GateRefused
from tasks.loop.champion import open_registry
from tasks.host import stores
from tasks.host.workspace import Workspace
os.environ["MLFLOW_TRACKING_URI"] = {uri!r}
workspace = Workspace(Path({root!r}))
workspace.make()
stores.configure(workspace)
registry = open_registry(workspace, {model!r})
registry.champion()
Path({ready!r}, {version!r}).touch()
while len(list(Path({ready!r}).iterdir())) < 2:
    time.sleep(0.01)
try:
    registry.promote({version!r}, "1")
except GateRefused as error:
    print("refused:", error)
else:
    print("won")
"""


def test_of_two_promotions_at_once_exactly_one_wins(
    both: Workspace, model: str, tmp_path: Path, at_once: Processes
) -> None:
    made = register(both, model, 3)
    made.promote("1", None)
    ready = tmp_path / "ready"
    ready.mkdir()
    common = {"uri": os.environ["MLFLOW_TRACKING_URI"], "model": model, "ready": str(ready)}
    codes = [RACE.format(root=str(both.root), version=version, **common) for version in ("2", "3")]
    done = at_once(*codes)
    said = sorted(one.stdout.split(":")[0].strip() for one in done)
    assert said == ["refused", "won"], [one.stderr[-800:] for one in done]
    assert len(made.journal()) == 2
    assert alias(model) == made.journal()[-1].after


@pytest.mark.parametrize("ask", ["find", "create"])
def test_a_registry_that_is_away_is_a_store_error(
    tracked: Workspace, monkeypatch: pytest.MonkeyPatch, ask: str
) -> None:
    monkeypatch.setenv("MLFLOW_TRACKING_URI", "http://127.0.0.1:1")
    monkeypatch.setenv("MLFLOW_HTTP_REQUEST_MAX_RETRIES", "0")
    made = open_registry(tracked, "tiny")
    asked = {"find": lambda: made.find("k"), "create": lambda: made.create("k", "s", "r", None, {}, "")}
    with pytest.raises(StoreError, match=r"127\.0\.0\.1:1"):
        asked[ask]()


def test_a_move_needs_no_mlflow_and_is_carried_when_it_is_back(
    tracked: Workspace, model: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = register(tracked, model, 2)
    made.promote("1", None)
    with monkeypatch.context() as away:
        away.setenv("MLFLOW_TRACKING_URI", "http://127.0.0.1:1")
        away.setenv("MLFLOW_HTTP_REQUEST_MAX_RETRIES", "0")
        made.promote("2", "1")
        assert "127.0.0.1:1" in made.carrier.trouble
        assert registered_models.projection_of(tracked.state, model).trouble == made.carrier.trouble
        made.rollback("complaints")
    assert alias(model) == "1"
    assert model in registered_models.waiting(tracked.state)
    after = open_registry(tracked, model)
    after.look()
    assert (alias(model), alias(model, "previous")) == ("1", None)
    assert model not in registered_models.waiting(tracked.state)
    assert registered_models.projection_of(tracked.state, model).trouble == ""
    assert [name for name in registered(model).tags if name.startswith(JOURNAL)] == [
        f"{JOURNAL}{number:06d}" for number in (1, 2, 3)
    ]
