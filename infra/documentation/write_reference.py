"""Writes the pages of docs/ that follow from the code (`make reference`): the reference, and the drawing of the layers.

`tests/contract/test_reference.py` fails while a page differs from what this script would write.
"""

from __future__ import annotations

import configparser
import importlib
import inspect
import json
import re
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [] if str(ROOT) in sys.path else [str(ROOT)]

NOTE = "<!-- Written by infra/documentation/write_reference.py: change the code, then run `make reference`. -->\n"

VARIABLES = {
    "LOOPLINE_HOME": "The workspace: a folder with `projects/` and `.loopline/`.",
    "LOOPLINE_STATE_URL": "Postgres database of the workspace's state; default: `.loopline/state.db` (SQLite).",
    "LOOPLINE_DUMPED": "Set once: the new version of the schema, before which a dump of Postgres was made.",
    "LOOPLINE_ROOT": "Where bytes are kept: `s3://bucket/prefix` or `file:///folder`; default: `.loopline/` alone.",
    "LOOPLINE_OPTUNA_STORAGE": "Database of Optuna's studies; default: a journal file of the workspace.",
    "LOOPLINE_KEEP_WORK_DAYS": "Days after which a step folder that no loop used is removed; default 14.",
    "LOOPLINE_KEEP_HISTORY_DAYS": "Days after which `gc` removes history that nothing needs; default 90.",
    "LOOPLINE_KEEP_LOOPS": "Last loops of each project that `gc` keeps whatever their age; default 30.",
    "LOOPLINE_KEEP_CHAMPION_DAYS": "Days after which `gc` removes a version that was champion; default: never.",
    "LOOPLINE_DVC_REMOTE": "`own`: no other workspace or clone uses DVC's remote, so `gc` removes data from it too.",
    "LOOPLINE_SIGNING_KEY": "Key that signs registered versions, and by which servers verify them.",
    "LOOPLINE_SERVE_TOKEN": "Token of the server of models; default: the one in `.loopline/serving/token`.",
    "LOOPLINE_DASHBOARD_TOKEN": "Token of the overview page; default: the one in `.loopline/overview/token`.",
    "LOOPLINE_PLACES": "File of the places where training runs; default: `places.yaml` in the workspace.",
    "LOOPLINE_OVERVIEW_HOST": "Address at which the overview page listens; default 127.0.0.1.",
    "LOOPLINE_OVERVIEW_PROXY": "`elsewhere`: a proxy on another machine asks the overview page; needed off loopback.",
    "LOOPLINE_OVERVIEW_NAMES": "Further host names of the overview page, separated by commas.",
    "LOOPLINE_PAGE_VARIABLES": "Variables that an address on the page `/new` may name by `${NAME}`; default: none.",
    "LOOPLINE_WEBHOOK_SECRET": "Secret of MLflow's webhook, which tells a server of a promotion at once.",
    "LOOPLINE_NOTIFY_SLACK": "Slack webhook that gets messages.",
    "LOOPLINE_NOTIFY_EMAIL": "Apprise address of e-mail that gets messages.",
    "LOOPLINE_NOTIFY_WEBHOOK": "Address that gets messages as JSON by POST.",
    "LOOPLINE_NOTIFY_WEBHOOK_TOKEN": "Token that is sent to that address.",
    "LOOPLINE_PROGRAM": "The program that `import loopline` asks; default: the one beside the Python, or on PATH.",
    "LOOPLINE_POLL_S": "Seconds between the worker's questions for runs, up to 60; default 3.",
    "LOOPLINE_SERVER_IDLE_S": "Seconds after which the Prefect server of a single `loopline run` ends; default 600.",
    "LOOPLINE_OWNER": "Set by Loopline: marks every process of a loop.",
    "LOOPLINE_SERVICE": "Set by Loopline: marks every process of the platform.",
    "LOOPLINE_SERVE": "Set by Loopline: the settings that a server passes to its workers.",
}
"""Each environment variable that the code names."""
TOOLS = {
    "PREFECT_API_URL": "A Prefect server elsewhere; none is started.",
    "PREFECT_API_AUTH_STRING": "Its secret.",
    "PREFECT_API_DATABASE_CONNECTION_URL": "Database of the workspace's own Prefect server.",
    "MLFLOW_TRACKING_URI": "A tracking server or database elsewhere; a database is served by our own MLflow server.",
    "MLFLOW_TRACKING_USERNAME": "Its user, with `MLFLOW_TRACKING_PASSWORD`.",
    "MLFLOW_S3_ENDPOINT_URL": "S3 store other than Amazon's, with `AWS_ACCESS_KEY_ID` and `AWS_SECRET_ACCESS_KEY`.",
    "AWS_ENDPOINT_URL": "The same for all tools, and for LOOPLINE_ROOT.",
}
FILES = {
    "projects/NAME/project.yaml": "The spec. Yours, in git.",
    "projects/NAME/data/raw/": "The raw table, and the labelled predictions in it. DVC owns it.",
    "projects/NAME/data/prepared/": "The prepared data, with its splits. DVC owns it.",
    "places.yaml": "Clusters on which training runs (`train.on`). Optional.",
    "dvc.yaml, dvc.lock": "The projects' data stages and the hashes of their data. In git.",
    ".loopline/layout, workspace-id": "Number of the layout; the workspace's id, for a database put back without one.",
    ".loopline/state.db": "The state database, unless `LOOPLINE_STATE_URL` names another.",
    ".loopline/state.db.before-NUMBER": "The state database before an upgrade, for the way back. May be deleted.",
    ".loopline/mlflow/": "MLflow's database and artifacts: runs, versions, aliases. Back it up.",
    ".loopline/prefect/": "Prefect's database, and the secret of the platform.",
    ".loopline/cache/": "Downloads, file hashes and models that servers loaded. May be deleted.",
    ".loopline/locks/": "Lock files. The kernel releases a lock when its holder dies.",
    ".loopline/platform/": "Ports, logs and the supervisor of the platform.",
    ".loopline/serving/": "Tokens of the server of models.",
    ".loopline/overview/": "Token of the overview page.",
    ".loopline/projects/NAME/card.html": "The model card of the last loop.",
    ".loopline/projects/NAME/reports/": "Pages of data validation.",
    ".loopline/projects/NAME/work/": "Outputs of steps, by key; removed when no loop used them for 14 days.",
    ".loopline/projects/NAME/predictions/, labels/": "Logs of predictions and labels, Delta Lake tables. Back them up.",
    ".loopline/projects/NAME/serving/": "Predictions and labels of servers that wait for the compactor.",
    ".loopline/projects/NAME/monitoring/": "Page, facts and counters of monitoring. Counted again from the log.",
    ".loopline/projects/NAME/backtest/": "Page, facts and cache of backtests. May be deleted.",
    ".loopline/projects/NAME/quarantine/": "Rows that data validation rejected, by loop.",
}


