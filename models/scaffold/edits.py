"""Edits of a spec by the form of a page: keys of data, search and schedules, and none that names code or an address."""

from __future__ import annotations

import difflib
import functools
import io
import itertools
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from types import UnionType
from typing import Any, Literal, Union, get_args, get_origin

from pydantic import BaseModel
from pydantic.fields import FieldInfo

from models.errors import UsageError
from models.project_spec.blocks import Spec
from models.validation.expectation_arguments import EXPECTATIONS, QUERY

EDITABLE = (
    "description",
    "data.target",
    "data.id",
    "data.weight",
    "data.split.by",
    "data.split.column",
    "data.split.validation",
    "data.split.test",
    "data.features.columns",
    "data.features.drop",
    "data.features.kinds",
    "data.expectations",
    "data.deduplicate",
    "data.show_rows",
    "goal.positive",
    "search.trials",
    "judge.slices",
    "monitor.schedule",
    "retrain.schedule",
    "retrain.timezone",
)
EXPRESSIONS = ("row_condition", "condition_parser", "ignore_row_if")
"""Arguments of a check that pandas evaluates as an expression."""
MOST_DEPTH = 20
"""Of brackets in checks."""
CHECK_KEYS = ("expect", "arguments", "severity", "on")
_NAME = re.compile(r"[a-z][a-z0-9_]*")
_ERROR = re.compile(r"(?:.*?:\d+: )?(?P<key>[a-z_]+(?:\.\w+)*): (?P<reason>.*)", re.DOTALL)
Form = Literal["line", "decimal", "choice", "names", "lines", "pairs", "checks"]
"""How a value is written: names are one name or several, one a line; pairs are lines such as `column: kind`."""


@dataclass(frozen=True)
class EditableKey:
    """A key of the spec that a page may change, as its schema has it.

    Attributes:
        key: Its path, such as `data.split.by`.
        choices: The values that it may have; empty: any.
        default: What an empty field means.
    """

    key: str
    form: Form
    description: str
    choices: tuple[str, ...] = ()
    default: str = ""


class EditError(UsageError):
    """A field of the form cannot become a value of the spec; the message begins with its key."""


@functools.cache
def editable_keys() -> dict[str, EditableKey]:
    """Return the keys that a page may change, by their paths."""
    return {key: _editable(key) for key in EDITABLE}


def values_of(text: str) -> dict[str, str]:
    """Return what the form's fields hold for a spec; empty: the spec does not say it.

    Raises:
        UsageError: The text is no YAML with keys.
    """
    document = _loaded(text)
    return {key: _as_text(_value_at(document, key), row.form) for key, row in editable_keys().items()}


def edited(text: str, fields: Mapping[str, str]) -> str:
    """Return the text of a spec with the values of a form; what no field has changed stays as it is, comments too.

    Args:
        text: The spec.
        fields: The texts of fields by their keys; an empty one removes its key. Others than `EDITABLE` are ignored.

    Raises:
        EditError: A field cannot become a value, or names code.
        UsageError: The text is no YAML with keys.
    """
    document, before = _loaded(text), values_of(text)
    changes = {
        key: value
        for key, row in editable_keys().items()
        if (value := _normal(fields.get(key, before[key]), row.form)) != _normal(before[key], row.form)
    }
    if not changes:
        return text
    for key, value in changes.items():
        row = editable_keys()[key]
        _set(document, key, _quoted(_PARSERS[row.form](key, value, _value_at(document, key))) if value else None)
    return _dumped(document, text)


def difference(before: str, after: str, name: str) -> list[str]:
    """Return the lines of the unified difference of two texts of a file."""
    return [
        line.rstrip("\n")
        for line in difflib.unified_diff(
            before.splitlines(keepends=True), after.splitlines(keepends=True), f"a/{name}", f"b/{name}"
        )
    ]


def errors_by_key(message: str) -> dict[str, str]:
    """Return the reasons of an error's lines by the editable key that each is about; under "" those of no such key."""
    reasons: dict[str, list[str]] = {}
    for line in message.splitlines():
        match = _ERROR.fullmatch(line)
        named = match["key"] if match else ""
        key = next((key for key in EDITABLE if named == key or named.startswith(f"{key}.")), "")
        reasons.setdefault(key, []).append(match["reason"] if match and key else line)
    return {key: "; ".join(lines) for key, lines in reasons.items()}


def _editable(key: str) -> EditableKey:
    block: type[BaseModel] = Spec
    *parents, last = key.split(".")
    for name in parents:
        block = next(part for part in _parts(block.model_fields[name].annotation) if _is_block(part))
    field = block.model_fields[last]
    parts = list(_parts(field.annotation))
    choices = tuple(str(choice) for part in parts if get_origin(part) is Literal for choice in get_args(part)) or (
        ("true", "false") if bool in parts else ()
    )
    return EditableKey(key, _form(key, parts, choices), field.description or "", choices, _default(field))


