"""Kinds: the rows of facts about tasks and kinds of data that several rooms ask."""
