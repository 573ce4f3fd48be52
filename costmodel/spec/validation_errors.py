"""What pydantic finds wrong, in our words: what it is, where it is, what would be right.

Every file, option and document that is checked against a spec is refused through here, so that
one slip reads the same wherever it is made.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import MappingProxyType

from pydantic import ValidationError
from pydantic_core import ErrorDetails

Limits = Mapping[str, object]
MISSING = "is missing: add it"
UNKNOWN = "unknown field; remove it or correct its name"


@dataclass(frozen=True, slots=True)
class Complaint:
    """One value that is wrong."""

    place: tuple[str | int, ...]
    """Keys and places in lists from the top; empty where the whole is wrong."""
    reason: str

    @property
    def field(self) -> str:
        """The place as one word, such as `groups.0.gpu`."""
        return ".".join(str(part) for part in self.place)

    @property
    def text(self) -> str:
        """Place and reason in one line."""
        return f"{self.field}: {self.reason}" if self.place else self.reason


def complaints(error: ValidationError) -> tuple[Complaint, ...]:
    """All that is wrong, in the order of the fields."""
    return tuple(Complaint(_place(one), _reason(one)) for one in error.errors(include_url=False))


def _place(error: ErrorDetails) -> tuple[str | int, ...]:
    """Without the names that pydantic gives to checks of ours."""
    return tuple(one for one in error["loc"] if not str(one).startswith("function-"))


def first_complaint(error: ValidationError) -> Complaint:
    """What to print where one line must do."""
    return complaints(error)[0]


def shown(value: object) -> str:
    """A value as an error message shows it: short, and never an error itself."""
    if value is None or isinstance(value, bool):
        return {None: "null", True: "true", False: "false"}[value]
    if isinstance(value, float):
        return repr(value)
    if isinstance(value, int):
        return str(value) if abs(value) < 10**30 else f"an integer of {value.bit_length()} bits"
    if isinstance(value, str):
        return repr(value) if len(value) <= 60 else repr(value[:60]) + "..."
    kind = "an object" if isinstance(value, Mapping) else "a list"
    return kind if value else f"an empty {kind.split()[1]}"


def _reason(error: ErrorDetails) -> str:
    kind, limits = error["type"], error.get("ctx", {})
    if kind in PLAIN:
        return PLAIN[kind]
    if kind in ("value_error", "assertion_error"):
        return error["msg"].partition(", ")[2]
    wanted = next((words for name, words in WANTED if kind.startswith(name)), None)
    if wanted is None:
        return f"{error['msg']}, got {shown(error['input'])}"
    return f"must be {wanted(limits)}, got {shown(error['input'])}"


PLAIN: Mapping[str, str] = MappingProxyType(
    {
        "missing": MISSING,
        "extra_forbidden": UNKNOWN,
        "invalid_key": "a field name must be a word",
        "recursion_loop": "contains itself",
    }
)
"""Complaints in which the value plays no part, by their type in pydantic."""

WANTED: tuple[tuple[str, Callable[[Limits], str]], ...] = (
    ("int_parsing_size", lambda _: "a smaller whole number"),
    ("int_", lambda _: "a whole number"),
    ("float_", lambda _: "a number"),
    ("finite_number", lambda _: "a finite number"),
    ("bool_", lambda _: "true or false"),
    ("string_type", lambda _: "text"),
    ("string_pattern_mismatch", lambda limits: f"of the form {limits['pattern']}"),
    ("string_too_short", lambda limits: f"at least {limits['min_length']} characters long"),
    ("string_too_long", lambda limits: f"at most {limits['max_length']} characters long"),
    ("literal_error", lambda limits: _one_of(limits["expected"])),
    ("enum", lambda limits: _one_of(limits["expected"])),
    ("greater_than_equal", lambda limits: f"at least {limits['ge']}"),
    ("greater_than", lambda limits: f"above {limits['gt']}"),
    ("less_than_equal", lambda limits: f"at most {limits['le']}"),
    ("less_than", lambda limits: f"below {limits['lt']}"),
    ("too_short", lambda limits: f"a list of at least {limits['min_length']}"),
    ("too_long", lambda limits: f"a list of at most {limits['max_length']}"),
    ("none_required", lambda _: "null"),
    ("union_tag_not_found", lambda limits: f"fields and values with {limits['discriminator']}"),
    ("union_tag_invalid", lambda limits: f"of a known kind ({limits['expected_tags']})"),
    ("tuple_type", lambda _: "a list"),
    ("list_type", lambda _: "a list"),
    ("set_type", lambda _: "a list"),
    ("frozen_set_type", lambda _: "a list"),
    ("dict_type", lambda _: "fields and values"),
    ("mapping_type", lambda _: "fields and values"),
    ("model_", lambda _: "fields and values"),
    ("dataclass_type", lambda _: "fields and values"),
)
"""What would be right, by how the type in pydantic begins; the first that fits counts."""


def _one_of(expected: object) -> str:
    """Pydantic writes the last of the names after an "or"."""
    names = str(expected)
    return f"one of {names}" if "," in names or " or " in names else names
