"""Claims are checked one after the other, and a suite that cannot go on says why."""

from collections.abc import Iterator

from models.errors import UsageError
from models.project_spec.conformance import READ, Claim, Outcome, outcomes


def wrong() -> None:
    raise UsageError("it is not")


def suite() -> Iterator[Claim]:
    yield Claim("it holds", lambda: None)
    yield Claim("it does not", wrong)
    raise UsageError("there is no file")


def test_each_claim_has_its_outcome() -> None:
    assert [*outcomes(suite())] == [
        Outcome("it holds"),
        Outcome("it does not", "it is not"),
        Outcome(READ, "there is no file"),
    ]