def commands() -> str:
    """Return the page of the commands, from click's own objects."""
    import click

    from flows.cli import COMMANDS, loopline

    parts = [
        f"# Commands\n\n{NOTE}\n`loopline --help` lists the commands, `loopline COMMAND --help` shows this text.\n"
    ]
    for name in COMMANDS:
        command = loopline.get_command(click.Context(loopline), name)
        assert command is not None
        context = click.Context(command, info_name=f"loopline {name}")
        text, examples = command.help or "", (command.epilog or "").partition("Examples:\n")[2]
        usage = context.command.get_usage(context).removeprefix("Usage: ")
        parts.append(f"## {name}\n\n```text\n{' '.join(usage.split())}\n```\n\n{_unwrapped(text)}\n")
        options = [row for row in (_option(one, context) for one in command.params) if row]
        if options:
            parts.append("| option | does |\n|---|---|\n" + "\n".join(options) + "\n")
        lines = "\n".join(f"$ {line.strip()}" for line in examples.splitlines())
        parts.append(f"```console\n{lines}\n```\n")
    return _page(parts, "spec.md", "the spec, key by key")


def _option(parameter: Any, context: Any) -> str | None:
    record = parameter.get_help_record(context)
    return record and f"| `{_cell(record[0])}` | {_cell(record[1])} |"


