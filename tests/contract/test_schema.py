"""What is published is what the program writes, to the byte: the JSON Schema of specs, the projects' deployments."""

from pathlib import Path

from click.testing import CliRunner

from flows.cli import loopline


def test_the_published_schema_is_what_the_program_prints(root: Path) -> None:
    printed = CliRunner().invoke(loopline, ["schema"])
    assert printed.exit_code == 0
    published = (root / "infra" / "project.schema.json").read_text()
    assert published == printed.output, "run `loopline schema > infra/project.schema.json`"


def test_the_file_for_prefects_own_program_is_what_the_program_writes(root: Path, tmp_path: Path) -> None:
    written = tmp_path / "prefect.yaml"
    done = CliRunner().invoke(loopline, ["deploy", "--write", str(written)], env={"LOOPLINE_HOME": str(root)})
    assert done.exit_code == 0
    published = (root / "infra" / "prefect.yaml").read_text()
    assert published == written.read_text(), "run `loopline deploy --write infra/prefect.yaml`"
