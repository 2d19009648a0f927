"""The command `loopline`, whose packages no other program can import by mistake."""

import sys
from pathlib import Path


def main() -> None:
    """Run the command line."""
    program = Path(__file__).resolve().with_name("program")
    if (program / "flows").is_dir():  # else this is a clone, which its environment puts first
        sys.path.insert(0, str(program))
    from flows.cli import main as command

    command()
