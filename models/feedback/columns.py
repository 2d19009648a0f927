"""Names of columns in the prediction log and in the label store."""

from __future__ import annotations

INPUT = "input."
"""Prefix of the name of an input of the graph."""
RAW = "raw."
"""Prefix of the name of a raw column of the request."""
SENT = "sent."
"""Prefix of the name of a further value that a shadow needs: a text, or a feature's steps of a whole window."""
LABEL = "label"
LABELLED_AT = "labelled_at"
FEEDBACK_FILE = "feedback.parquet"
"""File beside the raw table that says which of its rows are labelled predictions."""
FEEDBACK_WORDS = {
    "joined": "become rows",
    "known": "are in the source by now",
    "unfit": "do not fit the source's columns",
    "rejected": "break what the spec expects of a row",
    "other": "are of another target",
}
"""Outcomes of labelled predictions, in the order of messages."""