def spec() -> str:
    """Return the page of the spec, from its JSON Schema."""
    from infra.documentation.spec_costs import costs
    from infra.documentation.spec_examples import TOP, examples, keys_of

    schema = json.loads((ROOT / "infra" / "project.schema.json").read_text())
    parts = [
        f"# The spec, key by key\n\n{NOTE}\nHow to write a spec: [the spec](../how-to/spec.md). Any key can be "
        "overridden for one run: `-s block.key=value`. A spec without a **required** key is refused.\n",
        "*Costs* says what a key takes of time, memory or disk; a key without it takes nothing worth a line. Figures "
        "are orders of magnitude, on a machine with two cores (2026-11). CPU-s are seconds of one core.\n",
    ]
    shown, prices = examples(dict(keys_of(schema))), costs()
    for name, node in schema["properties"].items():
        if "$ref" not in node:
            default = f"Default: `{json.dumps(node['default'])}`" if "default" in node else "**Required**"
            kind = f"{_type(node).capitalize()}, such as `{TOP[name]}`"
            parts.append(f"## {name}\n\n{kind}. {_prose(node['description'])} {default}.\n")
        else:
            parts.extend(_block(name, schema["$defs"], node["$ref"].rpartition("/")[2], 2, shown, prices))
    return _page(parts, "events.md", "events")


def _block(
    path: str,
    definitions: Mapping[str, Any],
    name: str,
    level: int,
    shown: Mapping[str, str],
    prices: Mapping[str, str],
) -> Iterator[str]:
    """Yield a block: its description, a table of its keys with examples and costs, then the blocks in it."""
    from infra.documentation.spec_examples import references

    block = definitions[name]
    rows, inner = [], []
    for key, node in block.get("properties", {}).items():
        below = [one for one in references(node) if one in definitions and "properties" in definitions[one]]
        inner += [(f"{path}.{key}", one) for one in below]
        default = json.dumps(node["default"]) if "default" in node else ""
        needed = "**required**" if key in block.get("required", ()) else f"`{default}`" if default else ""
        about = node.get("description") or (definitions[below[0]].get("description", "") if below else "")
        cells = (_type(node), needed, f"`{shown.get(f'{path}.{key}', '')}`", _prose(about))
        price = prices.get(f"{path}.{key}", "")
        rows.append(f"| `{key}` | {' | '.join(map(_cell, cells))}{'<br>*Costs*: ' * bool(price)}{_cell(price)} |")
    yield f"{'#' * level} {path}\n\n{_prose(block.get('description', ''))}\n"
    yield "| key | type | default | example | does |\n|---|---|---|---|---|\n" + "\n".join(rows) + "\n"
    for inner_path, definition in dict.fromkeys(inner):
        yield from _block(inner_path, definitions, definition, min(level + 1, 4), shown, prices)


def _type(node: Mapping[str, Any]) -> str:
    """Return a key's type in words, with its limits."""
    if "anyOf" in node:
        return " or ".join(dict.fromkeys(_type(one) for one in node["anyOf"]))
    if "$ref" in node:
        return "block"
    if "enum" in node:
        return ", ".join(f"`{value}`" for value in node["enum"])
    if "const" in node:
        return f"`{node['const']}`"
    kind = {"array": "list", "object": "mapping", "string": "text", "null": "null"}.get(node.get("type", ""))
    kind = kind or str(node.get("type", "any value"))
    signs = {"minimum": ">=", "exclusiveMinimum": ">", "maximum": "<=", "exclusiveMaximum": "<"}
    limits = [f"{sign} {node[name]}" for name, sign in signs.items() if name in node]
    return f"{kind} {', '.join(limits)}" if limits else kind


