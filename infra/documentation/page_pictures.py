"""Makes the pictures of pages that the documentation shows: `make pictures`.

`tests/integration/test_links.py` photographs every page of a workspace in which nothing was trained; some of these are
cut to a window of a desk and written small. The names and texts on them are those of `tests/page_states.py`.
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
HEIGHT = 900
MOST_BYTES = 120_000
"""Of a picture: readers of the quickstart load all of them."""


def main() -> None:
    """Photograph all pages, and write the pictures of `SHOWN`."""
    from tests.integration.test_links import picture_name

    with tempfile.TemporaryDirectory() as folder:
        test = "tests/integration/test_links.py::test_pictures_of_every_page_in_every_view"
        command = [sys.executable, "-m", "pytest", "-q", "-m", "soak", "-n", "0", test]
        subprocess.run(command, cwd=ROOT, env={**os.environ, "PICTURES": folder}, check=True)
        FOLDER.mkdir(exist_ok=True)
        for name, path in SHOWN.items():
            with Image.open(Path(folder) / "desk" / f"{picture_name(path)}.png") as picture:
                shown = picture.convert("RGB").crop((0, 0, picture.width, min(HEIGHT, picture.height)))
                shown.save(FOLDER / f"{name}.webp", quality=80, method=6)


if __name__ == "__main__":
    sys.path.insert(0, str(ROOT))
    main()
