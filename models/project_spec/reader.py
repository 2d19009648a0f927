"""Reads `project.yaml`: line numbers in errors, nearest keys, overrides from the command line, the JSON Schema."""

from __future__ import annotations

import difflib
import json
import re
from collections.abc import Mapping, Sequence
from datetime import date
from functools import reduce
from pathlib import Path
from typing import Any, get_args

from pydantic import BaseModel, ValidationError
from pydantic_core import ErrorDetails

from models.errors import UsageError
from models.files import SPEC_FILE
from models.project_spec.blocks import NAME_PATTERN, Spec
from models.project_spec.entry_points import with_references

COMMAND_LINE = "command line"
MOST_BYTES = 1 << 20
MOST_VALUES = 100_000
"""A spec has hundreds of values; nested aliases can make billions of values from a few lines."""
MOST_BITS = 1024
"""Of a whole number: more than float64 can hold. Python refuses to write those of more than 4,300 digits."""
MOST_NESTED = 2_000
_OPENING = ("[", "{", "- ", "? ")
"""What can nest many levels in a few characters."""


def read_spec(path: Path, overrides: Sequence[str] = (), shown_as: str | None = None) -> Spec:
    """Read a spec file.

    Args:
        path: The `project.yaml`.
        overrides: `block.key=value` texts that override the file; values are YAML scalars or flow lists.
        shown_as: The name of the file in errors; default: the path itself.

    Raises:
        UsageError: The spec has mistakes; one line for each: file:line, key, actual value, expected value.
    """
    return spec_of(spec_document(path, shown_as), path, overrides, shown_as)


def spec_document(path: Path, shown_as: str | None = None) -> dict[str, Any]:
    """Return the keys of a spec file as plain Python values; `spec_of` checks them.

    Raises:
        UsageError: The file is missing, no YAML, has no keys, or DVC cannot read it; the message names the line.
    """
    name = shown_as or str(path)
    document = _quickly(path, name)
    if document is None:
        document = _load(path, name)[0]
        _check_for_dvc(path, name)
    return document


def spec_of(
    document: Mapping[str, Any], path: Path, overrides: Sequence[str] = (), shown_as: str | None = None
) -> Spec:
    """Return the spec of the keys that `spec_document` read from `path`; the rest as for `read_spec`."""
    name = shown_as or str(path)
    document = {"name": path.resolve().parent.name, **document}
    overridden = [_override(document, text) for text in overrides]

    def refusal(key: str, reason: str) -> UsageError:
        return UsageError(f"{place_of(key, path, overrides, shown_as)}: {key}: {reason}")

    document = with_references(document, path.parent, refusal)
    try:
        return Spec.model_validate(document)
    except ValidationError as error:
        lines = _load(path, name)[1]
        raise UsageError("\n".join(_explain(detail, name, lines, overridden) for detail in error.errors())) from error


def place_of(key: str, path: Path, overrides: Sequence[str] = (), shown_as: str | None = None) -> str:
    """Return the place of a key: `command line`, or file and line; an empty string if neither has the key."""
    if any(_concerns(key, text.partition("=")[0]) for text in overrides):
        return COMMAND_LINE
    name = shown_as or str(path)
    document, lines = _load(path, name)
    location = _split_path(document, key)
    return f"{name}:{_line(lines, location)}" if location[0] in document else ""


def read_document(path: Path, shown_as: str | None = None) -> dict[str, Any]:
    """Read a YAML file of keys as plain Python values, without further checks.

    Raises:
        UsageError: The file is missing, no YAML, or has no keys; the message names the line.
    """
    return _load(path, shown_as or str(path))[0]


def json_schema(column_kinds: Sequence[str]) -> dict[str, Any]:
    """Return the JSON Schema of `project.yaml`, for editors. `name` is optional: the default is the folder's name.

    Args:
        column_kinds: The kinds that `data.features.kinds` may give a column (`models.inputs.records`).
    """
    schema = Spec.model_json_schema()
    kinds = schema["$defs"]["Features"]["properties"]["kinds"]
    kinds["additionalProperties"] = {"enum": list(column_kinds), "type": "string"}
    schema["required"] = [key for key in schema["required"] if key != "name"]
    schema["$defs"]["Data"]["required"].remove("target")  # its `else` requires it: text has no target
    return {**schema, "$schema": "https://json-schema.org/draft/2020-12/schema", "title": "Loopline project"}


