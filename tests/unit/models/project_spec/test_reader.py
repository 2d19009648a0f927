"""Reading `project.yaml`: mistakes are told with file, line, value and cure; the schema says what pydantic does."""

import copy
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from jsonschema import Draft202012Validator
from pydantic import ValidationError
from ruamel.yaml import YAML

from models.errors import UsageError
from models.inputs.records import column_kinds
from models.project_spec import reader
from models.project_spec.blocks import Spec
from models.project_spec.reader import json_schema, read_document, read_spec
from tests.unit.models.project_spec.test_blocks import REFUSED

ROOT = Path(__file__).parents[4]
SHIPPED = sorted((ROOT / "projects").glob("*/project.yaml"))
VALIDATOR = Draft202012Validator(json_schema(column_kinds()))
LEAST = "name: tiny\ndata:\n  source: data.csv\n  target: y\n"

Write = Callable[[str], Path]


@pytest.fixture
def write(tmp_path: Path) -> Write:
    def make(text: str) -> Path:
        path = tmp_path / "tiny" / "project.yaml"
        path.parent.mkdir(exist_ok=True)
        path.write_text(text)
        return path

    return make


def refusal(path: Path, *overrides: str) -> str:
    with pytest.raises(UsageError) as caught:
        read_spec(path, overrides, "project.yaml")
    return str(caught.value)


@pytest.mark.parametrize("path", SHIPPED, ids=[path.parent.name for path in SHIPPED])
def test_every_shipped_project_can_be_read(path: Path) -> None:
    assert read_spec(path).name == path.parent.name


def test_three_lines_suffice_and_the_folder_names_the_project(write: Write) -> None:
    spec = read_spec(write("data:\n  source: data.csv\n  target: y\n"))
    assert (spec.name, spec.data.source) == ("tiny", "data.csv")


MISTAKES: list[tuple[str, list[str]]] = [
    ("train:\n  lr: fast\n", ["project.yaml:6: train.lr: ", 'got "fast"', "number"]),
    ("train:\n  lr: 0\n", ["project.yaml:6: train.lr: ", "got 0", "number > 0"]),
    (
        "train:\n  nodes: 0\n",
        ["project.yaml:6: train.nodes: ", 'got "0"', "expected Machines, each with `ranks` ranks"],
    ),
    ("train:\n  epochs: 0\n", ["project.yaml:6: train.epochs: ", "got 0", "number >= 1"]),
    ("\n\n# why\ntrian:\n  lr: 1\n", ["project.yaml:8: trian: unknown key", "did you mean 'train'"]),
    ("train:\n  # why\n  eposch: 3\n", ["project.yaml:7: train.eposch: unknown key", "did you mean 'epochs'"]),
    ("train: {epochs: 3, lrr: 1}\n", ["project.yaml:5: train.lrr: unknown key", "'lr'"]),
    ("epochs: 3\n", ["project.yaml:5: epochs: unknown key", "train.epochs or search.epochs"]),
    ("train:\n  qqqqqqq: 1\n", ["project.yaml:6: ", "expected one of", "epochs"]),
    ("goal:\n  metric: 3\n", ["project.yaml:6: goal.metric: got 3", "string"]),
    ("model:\n", ["project.yaml:5: model: got null"]),
    ("judge:\n  mode: better\n", ["project.yaml:6: judge.mode: ", '"better"', "'superiority' or 'noninferiority'"]),
    (
        "search:\n  space:\n    lr: {low: 1, high: 2}\n",
        ["project.yaml:6: search.space: ", "cannot search 'lr'", "train.<key>"],
    ),
    (
        "search:\n  space:\n    train.lr: {low: 2, high: 1}\n",
        ["project.yaml:7: search.space.train.lr: ", "low 2 must be under high 1"],
    ),
    ("retrain:\n  on:\n    - decay\n    - rain\n", ["project.yaml:8: retrain.on.1: ", '"rain"']),
    ("judge:\n  slices: origin\n", ["project.yaml:6: judge.slices: ", '"origin"', "list"]),
]


@pytest.mark.parametrize(("text", "words"), MISTAKES, ids=[text.strip()[:30] for text, _ in MISTAKES])
def test_a_mistake_is_told_with_line_value_and_cure(write: Write, text: str, words: list[str]) -> None:
    told = refusal(write(LEAST + text))
    assert all(word in told for word in words), told
    assert "\n" not in told


