"""What a server says no to."""

from models.serving import http_errors


def test_a_refusal_carries_its_status_and_says_what_it_was_told() -> None:
    refused = http_errors.unreadable("row 1: got 'x', expected a number")
    assert (refused.status, str(refused), refused.headers) == (400, "row 1: got 'x', expected a number", {})
    assert [http_errors.unknown("").status, http_errors.too_large("").status, http_errors.late("").status] == [
        404,
        413,
        504,
    ]


def test_a_busy_server_says_when_to_ask_again() -> None:
    refused = http_errors.busy("full", 3)
    assert (refused.status, refused.headers) == (503, {"retry-after": "3"})