def _quickly(path: Path, name: str) -> dict[str, Any] | None:
    """Return the keys of a spec by libyaml, in a sixth of the time of the parser that knows the lines.

    None if that parser must read the file too: it has a mistake, names an older YAML, or is nested so deeply that
    libyaml may end the process.
    """
    from ruamel.yaml import YAML

    try:
        text = path.read_text(encoding="utf-8") if path.stat().st_size <= MOST_BYTES else ""
        if not text or "%YAML" in text or sum(map(text.count, _OPENING)) > MOST_NESTED:
            return None
        loaded = YAML(typ="safe").load(text)
        _refuse_bomb(loaded, name)
        return _plain(loaded) if isinstance(loaded, Mapping) else None
    except UsageError:
        raise
    except Exception:  # noqa: BLE001 - whatever it cannot read, the other parser reads or explains
        return None


def _load(path: Path, name: str) -> tuple[dict[str, Any], Any]:
    from ruamel.yaml import YAML
    from ruamel.yaml.error import MarkedYAMLError, YAMLError

    if not path.is_file():
        raise UsageError(
            f"{name}: no such file: a project is a folder with a {SPEC_FILE}; `loopline new NAME` writes one"
        )
    if path.stat().st_size > MOST_BYTES:
        raise UsageError(
            f"{name}: got {path.stat().st_size:,} bytes, expected {MOST_BYTES:,} at most: name data in `data.source`"
        )
    try:
        loaded = YAML(typ="rt").load(path.read_text(encoding="utf-8"))
        _refuse_bomb(loaded, name)
    except RecursionError as error:
        raise UsageError(f"{name}: the keys are nested too deeply: expected blocks of a few levels") from error
    except MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        line = mark.line + 1 if mark else 1
        problem = " ".join(str(error.problem).split())
        raise UsageError(
            f"{name}:{line}: not valid YAML ({problem}): look at indentation, quotes and spaces after colons"
        ) from error
    except OSError as error:
        raise UsageError(f"{name}: cannot be read ({error.strerror}): change its owner or its rights") from error
    except (YAMLError, ValueError, IndexError) as error:  # no UTF-8, too many digits, `!!int` without a number
        raise UsageError(
            f"{name}: not valid YAML in UTF-8 ({error}): save it as UTF-8, or correct that place"
        ) from error
    if not isinstance(loaded, Mapping):
        got = "an empty file" if loaded is None else "a list" if isinstance(loaded, list) else repr(loaded)
        raise UsageError(f"{name}:1: got {got}, expected keys, such as `key: value`")
    return _plain(loaded), loaded


def _refuse_bomb(loaded: Any, name: str) -> None:
    """Reject too many values; each use of an alias counts, and the count stops at the limit. Reject endless numbers."""
    num_left, waiting = MOST_VALUES, [loaded]
    while waiting:
        value = waiting.pop()
        if isinstance(value, int) and value.bit_length() > MOST_BITS:
            raise UsageError(f"{name}: got a whole number of {value.bit_length():,} bits, expected {MOST_BITS} at most")
        inner = value.values() if isinstance(value, Mapping) else value if isinstance(value, list) else ()
        num_left -= 1 + len(inner)
        if num_left < 0:
            raise UsageError(f"{name}: more than {MOST_VALUES:,} values, aliases counted: write what each key needs")
        waiting.extend(inner)


def _check_for_dvc(path: Path, name: str) -> None:
    """Reject YAML that DVC's stricter parser rejects: `{net: ./net.py:Net}` stopped a loop in the `version` step."""
    from ruamel.yaml import YAML
    from ruamel.yaml.error import MarkedYAMLError

    try:
        YAML(typ="safe").load(path.read_text(encoding="utf-8"))
    except MarkedYAMLError as error:
        line = error.problem_mark.line + 1 if error.problem_mark else 1
        problem = " ".join(str(error.problem).split())
        raise UsageError(
            f"{name}:{line}: DVC, which reads this file too, takes no such YAML: {problem}: put the value in quotes"
        ) from error


def _plain(value: Any) -> Any:
    """Convert the parser's own types to plain Python types, which strict validation needs; dates become ISO text."""
    from ruamel.yaml.scalarbool import ScalarBoolean

    if isinstance(value, Mapping):
        return {str(key): _plain(element) for key, element in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(element) for element in value]
    if isinstance(value, ScalarBoolean):  # a boolean with an anchor is an int in Python
        return bool(value)
    for kind in (bool, int, float, str):
        if isinstance(value, kind):
            return kind(value)
    return value.isoformat() if isinstance(value, date) else value