def _form(key: str, parts: list[Any], choices: tuple[str, ...]) -> Form:
    if key == "data.expectations":
        return "checks"
    if choices:
        return "choice"
    origins = [get_origin(part) or part for part in parts]
    if list in origins:
        return "names" if str in origins else "lines"
    if dict in origins:
        return "pairs"
    return "decimal" if float in origins or int in origins else "line"


def _default(field: FieldInfo) -> str:
    return _as_text(field.default, "line") if isinstance(field.default, str | int | float) else ""


def _parts(annotation: Any) -> Iterator[Any]:
    """Yield the types of a union, without what `Annotated` adds."""
    if get_origin(annotation) in (Union, UnionType):
        for part in get_args(annotation):
            yield from _parts(part)
    elif hasattr(annotation, "__metadata__"):
        yield from _parts(annotation.__origin__)
    else:
        yield annotation


def _is_block(part: Any) -> bool:
    return isinstance(part, type) and issubclass(part, BaseModel)


def _normal(text: str, form: Form) -> str:
    """Return a field's text without what a browser or a person adds and nobody means."""
    if form in ("line", "decimal", "choice"):
        return " ".join(text.split())
    return "\n".join(line.strip() for line in text.splitlines() if line.strip())


def _as_text(value: Any, form: Form) -> str:
    if value is None:
        return ""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, Mapping):
        return "\n".join(f"{key}: {kind}" for key, kind in value.items())
    if isinstance(value, list):
        return "\n".join(f"- {_flow(element)}" if form == "checks" else str(element) for element in value)
    return str(value)


def _line(key: str, value: str, before: Any) -> Any:
    return value


def _decimal(key: str, value: str, before: Any) -> Any:
    try:
        return int(value) if value.lstrip("-").isdecimal() else float(value)
    except ValueError:
        return value  # the parser of specs says what it expects


def _choice(key: str, value: str, before: Any) -> Any:
    return {"true": True, "false": False}.get(value, value)


def _names(key: str, value: str, before: Any) -> Any:
    names = value.split("\n")
    return names if len(names) > 1 else names[0]


def _lines(key: str, value: str, before: Any) -> Any:
    return value.split("\n")


def _pairs(key: str, value: str, before: Any) -> Any:
    pairs = [line.rpartition(":") for line in value.split("\n")]
    for name, colon, kind in pairs:
        if not (name.strip() and colon and kind.strip()):
            raise EditError(f"{key}: got {(name + colon + kind)[:80]!r}, expected lines such as `column: categorical`")
    return {name.strip(): kind.strip() for name, _, kind in pairs}


def _checks(key: str, value: str, before: Any) -> Any:
    from ruamel.yaml import YAML
    from ruamel.yaml.error import YAMLError
    from ruamel.yaml.events import AliasEvent

    example = "- {expect: column_values_to_be_between, arguments: {column: age, min_value: 0}, severity: warn}"
    if _depth(value) > MOST_DEPTH:
        raise EditError(f"{key}: got more than {MOST_DEPTH} brackets in another, expected lines such as {example}")
    try:
        if any(isinstance(event, AliasEvent) for event in YAML(typ="safe", pure=True).parse(value)):
            raise EditError(f"{key}: got an alias (`*name`): write out what it stands for")
        checks = YAML(typ="safe", pure=True).load(value)
    except (YAMLError, ValueError, RecursionError) as error:
        problem = " ".join(str(getattr(error, "problem", error)).split())
        raise EditError(f"{key}: not valid YAML ({problem}): expected lines such as {example}") from error
    if not isinstance(checks, list):
        raise EditError(f"{key}: got {str(checks)[:80]!r}, expected lines such as {example}")
    for check in checks:
        if check not in (before or []):
            _refuse_code(key, check, example)
    return checks


def _depth(text: str) -> int:
    """Return how deep brackets are nested in a text: YAML's parser takes the square of it in time."""
    steps = ({"[": 1, "{": 1, "]": -1, "}": -1}.get(sign, 0) for sign in text)
    return max(itertools.accumulate(steps), default=0)


def _refuse_code(key: str, check: Any, example: str) -> None:
    """Refuse a check that is new in the form and not one of Great Expectations' own, with plain arguments."""
    arguments = check.get("arguments", {}) if isinstance(check, dict) else None
    if not isinstance(arguments, dict) or not {*check} <= {*CHECK_KEYS}:
        raise EditError(f"{key}: got {str(check)[:80]!r}, expected lines such as {example}")
    name = str(check.get("expect", "")).removeprefix("expect_")
    if not _NAME.fullmatch(name) or name not in EXPECTATIONS or name == QUERY:
        raise EditError(
            f"{key}: got {name[:80]!r}, expected a check of Great Expectations, such as column_values_to_be_between: "
            f"your own classes and queries are named in project.yaml alone"
        )
    expression = next((argument for argument in EXPRESSIONS if argument in arguments), None)
    if expression:
        raise EditError(f"{key}: {expression} is an expression, which is written in project.yaml alone: leave it out")


