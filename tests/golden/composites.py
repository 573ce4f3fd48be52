"""Decoders inside larger configurations of transformers, as recorded."""

import json
from pathlib import Path

PATH = Path(__file__).with_suffix(".json")
STATED = (None, True, False)
"""What a file says of `tie_word_embeddings`; null: it lacks the field."""


def merged(file, changes):
    """The file with other values, section by section; null: without the field."""
    found = dict(file)
    for name, value in changes.items():
        if value is None:
            found.pop(name, None)
        else:
            found[name] = merged(file[name], value) if isinstance(value, dict) else value
    return found


def recorded():
    """`model_type` -> section, ties, parameters of body, table and head, config."""
    return json.loads(PATH.read_text("utf-8"))["types"]
