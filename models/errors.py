"""The tree of errors. Each class exists because some code catches it.

LooplineError             an expected error; the command line prints it without a traceback
├── UsageError            the spec, the command or a name is wrong; nothing was started (exit code 2)
├── DataError             the data does not match the spec (exit code 1)
├── UserCodeError         a function that the spec names raised, or returned a wrong value (exit code 1)
├── TrainingError         training cannot continue: NaN, a dead rank, every trial failed (exit code 1)
├── StoreError            a store is unreachable, locked, full or not writable; finished work is kept (exit code 1)
│   └── LeaseLostError    another process has taken over the loop (exit code 1)
└── GateRefused           data validation, the verdict or the compare-and-swap stopped the loop (exit code 3)
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

PREFIX = "loopline: "
"""What the command line begins the message of an error with."""


class LooplineError(Exception):
    """An error that a person can fix; `str(error)` has the place, the actual value, the expected value and the fix."""

    exit_code = 1


class UsageError(LooplineError):
    """The spec, the command line or a name is wrong; nothing was started."""

    exit_code = 2


class DataError(LooplineError):
    """The data does not match the spec."""


class UserCodeError(LooplineError):
    """A function that the spec names raised, or returned a wrong value."""


class TrainingError(LooplineError):
    """Training cannot continue."""


class StoreError(LooplineError):
    """A store is unreachable, locked, full or not writable; finished work is kept."""


class LeaseLostError(StoreError):
    """Another process has taken over what this one did: this one must record nothing more."""


class GateRefused(LooplineError):  # noqa: N818 - a refusal is the normal work of a gate, not an error
    """A gate stopped the loop; the champion stays."""

    exit_code = 3


def with_causes(error: BaseException) -> Iterator[BaseException]:
    """Yield an error and the errors that led to it, the latest first."""
    cause: BaseException | None = error
    while cause is not None:
        yield cause
        cause = cause.__cause__ or cause.__context__


def first_of(parts: Iterable[str], limit: int, between: str = "; ") -> str:
    """Return the first parts of a list for a message, and how many more there are."""
    listed = list(parts)
    further = f" and {len(listed) - limit} more" if len(listed) > limit else ""
    return between.join(listed[:limit]) + further


def one_line(error: object, limit: int = 300) -> str:
    """Return the text of another program's error on one line, of limited length."""
    return " ".join(str(error).split())[:limit]


def did_you_mean(name: str, names: Iterable[str], otherwise: str, nearness: float = 0.6) -> str:
    """Return a hint for an unknown name: the nearest known name, or another hint.

    Args:
        name: The unknown name.
        names: The known names.
        otherwise: The hint if no known name is near.
        nearness: From 0 to 1; with a smaller value, less similar names count as near. Source: difflib's `ratio`.
    """
    import difflib

    near = difflib.get_close_matches(name, list(names), 1, nearness)
    return f"did you mean {near[0]!r}?" if near else otherwise
