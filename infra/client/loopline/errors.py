"""The one class of errors."""


class LooplineError(Exception):
    """What Loopline's own commands print: the place, what was got, what was expected, and the cure."""
