"""Grown out of SQLite: MLflow's store and registry, and Optuna's studies, in Postgres with the same code."""

import contextlib
import functools
import math
import shutil
import sqlite3
import threading
import time
import uuid
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa
from sqlalchemy import MetaData, create_engine, make_url, select
from sqlalchemy.exc import IntegrityError

from models.errors import GateRefused, StoreError
from models.pipeline.records import StepRecord
from models.project_spec.search import Dimension, Search
from models.training.search_space import suggest
from models.triggers.signal import Decision, PastLoop, Signal
from tasks.host import database, processes, stores
from tasks.host.database_copy import contents_of, copy_rows, mark_at, refuse_without_rights, rows_at
from tasks.host.leases import leased
from tasks.host.old_schema import DUMPED
from tasks.host.store_addresses import OPTUNA_STORAGE, STATE_URL, TRACKING_URI, normalised, store_addresses
from tasks.host.tables import loops
from tasks.host.workspace import Workspace
from tasks.loop import decisions
from tasks.loop.champion import open_registry
from tasks.loop.history import LoopRecord, last_loop, read_loops, record_loop, save_loop
from tasks.mlflow.client import client
from tasks.mlflow.registry_reader import aliased
from tasks.operations.migrate import environment_of, move, plan_moves
from tasks.platform.open_signals import undecided
from tasks.prefect.events import of_signal, send
from tasks.state.outbox import Delivered, delivered, set_delivered
from tasks.state.step_records import StepRecords
from tasks.tools.optuna_study import ask, open_study, reaching_studies, trials_of
from tests.integration.test_delivery import LOOP, deliver, fill, forget_progress, runs
from tests.integration.test_registry import register
from tests.postgres import is_installed, new_database, postgres
from tests.unit.tasks.host.test_old_schema import OLD, make_old

pytestmark = [
    pytest.mark.postgres,
    pytest.mark.skipif(not is_installed(), reason="Postgres is not installed"),
]


@pytest.fixture(scope="module")
def server() -> Iterator[str]:
    with postgres() as address:
        yield address


@pytest.fixture(scope="module")
def databases(server: str) -> str:
    """The server's address, with a database for MLflow and one for Optuna."""
    for name in ("mlflow", "optuna"):
        new_database(server, name)
    return server


@pytest.fixture
def place(databases: str, workspace: Workspace, monkeypatch: pytest.MonkeyPatch) -> Workspace:
    as_the_guide_writes_them = {TRACKING_URI: f"{databases}/mlflow", OPTUNA_STORAGE: f"{databases}/optuna"}
    for name, address in store_addresses(as_the_guide_writes_them).items():
        monkeypatch.setenv(name, address)
    monkeypatch.chdir(workspace.root)  # without a server, MLflow puts artifacts under the working directory
    return workspace


def test_a_loop_is_delivered_once(place: Workspace) -> None:
    fill(place)
    for _ in range(2):
        deliver(place)
        forget_progress(place)
    names = sorted(run.info.run_name for run in runs(client()))
    assert names == [LOOP, f"{LOOP}/trial-0"]


def test_the_registry_promotes_refuses_and_rolls_back(place: Workspace) -> None:
    made = register(place, "grown", 2)
    made.promote("1", None)
    with pytest.raises(GateRefused):
        made.promote("2", None)
    made.promote("2", "1")
    seen = aliased("grown")
    assert seen is not None
    assert (seen.number, seen.tags["n"]) == ("2", "2")
    assert open_registry(place, "grown").rollback().after == "1"
    assert client().search_registered_models("name = 'grown.loopline-lock'") == []


