"""The edge bundle: what a served version needs to answer on a machine without Loopline."""
