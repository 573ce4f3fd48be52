"""Whose configuration a file is, seen from its keys; nothing that it names is opened.

command_keys: a command as keys.
document_of: the keys of a configuration.
format_of: the name of the format that it is of.
FORMATS: every format that is known, by its name.
"""

from typing import TYPE_CHECKING

from trainplan.costmodel.base import door

if TYPE_CHECKING:
    from trainplan.planner.formats.formats import FORMATS, command_keys, document_of, format_of
else:
    __getattr__ = door(__name__)