def test_a_mistake_inside_a_list_names_its_item_and_line(write: Write) -> None:
    told = refusal(write(LEAST + "  expectations:\n    - {expect: a}\n    - expect: b\n      severity: fatal\n"))
    assert told.startswith("project.yaml:8: data.expectations.1.severity: ")


def test_a_constraint_between_keys_is_told_at_its_block(write: Write) -> None:
    told = refusal(write(LEAST + "  split:\n    by: time\n"))
    assert told.startswith("project.yaml:5: data.split: split by time needs `column`")


def test_every_mistake_is_told_at_once(write: Write) -> None:
    told = refusal(write(LEAST + "train:\n  lr: fast\n  epochs: many\nsurch: {}\n"))
    assert len(told.splitlines()) == 3


def test_a_missing_key_says_what_belongs_there(write: Write) -> None:
    told = refusal(write("data:\n  source: a.csv\n"))
    assert "project.yaml:1: data.target: missing" in told
    assert "column to predict" in told


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", ["project.yaml:1: ", "an empty file"]),
        ("# only a comment\n", ["project.yaml:1: ", "an empty file"]),
        ("- a\n- b\n", ["project.yaml:1: ", "expected keys"]),
        ("just text\n", ["project.yaml:1: ", "expected keys"]),
        ("a: [1, 2\nb: 3\n", ["project.yaml:2: ", "not valid YAML"]),
        ("data:\n\ttarget: y\n", ["project.yaml:2: ", "not valid YAML"]),
        (LEAST + "model: {net: ./net.py:Net}\n", ["project.yaml:5: DVC", "put the value in quotes"]),
        (LEAST + "name: again\n", ["project.yaml:5: ", "duplicate key", "name"]),
        ("a: *nowhere\n", ["project.yaml:1: ", "not valid YAML"]),
        ("a: !!python/object:os.system x\n", ["project.yaml:1: "]),
    ],
)
def test_a_file_that_is_no_mapping_names_the_line(write: Write, text: str, words: list[str]) -> None:
    told = refusal(write(text))
    assert all(word in told for word in words), told


def test_a_file_that_is_not_utf8(tmp_path: Path) -> None:
    path = tmp_path / "project.yaml"
    path.write_bytes(LEAST.encode() + b"description: caf\xe9\n")
    assert "UTF-8" in refusal(path)


def test_a_file_that_is_not_there(tmp_path: Path) -> None:
    assert "loopline new" in refusal(tmp_path / "project.yaml")


@pytest.mark.parametrize(
    ("written", "value"),
    [("1e-3", 0.001), ("1E-3", 0.001), ("1.e-3", 0.001), (".5", 0.5), ("1", 1.0), ("3e2", 300.0), ("1_000", 1000.0)],
)
def test_numbers_as_people_write_them(write: Write, written: str, value: float) -> None:
    assert read_spec(write(LEAST + f"train:\n  lr: {written}\n")).train.lr == value
    assert read_spec(write(LEAST), [f"train.lr={written}"]).train.lr == value


def test_anchors_and_dates_are_plain_values(write: Write) -> None:
    text = "  deduplicate: &no false\n  expectations:\n    - expect: a\n      arguments: {flag: *no, day: 2020-01-02}\n"
    spec = read_spec(write(LEAST + text))
    assert spec.data.deduplicate is False
    assert spec.data.expectations[0].arguments["flag"] is False
    assert json.loads(spec.model_dump_json())["data"]["expectations"][0]["arguments"]["day"] == "2020-01-02"


@pytest.mark.parametrize(
    ("override", "got"),
    [
        ("train.epochs=3", lambda spec: spec.train.epochs == 3),
        ("train.augment.noise=0.5", lambda spec: spec.train.augment.noise == 0.5),
        ("goal.good_enough=", lambda spec: spec.goal.good_enough is None),
        ("goal.metric=null", lambda spec: spec.goal.metric is None),
        ("judge.slices=[a, b]", lambda spec: spec.judge.slices == ["a", "b"]),
        ("data.deduplicate=false", lambda spec: spec.data.deduplicate is False),
        ("data.source=./x.py:load", lambda spec: spec.data.source == "./x.py:load"),
        ("description=a=b", lambda spec: spec.description == "a=b"),
        ("search.space.train.lr={low: 1e-4, high: 1}", lambda spec: spec.search.space["train.lr"].low == 1e-4),
        ("model.arguments.hidden=32", lambda spec: spec.model.arguments == {"hidden": 32}),
        ("data.features.kinds.dep-hour=numeric", lambda spec: spec.data.features.kinds == {"dep-hour": "numeric"}),
    ],
)
def test_an_override_wins_and_is_typed(write: Write, override: str, got: Callable[[Spec], bool]) -> None:
    assert got(read_spec(write(LEAST + "goal:\n  good_enough: 0.5\n  metric: f1\n"), [override]))


