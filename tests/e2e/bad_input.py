"""The table of bad input: what is wrong, with which command it is met, and what the error must say."""

from __future__ import annotations

import io
import re
from dataclasses import dataclass, field

import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet as pq
import pytest

from tests.fault.conftest import SPEC
from tests.running import PENGUINS

TEXT = PENGUINS.read_text()
LINES = TEXT.splitlines()
HEAD = LINES[0].split(",")
RUN, PLAN = ("run", "whole"), ("plan", "whole")
INGEST, PREPARE = ("stage", "ingest", "whole"), ("stage", "prepare", "whole")
WIDE = (pytest.mark.wide,)


@dataclass(frozen=True)
class Case:
    """One thing wrong: `change` replaces a piece of the good spec, `files` are written beside it."""

    name: str
    says: tuple[str, ...]
    change: tuple[str, str] = ("", "")
    files: dict[str, str | bytes] = field(default_factory=dict)
    command: tuple[str, ...] = RUN
    code: int = 1
    marks: tuple[pytest.MarkDecorator, ...] = ()

    def spec(self) -> str:
        assert self.change[0] in SPEC
        return SPEC.replace(*self.change, 1)


def csv(name: str, text: str | bytes) -> dict:
    """A changed source of that name."""
    return {"change": ("penguins.csv", name), "files": {name: text}}


def column(name: str, value: str | None) -> str:
    """The table with every value of a column replaced."""
    at = HEAD.index(name)
    rows = [line.split(",") for line in LINES[1:]]
    return "\n".join([LINES[0], *(",".join([*row[:at], value or "", *row[at + 1 :]]) for row in rows)]) + "\n"


def source(body: str) -> dict:
    return {"change": ("penguins.csv", "./own.py:load"), "files": {"own.py": body}, "command": INGEST}


def own(key: str, reference: str, body: str) -> dict:
    changes = {
        "make": ("{drop: [year]}", f"{{make: '{reference}'}}"),
        "net": ("net: mlp, arguments: {layers: 1, dropout: 0.1}", f"net: '{reference}'"),
        "metric": ("metric: accuracy", f"metric: '{reference}', direction: maximize"),
    }
    return {"change": changes[key], "files": {"own.py": body}}


def _cut_short() -> bytes:
    whole = io.BytesIO()
    pq.write_table(pa.csv.read_csv(PENGUINS), whole)
    return whole.getvalue()[:-200]


