"""Whatever rows, persons, kills, pauses and restores do, in any order: the rows decide, and MLflow follows."""

from __future__ import annotations

import copy
import json
from collections.abc import Iterator
from dataclasses import dataclass, field, replace

from hypothesis import assume, event, example, given
from hypothesis import strategies as st

from models.serving.registry import KEY, MLFLOW, ChampionMove
from models.serving.registry_comparison import (
    INTENT_S,
    JOURNAL,
    MARK,
    MOVED_BY,
    OWNER,
    Intent,
    Projection,
    RegistryState,
    compare,
    mark_of,
    next_move,
)
from tests.wide import examples

VERSIONS = ("1", "2", "3", "4")


@dataclass
class Database:
    """The rows of one project."""

    moves: list[ChampionMove] = field(default_factory=list)
    projection: Projection = field(default_factory=Projection)

    def insert(self, move: ChampionMove, number: int) -> None:
        self.moves.append(move.model_copy(update={"id": move.id or f"id-{number}"}))


class World:
    """A database and an MLflow with one registered model; `acts` counts what makes ids."""

    def __init__(self) -> None:
        self.database, self.now, self.acts = Database(), 0.0, 0
        self.mlflow = RegistryState({}, {OWNER: "home"}, {version: {KEY: version} for version in VERSIONS})
        self.copies = copy.deepcopy((self.database, self.mlflow))
        self.paused: list[Iterator[None]] = []

    def look(self) -> bool:
        """Record what was moved in MLflow; return whether something is to be carried."""
        self.acts += 1
        done = compare(self.database.moves, self.database.projection, VERSIONS, self.mlflow, "home", self.now)
        assume(not done.conflict)
        for move in (*done.read_back, *filter(None, [done.move])):
            self.database.insert(move, self.acts)
        return done.carries

    def promote(self, version: str, is_away: bool) -> None:
        if not is_away:
            self.look()
        moves = self.database.moves
        self.acts += 1
        self.database.insert(next_move(moves, action="promote", after=version, by="ada"), self.acts)

    def carrier(self) -> Iterator[None]:
        """Carry in steps, after each of which the process may be killed or paused."""
        if not self.look():
            return
        moves, before, seen = [*self.database.moves], self.database.projection, self.mlflow
        newest = moves[-1]
        intents = (*before.intents, Intent(newest.after, self.now + INTENT_S))
        self.database.projection = replace(before, intents=intents)
        yield
        for move in moves:
            if move.id not in {told.id for _, told in seen.journal()}:
                text = json.dumps({**move.model_dump(), "workspace": "home"})
                self.tag(JOURNAL + f"{move.number:06d}", text)
                yield
        self.set(newest.after)
        yield
        self.tag(MARK, mark_of(newest))
        yield
        self.mlflow = replace(self.mlflow, tags={k: v for k, v in self.mlflow.tags.items() if k != MOVED_BY})
        kept = tuple(intent for intent in self.database.projection.intents if intent.value != newest.after)
        self.database.projection = Projection("home", None, newest.number, newest.after, mark_of(newest), kept)

    def tag(self, name: str, value: str) -> None:
        self.mlflow = replace(self.mlflow, tags={**self.mlflow.tags, name: value})

    def set(self, version: str | None) -> None:
        self.mlflow = replace(self.mlflow, aliases={"champion": version} if version else {})

    def rest(self) -> None:
        """Let nothing else happen: all carriers are dead, and one looks at once, then when their intents are over."""
        self.paused.clear()
        for _ in range(3):
            for _ in self.carrier():
                pass
            self.now += INTENT_S + 1
        moves = self.database.moves
        assert self.mlflow.champion == (moves[-1].after if moves else None)
        assert not self.look()
        assert len({move.number for move in moves}) == len({move.id for move in moves}) == len(moves)
        ids = {move.number: move.id for move in moves}
        assert {move.number: move.id for _, move in self.mlflow.journal()}.items() <= ids.items()