def test_loops_decisions_and_events_are_stored_there(
    place: Workspace, databases: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(STATE_URL, new_database(databases, "state"))
    state = place.state / "projects" / "grown"
    assert last_loop(state) is None
    loop = LoopRecord(LOOP, "running", "i", str(place.root), {"pid": 1}, began=1.0)
    save_loop(state, loop)
    record_loop(state, PastLoop(loop_id=LOOP, began=1.0, ended=2.0, outcome="kept"))
    assert last_loop(state) == loop
    assert [past.outcome for past in read_loops(state)] == ["kept"]
    assert place.folders() == {"grown": place.root}
    signal = Signal(id="s1", kind="new_data", at=1e9, reason="3 rows")
    assert not send(place, of_signal("grown", signal))
    assert undecided(place, "grown") == [signal]
    decisions.record(state, Decision(signal=signal, at=1e9, action="wait", reasons=["a loop runs"], flow_run="r"))
    assert undecided(place, "grown") == []
    assert decisions.of_flow_run(state, "r") is not None
    assert not (place.state / database.FILE).exists()


def test_a_row_that_exists_is_updated_and_becomes_the_newest(
    place: Workspace, databases: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(STATE_URL, new_database(databases, "updated"))
    state = place.state / "projects" / "grown"
    records = StepRecords(state, place.root)
    for key in ("first", "second", "first"):
        records.save(StepRecord(step="train", key=key, parts={}, digest="", loop_id=LOOP, finished=1.0))
    assert [record.key for record in records.newest("train")] == ["first", "second"]
    for number in (3, 7):
        set_delivered(state, LOOP, Delivered(number, {"loop": "r"}))
    assert delivered(state, LOOP) == Delivered(7, {"loop": "r"})
    for epoch in (1, 2):
        with leased(place.state, "loop:grown") as lease:
            assert lease.epoch == epoch


def test_what_a_block_reads_is_of_one_moment(place: Workspace, databases: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The overview reads all projects in one block; loops end meanwhile, in this thread too."""
    monkeypatch.setenv(STATE_URL, new_database(databases, "moment"))
    state = place.state / "projects" / "grown"
    record_loop(state, PastLoop(loop_id="l1", began=1.0, ended=2.0, outcome="kept"))
    with database.reading(place.state):
        assert len(read_loops(state)) == 1
        record_loop(state, PastLoop(loop_id="l2", began=1.0, ended=2.0, outcome="kept"))
        assert len(read_loops(state)) == 1
    assert len(read_loops(state)) == 2


def test_writers_of_one_state_database_take_turns(
    place: Workspace, databases: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each reads the highest number and writes the next one: no number is given twice."""
    monkeypatch.setenv(STATE_URL, new_database(databases, "turns"))
    state = place.state / "projects" / "grown"
    with ThreadPoolExecutor(8) as pool:
        ended = [PastLoop(loop_id=f"l{number}", began=1.0, ended=2.0, outcome="kept") for number in range(40)]
        list(pool.map(functools.partial(record_loop, state), ended))
    with database.reading(place.state) as connection:
        assert sorted(connection.scalars(select(loops.c.closed))) == list(range(1, 41))


def test_a_writer_that_hangs_is_a_short_error_for_the_next_until_it_ends(
    place: Workspace, databases: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(STATE_URL, new_database(databases, "hung"))
    state = place.state / "projects" / "grown"
    record_loop(state, PastLoop(loop_id="l1", began=1.0, ended=2.0, outcome="kept"))
    later = PastLoop(loop_id="l2", began=1.0, ended=2.0, outcome="kept")
    monkeypatch.setattr(database, "BUSY_S", 0.2)
    engine = create_engine(database.address(place.state))
    with engine.begin() as hung:
        hung.exec_driver_sql(f"select pg_advisory_xact_lock({database._WRITER})")
        with pytest.raises(StoreError, match=r"/hung: another process has written for more than .* s: run again"):
            record_loop(state, later)
    engine.dispose()
    record_loop(state, later)
    assert len(read_loops(state)) == 2


def test_postgres_ends_a_writer_that_rests_in_its_change(
    place: Workspace, databases: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of a machine that lost its power in the middle Postgres would hear nothing for two hours."""
    monkeypatch.setenv(STATE_URL, new_database(databases, "rests"))
    record_loop(place.state / "projects" / "grown", PastLoop(loop_id="l1", began=1.0, ended=2.0, outcome="kept"))
    monkeypatch.setattr(database, "REST_S", 0.1)

    def rest() -> None:
        with database.writing(place.state) as connection:
            time.sleep(0.5)
            connection.execute(loops.delete())

    with pytest.raises(StoreError, match=r"/rests: ended this process's change, which had rested for .* s: run again"):
        rest()
    assert len(read_loops(place.state / "projects" / "grown")) == 1


def test_of_two_machines_one_has_the_lease_whatever_their_clocks_say(
    place: Workspace, databases: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(STATE_URL, new_database(databases, "leases"))
    elsewhere = {"host": "macbook.office.lan", "pid": 4242, "started": "deadbeef/1"}
    now, holders, most = time.time, [], []

    def hold(machine: int) -> None:
        with leased(place.state, "registry:grown", 60):
            holders.append(machine)
            most.append(len(holders))
            time.sleep(0.05)
            holders.remove(machine)

    monkeypatch.setattr(processes, "identity", lambda: elsewhere)
    monkeypatch.setattr(time, "time", lambda: now() + 300 * (threading.get_ident() % 3 - 1))
    with ThreadPoolExecutor(4) as pool:
        list(pool.map(hold, range(8)))
    assert max(most) == 1
    assert len(most) == 8


def test_a_state_database_that_is_away_is_a_short_error(
    place: Workspace, databases: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(STATE_URL, f"{databases}/never")
    with pytest.raises(
        StoreError, match=r"postgresql\+psycopg://127\.0\.0\.1:\d+/never: cannot be used .*does not exist"
    ):
        last_loop(place.state / "projects" / "grown")


def test_a_study_is_resumed(place: Workspace) -> None:
    space = {"train.lr": Dimension(low=0.1, high=1.0)}
    search = Search.model_validate({"sampler": "random"})
    for number in range(3):
        study = open_study(place, "grown", search, "maximize", {})
        assert len(trials_of(study)) == number
        trial = ask(study, search, space, 0, number)
        study.tell(trial, suggest(trial, space)["train.lr"])
        ask(study, search, space, 0, number + 1)  # killed
    assert len(trials_of(open_study(place, "grown", search, "maximize", {}))) == 3
    assert not (place.state / "optuna").exists()


def test_a_database_of_studies_that_goes_away_is_a_short_error(
    place: Workspace, databases: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    import psycopg

    search = Search.model_validate({"sampler": "random"})
    away = store_addresses({OPTUNA_STORAGE: f"{databases}/away"})[OPTUNA_STORAGE]
    monkeypatch.setenv(OPTUNA_STORAGE, away)
    with psycopg.connect(f"{databases}/postgres", autocommit=True) as connection:
        connection.execute("create database away")
        study = open_study(place, "grown", search, "maximize", {})
        connection.execute("drop database away with (force)")
    with pytest.raises(StoreError, match=r"Optuna's storage .*/away cannot be used: .*run again"), reaching_studies():
        ask(study, search, {"train.lr": Dimension(low=0.1, high=1.0)}, 0, 0)
    with pytest.raises(StoreError, match="/away cannot be used"):
        open_study(place, "grown", search, "maximize", {})


def made_of(metadata: MetaData, url: str) -> None:
    """Make tables, and the table of their version."""
    engine = create_engine(url)
    metadata.create_all(engine)
    with engine.begin() as connection:
        connection.exec_driver_sql("create table alembic_version (version_num varchar)")
    engine.dispose()


def tables_in_a_circle() -> MetaData:
    metadata = MetaData()
    loop, step = sa.ForeignKey("loop.id", name="of_loop", use_alter=True), sa.ForeignKey("step.id", name="last_step")
    sa.Table(
        "loop", metadata, sa.Column("id", sa.Integer, primary_key=True), sa.Column("last", sa.Uuid, step),
        sa.Column("kind", sa.Enum("day", "night", name="kinds")), sa.Column("is_open", sa.Boolean),
    )  # fmt: skip
    sa.Table(
        "step", metadata, sa.Column("id", sa.Uuid, primary_key=True), sa.Column("loop", sa.Integer, loop),
        sa.Column("content", sa.JSON), sa.Column("raw", sa.LargeBinary), sa.Column("loss", sa.Float),
        sa.Column("at", sa.DateTime(timezone=True)), sa.Column("took", sa.Interval),
        sa.Column("twice", sa.Float, sa.Computed("loss * 2", persisted=True)),
    )  # fmt: skip
    return metadata


def assert_copied(target: sa.URL, steps: list[dict[str, Any]]) -> None:
    """The values are the same, and so are the next number and the foreign keys."""
    loop, step = (tables_in_a_circle().tables[name] for name in ("loop", "step"))
    remote = create_engine(target)
    with remote.begin() as connection:
        copied = {row.id: row._mapping for row in connection.execute(select(step))}
        for row in steps:
            content = row["content"] if isinstance(row["content"], dict | float) else None
            assert copied[row["id"]] == {**row, "content": content, "twice": row["loss"] and row["loss"] * 2}
        is_null = select(step.c.id).where(step.c.content.is_(sa.null()))
        assert connection.scalars(is_null).all() == [steps[2]["id"]], "the null of JSON is a value"
        assert connection.execute(loop.insert().values(kind="day").returning(loop.c.id)).scalar_one() == 10
        with pytest.raises(IntegrityError, match="last_step"), connection.begin_nested():
            connection.execute(loop.insert().values(last=uuid.uuid4()))
    remote.dispose()


def test_rows_are_copied_as_they_are_or_not_at_all(databases: str, tmp_path: Path) -> None:
    metadata, source = tables_in_a_circle(), tmp_path / "source.db"
    target = make_url(normalised(STATE_URL, new_database(databases, "copied")))
    made_of(metadata, f"sqlite:///{source}")
    made_of(metadata, target)
    loop, step = metadata.tables["loop"], metadata.tables["step"]
    one, two = uuid.uuid4(), uuid.uuid4()
    noon = datetime(2026, 11, 24, 12, 0, 0, 5, tzinfo=UTC)
    took = timedelta(days=2, microseconds=3)
    steps = [
        {
            "id": one,
            "loop": 7,
            "content": {"ä": [1.5, None]},
            "raw": b"\0\xff",
            "loss": 0.1 + 0.2,
            "at": noon,
            "took": took,
        },
        {"id": two, "loop": 9, "content": None, "raw": None, "loss": math.inf, "at": None, "took": None},
        {"id": uuid.uuid4(), "loop": 9, "content": sa.null(), "raw": b"", "loss": None, "at": None, "took": None},
        {"id": uuid.uuid4(), "loop": 9, "content": 42.0, "raw": None, "loss": None, "at": None, "took": None},
    ]
    local = create_engine(f"sqlite:///{source}")
    with local.begin() as connection:
        connection.execute(
            loop.insert(),
            [
                {"id": 7, "last": two, "kind": "night", "is_open": True},
                {"id": 9, "last": one, "kind": None, "is_open": None},
            ],
        )
        for row in steps:
            connection.execute(step.insert(), row)
    local.dispose()
    contents = contents_of(source)
    assert contents.rows == {"loop": 2, "step": 4}
    before = source.read_bytes()

    with pytest.raises(StoreError, match="was changed meanwhile: nothing was copied"):
        copy_rows(source, target, replace(contents, sha256="of one value updated"), {})
    assert (rows_at(target), mark_at(target)) == ({}, None)

    copy_rows(source, target, contents, {})
    assert source.read_bytes() == before
    assert (rows_at(target), mark_at(target)) == (contents.rows, contents)
    assert_copied(target, steps)
    with pytest.raises(StoreError, match="another process has written rows there"):
        copy_rows(source, target, contents, {})


@pytest.mark.parametrize("value", ["'noon'", "'a' || char(0)"])
def test_a_value_that_postgres_does_not_store_is_shown_with_its_table(
    databases: str, tmp_path: Path, value: str
) -> None:
    metadata, source = tables_in_a_circle(), tmp_path / "source.db"
    target = make_url(normalised(STATE_URL, new_database(databases, f"values-{uuid.uuid4().hex}")))
    made_of(metadata, f"sqlite:///{source}")
    made_of(metadata, target)
    with contextlib.closing(sqlite3.connect(source)) as connection, connection:
        connection.execute(f"insert into loop (id, kind) values (1, {value})")
    with pytest.raises(StoreError, match=r"source.db: table loop: a row cannot be stored .*: correct or delete it"):
        copy_rows(source, target, contents_of(source), {})
    assert (rows_at(target), mark_at(target)) == ({}, None)


def test_a_database_of_another_version_or_with_rows_is_refused(
    place: Workspace, databases: str, monkeypatch: pytest.MonkeyPatch, empty_store: Path
) -> None:
    for name in (TRACKING_URI, OPTUNA_STORAGE):
        monkeypatch.delenv(name)
    stores.configure(place)
    shutil.copytree(empty_store, place.state / "mlflow")
    record_loop(place.state / "projects" / "grown", PastLoop(loop_id=LOOP, began=1.0, ended=2.0, outcome="kept"))
    theirs = new_database(databases, "theirs")
    engine = create_engine(normalised(STATE_URL, theirs))
    with engine.begin() as connection:
        connection.exec_driver_sql("create table alembic_version (version_num varchar)")
        connection.exec_driver_sql("insert into alembic_version values ('9999')")
    newest = database.REVISIONS[-1]
    with pytest.raises(StoreError, match=f"has schema 9999, expected {newest} or older: a newer Loopline wrote it"):
        move(place, theirs, print)
    with engine.begin() as connection:
        connection.exec_driver_sql(f"update alembic_version set version_num = '{newest}'")
        connection.exec_driver_sql("create table loops (loop_id text)")
    with pytest.raises(StoreError, match=r"has other tables or columns than the file here \(.*loops"):
        move(place, theirs, print)
    with engine.begin() as connection:
        connection.exec_driver_sql("insert into loops values ('l')")
    with pytest.raises(StoreError, match=r"127\.0\.0\.1:\d+/theirs holds 1 rows already, expected an empty database"):
        plan_moves(place, theirs)
    engine.dispose()
    states = {planned.name: (planned.state, planned.is_made) for planned in plan_moves(place, f"{databases}/fresh")}
    assert states == {
        "state": ("to move", False), "mlflow": ("to move", False),
        "optuna": ("nothing here", False), "prefect": ("nothing here", False),
    }  # fmt: skip


def test_an_upgrade_asks_for_a_dump_and_goes_on_when_a_person_made_one(
    workspace: Workspace, databases: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    address, newest = new_database(databases, "older"), database.REVISIONS[-1]
    make_old(normalised(STATE_URL, address))
    monkeypatch.setenv(STATE_URL, address)
    for dumped in ("", OLD):
        monkeypatch.setenv(DUMPED, dumped)
        with pytest.raises(StoreError, match=rf"has schema {OLD}, .*make a dump \(`pg_dump .* {DUMPED}={newest}|`"):
            read_loops(workspace.state / "projects" / "tiny")
    monkeypatch.setenv(DUMPED, newest)
    assert read_loops(workspace.state / "projects" / "tiny") == []
    monkeypatch.delenv(DUMPED)
    assert read_loops(workspace.state / "projects" / "tiny") == []


def test_a_user_who_may_make_no_tables_is_refused_before_anything_is_made(databases: str) -> None:
    target = make_url(normalised(STATE_URL, new_database(databases, "barred")))
    refuse_without_rights(target)
    engine = create_engine(target)
    with engine.begin() as connection:
        connection.exec_driver_sql("create role weak login")
    engine.dispose()
    with pytest.raises(StoreError, match=r"barred: weak may not make tables .*`grant create, usage on schema public"):
        refuse_without_rights(target.set(username="weak"))


def test_a_database_of_which_nothing_is_here_is_made_too(
    workspace: Workspace, databases: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in (STATE_URL, TRACKING_URI, OPTUNA_STORAGE):
        monkeypatch.delenv(name, raising=False)
    stores.configure(workspace)
    to = databases.replace("postgresql://", "postgresql+asyncpg://") + "/empty?sslmode=disable&connect_timeout=5"
    moves = move(workspace, to, print)
    assert {(planned.state, planned.is_made) for planned in moves} == {("nothing here", True)}
    for name, named in environment_of(moves).items():
        engine = create_engine(normalised(name, named).replace("+asyncpg", "+psycopg").replace("ssl=", "sslmode="))
        with engine.connect():
            engine.dispose()
