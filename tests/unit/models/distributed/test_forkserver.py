import contextlib
import os
import socket
from multiprocessing import Pipe

import pytest

from models.distributed.forkserver import call_reference, receive, report_error, send
from models.errors import UserCodeError
from models.project_spec.references import resolve


def test_values_and_descriptors_cross_whole():
    ours, theirs = socket.socketpair()
    reader, writer = os.pipe()
    with ours, theirs:
        send(ours, ("start", "x" * 100_000), (writer,))
        value, descriptors = receive(theirs)
        assert value == ("start", "x" * 100_000)
        os.write(descriptors[0], b"through")
        assert os.read(reader, 7) == b"through"
        for descriptor in (reader, writer, *descriptors):
            os.close(descriptor)


def test_the_end_of_the_other_side_is_told():
    ours, theirs = socket.socketpair()
    with theirs:
        ours.close()
        with pytest.raises(EOFError):
            receive(theirs)


def test_a_call_sends_its_value_and_an_error_its_traceback():
    ours, theirs = Pipe()
    with ours, theirs:
        call_reference([theirs], "textwrap:dedent", {"text": " a"})
        assert ours.recv() == ("value", "a")
        report_error(theirs, ValueError("no"))
        kind, name, text, trace = ours.recv()
        assert (kind, name, text) == ("error", "ValueError", "no")
        assert "ValueError: no" in trace


@pytest.mark.parametrize("body", ["return (here / 'a').read_text()", "raise ValueError((here / 'a').read_text())"])
def test_a_call_tells_what_own_code_read_before_its_value_and_before_its_error(tmp_path, body):
    (tmp_path / "own.py").write_text(f"from pathlib import Path\nhere = Path(__file__).parent\ndef f(): {body}\n")
    (tmp_path / "a").write_text("1")
    keywords = {"function": resolve("./own.py:f", tmp_path), "reference": "./own.py:f"}
    ours, theirs = Pipe()
    with ours, theirs:
        with contextlib.suppress(UserCodeError):
            call_reference([theirs], "models.project_spec.references:call", keywords)
        kind, reads = ours.recv()
    assert (kind, [*reads.files]) == ("reads", [str(tmp_path / "a")])
