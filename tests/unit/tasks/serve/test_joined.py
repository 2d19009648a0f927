"""Head and body of an answer leave together, whatever the answer is like."""

from typing import Any

from tasks.serve.joined import Joined

HEAD = b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\n"


class Wire:
    """A transport that keeps what is written to it."""

    def __init__(self) -> None:
        self.written: list[bytes] = []
        self.closed = False

    def write(self, data: bytes) -> None:
        assert not self.closed
        self.written.append(data)

    def close(self) -> None:
        self.closed = True

    def is_closing(self) -> bool:
        return self.closed

    def get_extra_info(self, name: str) -> str:
        return name


def joined() -> tuple[Any, Wire]:
    wire = Wire()
    return Joined(wire), wire  # type: ignore[arg-type]


def test_a_head_leaves_with_what_follows_and_later_pieces_alone() -> None:
    transport, wire = joined()
    transport.write(HEAD)
    assert wire.written == []
    transport.write(b"ab")
    transport.write(b"cd")
    assert wire.written == [HEAD + b"ab", b"cd"]


def test_a_body_that_looks_like_a_head_is_not_lost() -> None:
    transport, wire = joined()
    transport.write(HEAD)
    transport.write(b"HTTP/1.1 200 OK")
    transport.write(b"HTTP/1.1 200 OK, a second piece")
    transport.flush()
    transport.flush()
    assert wire.written == [HEAD + b"HTTP/1.1 200 OK", b"HTTP/1.1 200 OK, a second piece"]


def test_an_answer_without_a_body_leaves_when_it_is_over() -> None:
    transport, wire = joined()
    transport.write(HEAD)
    transport.flush()
    assert wire.written == [HEAD]
    transport.write(HEAD)
    transport.close()
    assert wire.written == [HEAD, HEAD]
    assert transport.is_closing()


def test_a_caller_who_waits_for_leave_to_send_gets_it_at_once() -> None:
    transport, wire = joined()
    transport.write(b"HTTP/1.1 100 Continue\r\n\r\n")
    assert len(wire.written) == 1


def test_all_else_is_the_transports() -> None:
    transport, _ = joined()
    assert transport.get_extra_info("peername") == "peername"