def act(world: World, name: str, version: str, step: int) -> None:
    world.now += 1
    match name:
        case "promote":
            world.promote(version, is_away=False)
        case "promote without MLflow":
            world.promote(version, is_away=True)
        case "person":
            world.set(version)
        case "tool":
            world.tag(MOVED_BY, json.dumps({"version": version, "actor": "server"}))
            world.set(version)
        case "carry":
            for _ in world.carrier():
                pass
        case "kill":
            for _ in zip(range(step + 1), world.carrier(), strict=False):
                pass
        case "pause":
            carrier = world.carrier()
            for _ in zip(range(step + 1), carrier, strict=False):
                pass
            world.paused.append(carrier)
        case "go on":  # a late carrier's last act is to look again, not to write down what it set
            projection = world.database.projection
            for carrier in world.paused:
                for _ in zip(range(step + 1), carrier, strict=False):
                    pass
            world.paused.clear()
            world.database.projection = projection
        case "copy":
            world.copies = copy.deepcopy((world.database, world.mlflow))
        case "restore MLflow":
            world.mlflow = copy.deepcopy(world.copies[1])
        case "restore database":
            world.database = copy.deepcopy(world.copies[0])


ACTS = (
    "promote",
    "promote without MLflow",
    "person",
    "tool",
    "carry",
    "kill",
    "pause",
    "go on",
    "copy",
    "restore MLflow",
    "restore database",
)
SEQUENCES = st.lists(
    st.tuples(st.sampled_from(ACTS), st.sampled_from(VERSIONS), st.integers(0, 4)),
    max_size=14,
)


@examples(300, deadline=None)
@given(SEQUENCES)
def test_at_rest_mlflow_shows_the_newest_row(acts):
    world = World()
    for name, version, step in acts:
        act(world, name, version, step)
    world.rest()
    event(f"{len(world.database.moves)} moves")


@examples(200, deadline=None)
@example([("promote", "1", 0), ("pause", "1", 0), ("promote", "2", 0), ("carry", "1", 0), ("go on", "1", 1)])
@given(SEQUENCES)
def test_without_a_person_no_move_is_heard_and_no_champion_undone(acts):
    """No kill, no pause and no restore of MLflow looks like a person."""
    world, champion = World(), None
    for name, version, step in acts:
        if name in ("person", "tool", "restore database"):
            continue
        act(world, name, version, step)
        champion = version if name.startswith("promote") else champion
        assert (world.database.moves[-1].after if world.database.moves else None) == champion
    world.rest()
    assert [move.by for move in world.database.moves if move.action != "overruled" and move.by == MLFLOW] == []
    assert world.mlflow.champion == champion


@examples(200, deadline=None)
@given(SEQUENCES, st.sampled_from(VERSIONS))
def test_a_persons_move_at_rest_is_heard_exactly_once(acts, chosen):
    world = World()
    for name, version, step in acts:
        act(world, name, version, step)
    world.rest()
    before = [*world.database.moves]
    world.set(chosen)
    world.rest()
    new = world.database.moves[len(before) :]
    is_same = bool(before) and before[-1].after == chosen
    assert [(move.action, move.after, move.by) for move in new] == ([] if is_same else [("promote", chosen, MLFLOW)])


@examples(200, deadline=None)
@given(SEQUENCES)
def test_a_restored_database_gets_its_moves_back(acts):
    """What MLflow has is not lost with the database, and numbers go on above."""
    world = World()
    for name, version, step in acts:
        act(world, name, version, step)
    world.rest()
    moves, old = [*world.database.moves], world.copies[0]
    assume([move.id for move in old.moves] == [move.id for move in moves[: len(old.moves)]])
    world.database = copy.deepcopy(old)
    world.promote("1", is_away=False)
    world.rest()
    assert world.database.moves[: len(moves)] == moves
    assert world.database.moves[-1].number == (moves[-1].number if moves else 0) + 1
