"""Files of the user, read and written here alone: strict JSON and YAML, models, profiles.

Document: a parsed file.
errors_of: name the file or option in errors.
FileError: a file that cannot be read or written.
InvalidRun: a record that is JSON and does not follow the schema.
is_there: is there such a file or folder? Where it may not be read, its text alone decides, which
    the caller knows.
load_measured: read all files of `--profile`.
load_model: as `read_model`, the model alone.
load_routing: how often each expert was chosen.
Looks: what someone else than the user may read, and what a command has looked at.
machines_of: the cluster that `--cluster` names, and with a profile for a cluster what it
    measured.
measured_here: measure, going on from the journal of `files`.
NewFile: a file to write.
profile_of: a profile out of its document.
profile_text: a profile as its file.
read_document: read a JSON or YAML file that holds a mapping, or a list to be filed under
    `entries`.
read_json: text and content of a JSON file, both.
read_log: content of a log.
read_model: a preset or its Hugging Face name, a `config.json`, its folder, or our YAML, as it was
    read.
read_runs: every record of a file, in order.
read_text: content of a text file.
refuse_existing: stop early where the result could not be written later.
refuse_folder: as `refuse_existing`, for a folder to be made.
try_writing: write a file next to another and remove it.
write_folder: write a new folder with its files.
write_text: write a file.
"""

from typing import TYPE_CHECKING

from trainplan.costmodel.base import door

if TYPE_CHECKING:
    from trainplan.cli.files.disk import (
        FileError,
        NewFile,
        errors_of,
        read_log,
        read_text,
        refuse_existing,
        refuse_folder,
        try_writing,
        write_folder,
        write_text,
    )
    from trainplan.cli.files.documents import Document, read_document, read_json
    from trainplan.cli.files.inputs import load_model, read_model
    from trainplan.cli.files.looks import Looks
    from trainplan.cli.files.measuring import measured_here
    from trainplan.cli.files.profiles import load_measured, machines_of, profile_of, profile_text
    from trainplan.cli.files.readable import is_there
    from trainplan.cli.files.routing import load_routing
    from trainplan.cli.files.runs import InvalidRun, read_runs
else:
    __getattr__ = door(__name__)