def events() -> str:
    """Return the page of the events that Loopline sends to Prefect."""
    from tasks.prefect.events import CHAMPION_MOVED, DECISION_MADE, LOOP_ENDED, RELEASE_CHANGED, SIGNALS

    meanings = {
        "new_data": "the source grew, or enough new labels came",
        "decay": "the realised metric fell below that of the verdict at promotion",
        "broken_data": "predictions were requested with values that the data never had",
        "drift": "the predictions of the champion have shifted",
        "person": "somebody asked for a loop",
    }
    rows = [f"| `{event}` | {meanings[kind]} | a signal: the policy decides |" for kind, event in SIGNALS.items()]
    rows += [
        f"| `{LOOP_ENDED}` | a loop ended | label `loopline.outcome`: promoted, kept, rejected, failed, unchanged |",
        f"| `{CHAMPION_MOVED}` | a promotion, a rollback, or a move or removal in MLflow moved the champion | |",
        f"| `{RELEASE_CHANGED}` | a canary or a shadow began or ended, or a move in MLflow was put back | |",
        f"| `{DECISION_MADE}` | the policy decided on a signal | label `loopline.action`: retrain, ask, wait |",
    ]
    text = (
        f"# Events\n\n{NOTE}\nLoopline sends these events to Prefect. Each is delivered once. Their resource is "
        "`loopline.project.NAME`. Use them in automations of your own; how to send one is in "
        "[triggers](../how-to/triggers.md).\n\n| event | means | carries |\n|---|---|---|\n"
    )
    return _page([text + "\n".join(rows) + "\n"], "metrics.md", "metrics")


def metrics() -> str:
    """Return the page of the metrics of models and of the server."""
    from models.kinds.task import TASK_NAMES, TASKS
    from models.metrics.metrics import METRICS
    from tasks.serve.metrics import Metrics

    rows = []
    for metric in METRICS.values():
        default = [task for task in TASK_NAMES if TASKS[task].metric == metric.name]
        note = f"default for {', '.join(default)}" if default else ""
        doc = _prose((inspect.getdoc(metric.prepare) or "").partition("\n\n")[0])
        rows.append(f"| `{metric.name}` | {metric.direction} | {', '.join(metric.tasks)} | {_cell(doc)} | {note} |")
    text = (
        f"# Metrics\n\n{NOTE}\n## Of models\n\n`goal.metric` names one, or your own function "
        "([own net and metric](../tutorials/own-net.md)).\n\n| name | better | tasks | is | |\n|---|---|---|---|---|\n"
    )
    served = [
        f"| `{line.split()[2]}` | {line.split()[0]} | {_cell(line.partition(line.split()[2])[2].strip())} |"
        for line in _server_metrics(Metrics)
    ]
    server = "## Of a server\n\n`/metrics` of `loopline serve`, in the format of Prometheus.\n\n"
    server += "| name | kind | is |\n|---|---|---|\n"
    return _page([text + "\n".join(rows) + "\n", server + "\n".join(served) + "\n"], "environment.md", "environment")


def _server_metrics(kind: Callable[[], Any]) -> list[str]:
    """Return `KIND - NAME HELP` lines of the server's own metrics."""
    text = kind().text().decode()
    helps = dict(re.findall(r"^# HELP (\S+) (.*)$", text, re.MULTILINE))
    kinds = dict(re.findall(r"^# TYPE (\S+) (\S+)$", text, re.MULTILINE))
    own = [name for name in helps if name.startswith("loopline_") and not name.endswith("_created")]
    return [f"{kinds[name]} - {name} {helps[name]}" for name in own]


def environment() -> str:
    """Return the page of environment variables."""
    heading = "| variable | is |\n|---|---|\n"
    own = [f"| `{name}` | {text} |" for name, text in VARIABLES.items()]
    tools = [f"| `{name}` | {text} |" for name, text in TOOLS.items()]
    parts = [
        f"# Environment variables\n\n{NOTE}\n## Loopline's own\n\n{heading}" + "\n".join(own) + "\n",
        f"## Of the tools, as Loopline reads them\n\n{heading}" + "\n".join(tools) + "\n",
        "`loopline env` prints those of this workspace, for the tools' own programs.\n",
    ]
    return _page(parts, "http.md", "HTTP")


