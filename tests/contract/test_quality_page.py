"""The page of the comparison of defaults says what was measured, losses too."""

from pathlib import Path

from tests.bench.quality_data import CASES
from tests.bench.quality_table import OURS, PAGE, Score, append, page, scores


def test_the_page_is_made_from_the_kept_scores() -> None:
    assert PAGE.read_text() == page(scores()), "run `make bench-quality MINUTES=0`"


def test_there_are_twenty_data_sets_of_all_kinds_with_names_of_their_own() -> None:
    assert len(CASES) >= 20
    assert {case.kind for case in CASES} == {"table", "text", "image", "series"}
    assert len({case.short for case in CASES}) == len(CASES)


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
