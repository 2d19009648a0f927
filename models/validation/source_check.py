"""The source that a spec names: is it there, and is it what can be read? Nothing of it is read here."""

from __future__ import annotations

import contextlib
from pathlib import Path

from models.project_spec.blocks import Data
from models.sources.schemes import scheme_of
from models.sources.source import Source
from models.validation.expectation_arguments import check_expectations


def check_source(data: Data, base: Path) -> None:
    """Refuse a source of this machine that is not there, that no reader takes, or that lacks a column of expectations.

    A loop does not ask this: it records at ingest that the source was away, and rejects its rows without the column.

    Args:
        data: The spec's `data` block.
        base: The folder of the spec.

    Raises:
        UsageError: There is no such file or folder, or it is none that can be read.
        DataError: An expectation names a column that a file does not have.
    """
    source, scheme = Source(data.source, base), scheme_of(data.source)
    scheme.check(source, data.kind == "text")
    if data.expectations and data.kind != "text":
        with contextlib.suppress(OSError):  # ingest says what is wrong with the file
            check_expectations(data.expectations, scheme.header(source))
