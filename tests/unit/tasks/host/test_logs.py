"""A record is one line of JSON."""

import json
import logging
import sys

from tasks.host.logs import JsonLines


def test_a_line_is_json_with_what_was_told_and_the_trace() -> None:
    try:
        raise ValueError("why")
    except ValueError:
        record = logging.LogRecord("a", logging.ERROR, "f", 1, "said %s", ("so",), sys.exc_info())
    record.fields = {"id": "r7"}
    line = JsonLines().format(record)
    found = json.loads(line)
    assert "\n" not in line
    assert (found["level"], found["logger"], found["message"], found["id"]) == ("error", "a", "said so", "r7")
    assert "ValueError: why" in found["trace"]
