"""Processes that are stopped at random moments, again and again: `make soak` repeats rounds until its time is over.

A failure prints its seed and round: `make soak TESTS=tests/time/test_soak.py SEED=... ROUND=...` draws them again.
"""

from __future__ import annotations

import contextlib
import itertools
import os
import random
import shutil
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

import pytest

from models.serving.registry import UNRECORDED
from tasks.host import database, stores
from tasks.host.store_addresses import OPTUNA_STORAGE, STATE_URL, TRACKING_URI, normalised
from tasks.host.workspace import Workspace
from tasks.loop import decisions
from tasks.loop.history import last_loop, read_loops
from tasks.mlflow.client import client
from tasks.state.champion_moves import moves_of
from tasks.state.outbox import Outbox
from tasks.state.versions import versions_of
from tests.conftest import ROWS, SEED
from tests.conftest import SPEC as PROJECT_SPEC
from tests.environment import QUIET
from tests.postgres import Server, is_installed, new_database
from tests.stored_events import stored_events
from tests.time import points
from tests.time.acts import LOOP, PROJECT
from tests.time.audit import audited, begin_audit
from tests.time.machines import SHORT_TTL_S, Machine, needs_namespaces
from tests.time.rounds import LONG_TTL_S, Part, Ran, draw_part, run_parts, stalled_writer
from tests.time.test_champion import assert_followed, changes, register_three
from tests.time.test_loop import wait_until_free

pytestmark = [pytest.mark.fault, pytest.mark.soak, pytest.mark.timeout(0), needs_namespaces]
MINUTES = float(os.environ.get("SOAK_MINUTES", "10"))
FIRST_ROUND = int(os.environ.get("SOAK_ROUND", "0"))
STALL_EVERY = 20
"""Of so many rounds of records, the first has a writer that stalls for 45 s."""
RECORDS = {
    "begin_step": (points.LOOP, points.STEP),
    "save_state": (points.LOOP,),
    "record_step": (points.LOOP, points.RECORD),
    "end_loop": (points.LOOP, points.ENDED),
    "write_line": (points.LOOP, points.LINE),
}
"""Acts that record under the loop's lease, and where they are stopped."""


Stage = Callable[[str], contextlib.AbstractContextManager[tuple[Workspace, list[Machine]]]]


class Scenario(NamedTuple):
    """What happens in a round.

    Args:
        begin: Prepares the stores and the machines; returns arguments for the acts.
        draw: Draws what the processes do, one on each machine.
        check: Checks what they have left.
    """

    begin: Callable[[Workspace, Sequence[Machine]], Mapping[str, str]]
    draw: Callable[[random.Random, Mapping[str, str]], list[Part]]
    check: Callable[[Workspace, Sequence[Ran]], None]


def _begin_records(workspace: Workspace, _: Sequence[Machine]) -> dict[str, str]:
    begin_audit(workspace)
    return {}


def _draw_records(draw: random.Random, _: Mapping[str, str]) -> list[Part]:
    acts = draw.choices(list(RECORDS), k=3)
    return [draw_part(draw, act, RECORDS[act], mark=f"mark-{index}") for index, act in enumerate(acts)]


def _check_records(workspace: Workspace, ran: Sequence[Ran]) -> None:
    """Whoever is done has one write, under its own epoch; the others have none; the epochs only rise."""
    writes = audited(workspace)
    assert [write.epoch for write in writes] == sorted(write.epoch for write in writes)
    records = [result for result in ran if "mark" in result.part.arguments]
    for result in records:
        epochs = [write.epoch for write in writes if write.mark == result.part.arguments["mark"]]
        assert epochs == (result.epochs if result.is_done else [])
    lines = [line["status"] for line in Outbox(workspace.state / "projects" / PROJECT, LOOP).lines().values()]
    written = [
        result.part.arguments["mark"] for result in records if result.is_done and result.part.act == "write_line"
    ]
    assert sorted(lines) == sorted(written)


def _begin_decisions(_: Workspace, machines: Sequence[Machine]) -> dict[str, str]:
    for machine in machines:
        folder = machine.home / "projects" / PROJECT
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "project.yaml").write_text(PROJECT_SPEC.format(name=PROJECT))
        (folder / "data.csv").write_text(ROWS)
    return {"flow_run": "r1"}


