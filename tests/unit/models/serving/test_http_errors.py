"""What a server says no to."""

from models.serving import http_errors as refusals


def test_a_refusal_carries_its_status_and_says_what_it_was_told() -> None:
    refused = refusals.unreadable("row 0: got 'x', expected a number")
    assert (refused.status, str(refused), refused.headers) == (400, "row 0: got 'x', expected a number", {})
    assert [refusals.unknown("").status, refusals.too_large("").status, refusals.late("").status] == [404, 413, 504]


def test_a_busy_server_says_when_to_ask_again() -> None:
    refused = refusals.busy("full", 3)
    assert (refused.status, refused.headers) == (503, {"retry-after": "3"})