_PARSERS: dict[Form, Callable[[str, str, Any], Any]] = {
    "line": _line,
    "decimal": _decimal,
    "choice": _choice,
    "names": _names,
    "lines": _lines,
    "pairs": _pairs,
    "checks": _checks,
}


def _value_at(document: Mapping[str, Any], key: str) -> Any:
    value: Any = document
    for name in key.split("."):
        value = value.get(name) if isinstance(value, Mapping) else None
    return value


def _set(document: Any, key: str, value: Any) -> None:
    """Set a key of a loaded spec, or remove it; lists and mappings keep the comments of what stays in them."""
    *parents, last = key.split(".")
    blocks = [document]
    for name in parents:
        if not isinstance(blocks[-1].get(name), Mapping):
            if value is None:
                return
            _insert(blocks, name, _commented({}, is_flow=False))
        blocks.append(blocks[-1][name])
    if value is None:
        blocks[-1].pop(last, None)
        if parents and not blocks[-1]:
            del blocks[-2][parents[-1]]
    elif last not in blocks[-1]:
        _insert(blocks, last, _commented(value))
    elif key == "data.target" or not _is_changed_within(blocks[-1][last], value):
        blocks[-1][last] = _commented(value)


def _is_changed_within(before: Any, value: Any) -> bool:
    """Change a list or a mapping to hold what `value` holds; return False where it is neither, or of another type.

    What is new comes first: the comments above a later key belong to the last element.
    """
    if isinstance(before, list) and isinstance(value, list):
        for place in reversed(range(len(before))):
            if before[place] not in value:
                del before[place]
        for element in reversed([element for element in value if element not in before]):
            before.insert(0, _commented(element))
        return True
    if isinstance(before, dict) and isinstance(value, dict):
        for name in [name for name in before if str(name) not in value]:
            del before[name]
        before.update(value)
        return True
    return False


def _commented(value: Any, *, is_flow: bool = True) -> Any:
    """Return a list or a mapping as the emitter writes it: on one line, as `loopline new` does."""
    from ruamel.yaml.comments import CommentedMap, CommentedSeq

    if not isinstance(value, dict | list):
        return value
    written = CommentedMap(value) if isinstance(value, dict) else CommentedSeq(value)
    if is_flow:
        written.fa.set_flow_style()
    return written


def _insert(blocks: list[Any], name: str, value: Any) -> None:
    """Add a key to the last of nested blocks: to one that is no flow as its first, as its last key has comments below.

    Args:
        blocks: The document, then each block down to the one that gets the key.
        name: The key.
        value: Its value.
    """
    if len(blocks) == 1 or blocks[-1].fa.flow_style():
        blocks[-1][name] = value
    else:
        blocks[-1].insert(0, name, value)


def _flow(value: Any) -> str:
    """Return a value as YAML on one line."""
    text = io.StringIO()
    _yaml(is_flow=True).dump(_quoted(value), text)
    return text.getvalue().removesuffix("...\n").rstrip("\n")


def _quoted(value: Any) -> Any:
    """Return a value as plain data, texts that begin with `?` or `:` in quotes.

    The emitter leaves them plain on one line of brackets, where they are signs of YAML.
    """
    from ruamel.yaml.scalarstring import DoubleQuotedScalarString

    if isinstance(value, Mapping):
        return {_quoted(key): _quoted(element) for key, element in value.items()}
    if isinstance(value, list):
        return [_quoted(element) for element in value]
    return DoubleQuotedScalarString(value) if isinstance(value, str) and value.startswith(("?", ":")) else value


def _loaded(text: str) -> Any:
    from ruamel.yaml.error import YAMLError

    try:
        document = _yaml().load(text)
    except (YAMLError, ValueError, RecursionError) as error:
        raise UsageError("project.yaml: not valid YAML, so its keys cannot be edited here: correct the file") from error
    if not isinstance(document, Mapping):
        raise UsageError("project.yaml: has no keys: expected a spec, as `loopline new` writes it")
    return document


def _dumped(document: Any, text: str) -> str:
    """Return a document as text, its lists indented as they were in `text`."""
    is_indented = re.search(r"(?m)^( *)[\w.-]+:\n(?: *#.*\n)*\1 +- ", text) is not None
    written = io.StringIO()
    _yaml(is_indented=is_indented or not re.search(r"(?m)^ *- ", text)).dump(document, written)
    return written.getvalue()


def _yaml(*, is_flow: bool = False, is_indented: bool = True) -> Any:
    from ruamel.yaml import YAML

    yaml = YAML(typ="rt")
    yaml.preserve_quotes, yaml.width = True, 1 << 16
    yaml.default_flow_style = is_flow
    if is_indented:
        yaml.indent(mapping=2, sequence=4, offset=2)
    return yaml