def _draw_decisions(draw: random.Random, given: Mapping[str, str]) -> list[Part]:
    return [draw_part(draw, "decide", (points.WEIGH, points.DECIDE), **given) for _ in range(3)]


def _check_decisions(workspace: Workspace, ran: Sequence[Ran]) -> None:
    (decision,) = decisions.read(workspace.state / "projects" / PROJECT)
    assert {tuple(result.notes) for result in ran} == {(decision.loop_id,)}
    assert len(stored_events(workspace)) == 1


def _begin_promotions(workspace: Workspace, _: Sequence[Machine]) -> dict[str, str]:
    register_three(workspace)
    return {}


def _draw_promotions(draw: random.Random, _: Mapping[str, str]) -> list[Part]:
    pairs = draw.sample(list(itertools.permutations("123", 2)), 3)
    where = points.CARRIER, points.MOVE, points.CARRY
    return [draw_part(draw, "promote_version", where, version=new, expected=old) for new, old in pairs]


def _check_promotions(workspace: Workspace, ran: Sequence[Ran]) -> None:
    """Each promotion that is done is one move, with one event, of the champion it expected; MLflow has the last."""
    done = [
        f"{result.part.arguments['version']} in place of {result.part.arguments['expected']}"
        for result in ran
        if result.is_done
    ]
    moves = [move for move in reversed(moves_of(workspace.state, PROJECT)) if move.before != move.after]
    assert Counter(move.reason for move in moves) == Counter(["the first", *done])
    assert all(f"{move.after} in place of {move.before}" == move.reason for move in moves[1:])
    assert all(before.after == after.before for before, after in itertools.pairwise(moves))
    assert_followed(workspace, changes(workspace))


def _begin_registrations(_: Workspace, __: Sequence[Machine]) -> dict[str, str]:
    store = client()
    return {"run": store.create_run(store.create_experiment(PROJECT)).info.run_id}


def _draw_registrations(draw: random.Random, given: Mapping[str, str]) -> list[Part]:
    where = points.LOOP, points.CREATE, points.JUDGE
    return [draw_part(draw, "register_version", where, mark=f"mark-{index}", **given) for index in range(3)]


def _check_registrations(workspace: Workspace, ran: Sequence[Ran]) -> None:
    """The row is that of the last holder; what the others left in MLflow is marked, and nobody's challenger."""
    rows = versions_of(workspace.state, PROJECT)
    done = sorted((result for result in ran if result.is_done), key=lambda result: result.epochs)
    assert [row.tags["mark"] for row in rows] == [result.part.arguments["mark"] for result in done[-1:]]
    found = client().search_model_versions(f"name = '{PROJECT}'")
    unrecorded = {str(version.version) for version in found if UNRECORDED in version.tags}
    assert unrecorded == {str(version.version) for version in found} - {row.number for row in rows}
    for row in rows:
        assert str(client().get_model_version_by_alias(PROJECT, "challenger").version) == row.number


def _begin_reaping(workspace: Workspace, machines: Sequence[Machine]) -> dict[str, str]:
    begin_audit(workspace)
    with machines[0].process("die_in_loop") as killed:
        killed.ended()
    wait_until_free(workspace, f"loop:{PROJECT}")
    return {}


def _draw_reaping(draw: random.Random, _: Mapping[str, str]) -> list[Part]:
    reapers = [draw_part(draw, "reap_loop", (points.REAP, points.REAP_TRIALS, points.REAPED)) for _ in range(2)]
    return [*reapers, draw_part(draw, "finish_loop", (points.LOOP, points.LINE, points.ENDED))]


