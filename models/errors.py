"""The tree of errors. A class exists only where somebody catches it.

LooplineError             anything that Loopline itself says no to; the command line prints it without a traceback
├── UsageError            the spec, the command or a name is wrong; nothing was started (exit code 2)
├── DataError             the data is not what the spec says it is (exit code 1)
├── UserCodeError         a function that the spec names raised, or gave back the wrong thing (exit code 1)
├── TrainingError         training cannot go on: NaN, a dead rank, every trial failed (exit code 1)
├── StoreError            a store is away, locked, full or not writable; the work done so far is kept (exit code 1)
└── GateRefused           a gate said no: validation rejected, the verdict or the compare-and-swap refused (exit code 3)
"""

from __future__ import annotations

from collections.abc import Iterable


class LooplineError(Exception):
    """An error that a person can mend; `str(error)` says where, what was got, what was expected, and the cure."""

    exit_code = 1


class UsageError(LooplineError):
    """The spec, the command line or a name is wrong; nothing was started."""

    exit_code = 2


class DataError(LooplineError):
    """The data does not match the spec."""


class UserCodeError(LooplineError):
    """A function that the spec names raised, or gave back the wrong thing."""


class TrainingError(LooplineError):
    """Training cannot go on."""


class StoreError(LooplineError):
    """A store is unavailable, locked, full or read-only; finished work is safe."""


class GateRefused(LooplineError):  # noqa: N818 - a refusal is the gate doing its work, not an error
    """A gate of the loop failed; the champion stays."""

    exit_code = 3


def did_you_mean(name: str, known: Iterable[str], otherwise: str, nearness: float = 0.6) -> str:
    """The cure for a name that is not there: the nearest one that is, or what else to do.

    Args:
        name: What was written.
        known: The names that there are.
        otherwise: The cure where none of them is near.
        nearness: From 0 to 1; less takes names for near that share less. Source: difflib's `ratio`.
    """
    import difflib

    near = difflib.get_close_matches(name, list(known), 1, nearness)
    return f"did you mean {near[0]!r}?" if near else otherwise
