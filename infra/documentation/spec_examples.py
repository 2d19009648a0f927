"""Examples of the keys of a spec: values that shipped projects and pages of the site use, which tests validate."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from ruamel.yaml import YAML

ROOT = Path(__file__).resolve().parents[2]
BLOCK = re.compile(r"^```yaml\n(.*?)^```", re.MULTILINE | re.DOTALL)
OVERRIDE = re.compile(r"-s ([a-z_]+(?:\.[a-z_]+)+)=([^\s`'\"]+)")
SHIPPED = (
    "examples/*/project.yaml",
    *(f"projects/{name}/project.yaml" for name in ("austen", "electricity", "flights", "mnist", "penguins")),
)
"""Specs that examples are read from; a project of one's own in the clone must not change the pages."""
LONGEST = 70
TOP = {"name": "flights", "description": "Which flights will be late?", "reads": ["lookup.parquet"]}
"""Examples of the keys that are no blocks."""
OWN = """
goal.quantile: 0.9
goal.costs: {false_positive: 1, false_negative: 10}
goal.costs.false_positive: 1
goal.costs.false_negative: 10
goal.positive: fraud
data.source.sql: select * from orders
data.source.at: ${WAREHOUSE_URL}
data.source.cursor: updated_at
data.source.overlap: 600
data.split.seed: 7
data.split.equal_rows: together
monitor.margin: 0.02
data.features.columns: [age, income]
data.features.make: ./features.py:make
data.features.fit: ./features.py:fit
data.features.transform: ./features.py:transform
data.expectations: [{expect: column_values_to_not_be_null, arguments: {column: age}}]
data.dates: {sold: "%d.%m.%Y %H:%M"}
data.decimal_commas: [price]
data.na_is_text: [country]
data.weight: importance
data.newest: 100000
data.window: {length: 28, horizon: 7}
data.window.season: 168
data.window.known_future: [holiday]
data.text.stride: 64
search.timeout_s: 600
search.budget_s: 3600
search.patience: 20
search.families: [trees, mlp]
search.ensemble: false
search.bag: false
search.space.low: 0.001
search.space.high: 0.1
search.space.step: 0.5
search.space.choices: [64, 128, 256]
search.settings: {n_startup_trials: 20}
train.label_smoothing: 0.1
train.rows: 1000000
train.refit: false
train.augment.brightness: 0.2
train.augment.erase: 0.2
train.augment.function: ./augment.py:change
train.augment.mixup_alpha: 0.2
train.augment.noise: 0.05
train.augment.swap: 0.1
train.start: {weights: champion}
train.pretrain.lr: 0.001
train.tensor: 2
train.stages: 2
train.replicas: 2
train.microbatches: 8
train.threads: 4
train.seed: 7
judge.unit: week
judge.slice_margin: 0.02
judge.max_latency_ms: 5
judge.max_size_mb: 20
monitor.accepted: "2026-11-01"
monitor.weights: sampling
monitor.keep_days: 365
"""
"""Examples of keys that nothing shipped sets."""


def examples(keys: Mapping[str, Mapping[str, Any]]) -> dict[str, str]:
    """Return a value for each key, such as `[conv1, layer1]` for `train.start.freeze`.

    That is one which something shipped sets; else another choice than the default, or the default itself.

    Args:
        keys: The JSON Schema of each key, by its path.
    """
    found: dict[str, Any] = {}
    for path, value in _values():
        if path in keys and value is not None and (path not in found or found[path] == keys[path].get("default")):
            found[path] = value
    own = YAML(typ="safe").load(OWN)
    shown = {path: _flow(value) for path, value in (own | found).items() if path in keys}
    plain = {path: value for path, node in keys.items() if (value := _plain(node)) is not None}
    short = {path: text for path, text in shown.items() if len(text) <= LONGEST or path in own}
    return {path: _flow(value) for path, value in plain.items()} | short


def _plain(node: Mapping[str, Any]) -> Any:
    """Return a value that a schema allows: another choice than the default; None if it does not say one."""
    default = node.get("default")
    kinds = node.get("anyOf", [node])
    choices = [value for kind in kinds for value in kind.get("enum", ()) if value != default]
    if choices:
        return choices[0]
    return not default if isinstance(default, bool) else default or None


def _values() -> Iterator[tuple[str, Any]]:
    """Yield each key and value of the specs, in a fixed order, the shortest specs of the pages first."""
    pages = [path.read_text() for path in sorted((ROOT / "docs").rglob("*.md")) if path.parent.name != "reference"]
    texts = [block for page in pages for block in BLOCK.findall(page)]
    texts += [path.read_text() for pattern in SHIPPED for path in sorted(ROOT.glob(pattern))]
    for text in texts:
        yield from _walk("", YAML(typ="safe").load(text))
    for key, value in (pair for page in pages for pair in OVERRIDE.findall(page)):
        yield key, YAML(typ="safe").load(value)


def _walk(path: str, node: Any) -> Iterator[tuple[str, Any]]:
    if isinstance(node, dict):
        for key, value in node.items():
            below = f"{path}.{key}" if path else str(key)
            yield below, value
            yield from _walk(below, value)
    elif isinstance(node, list) and node and isinstance(node[0], dict):
        yield from _walk(path, node[0])


def _flow(value: Any) -> str:
    """Return a value in one line of YAML."""
    if isinstance(value, dict):
        return "{" + ", ".join(f"{key}: {_inner(one)}" for key, one in value.items()) + "}"
    if isinstance(value, list):
        return "[" + ", ".join(map(_inner, value)) + "]"
    if isinstance(value, str):
        return value if re.fullmatch(r"[A-Za-z./][\w ./:*-]*", value) and ": " not in value else json.dumps(value)
    return json.dumps(value, default=str)


def _inner(value: Any) -> str:
    """Return a value within brackets, where a text with a colon needs quotes."""
    return json.dumps(value) if isinstance(value, str) and ":" in value else _flow(value)


def keys_of(schema: Mapping[str, Any]) -> Iterator[tuple[str, Mapping[str, Any]]]:
    """Yield the path and the schema of each key of a block, those of inner blocks after it."""
    for name, node in schema["properties"].items():
        if "$ref" in node:
            yield from _keys(name, schema["$defs"], node["$ref"].rpartition("/")[2])


def _keys(path: str, definitions: Mapping[str, Any], name: str) -> Iterator[tuple[str, Mapping[str, Any]]]:
    for key, node in definitions[name].get("properties", {}).items():
        yield f"{path}.{key}", node
        for one in references(node):
            if "properties" in definitions.get(one, ()):
                yield from _keys(f"{path}.{key}", definitions, one)


def references(node: Any) -> list[str]:
    """Return the definitions that a part of a schema names."""
    if isinstance(node, dict):
        own = [node["$ref"].rpartition("/")[2]] if "$ref" in node else []
        return own + [name for value in node.values() for name in references(value)]
    return [name for value in node for name in references(value)] if isinstance(node, list) else []