USAGE = [
    Case("unknown key", ("project.yaml:15: train.epoch: unknown key", "'epochs'"), ("epochs: 10", "epoch: 10"), code=2),
    Case(
        "unknown key in plan",
        ("train.epoch: unknown key",),
        ("epochs: 10", "epoch: 10"),
        command=PLAN,
        code=2,
        marks=WIDE,
    ),
    Case("wrong type", ('project.yaml:15: train.lr: got "fast", expected',), ("lr: 0.01", "lr: fast"), code=2),
    Case("out of range", ("project.yaml:15: train.batch: got 0",), ("batch: 8", "batch: 0"), code=2, marks=WIDE),
    Case("no yaml", ("project.yaml:16: not valid YAML",), ("train:", "train: ["), code=2),
    Case(
        "no yaml for dvc",
        ("project.yaml:8: DVC, which reads this file too", "put the value in quotes"),
        ("net: mlp", "net: ./own.py:Net"),
        code=2,
    ),
    Case(
        "wrong override", ('train.lr: got "fast", expected',), command=(*RUN, "-s", "train.lr=fast"), code=2, marks=WIDE
    ),
    Case("unknown override", ("'train'",), command=(*RUN, "-s", "trian.lr=1"), code=2, marks=WIDE),
    Case("unknown project", ("'whloe'", "did you mean 'whole'?"), command=("run", "whloe"), code=2),
]
TABLES = [
    Case("missing file", ("no such file", "nosuch.csv", "data.source"), ("penguins.csv", "nosuch.csv"), command=INGEST),
    Case("empty file", ("empty.csv", "the file is empty"), **csv("empty.csv", ""), command=INGEST, marks=WIDE),
    Case("empty table", ("no rows",), **csv("head.csv", LINES[0] + "\n"), command=INGEST, marks=WIDE),
    Case("few rows", ("rows",), **csv("few.csv", "\n".join(LINES[:4]) + "\n"), command=INGEST),
    Case(
        "duplicate columns", ("'sex'",), **csv("twice.csv", TEXT.replace("year", "sex", 1)), marks=WIDE, command=INGEST
    ),
    Case(
        "not utf-8",
        ("latin.csv:2", "0xf6", "iconv"),
        **csv("latin.csv", TEXT.replace("Torgersen", "Törgersen").encode("latin-1")),
        command=INGEST,
        marks=WIDE,
    ),
    Case(
        "parquet cut short",
        ("cut.parquet", "cut short"),
        **csv("cut.parquet", _cut_short()),
        marks=WIDE,
        command=INGEST,
    ),
    Case("no format", ("table.xyz", "expected"), **csv("table.xyz", TEXT), marks=WIDE, command=INGEST),
    Case(
        "target absent",
        ("data.target: no column 'species'",),
        **csv("other.csv", TEXT.replace("species", "kind", 1)),
        marks=WIDE,
    ),
    Case(
        "target misspelt",
        ("'specie'", "did you mean 'species'?"),
        ("target: species", "target: specie"),
        marks=WIDE,
    ),
    Case("target misspelt in plan", ("'specie'",), ("target: species", "target: specie"), command=PLAN),
    Case(
        "drop absent",
        ("data.features.drop", "'yaer'", "'year'"),
        ("drop: [year]", "drop: [yaer]"),
        command=PREPARE,
    ),
    Case(
        "type changed",
        ("'flipper_length_mm' was", "and is string"),
        **csv("type.csv", column("flipper_length_mm", "old")),
        command=INGEST,
    ),
    Case("null column", ("'sex'", "no value at all"), **csv("null.csv", column("sex", None)), marks=WIDE),
    Case(
        "metric undefined",
        ("mape is undefined on", "have the target 0", "take goal.metric mae"),
        **csv("zero.csv", re.sub(r",3\d\d\d,", ",0,", TEXT)),
        command=(*RUN, "-s", "data.target=body_mass_g", "-s", "data.split.by=random", "-s", "goal.metric=mape"),
        marks=WIDE,
    ),
    Case("one class", ("'species'", "Adelie"), **csv("one.csv", column("species", "Adelie")), marks=WIDE),
    Case(
        "infinite",
        ("'body_mass_g'", "inf"),
        **csv("inf.csv", TEXT.replace(",3750,", ",inf,")),
        marks=WIDE,
        command=PREPARE,
    ),
    Case(
        "split left empty",
        ("split",),
        ("by: stratified,", "by: group, column: one,"),
        {"penguins.csv": "\n".join([LINES[0] + ",one", *(line + ",1" for line in LINES[1:])]) + "\n"},
        command=PREPARE,
    ),
]
CODE = [
    Case("source raises", ("own.py", "load", "no luck"), **source("def load():\n    raise ValueError('no luck')\n")),
    Case("source gives a number", ("own.py:load", "got a int"), **source("def load():\n    return 7\n"), marks=WIDE),
    Case("source not there", ("own.py", "'load'"), **source("def lod():\n    return 7\n"), code=2),
    Case("source no python", ("own.py", "line 1"), **source("def load(:\n"), marks=WIDE),
    Case(
        "features raise",
        ("own.py", "make", "no luck"),
        **own("make", "./own.py:make", "def make(frame):\n    raise ValueError('no luck')\n"),
        command=PREPARE,
    ),
    Case(
        "features give a list",
        ("own.py:make", "list"),
        **own("make", "./own.py:make", "def make(frame):\n    return []\n"),
        command=PREPARE,
        marks=WIDE,
    ),
    Case(
        "net raises",
        ("own.py", "no luck"),
        **own("net", "./own.py:build", "def build(**_):\n    raise ValueError('no luck')\n"),
    ),
    Case(
        "net gives a text",
        ("own.py:build", "str"),
        **own("net", "./own.py:build", "def build(**_):\n    return 'net'\n"),
        marks=WIDE,
    ),
    Case(
        "metric raises",
        ("own.py", "no luck"),
        **own("metric", "./own.py:score", "def score(target, prediction):\n    raise ValueError('no luck')\n"),
        marks=WIDE,
    ),
    Case(
        "metric gives a text",
        ("own.py:score", "'good'", "expected one finite number"),
        **own("metric", "./own.py:score", "def score(target, prediction):\n    return 'good'\n"),
        marks=WIDE,
    ),
]
# The last: a table of other columns, taken in, is what later ones are compared with.
NAMES = [
    Case(
        "name of an output",
        ("column 'label'", "rename it", "features.drop"),
        **csv("label.csv", TEXT.replace("island", "label", 1)),
        command=PREPARE,
        code=2,
        marks=WIDE,
    ),
]
LONG = "a" * 5000
LONG_NAMES = [
    Case("long name of a project", ("aaa: the name is too long", "shorten it"), command=("plan", LONG)),
    Case(
        "long name of a file",
        ("aaa: the name is too long", "shorten it"),
        command=("predict", "whole", LONG),
        marks=WIDE,
    ),
    Case(
        "cluster without a name",
        ("--cluster: got ''", "expected detect"),
        command=(*PLAN, "--cluster", ""),
        code=2,
        marks=WIDE,
    ),
]
CASES = USAGE + LONG_NAMES + TABLES + CODE + NAMES