def test_an_override_changes_one_bound_of_a_range(write: Write) -> None:
    path = write(LEAST + "search:\n  space:\n    train.lr: {low: 0.1, high: 1}\n")
    space = read_spec(path, ["search.space.train.lr.low=0.5"]).search.space
    assert space is not None
    assert (space["train.lr"].low, space["train.lr"].high) == (0.5, 1.0)


def test_later_overrides_win_and_leave_the_rest(write: Write) -> None:
    spec = read_spec(write(LEAST + "train:\n  lr: 0.5\n"), ["train.epochs=3", "train.epochs=4"])
    assert (spec.train.lr, spec.train.epochs) == (0.5, 4)


@pytest.mark.parametrize(
    ("override", "words"),
    [
        ("train.epochs", ["command line: ", "-s block.key=value"]),
        ("=3", ["command line: "]),
        ("train epochs=3", ["command line: "]),
        ("train.epochs=many", ["command line: train.epochs: ", '"many"', "integer"]),
        ("train.eposch=3", ["command line: train.eposch: unknown key", "'epochs'"]),
        ("trian.epochs=3", ["command line: trian", "'train'"]),
        ("judge.slices=[a", ["command line: judge.slices: got '[a', expected a YAML value"]),
        ("train.epochs=0", ["command line: train.epochs: ", "number >= 1"]),
    ],
)
def test_a_wrong_override_is_told_as_the_command_lines(write: Write, override: str, words: list[str]) -> None:
    told = refusal(write(LEAST), override)
    assert all(word in told for word in words), told


# --- the JSON Schema says what pydantic does


def loaded(path: Path) -> dict[str, Any]:
    return YAML(typ="safe").load(path.read_text())


def accepts(document: dict[str, Any]) -> bool:
    try:
        Spec.model_validate({"name": "tiny", **document})
    except ValidationError:
        return False
    return True


def test_the_schema_is_a_schema() -> None:
    Draft202012Validator.check_schema(json_schema(column_kinds()))


@pytest.mark.parametrize("path", SHIPPED, ids=[path.parent.name for path in SHIPPED])
def test_the_schema_accepts_what_is_shipped(path: Path) -> None:
    assert list(VALIDATOR.iter_errors(loaded(path))) == []


# What a schema of single values cannot say: a condition between keys.
BETWEEN_KEYS = (
    "needs `column`",
    "which is the target",
    "leave at least 0.1",
    "data.image",
    "data.window",
    "by: time",
    "cannot search",
    "cannot search 'lr'",
    "must be under",
    "either `choices`",
    "low > 0",
    "text has no target",
    "shuffled text leaks",
    "no `task`",
    "no `features`",
    "say `kind: text`",
    "for `kind: text`",
    "series predicts a number, got task binary: remove `task`",
    "series predicts a number",
    "drop `log` or `step`",
    "whole step, got 0.5",
    "say `low: 1`",
    "no step",
    "`resamples: 1999` or more",
    "`resamples: 199` or more",
    "judge.unit is for tables split by time, but table is split by random",
    "but series is split by time: drop it",
    "counts every row as independent",
    "say `bootstrap`",
    "features.transform reads what features.fit returns",
    "features.fit is of tables, but kind is series",
    "augment.flip is for data of kind image, but data.kind is table: remove",
    "augment.swap is for data of kind table, but .* series",
    "search.space.train.augment.flip is for data of kind image, but data.kind is table: remove",
    "search.space.train.augment: got {'noise': -0.1}, expected `choices` of blocks.*: noise: .* or equal to 0",
    "search.space.train.augment: got 'a range', expected `choices` of blocks, such as {noise: 0.1}: Input should",
    "augment.mixup_alpha is for data of kind image",
    "augment.function is for data of kind image or table or series, but data.kind is text: remove it",
)


