"""Writes the pages of the gRPC service and of the Python names that a user's code may import."""

from __future__ import annotations

import importlib
import importlib.util
import inspect
import re
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any, NamedTuple

ROOT = Path(__file__).resolve().parents[2]
PROTO = ROOT / "tasks" / "serve" / "grpc" / "open_inference.proto"
CALL = re.compile(r"((?:  // .*\n)+)  rpc (\w+)\((\w+)\) returns \((\w+)\);")
CLIENT = "examples/client/client.py"


class Group(NamedTuple):
    """Public names of one module, under a heading; `shown_as` is the module that a user imports, if there is one."""

    title: str
    text: str
    module: str
    names: tuple[str, ...]
    shown_as: str = ""


PUBLIC = (
    Group(
        "Read a source",
        "`load(project, read_source)` of a source of your own gets this function, if it has an argument of that name.",
        "models.sources.read",
        ("read_source",),
    ),
    Group("Read files of R", "The same, for `.rda`, `.rds` and `.rdb`.", "models.sources.r_data", ("read_r",)),
    Group(
        "What a net may add for parallel plans",
        "Protocols: write the methods, inherit nothing ([parallel plans](../how-to/parallel.md)).",
        "models.nets.splitting",
        ("BlockStack", "TensorParallelNet", "Trunk"),
    ),
    Group(
        "A model without a server",
        "MLflow's `pyfunc.load_model` gives this class behind its own. `loopline export` writes it as `loopline_model` "
        "into an edge bundle, which needs nothing of Loopline ([edge bundle](../how-to/deployment.md#edge-bundle)).",
        "models.inference.portable",
        ("open_session", "Predictor", "RowError"),
        "loopline_model",
    ),
    Group(
        "A client of a server",
        f"`{CLIENT}`: copy it, it needs the standard library alone.",
        CLIENT,
        ("Client",),
    ),
)
"""What a user's code may use; anything else may change without a notice."""


def grpc_page(note: str) -> str:
    """Return the page of the gRPC service: its calls from the .proto, its messages from the descriptors."""
    from google.protobuf.descriptor_pb2 import FileDescriptorSet

    from models.serving import http_errors
    from tasks.serve.grpc.messages import DESCRIPTORS, SERVICE
    from tasks.serve.grpc.server import CODES

    (file,) = FileDescriptorSet.FromString(DESCRIPTORS.read_bytes()).file
    calls = [
        f"| `{name}` | `{request}` | `{response}` | {' '.join(text.replace('//', '').split())} |"
        for text, name, request, response in CALL.findall(PROTO.read_text())
    ]
    assert len(calls) == len(file.service[0].method), "each rpc of the .proto needs a comment above it"
    reasons = dict(re.findall(r"^\| (\d+) \| (.*?) \|$", http_errors.__doc__ or "", re.MULTILINE))
    codes = [
        f"| `{code.name}` | {number} | {reasons.get(str(number), 'the token gives no access')} |"
        for number, code in CODES.items()
    ]
    parts = [
        f"# gRPC\n\n{note}\n`loopline serve --grpc-port 8001` answers the service `{SERVICE}`, the Open Inference "
        "Protocol. How to call it: [serving](../how-to/serving.md#open-inference-protocol-v2). The messages are in "
        f"`{PROTO.relative_to(ROOT)}`. The token, where the server requires one, is the metadata "
        "`authorization: Bearer TOKEN`. Health checks are the standard `grpc.health.v1.Health/Check`.\n",
        "## Calls\n\n| call | request | response | does |\n|---|---|---|---|\n" + "\n".join(calls) + "\n",
        "## Status codes\n\n| code | of HTTP | when |\n|---|---|---|\n" + "\n".join(codes) + "\n",
        "## Messages\n",
        *(section for message in file.message_type for section in _message(message, message.name)),
    ]
    return "\n".join([*parts, "Next: [Python](python.md)\n"])


def _message(message: Any, name: str) -> Iterator[str]:
    """Yield the table of a message's fields, then those of the messages in it; a message without fields has none."""
    inner = [nested for nested in message.nested_type if not nested.options.map_entry]
    if message.field:
        rows = [f"| `{field.name}` | {field.number} | {_field_type(field, message)} |" for field in message.field]
        yield f"### {name}\n\n| field | number | type |\n|---|---|---|\n" + "\n".join(rows) + "\n"
    for nested in inner:
        yield from _message(nested, f"{name}.{nested.name}")


