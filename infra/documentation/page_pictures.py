"""Makes the pictures of pages that the documentation shows: `make pictures`.

`tests/integration/test_links.py` photographs them, in the window of a desk, where nothing was trained.
They are written small. The names and texts on them are those of `tests/page_states.py`.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from pathlib import Path

from PIL import Image

ROOT = Path(__file__).resolve().parents[2]
FOLDER = ROOT / "docs" / "assets" / "pages"
SHOWN = {
    "loop": "/loops/running-1",
    "version": "/projects/champion/versions/2",
    "versions": "/projects/champion/versions/2?against=1",
}
"""The names of the pictures, and the pages that they show: none that has a path of the machine."""
MOST_BYTES = 120_000
"""Of a picture: readers of the quickstart load all of them."""


def main() -> None:
    """Photograph the pages of `SHOWN`, and write their pictures."""
    with tempfile.TemporaryDirectory() as folder:
        test = "tests/integration/test_links.py::test_pictures_of_the_documentation"
        command = [sys.executable, "-m", "pytest", "-q", "-m", "soak", "-n", "0", test]
        subprocess.run(command, cwd=ROOT, env={**os.environ, "PICTURES": folder}, check=True)
        FOLDER.mkdir(exist_ok=True)
        for name in SHOWN:
            with Image.open(Path(folder) / f"{name}.png") as picture:
                picture.convert("RGB").save(FOLDER / f"{name}.webp", quality=80, method=6)


if __name__ == "__main__":
    sys.path.insert(0, str(ROOT))
    main()
