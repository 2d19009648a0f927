"""Pictures of training and search, with epochs, trials and settings missing here and there."""

from xml.etree import ElementTree

import pytest

from models.report import training_figures

pytestmark = pytest.mark.usefixtures("pictures")


def text_of(svg):
    root = ElementTree.fromstring(svg)
    assert root.tag.endswith("svg")
    return " ".join(" ".join(root.itertext()).split())


def test_learning_curves_show_both_losses_and_the_metric():
    epochs = [{"train_loss": 1.0 / (n + 1), "val_loss": 1.2 / (n + 1), "val_mae": 3.0 - n} for n in range(3)]
    words = text_of(training_figures.learning_curves([training_figures.TrainingCourse(epochs, 3)], "mae"))
    for label in ("training", "validation", "epoch", "loss", "mae", "kept"):
        assert label in words


@pytest.mark.parametrize("epochs", [[], [{"train_loss": 0.5}], [{"val_mae": float("nan"), "train_loss": 1.0}] * 2])
def test_learning_curves_of_almost_nothing(epochs):
    assert "epoch" in text_of(training_figures.learning_curves([training_figures.TrainingCourse(epochs)], "mae"))


def test_the_folds_of_a_bag_share_one_figure():
    folds = [
        training_figures.TrainingCourse(
            [{"train_loss": 1.0 / (n + 1), "val_mae": fold + 3.0 - n} for n in range(3)], fold
        )
        for fold in range(5)
    ]
    svg = training_figures.learning_curves(folds, "mae")
    assert svg.count(b"stroke: #d55e00") >= 5, "a dashed line a fold"
    assert text_of(svg).count("training") == text_of(svg).count("validation") == 1


def test_search_history_tells_complete_pruned_and_failed_apart():
    svg = training_figures.search_history(
        [0.5, None, 0.7, 0.6], ["COMPLETE", "FAIL", "COMPLETE", "PRUNED"], "maximize", "auc"
    )
    for label in ("complete", "pruned", "failed", "best so far", "validation auc"):
        assert label in text_of(svg)
    assert "failed" in text_of(training_figures.search_history([None], ["FAIL"], "minimize", "auc"))
    assert text_of(training_figures.search_history([], [], "minimize", "auc"))


def test_parallel_coordinates_with_numbers_choices_and_gaps():
    settings = [{"train.lr": 1e-4, "net": "mlp"}, {"train.lr": 1e-2, "net": "trees", "depth": 5}, {"train.lr": 1e-3}]
    words = text_of(training_figures.parallel_coordinates(settings, [0.5, 0.6, 0.7], "mae", "minimize", ["train.lr"]))
    for label in ("train.lr", "0.0001", "0.01", "mlp", "trees", "depth", "validation mae"):
        assert label in words


@pytest.mark.parametrize(
    "settings", [[{"flag": True}, {"flag": False}], [{"lr": 0.1}], [{"layers": [1, 2]}, {"lr": 0.0}]]
)
def test_parallel_coordinates_of_odd_settings(settings):
    assert text_of(training_figures.parallel_coordinates(settings, [0.5] * len(settings), "mae", "maximize", ["lr"]))


def test_importance_bars_rank_and_stop_at_twenty():
    words = text_of(training_figures.importance_bars({f"setting {n}": n / 100 for n in range(25)}))
    assert words.index("setting 24") < words.index("setting 10")
    assert "setting 4 " not in words
