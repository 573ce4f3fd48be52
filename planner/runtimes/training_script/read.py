"""What launches of a training script of the user's own have in common.

Its model is built by code that is not run, and ranks, sequences and micro batches may stand in its
arguments: those of Hugging Face transformers (`training_args.py`, and `run_clm.py` below
`examples/pytorch/language-modeling`) are read.
"""

from collections.abc import Container, Mapping

from trainplan.costmodel.architecture import ModelSpec
from trainplan.costmodel.hardware import ClusterSpec
from trainplan.costmodel.layout import Layout
from trainplan.costmodel.presets import preset_named, preset_names
from trainplan.costmodel.spec import LARGEST_SIZE
from trainplan.planner.runtimes.keys import Entry, Notes
from trainplan.planner.runtimes.ranks import machines_of
from trainplan.planner.runtimes.reading import Request
from trainplan.planner.runtimes.training_script.adapters import (
    check_options,
    check_tower,
    trained_of,
)
from trainplan.planner.runtimes.training_script.names import NAMES
from trainplan.planner.runtimes.training_script.script import Script
from trainplan.planner.shell import Launch, Word

SEQUENCE: tuple[str, ...] = tuple(NAMES["sequence"])
NAMED = 5
"""Names of a length that an answer lists."""
MICRO, ACCUMULATED = NAMES["micro"][0], NAMES["accumulated"][0]
MICROS, ACCUMULATIONS = tuple(NAMES["micro"]), tuple(NAMES["accumulated"])
CHECKPOINTING = "gradient_checkpointing"
CHECKPOINTINGS: tuple[str, ...] = tuple(NAMES["checkpointing"])
LIGER: tuple[str, ...] = tuple(NAMES["liger"])
HF_MICRO = 8
"""Of TrainingArguments, where nothing is said."""
FULL = {"recompute": "full", "recompute_method": "uniform", "recompute_num_layers": 1}


FP32 = Entry("tf32", "assumed", "neither bf16 nor fp16")
"""Weights and products in fp32, which are priced as matrix units multiply them."""


def text_of(notes: Notes, path: Word, request: Request) -> str | None:
    """Text of a file that a launch names; else a problem.

    Where a run would tell the folder, as in exported scripts, it is sought beside the launch.
    """
    name = path.text.rpartition("/")[2] if path.unresolved or "$" in path.text else path.text
    text = None if "$" in name or not name else request.text_of(name)
    if text is None:
        says = f"there is no {path.text} to read: give that file alone, or run next to it"
        notes.problem("no_config", "unread", says, path.place)
    return text


def cluster_of(notes: Notes, launch: Launch, request: Request, ranks: int) -> ClusterSpec | None:
    """What so many ranks run on; else a problem."""
    machines = machines_of(launch, request, ranks)
    notes.fields += machines.fields
    notes.problems += machines.problems
    return machines.cluster


def model_of(
    notes: Notes, request: Request, script: Script, priced: Container[str] = ()
) -> ModelSpec | None:
    """The model asked about, or the one that the arguments name, with what is trained of it.

    `priced`: options that the runtime prices, and that scripts in general do not.

    Null, with a problem: neither says its shape.
    """
    entry = script.text(*NAMES["model"])
    model = request.model
    if model is not None:
        entry = Entry(None, "assumed", "--model of `plan check`")
    elif entry is not None:
        model = request.model_of(str(entry.value))
    if model is None:
        says = "the model is built by the training script, which is not run: give it with --model"
        open_words = (script.options.get(name, (None,))[0] for name in NAMES["model"])
        unknown = next((word for word in open_words if word and word.unresolved), None)
        if entry is not None:
            says = (
                f"the launch names the model {str(entry.value)[:80]}, which is no preset and no "
                "folder with a config.json here: give --model"
            )
        elif unknown is not None:
            says = f"the model is {unknown.text[:80]}, known to a run alone: give --model"
        notes.problem("unread_model", "unread", says, entry and entry.place)
        return None
    assert entry is not None
    stated = str(entry.value)
    if request.model is None and model.name in preset_names() and not preset_named(stated):
        says = (
            f"{stated[:80]} is taken for {model.name} by its last part: give --model if it is not"
        )
        notes.problem("model_by_name", "unread", says, entry.place)
    notes.note("model.name", entry._replace(value=model.name))
    check_options(notes, script, priced)
    check_tower(notes, script, model)
    return trained_of(notes, request, script, model)


def optimizer_of(notes: Notes, script: Script, priced: Container[str]) -> Entry | None:
    """The optimizer that `--optim` names; null: it is not there."""
    stated = script.text("optim")
    if stated is None:
        return None
    name = NAMES["optimizers"].get(str(stated.value).lower())
    if name not in priced:
        notes.problem(
            "optimizer", "unmodelled", f"{stated.written} is priced as AdamW", stated.place
        )
    return stated._replace(value=name if name in priced else "adamw")


def sequence_of(notes: Notes, request: Request, script: Script) -> int | None:
    """Tokens of a sequence, from the arguments or as asked; else a problem."""
    written = script.number(notes, *SEQUENCE)
    parts = [script.number(notes, name) for name in NAMES["summed"]] if written is None else []
    if parts and all(parts):
        whole = sum(int(str(one.value)) for one in parts if one)
        written = Entry(whole, "derived", " + ".join(one.written for one in parts if one))
    if written is None and request.seq_length is not None:
        written = Entry(request.seq_length, "assumed", "--seq-length of `plan check`")
    if written is None:
        names = ", ".join(f"--{name}" for name in SEQUENCE[:NAMED])
        says = f"the length of a sequence is not stated ({names}): give it with --seq-length"
        notes.problem("unread_sequence", "unread", says)
        return None
    notes.note("training.seq_length", written)
    assert isinstance(written.value, int)
    return written.value


def batch_fits(notes: Notes, batch: int, length: int) -> bool:
    """Are both of a size that a job may have? Else a problem."""
    if max(batch, length) <= LARGEST_SIZE:
        return True
    notes.problem("batch_size", "illegal", f"{batch} sequences of {length} tokens: lower them")
    return False


def note_layout(notes: Notes, layout: Layout, entries: Mapping[str, Entry]) -> None:
    """All fields of a layout; those that nothing says are the runtime's own."""
    noted = {one.name for one in notes.fields}
    for name, value in layout.model_dump(mode="json").items():
        if f"layout.{name}" in noted:
            continue
        one = entries.get(name, Entry(value, "default"))
        notes.note(f"layout.{name}", one._replace(value=value))
