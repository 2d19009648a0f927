"""`loopline schema`: prints the JSON Schema of `project.yaml`, for editors."""

from __future__ import annotations

import click

from flows.console import options
from models.inputs.records import column_kinds
from models.project_spec.reader import json_schema


@click.command()
def command() -> None:
    """Print the JSON Schema of project.yaml, by which editors complete and check it.

    Example: loopline schema > infra/project.schema.json

    Example: loopline schema | head
    """
    options.print_json(json_schema(column_kinds()))
