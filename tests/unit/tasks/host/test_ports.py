"""Ports: kept from one time to the next, given way where they may, and named where a person wants one that is taken."""

import json
import os
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

from models.errors import StoreError, UsageError
from tasks.host.ports import choose, holder, listener, listening, renewed


@pytest.fixture
def taken() -> Iterator[int]:
    """A port that this very process listens at."""
    with socket.socket() as server:
        server.bind(("127.0.0.1", 0))
        server.listen()
        yield server.getsockname()[1]


def free() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def test_the_usual_port_is_taken_and_kept(tmp_path: Path) -> None:
    usual = free()
    first, notes = choose(tmp_path / "ports.json", {"mlflow": usual}, {})
    assert (first, notes) == ({"mlflow": usual}, [])
    again, notes = choose(tmp_path / "ports.json", {"mlflow": free()}, {})
    assert (again, notes) == (first, []), "that of last time, whatever is usual now"


def test_a_usual_port_that_is_taken_gives_way_to_any(tmp_path: Path, taken: int) -> None:
    chosen, notes = choose(tmp_path / "ports.json", {"mlflow": taken, "overview": taken}, {})
    assert len({taken, *chosen.values()}) == 3
    assert notes == [], "nobody has a bookmark yet"


def test_the_port_of_last_time_that_is_taken_is_told_with_who_has_it(tmp_path: Path, taken: int) -> None:
    memory = tmp_path / "ports.json"
    memory.write_text(json.dumps({"requested": {}, "ports": {"mlflow": taken}}))
    chosen, notes = choose(memory, {"mlflow": free()}, {})
    assert notes == [f"mlflow: port {taken} is taken by {holder(taken)}; now at {chosen['mlflow']}"]
    assert f"(pid {os.getpid()})" in notes[0]


def test_a_port_that_a_person_wants_is_refused_if_taken_and_nothing_is_written(tmp_path: Path, taken: int) -> None:
    memory = tmp_path / "ports.json"
    with pytest.raises(StoreError, match=rf"port {taken}, wanted for mlflow, is taken by .*pid {os.getpid()}.*--port"):
        choose(memory, {"mlflow": free()}, {"mlflow": taken})
    assert not memory.exists()


def test_zero_is_any_port_but_the_usual_one_which_another_platform_may_be_about_to_take(tmp_path: Path) -> None:
    memory, usual = tmp_path / "ports.json", {"mlflow": free()}
    chosen = choose(memory, usual, {"mlflow": 0})[0]
    assert chosen != usual
    assert choose(memory, usual, {})[0] == chosen, "kept from then on"


def test_a_wish_is_kept_until_it_is_taken_back(tmp_path: Path) -> None:
    memory, wish, usual = tmp_path / "ports.json", free(), {"mlflow": free()}
    assert choose(memory, usual, {"mlflow": wish})[0] == {"mlflow": wish}
    assert choose(memory, usual, {})[0] == {"mlflow": wish}
    choose(memory, usual, {"mlflow": 0})
    assert json.loads(memory.read_text())["requested"] == {}


def test_a_damaged_memory_counts_as_none(tmp_path: Path) -> None:
    memory = tmp_path / "ports.json"
    memory.write_text('{"requested": {"ml')
    usual = {"mlflow": free()}
    assert choose(memory, usual, {})[0] == usual


@pytest.mark.parametrize(
    ("asked", "words"),
    [
        ({"mlfow": 5000}, "expected one of mlflow, overview"),
        ({"mlflow": 70000}, "expected 1 to 65535"),
        ({"mlflow": 5999, "overview": 5999}, "one port for two"),
    ],
)
def test_a_wish_that_cannot_be_is_refused(tmp_path: Path, asked: dict[str, int], words: str) -> None:
    with pytest.raises(UsageError, match=words):
        choose(tmp_path / "ports.json", {"mlflow": 1, "overview": 2}, asked)


def test_a_port_that_nobody_has_is_another_programs() -> None:
    assert holder(free()) == "another program"


def test_a_service_whose_port_was_taken_meanwhile_gets_another_and_keeps_what_a_person_wants(
    tmp_path: Path, taken: int
) -> None:
    memory = tmp_path / "ports.json"
    stored = {"requested": {"overview": taken}, "ports": {"mlflow": taken, "overview": taken, "optuna": free()}}
    memory.write_text(json.dumps(stored))
    port = renewed(memory, "mlflow")
    assert port not in (None, taken)
    assert renewed(memory, "overview") == taken
    assert renewed(memory, "optuna") == stored["ports"]["optuna"]
    assert renewed(memory, "worker") is None
    assert json.loads(memory.read_text())["ports"] == {**stored["ports"], "mlflow": port}


def test_of_those_that_start_at_once_one_gets_the_port_and_the_others_one_of_their_own(taken: int) -> None:
    with listening(taken, or_any=True) as first, listening(taken, or_any=True) as second:
        assert len({taken, first.getsockname()[1], second.getsockname()[1]}) == 3
    with pytest.raises(OSError, match="in use"):
        listening(taken)


def test_a_socket_that_listens_is_taken_over_from_standard_input() -> None:
    before = os.dup(0)
    try:
        with listening(free()) as waiting:
            os.dup2(waiting.fileno(), 0)
        with listener(1) as inherited, socket.create_connection(waiting_at := inherited.getsockname(), timeout=5):
            accepted, _ = inherited.accept()
            accepted.close()
        assert waiting_at[0] == "127.0.0.1"
    finally:
        os.dup2(before, 0)
        os.close(before)
