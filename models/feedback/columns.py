"""Names of columns in the prediction log and in the label store."""

from __future__ import annotations

INPUT = "input."
"""Before the name of an input of the graph."""
RAW = "raw."
"""Before the name of a column as it was given."""
SENT = "sent."
"""Before the name of what a shadow needs besides: a text, or a feature's steps of a whole window."""
LABEL = "label"
LABELLED_AT = "labelled_at"
FEEDBACK_FILE = "feedback.parquet"
"""Beside the raw table: which of its rows are labelled predictions."""
FEEDBACK_WORDS = {
    "joined": "become rows",
    "known": "are in the source by now",
    "unfit": "do not fit the source's columns",
    "rejected": "break what the spec expects of a row",
    "other": "are of another target",
}
"""What becomes of labelled predictions, in the order in which it is told."""