def variables_in_code() -> set[str]:
    """Return every environment variable of Loopline that the code names."""
    folders = ("models", "tasks", "flows", "infra/client")
    texts = [path.read_text() for name in folders for path in (ROOT / name).rglob("*.py")]
    return {name for text in texts for name in re.findall(r"\bLOOPLINE_[A-Z]+(?:_[A-Z]+)*\b(?!_)", text)}


def http() -> str:
    """Return the page of the HTTP server, from the OpenAPI document that it writes."""
    from models.inference.loaded_model import LoadedModel
    from models.serving.open_api import document
    from tests.served_models import write_served

    with tempfile.TemporaryDirectory() as folder:
        write_served(Path(folder), "binary")
        description = document({"NAME": LoadedModel("NAME", "1", Path(folder))}, "", needs_token=True)
    rows, codes = [], {}
    for path, item in description["paths"].items():
        for method in ("get", "post"):
            if method in item:
                operation = item[method]
                token = "no" if operation.get("security") == [] else "yes"
                rows.append(f"| {method.upper()} | `{path}` | {token} | {_cell(_prose(operation['description']))} |")
                codes |= {code: value["description"] for code, value in operation["responses"].items()}
    text = (
        f"# HTTP\n\n{NOTE}\n`loopline serve` answers these paths; `/openapi.json` has the whole document, with the "
        "schemas of your models. A server of one model also takes `/invocations` and `/feedback` without a name. The "
        "token is needed for labels, and for all else where the server requires one "
        "([security](../operations/security.md)). Over gRPC: "
        "[the calls and messages](grpc.md).\n\n"
        "| method | path | token | does |\n|---|---|---|---|\n"
    )
    statuses = [f"| {code} | {codes[code]} |" for code in sorted(codes)]
    from tasks.dashboard.api import ROUTES

    calls = [f"| POST | `{each.path}` | yes | {_cell(_prose(each.endpoint.__doc__))} |" for each in ROUTES]
    overview = (
        "## The overview\n\nThe overview of `loopline up`, on port 4300, has pages for people, and these paths for "
        "programs ([examples](../how-to/overview.md)):\n\n"
        "| method | path | token | does |\n|---|---|---|---|\n" + "\n".join(calls) + "\n"
    )
    return _page(
        [
            text + "\n".join(rows) + "\n",
            overview,
            "## Status codes\n\n| code | means |\n|---|---|\n" + "\n".join(statuses) + "\n",
        ],
        "grpc.md",
        "gRPC",
    )


def grpc() -> str:
    """Return the page of the gRPC service."""
    from infra.documentation.api_reference import grpc_page

    return grpc_page(NOTE)


def python() -> str:
    """Return the page of the Python names that a user's code may import."""
    from infra.documentation.api_reference import python_page

    return python_page(NOTE)


def notebook() -> str:
    """Return the notebook of a tutorial, from its page."""
    from infra.documentation.notebook import notebook

    return notebook()


def errors() -> str:
    """Return the page of the errors, from the places of the code that make one."""
    from infra.documentation.error_reference import Code, page

    return page(NOTE, Code.read())


def workspace() -> str:
    """Return the page of the workspace: its files, and the tables of the state database."""
    from tasks.host.tables import METADATA

    files = [f"| `{name}` | {text} |" for name, text in FILES.items()]
    parts = [
        f"# The files of a workspace\n\n{NOTE}\nThe workspace is `LOOPLINE_HOME`; if that is not set, this folder or "
        "the nearest one above that holds `projects/` or `.loopline/`.\n\n| path | is |\n|---|---|\n"
        + "\n".join(files)
        + "\n",
        "## Tables of the state database\n\nRead them, but let Loopline write them.\n",
    ]
    for table in METADATA.sorted_tables:
        columns = [f"| `{one.name}` | {_cell(one.comment or '')} |" for one in table.columns]
        parts.append(f"### {table.name}\n\n| column | is |\n|---|---|\n" + "\n".join(columns) + "\n")
    return _page(parts, "../architecture/index.md", "architecture")


