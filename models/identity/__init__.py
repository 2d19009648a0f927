"""Which rows are the same: hashes of rows, and rows that are equal in all their inputs and the target."""
