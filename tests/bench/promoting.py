"""`python -m tests.bench.promoting ROOT COUNT`: swaps versions 1 and 2 of `bench`, each once the server follows."""

import sys
import time
from pathlib import Path

from models.files import read_json
from tasks.host.workspace import Workspace
from tasks.release.settings import ServerSettings
from tests.serving import crown

LONGEST_S = 10.0
REST_S = 0.05


def main(root: Path, count: int) -> None:
    workspace = Workspace(root)
    path = ServerSettings(str(root), ("bench",)).release_path("bench")
    for turn in range(count):
        number = "12"[(turn + 1) % 2]
        crown(workspace, "bench", number)
        deadline = time.monotonic() + LONGEST_S
        while read_json(path).get("stable") != number:
            assert time.monotonic() < deadline, f"version {number} was not taken up"
            time.sleep(0.01)
        time.sleep(REST_S)


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]))