def layers() -> str:
    """Return the page of the layers, from the contracts of `.importlinter` and the packages' own first lines."""
    contracts = configparser.ConfigParser()
    contracts.read(ROOT / ".importlinter")
    parts = [
        f"# The layers\n\n{NOTE}\nImports run one way, downwards. `make check` refuses an import that runs up, and a "
        "folder that has no place here. Folders in one row do not know each other.\n",
        "```mermaid\nflowchart TD\n  flows --> tasks --> models\n```\n",
    ]
    for package in ("flows", "tasks", "models"):
        rows = [line.strip() for line in contracts[f"importlinter:contract:{package}-rooms"]["layers"].splitlines()]
        names = [[name.strip() for name in row.split("|")] for row in rows if row]
        parts.append(f"## {package}\n\n```mermaid\nflowchart TD\n{_drawing(names)}```\n\n{_purposes(package, names)}\n")
    return _page(parts, "promises.md", "promises and their tests")


def written_by(module: str) -> Callable[[], str]:
    """Return what writes the page of a module beside this one."""
    return lambda: str(importlib.import_module(f"infra.documentation.{module}").page(NOTE))


def _drawing(rows: list[list[str]]) -> str:
    boxes = "".join(f'  r{index}["{" | ".join(row)}"]\n' for index, row in enumerate(rows))
    return boxes + "  " + " --> ".join(f"r{index}" for index in range(len(rows))) + "\n"


def _purposes(package: str, rows: list[list[str]]) -> str:
    lines = []
    for name in (name for row in rows for name in row):
        path = ROOT / package / name
        file = path / "__init__.py" if path.is_dir() else path.with_suffix(".py")
        first = (re.match(r'"""(.*?)(?:"""|\n\n)', file.read_text(), re.DOTALL) or ["", ""])[1]
        lines.append(f"| `{name}` | {_cell(_prose(first))} |")
    return "| name | is |\n|---|---|\n" + "\n".join(lines)


def decisions() -> str:
    """Return the page that lists the decisions."""
    rows = []
    for path in sorted((ROOT / "docs" / "decisions").glob("[0-9]*.md")):
        title = path.read_text().split("\n", 1)[0].lstrip("# ").strip()
        rows.append(f"| [{path.stem[:4]}]({path.name}) | {_cell(re.sub(r'^[0-9]+[.:]? *', '', title))} |")
    text = f"# Decisions\n\n{NOTE}\nWhat was decided, why, and by which measurement.\n\n| | decision |\n|---|---|\n"
    return _page([text + "\n".join(rows) + "\n"], "../comparison.md", "comparison")


def _prose(text: str) -> str:
    return " ".join(text.replace("``", "`").split())


def _unwrapped(text: str) -> str:
    return "\n\n".join(_prose(paragraph) for paragraph in text.strip().split("\n\n"))


def _cell(text: str) -> str:
    return text.replace("|", "\\|").replace("<", "&lt;") if "`" not in text else text.replace("|", "\\|")


def _page(parts: list[str], following: str, title: str) -> str:
    return "\n".join(parts) + f"\nNext: [{title}]({following})\n"


PAGES: dict[str, Callable[[], str]] = {
    "reference/commands.md": commands,
    "reference/spec.md": spec,
    "reference/events.md": events,
    "reference/metrics.md": metrics,
    "reference/environment.md": environment,
    "reference/http.md": http,
    "reference/grpc.md": grpc,
    "reference/python.md": python,
    "reference/errors.md": errors,
    "reference/workspace.md": workspace,
    "architecture/walks.md": written_by("walks"),
    "architecture/layers.md": layers,
    "architecture/kinds.md": written_by("kind_tables"),
    "decisions/index.md": decisions,
    "../examples/notebook/leavers.ipynb": notebook,
}


def main() -> None:
    """Write every page."""
    for name, page in PAGES.items():
        path = ROOT / "docs" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(page())


if __name__ == "__main__":
    main()