def _override(document: dict[str, Any], text: str) -> str:
    from ruamel.yaml import YAML
    from ruamel.yaml.error import YAMLError

    path, equals, written = text.partition("=")
    if not equals or not re.fullmatch(r"[A-Za-z_][\w]*(\.[\w-]+)*", path):
        raise UsageError(f"{COMMAND_LINE}: got -s {text!r}, expected -s block.key=value, as in -s train.epochs=3")
    try:
        value = _plain(YAML(typ="safe").load(written)) if written else None
    except (YAMLError, ValueError) as error:
        raise UsageError(
            f"{COMMAND_LINE}: {path}: got {written!r}, expected a YAML value, in quotes of the shell: "
            "-s 'data.features.drop=[a, b]'"
        ) from error
    _refuse_bomb(value, COMMAND_LINE)
    *parents, last = _split_path(document, path)
    block = document
    for key in parents:
        inner = block.get(key)
        block[key] = block = dict(inner) if isinstance(inner, Mapping) else {}
    block[last] = value
    return path


def _split_path(document: Mapping[str, Any], path: str) -> list[str]:
    """Split a key path such as `search.space.train.lr.low`: the keys of `space` themselves contain a dot."""
    if path.startswith("search.space."):
        parts = path.split(".")
        return [*parts[:2], ".".join(parts[2:4]), *parts[4:]]
    return path.split(".")


def _explain(detail: ErrorDetails, name: str, lines: Any, overridden: list[str]) -> str:
    location = [part for part in detail["loc"] if not str(part).startswith("[")]  # of a mapping's key, or of a form
    path = ".".join(map(str, location)) or "spec"
    is_overridden = any(_concerns(path, override) for override in overridden)
    where = COMMAND_LINE if is_overridden else f"{name}:{_line(lines, location)}"
    return f"{where}: {path}: {_complaint(detail, location)}"


def _concerns(path: str, override: str) -> bool:
    """Return whether one key contains the other, or both are equal."""
    return path == override or path.startswith(override + ".") or override.startswith(path + ".")


def _line(lines: Any, location: Sequence[Any]) -> int:
    """Return the line (from 1) of the deepest part of `location` that the file has."""
    line, node = 0, lines
    for part in location:
        try:
            line = node.lc.item(part)[0] if isinstance(part, int) else node.lc.key(part)[0]
            node = node[part]
        except (AttributeError, KeyError, IndexError, TypeError):
            break
    return int(line) + 1


def _complaint(detail: ErrorDetails, location: Sequence[Any]) -> str:
    if detail["type"] == "extra_forbidden":
        return _unknown_key(location)
    if detail["type"] == "missing":
        description = _description_of(location)
        return f"missing; expected: {description}" if description else "missing; it is required"
    message = detail["msg"].removeprefix("Value error, ")
    if detail["type"] == "value_error":
        return message
    if "pattern" in detail["type"]:
        is_name = detail["ctx"]["pattern"] == NAME_PATTERN
        message = f"a lower-case name matching {NAME_PATTERN}" if is_name else _description_of(location)
    expected = re.sub(r"^Input should be (a valid )?", "", message)
    for words, sign in (
        ("greater than or equal to", ">="),
        ("less than or equal to", "<="),
        ("greater than", ">"),
        ("less than", "<"),
    ):
        expected = expected.replace(words, f"a number {sign}")
    return f"got {_shown(detail['input'])}, expected {expected}"


def _shown(value: Any) -> str:
    try:
        text = json.dumps(value, ensure_ascii=False)
    except TypeError:
        text = str(value)
    return text if len(text) <= 80 else text[:77] + "..."


def _unknown_key(location: Sequence[Any]) -> str:
    *parents, key = location
    block = _block(parents)
    names = list(block.model_fields) if block else []
    near = difflib.get_close_matches(str(key), names, 1)
    if near:
        return f"unknown key, did you mean {near[0]!r}?"
    elsewhere = [
        f"{top}.{key}"
        for top, field in Spec.model_fields.items()
        if (inner := _class_of(field.annotation)) and key in inner.model_fields
    ]
    if elsewhere:
        return f"unknown key here, did you mean {' or '.join(sorted(elsewhere, reverse=True))}?"
    return f"unknown key, expected one of {', '.join(names)}"


def _description_of(location: Sequence[Any]) -> str:
    """Return the description of a key, or an empty string."""
    *parents, key = location
    block = _block(parents)
    field = block.model_fields.get(str(key)) if block else None
    return (field.description or "") if field else ""


def _block(location: Sequence[Any]) -> type[BaseModel] | None:
    def step(block: type[BaseModel] | None, key: Any) -> type[BaseModel] | None:
        if block is None or isinstance(key, int) or key not in block.model_fields:
            return block
        return _class_of(block.model_fields[key].annotation)

    start: type[BaseModel] | None = Spec
    return reduce(step, location, start)


def _class_of(annotation: Any) -> type[BaseModel] | None:
    """Return the block class in an annotation such as `Image | None` or `list[Expectation]`, or None."""
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return annotation
    return next((block for inner in get_args(annotation) if (block := _class_of(inner))), None)
