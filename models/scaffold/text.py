"""A first spec for a text without a spec: a language model of its characters."""

from __future__ import annotations

from pathlib import Path

import pyarrow.compute as pc

from models.errors import DataError
from models.project_spec.blocks import Split
from models.scaffold.expectations import yaml_text
from models.sources.delimiter import PARQUET
from models.sources.folders import visible_files
from models.sources.packed import suffix_of
from models.sources.text_files import is_text_file, read_text

LENGTH = 128
LEAST_LENGTH = 16
# This many windows of test text give enough independent blocks for a verdict.
TEST_WINDOWS = 64
SMALL = 300_000
# A small net has learnt most after READ characters. The passes over the text follow from it, up to MOST_PASSES.
READ = 4_000_000
MOST_PASSES = 30
# With more characters an epoch takes too long.
EPOCH = 500_000

SPLIT = Split(by="position")
SPEC = """\
# {size} characters in {lines} lines. Everything here is a guess: read it, then change it.
name: {name}

data:
  source: {source}
  kind: text
  text: {{length: {length}}}  # characters that the model sees at most
  # In the order of the text, so that what is judged was never read.
  split: {{by: position}}
  expectations:
    - {{expect: table_row_count_to_be_between, severity: reject, arguments: {{min_value: {fewest}}}}}
    - {{expect: column_value_lengths_to_be_between, severity: warn, arguments: {{column: text, max_value: {longest}}}}}
    # What is left of text that was read in the wrong encoding.
    - {{expect: column_values_to_not_match_regex, severity: warn, arguments: {{column: text, regex: "\\uFFFD"}}}}

model:
  net: decoder
  arguments: {net}

search:
  trials: 3
  epochs: 1
  space:
    train.lr: {{low: 0.001, high: 0.008, log: true}}

train:
  epochs: {epochs}
  epochs_per_pass: {parts}
  batch: 16
  lr: 0.004
"""


def is_text(path: Path) -> bool:
    """Return True for a text file, and for a folder of text files without Parquet."""
    if not path.is_dir():
        return is_text_file(path)
    files = visible_files(path)
    return any(map(is_text_file, files)) and not any(suffix_of(file) in PARQUET for file in files)


def guess_text_spec(path: Path, name: str, source: str) -> str:
    """Return the text of a valid `project.yaml` for a text file, or a folder of them.

    Args:
        path: The file or folder.
        name: The project's name.
        source: The value of `data.source`.

    Raises:
        DataError: The text cannot be read, or is too short to be split.
    """
    table = read_text(path)
    lengths = pc.utf8_length(table.column("text"))
    size = pc.sum(lengths).as_py() + table.num_rows
    train = size * (1 - SPLIT.validation - SPLIT.test)
    parts = max(1, round(train / EPOCH))
    return SPEC.format(
        size=size,
        lines=table.num_rows,
        name=name,
        source=yaml_text(source),
        length=_length(path, size),
        fewest=max(1, table.num_rows // 2),
        longest=2 * max(80, pc.max(lengths).as_py()),
        net="{width: 64, layers: 2}" if size < SMALL else "{width: 128, layers: 4}",
        epochs=max(1, min(MOST_PASSES, round(READ / train))) * parts,
        parts=parts,
    )


def _length(path: Path, size: int) -> int:
    length = min(LENGTH, int(size * SPLIT.test) // (TEST_WINDOWS + 1))
    if length < LEAST_LENGTH:
        needed = int(LEAST_LENGTH * (TEST_WINDOWS + 1) / SPLIT.test) + 1
        raise DataError(f"{path}: the text has {size} characters, expected at least {needed} to learn and judge from")
    return length
