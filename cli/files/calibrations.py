"""Calibration files: the JSON form `trainplan/calibration/v1`."""

from __future__ import annotations

from collections.abc import Mapping

from trainplan.cli.files.documents import Document
from trainplan.costmodel.spec.evidence.calibration import SCHEMA, Calibration


def calibration_json(calibration: Calibration) -> Mapping[str, object]:
    """A calibration as its public document."""
    return {"schema": SCHEMA, **calibration.model_dump(mode="json")}


def calibration_of(document: Document) -> Calibration:
    """A calibration out of its document.

    Raises:
        FileError: It is none, is of another version, or wrong.
    """
    values = dict(document.values)
    schema = values.pop("schema", None)
    if schema is None:
        raise document.error(
            "no calibration: the key 'schema' is missing; `plan calibrate --output` writes them"
        )
    if schema != SCHEMA:
        raise document.error(
            f"schema {str(schema)[:60]!r} is not {SCHEMA!r}: make it with `plan calibrate` of this "
            "version"
        )
    return Document(document.path, values, document.root).validated(Calibration)
