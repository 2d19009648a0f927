"""Each part of a text or a picture is left out once, and all of them together are the whole."""

from __future__ import annotations

import numpy as np

from models.inference.box import Box
from models.inference.occlusion import MOST_CHARACTERS, MOST_PARTS, without_patches, without_words


def test_each_word_is_left_out_once_and_nothing_else_changes() -> None:
    feed = {"n": np.array([2.5]), "t": np.array(["so  good,\nso far"], object), "u": np.array([""], object)}
    (rows,) = without_words(feed, ["t", "u"])
    assert (rows.column, rows.parts) == ("t", ["so", "good,", "so", "far"])
    assert rows.feed["t"].tolist() == [
        "so  good,\nso far",
        "  good,\nso far",
        "so  \nso far",
        "so  good,\n far",
        "so  good,\nso ",
    ]
    assert rows.feed["n"].tolist() == [2.5] * 5
    assert rows.feed["u"].tolist() == [""] * 5


def test_long_texts_are_left_out_in_stretches_within_the_budget() -> None:
    words = [f"w{number}" for number in range(1000)]
    feed = {name: np.array([" ".join(words)], object) for name in "ab"}
    several = [*without_words(feed, ["a", "b"])]
    assert MOST_PARTS / 2 < sum(len(rows.parts) for rows in several) <= MOST_PARTS
    assert " ".join(map(str, several[0].parts)).split() == words
    many = {f"c{number}": np.array(["some words"], object) for number in range(MOST_PARTS + 3)}
    assert sum(len(rows.parts) for rows in without_words(many, [*many])) == MOST_PARTS
    too_long = {"a": np.array(["w " * MOST_CHARACTERS], object)}
    assert [*without_words(too_long, ["a"])] == []


def test_patches_of_any_picture_cover_it_once_in_its_mean_colour() -> None:
    for shape in ((2, 3, 1), (28, 28, 3), (9, 100, 1)):
        picture = np.random.default_rng(0).integers(0, 256, (1, *shape), np.uint8)
        rows = without_patches(picture, "image", "p")
        occluded, cover = rows.feed["image"], np.zeros(shape[:2], int)
        assert len(occluded) == len(rows.parts) + 1 <= MOST_PARTS + 1
        np.testing.assert_array_equal(occluded[0], picture[0])
        for part, other in zip(rows.parts, occluded[1:], strict=True):
            assert isinstance(part, Box)
            inside = np.zeros(shape[:2], bool)
            inside[part.down : part.down + part.height, part.across : part.across + part.width] = True
            cover += inside
            np.testing.assert_array_equal(other[~inside], picture[0][~inside])
            assert len(np.unique(other[inside], axis=0)) == 1
        assert (cover == 1).all()
