"""The kinds of input columns: their records, how rows are read, and their nodes of the graph."""
