"""The tables of the log of predictions and of labels: Delta tables on this disk, and the same on an object store."""
