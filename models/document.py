"""The base class of values that are stored as JSON or passed between processes."""

from pydantic import BaseModel, ConfigDict


class Document(BaseModel):
    """An immutable value; a field that its class does not know is an error, so that a misspelt one is never lost."""

    model_config = ConfigDict(extra="forbid", frozen=True)