@pytest.mark.parametrize(("blocks", "words"), REFUSED, ids=[str(blocks)[:60] for blocks, _ in REFUSED])
def test_the_schema_refuses_what_pydantic_refuses(blocks: dict[str, Any], words: str) -> None:
    document = {"name": "tiny", "data": {"source": "a", "target": "y"}, **blocks}
    assert not accepts(document)
    if words not in BETWEEN_KEYS:
        assert not VALIDATOR.is_valid(document)


def broken(document: dict[str, Any]) -> list[dict[str, Any]]:
    """The document with one leaf or key at a time made wrong, everywhere."""
    found = []

    def visit(path: list[Any], node: Any) -> None:
        if isinstance(node, dict):
            for key, inner in node.items():
                visit([*path, key], inner)
        elif path and path[-1] not in ("description",):
            for wrong in ({"nested": []}, [["x"]]):
                found.append(replaced(document, path, wrong))

    visit([], document)
    for block in document:
        if isinstance(document[block], dict):
            found.append(replaced(document, [block, "no_such_key"], 1))
    return found


def replaced(document: dict[str, Any], path: list[Any], value: Any) -> dict[str, Any]:
    made = copy.deepcopy(document)
    node = made
    for key in path[:-1]:
        node = node[key]
    node[path[-1]] = value
    return made


@pytest.mark.parametrize("path", SHIPPED, ids=[path.parent.name for path in SHIPPED])
def test_schema_and_pydantic_agree_on_every_leaf_made_wrong(path: Path) -> None:
    document = loaded(path)
    for made in broken(document):
        assert VALIDATOR.is_valid(made) == accepts(made), made


SCALARS = "yes no on true FALSE ~ null 0o17 017 0x1F 1_000 1e3 .5 -.5 +1 1e-3 .inf .nan 12:30 1,2 08 'a b' 2026-11-23"


@pytest.mark.parametrize(
    "text", [*(f"k: {one}\n" for one in SCALARS.split()), "%YAML 1.1\n---\nk: yes\n", "k: !!int\n"]
)
def test_both_parsers_read_the_same(tmp_path: Path, text: str) -> None:
    path = tmp_path / "project.yaml"
    path.write_text(text)
    quick = reader._quickly(path, "spec")
    assert quick is None or repr(quick) == repr(reader.read_document(path))


@pytest.mark.parametrize("path", SHIPPED, ids=[path.parent.name for path in SHIPPED])
def test_both_parsers_read_the_shipped_specs_alike(path: Path) -> None:
    assert reader._quickly(path, "spec") == reader.read_document(path)


@pytest.mark.parametrize(
    "text",
    [
        pytest.param("[" * 400_000, marks=pytest.mark.soak),  # refused after four seconds
        "- " * 200_000,
        "k: !!int\n",
        "k: {net: ./net.py:Net}\n",
    ],
)
def test_what_ends_or_confuses_the_quick_parser_is_refused_by_the_other(tmp_path: Path, text: str) -> None:
    path = tmp_path / "project.yaml"
    path.write_text(text)
    with pytest.raises(UsageError, match=r"nested too deeply|takes no such YAML|not valid YAML"):
        read_spec(path)


def test_a_spec_that_is_no_spec_is_refused_at_once(tmp_path):
    path = tmp_path / "project.yaml"
    levels = [f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 9) if n else 'x'}]" for n in range(12)]
    for text, message in (
        ("\n".join(levels), "more than 100,000 values, aliases counted"),
        ("# " + "x" * (2 << 20) + "\nname: a\n", "bytes, expected 1,048,576 at most"),
        ("a: " + "[" * 500 + "]" * 500, "nested too deeply"),
    ):
        path.write_text(text)
        with pytest.raises(UsageError, match=message):
            read_spec(path)


def test_dates_are_the_text_that_they_are_in_quotes(write: Write) -> None:
    line = (
        "  expectations:\n  - expect: column_max_to_be_between\n    arguments:\n      column: t\n      min_value: {}\n"
    )
    for written, text in (
        ("2022-01-01", "2022-01-01"),
        ("2022-01-01T08:00:00", "2022-01-01T08:00:00"),
        ("2022-01-01 08:00:00+02:00", "2022-01-01T08:00:00+02:00"),
        ('"2022-01-01"', "2022-01-01"),
    ):
        path = write(LEAST + line.format(written))
        (expectation,) = read_spec(path).data.expectations
        assert expectation.arguments["min_value"] == text
        document = read_document(path)  # by the parser that knows the lines
        assert document["data"]["expectations"][0]["arguments"]["min_value"] == text