def _field_type(field: Any, message: Any) -> str:
    entries = {nested.name: nested for nested in message.nested_type if nested.options.map_entry}
    short = field.type_name.rpartition(".")[2]
    if short in entries:
        key, value = entries[short].field
        return f"map from {_field_type(key, message)} to {_field_type(value, message)}"
    name = f"`{short}`" if short else f"`{field.Type.Name(field.type).removeprefix('TYPE_').lower()}`"
    return f"list of {name}" if field.label == field.LABEL_REPEATED else name


def python_page(note: str) -> str:
    """Return the page of the public Python names, from their signatures and docstrings."""
    parts = [
        f"# Python\n\n{note}\nWhat a spec may name in your own files (a source, features, a net, a loss, a metric) and "
        "how each is called is in [your own Python](../how-to/spec.md#your-own-python). Your files import nothing of "
        "Loopline: what they may use comes as an argument. So packages of yours named `models`, `tasks` or `flows` "
        "beside the installed program are no trouble. An exception of your code is shown with its text and its line; "
        "other names than those of this page may change without a notice.\n"
    ]
    for group in PUBLIC:
        names = ", ".join(group.names)
        origin = f"\n```python\nfrom {group.shown_as} import {names}\n```\n" if group.shown_as else ""
        parts.append(f"## {group.title}\n\n{group.text}\n{origin}")
        parts += [_entry(getattr(_module(group.module), name), name) for name in group.names]
    return "\n".join([*parts, "Next: [errors, by message](errors.md)\n"])


def _module(name: str) -> ModuleType:
    if not name.endswith(".py"):
        return importlib.import_module(name)
    spec = importlib.util.spec_from_file_location(Path(name).stem, ROOT / name)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def _entry(value: Any, name: str) -> str:
    """Return the heading, signature and text of a name; of a class also those of its public methods."""
    has_call = not inspect.isclass(value) or (
        not issubclass(value, Exception) and not getattr(value, "_is_protocol", 0)
    )
    lines = [f"### {name}\n", *([_signature(value, name)] if has_call else []), _text(value)]
    if inspect.isclass(value):
        for method, function in vars(value).items():
            if inspect.isfunction(function) and not method.startswith("_"):
                lines += [f"#### {name}.{method}\n", _signature(function, method), _text(function)]
    return "\n".join(lines)


def _signature(value: Any, name: str) -> str:
    """Return a call as the code writes it, without `self`."""
    parameters = [one for one in inspect.signature(value).parameters.values() if one.name != "self"]
    result = inspect.signature(value).return_annotation
    arrow = "" if inspect.isclass(value) or result is inspect.Signature.empty else f" -> {result}"
    call = f"{name}({', '.join(_parameters(parameters))}){arrow}"
    return f"```python\n{call}\n```\n"


def _parameters(parameters: list[inspect.Parameter]) -> Iterator[str]:
    is_keyword_only = False
    for one in parameters:
        if one.kind is one.KEYWORD_ONLY and not is_keyword_only:
            is_keyword_only = True
            yield "*"
        stars = {one.VAR_POSITIONAL: "*", one.VAR_KEYWORD: "**"}.get(one.kind, "")
        default = "" if one.default is one.empty else f" = {one.default!r}"
        yield f"{stars}{one.name}: {one.annotation}{default}"


def _text(value: Any) -> str:
    """Return a docstring in Markdown: the sections of Google's style as lists."""
    lines = []
    for line in (inspect.getdoc(value) or "").splitlines():
        if re.fullmatch(r"(Args|Raises|Returns):", line):
            lines.append(f"**{line.rstrip(':')}**\n")
        elif line.startswith("    "):
            item = re.match(r"    (\*{0,2}\w+): (.*)", line)
            lines.append(f"* `{item[1]}`: {item[2]}" if item else line.strip())
        else:
            lines.append(line)
    return "\n".join(lines).replace("``", "`") + "\n"


def imports_of(text: str) -> set[tuple[str, str]]:
    """Return the names of Loopline that a file or a page imports, each with its module; a module by itself with ""."""
    names = re.findall(r"\bfrom ((?:models|tasks|flows)[\w.]*) import ([\w, ]+)", text)
    modules = re.findall(r"\b(?<!from )(?:import|python -m) ((?:models|tasks|flows)\b[\w.]*)", text)
    return {(module, name.strip()) for module, listed in names for name in listed.split(",")} | {
        (module, "") for module in modules
    }
