"""The page of the comparison of defaults says what was measured, losses too."""

import hashlib
import itertools
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from tests.bench.quality_case import Case
from tests.bench.quality_data import CASES, read
from tests.bench.quality_peers import PEERS
from tests.bench.quality_series import in_order, until_origin, windows
from tests.bench.quality_sides import Sides
from tests.bench.quality_table import OURS, PAGE, Gain, Score, append, gain_over_best, page, scores

ONCE = "b44da83fc954c9a85470c266dbc4e422ac13eb91035ca647873ff60292644032"
"""The sha256 of the names of the half looked at once, without series: a line each, in alphabetical order."""
ONCE_SERIES = "b5b8e83bbef8d6a69746d2f67b077059088ff616d00cb2ed6b370c3889740a59"
"""The same of its series, which joined later."""


def test_the_page_is_made_from_the_kept_scores() -> None:
    assert PAGE.read_text() == page(scores()), "run `make bench-quality MINUTES=0`"


def test_there_are_twenty_data_sets_of_all_kinds_with_names_of_their_own() -> None:
    assert len(CASES) >= 20
    assert {case.kind for case in CASES} == {"table", "text", "image", "series"}
    assert len({case.short for case in CASES}) == len(CASES)


def test_the_halves_are_by_the_rule_that_was_written_down_before_any_result() -> None:
    once = sorted(case.name for case in CASES if case.half == "once")
    assert not [case.name for case in CASES if case.half == "once" and case.seen]
    assert not [name for name in once if hashlib.sha256(name.encode()).hexdigest()[0] in "012"]
    assert 0.4 <= len(once) / len(CASES) <= 0.6
    of_series = {case.name for case in CASES if case.kind == "series"}
    for names, digest in ((set(once) - of_series, ONCE), (set(once) & of_series, ONCE_SERIES)):
        lines = "\n".join(sorted(names))
        assert hashlib.sha256(lines.encode()).hexdigest() == digest, "a set looked at once came, went or moved"


def test_there_are_sixty_data_sets_of_every_ugly_kind() -> None:
    assert len(CASES) >= 60
    assert {"gaps", "heavy tails", "many categories", "groups", "copies", "few rows", "many classes", "imbalance",
            "dates", "text beside numbers"} <= {trait for case in CASES for trait in case.traits}  # fmt: skip


def test_ten_series_of_other_kinds_stand_in_both_halves() -> None:
    others = [case for case in CASES if case.kind == "series" and case.traits]
    assert len(others) >= 10
    assert {"short", "panel", "intermittent", "known future", "trending companions"} == {
        trait for case in others for trait in case.traits
    }
    assert {case.half for case in others} == {"building", "once"}


def test_windows_hold_one_series_its_past_and_what_is_known_beforehand() -> None:
    case = Case("x", "y", "mae", kind="series", series_key="shop", known_future=("promo",))
    steps = np.arange(12.0)
    shops = [
        pd.DataFrame({"year": 2000 + steps, "shop": shop, "y": start + steps, "other": 2 * steps, "promo": steps % 3})
        for shop, start in (("a", 0), ("b", 100))
    ]
    inputs, goals, rows = windows(case, in_order(case, pd.concat(shops)))
    assert inputs.shape == (8, 8, 3)
    assert goals.tolist() == [8, 9, 10, 11, 108, 109, 110, 111]
    assert goals.index.tolist() == ["a"] * 4 + ["b"] * 4
    assert rows.tolist() == [8, 9, 10, 11, 20, 21, 22, 23]
    assert inputs[4, :, 0].tolist() == [100, 101, 102, 103, 104, 105, 106, 107]
    assert inputs[4, :, 1].tolist() == [-14, -12, -10, -8, -6, -4, -2, 0], "companions count by how far they moved"
    assert inputs[4, -1, 2] == 8 % 3, "what is known beforehand is that of the predicted step"


