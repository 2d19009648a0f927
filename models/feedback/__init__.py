"""Feedback: rows of the prediction log with their labels, and the choice of rows to label."""
