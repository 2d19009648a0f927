"""Feedback: rows of the prediction log with their labels, and which labels to ask for."""
