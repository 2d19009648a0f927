"""Conformance suites: what a row that a team brings must hold, as claims that a command checks one after the other."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import NamedTuple

from models.errors import LooplineError


class Claim(NamedTuple):
    """A sentence that holds of every row of a sort, and its check, which raises a LooplineError where it does not."""

    text: str
    check: Callable[[], None]


class Outcome(NamedTuple):
    """What became of a claim; `error` is empty if it holds."""

    claim: str
    error: str = ""


READ = "the row is read from its source, and nothing of it runs"


def outcomes(claims: Iterable[Claim]) -> Iterator[Outcome]:
    """Check claims one after the other; a suite that cannot go on ends with why."""
    remaining = iter(claims)
    while True:
        try:
            claim = next(remaining)
        except StopIteration:
            return
        except LooplineError as error:
            yield Outcome(READ, str(error))
            return
        try:
            claim.check()
            yield Outcome(claim.text)
        except LooplineError as error:
            yield Outcome(claim.text, str(error))