def test_rolling_origins_predict_no_step_twice() -> None:
    case = next(case for case in CASES if case.name == "made/panel-of-sensors")
    times = [np.unique(until_origin(case, read(case, Path()), seed)["time"]) for seed in range(5)]
    tests = [part[len(part) * 9 // 10 :] for part in times]
    assert [len(part) for part in times] == [144, 129, 115, 100, 86]
    assert all(later[0] > earlier[-1] for later, earlier in itertools.pairwise(tests))


def test_years_with_fractions_and_quarters_in_words_are_times() -> None:
    case = Case("x", "value", "mae", kind="series")
    fractions = in_order(case, pd.DataFrame({"time": [1999.25, 1999.0], "value": [2, 1]}))
    assert [f"{time:%Y-%m}" for time in fractions["time"]] == ["1999-01", "1999-04"]
    quarters = in_order(case, pd.DataFrame({"Date": ["1998 Q2", "1998 Q1"], "value": [2, 1]}))
    assert [f"{time:%Y-%m}" for time in quarters["time"]] == ["1998-01", "1998-04"]
    years = in_order(case, pd.DataFrame({"year": [64, 63], "value": [2, 1]}))
    assert [time.year for time in years["time"]] == [1963, 1964]


def test_each_kind_of_data_meets_its_peers() -> None:
    peers = {case.kind: {name for name, peer in PEERS.items() if peer.takes(case)} for case in CASES if not case.traits}
    assert {"LightGBM", "HGB", "linear", "XGBoost", "CatBoost", "AutoGluon", "AutoGluon good"} <= peers["table"]
    assert {"words and characters", "LightGBM", "AutoGluon"} <= peers["text"]
    assert {"forest on pixels", "HOG + SVM", "HOG + LightGBM"} <= peers["image"]
    assert {"last value", "seasonal naive", "ETS", "ARIMA"} <= peers["series"]


def test_catboost_takes_categories_with_gaps() -> None:
    rows = pd.DataFrame({"x": range(60), "name": ["a", None, "b"] * 20})
    goal = pd.Series(["yes", "no", "no"] * 20)
    names = ("train", "validation", "test")
    sides = Sides(dict.fromkeys(names, rows), dict.fromkeys(names, goal), 0.0)
    predicted = PEERS["CatBoost"].fit(next(case for case in CASES if case.kind == "table"), sides)
    assert (predicted["yes"] > 0.5).tolist() == (goal == "yes").tolist()


def test_losses_failures_and_classes_that_are_never_predicted_are_shown(tmp_path: Path) -> None:
    made = [
        Score("mlc_churn", 0, OURS, "roc_auc", 0.80, 9.0, "trees"),
        Score("mlc_churn", 1, OURS, "roc_auc", 0.84, 9.0, "trees", missed=1),
        Score("mlc_churn", 0, "HGB", "roc_auc", 0.90, 0.5),
        Score("mlc_churn", 1, "HGB", "roc_auc", 0.90, 0.5),
        Score("ames", 0, OURS, "mae", 14.0, 8.0, "linear"),
        Score("ames", 0, "HGB", "mae", 15.0, 0.5),
        Score("HMDA", 0, OURS, "roc_auc", None, 1.0, error="refused"),
        Score("HMDA", 0, "HGB", "roc_auc", 0.8, 1.0),
    ]
    for score in made:
        append(score, tmp_path / "scores.jsonl")
    text = page(scores(tmp_path / "scores.jsonl"))
    assert "| HGB | 1 | 1 | 0 |" in text
    assert "| mlc_churn | roc_auc | 2 | 0.82 ± 0.028 | **0.9 ± 0** | trees | 1 |" in text
    assert "| ames | mae | 1 | **14** | 15 | linear |  |" in text
    assert "| HMDA | roc_auc | 1 | - | **0.8** |  | 0 |" in text
    assert "* HMDA: Loopline: refused" in text


def test_the_best_peer_is_judged_by_the_standard_error_over_splits() -> None:
    ours = [0.80, 0.84, 0.82, 0.82]
    made = [Score("mlc_churn", seed, OURS, "roc_auc", value, 9.0) for seed, value in enumerate(ours)]
    made += [Score("mlc_churn", seed, "linear", "roc_auc", 0.7, 0.1) for seed in range(4)]
    within = [Score("mlc_churn", seed, "HGB", "roc_auc", 0.825, 0.5) for seed in range(4)]
    gain = gain_over_best(made + within, "mlc_churn")
    assert gain is not None
    assert gain.is_as_good
    assert (gain.peer, gain.num_splits) == ("HGB", 4)
    assert gain.mean == pytest.approx(-0.005)
    assert gain.error == pytest.approx(0.0163 / 2, abs=1e-4)
    beyond = [Score("mlc_churn", seed, "LightGBM", "roc_auc", 0.83, 0.5) for seed in range(4)]
    assert "on **0 of 1** data sets" in page(made + within + beyond)
    assert "| mlc_churn | 4 | LightGBM | -0.01 ± 0.0082 | **no** |" in page(made + within + beyond)


def test_less_is_better_of_an_error_and_one_split_is_not_judged() -> None:
    made = [Score("ames", seed, OURS, "mae", 14.0, 12.0, search_s=8.0, commit="a1") for seed in range(2)]
    made += [Score("ames", seed, "HGB", "mae", 15.0, 2.0) for seed in range(2)]
    made += [Score("ames", seed, "LightGBM", "mae", 16.0, 1.0) for seed in range(2)]
    assert gain_over_best(made, "ames") == Gain("HGB", 2, 1.0, 0.0)
    assert gain_over_best([score for score in made if score.seed == 0], "ames") is None
    assert "| ames | 12.0 | 2.0 | 1.0 | 8.0 | 4.0 |" in page(made)


def test_each_half_says_what_is_measured_and_what_lacks() -> None:
    made = [Score("fgl", seed, name, "accuracy", 0.8, 2.0) for seed in range(2) for name in (OURS, "HGB")]
    made += [Score("meats", 0, name, "mae", 0.8, 2.0) for name in (OURS, "HGB")]
    made += [Score("ames", seed, name, "mae", 15.0, 2.0) for seed in range(3) for name in (OURS, "HGB", "AutoGluon")]
    building, once = (sum(case.half == half for case in CASES) for half in ("building", "once"))
    text = page(made).partition("### Used while building")[2].partition("## The goal")[0]
    first, _, second = text.partition("### Looked at once")
    assert f"**1 of {building}** data sets of this half are measured, on 3 splits." in first
    assert f"**1 of {once}** data sets of this half are measured, on 2 splits." in second
    lacking = second.partition("Not yet measured: ")[2].partition(".")[0].split(", ")
    assert "meats" in lacking, "one split is not judged"
    assert "fgl" not in lacking
    assert len(lacking) == once - 1
    assert "AutoGluon was measured" not in first
    assert "AutoGluon was measured on none of them." in second


def test_goals_stand_beside_each_other_on_the_same_splits() -> None:
    made = [Score("ames", seed, OURS, "mae", 14.0, 12.0) for seed in range(2)]
    made += [Score("ames", seed, "HGB", "mae", 13.0 + 2 * (seed > 1), 2.0) for seed in range(5)]
    assert "| ames | mae | 2 | 14 ± 0 | **13 ± 0** |  |  |" in page(made)


def test_scores_of_several_commits_are_told_apart() -> None:
    made = [Score("ames", 0, OURS, "mae", 14.0, 12.0, commit="a1"), Score("HMDA", 0, OURS, "roc_auc", 0.8, 9.0)]
    assert "scores of commit a1: ames.\n" in page(made)
    assert "scores from before commits were kept: HMDA.\n" in page(made)
    newer = [Score("ames", 1, OURS, "mae", 14.0, 8.0, commit="b2")]
    newer += [Score("ames", seed, "HGB", "mae", 15.0, 2.0) for seed in range(2)]
    assert "takes 8.0 CPU-seconds in the median" in page([made[0], *newer]), "of two commits the newer one counts"
