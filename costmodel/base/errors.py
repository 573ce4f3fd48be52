"""The error tree.

PlanError            what, where, what to do; shown to the user as one line, exit code 2
├── SpecError        a value in a model, cluster, training or layout description is wrong
├── UnsupportedError an architecture, feature or runtime this project does not model
└── CatalogError     a name that is in no catalog; carries the nearest names
"""

from __future__ import annotations

from collections.abc import Iterable

from trainplan.costmodel.base.similar import did_you_mean, shortened


class PlanError(Exception):
    """Bad input; the message says what is wrong, where, and what to do."""


class SpecError(PlanError):
    """A value in a model, cluster, training or layout description is wrong."""


class UnsupportedError(PlanError):
    """Something real that this project does not model or a runtime cannot express."""


class CatalogError(PlanError):
    """A name that is in no catalog."""


def unknown_name(
    kind: str, name: str, known: Iterable[str], hint: str = "", *, alike: str = ""
) -> CatalogError:
    """Error for a name that is not in a catalog, with the nearest names that are.

    `alike` is what is compared with them, where the name as typed holds more than a name.
    """
    nearest = did_you_mean(kind, alike or name, known)
    text = f"unknown {kind} {shortened(name)!r}:"
    return CatalogError(" ".join(part for part in (text, nearest, hint) if part))
