"""Base of every spec: frozen, no unknown keys, no NaN."""

from pydantic import BaseModel, ConfigDict


class Spec(BaseModel):
    """An immutable, hashable value read from a file or given by the caller."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)