def _check_reaping(workspace: Workspace, ran: Sequence[Ran]) -> None:
    """A loop that somebody has finished stays finished; else a reaper has closed it, once."""
    writes, state = audited(workspace), workspace.state / "projects" / PROJECT
    assert [write.epoch for write in writes] == sorted(write.epoch for write in writes)
    loop, (past,) = last_loop(state), read_loops(state)
    ends = [line["status"] for line in Outbox(state, LOOP).lines().values() if line["op"] == "end"]
    is_finished = ran[-1].is_done
    assert loop is not None
    assert (loop.state, past.outcome) == (("finished", "kept") if is_finished else ("killed", "failed"))
    assert ends[-1:] == (["FINISHED"] if is_finished else ["KILLED"])
    assert max(Counter(ends).values()) == 1


SCENARIOS = {
    "records": Scenario(_begin_records, _draw_records, _check_records),
    "decisions": Scenario(_begin_decisions, _draw_decisions, _check_decisions),
    "promotions": Scenario(_begin_promotions, _draw_promotions, _check_promotions),
    "registrations": Scenario(_begin_registrations, _draw_registrations, _check_registrations),
    "reaping": Scenario(_begin_reaping, _draw_reaping, _check_reaping),
}


@pytest.fixture(params=[pytest.param("postgres", marks=pytest.mark.postgres), "sqlite"])
def stage(request: pytest.FixtureRequest, tmp_path: Path, empty_store: Path, monkeypatch: pytest.MonkeyPatch) -> Stage:
    """A function that makes a round's stores: machines that share a Postgres, or processes that share a SQLite file."""
    is_shared = request.param == "postgres"
    if is_shared and not is_installed():
        pytest.skip("Postgres is not installed")
    server: Server | None = request.getfixturevalue("server") if is_shared else None
    for name, value in QUIET.items():
        monkeypatch.setenv(name, value)

    @contextlib.contextmanager
    def new_stage(name: str) -> Iterator[tuple[Workspace, list[Machine]]]:
        root = tmp_path / name
        homes = [root / f"machine-{index}" for index in range(4)] if server else [root / "machine-0"] * 4
        (homes[0] / "projects").mkdir(parents=True)
        monkeypatch.setenv("LOOPLINE_HOME", str(homes[0]))
        monkeypatch.delenv(STATE_URL, raising=False)
        if server:
            monkeypatch.setenv(STATE_URL, normalised(STATE_URL, new_database(server.address, f"soak-{name}")))
        workspace = Workspace(homes[0])
        workspace.make()
        shutil.copytree(empty_store, workspace.state / "mlflow", dirs_exist_ok=True)
        monkeypatch.setenv(TRACKING_URI, f"sqlite:///{workspace.state / 'mlflow' / 'mlflow.db'}")
        monkeypatch.setenv(OPTUNA_STORAGE, f"sqlite:///{root / 'studies.db'}")
        stores.configure(workspace)
        yield workspace, [Machine(home) for home in homes]
        database._engine.cache_clear()
        shutil.rmtree(root)

    return new_stage


@pytest.mark.parametrize("name", SCENARIOS)
def test_nothing_is_lost_or_doubled_whenever_a_process_is_stopped(
    stage: Stage,
    name: str,
    request: pytest.FixtureRequest,
) -> None:
    """Each combination of store and scenario has its share of the minutes, and at least one round."""
    scenario = SCENARIOS[name]
    until = time.monotonic() + 60 * MINUTES / (2 * len(SCENARIOS))
    for number in itertools.count(FIRST_ROUND):
        drawn = random.Random(f"{SEED}/{request.node.name}/{number}")
        with stage(f"{name}-{number}") as (workspace, machines):
            parts = scenario.draw(drawn, scenario.begin(workspace, machines))
            is_stalled = name == "records" and number % STALL_EVERY == 0
            parts += [stalled_writer(drawn)] if is_stalled else []
            ran = run_parts(parts, machines, LONG_TTL_S if is_stalled else SHORT_TTL_S)
            printed = "\n".join(f"{result.part}: {list(result.lines)}" for result in ran)
            where = f"{request.node.name}: SEED={SEED} ROUND={number}\n{printed}"
            assert all(result.is_done or result.is_refused for result in ran), where
            try:
                scenario.check(workspace, ran)
            except Exception as error:
                raise AssertionError(where) from error
        if time.monotonic() > until:
            break
    print(f"{request.node.name}: {number + 1 - FIRST_ROUND} rounds of SEED={SEED}, all right")
