"""Base of every spec: frozen, no unknown keys, no NaN; its validator is built when first used."""

from pydantic import BaseModel, ConfigDict


class Spec(BaseModel):
    """An immutable, hashable value read from a file or given by the caller."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False, defer_build=True)


class Sourced(Spec):
    """A catalog number with its source; a number without one is refused."""

    value: float
    source: str
