"""What launches of a training script of the user's own have in common.

Its model is built by code that is not run, and ranks, sequences and micro batches may stand in its
arguments: those of Hugging Face transformers (`training_args.py`, and `run_clm.py` below
`examples/pytorch/language-modeling`) are read.
"""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from trainplan.costmodel.architecture import ModelSpec
from trainplan.costmodel.hardware import ClusterSpec
from trainplan.costmodel.job import LARGEST_SIZE
from trainplan.costmodel.layout import Layout
from trainplan.planner.runtimes.keys import Entry, Notes
from trainplan.planner.runtimes.ranks import machines_of
from trainplan.planner.runtimes.reading import Request
from trainplan.planner.shell import Launch, Word, number

SEQUENCE = ("block_size", "max_seq_length", "max_seq_len", "max_length", "model_max_length")
MICRO, ACCUMULATED = "per_device_train_batch_size", "gradient_accumulation_steps"
CHECKPOINTING = "gradient_checkpointing"
TUNED = ("finetuning_type", "tuner_type", "train_type")
ADAPTED = ("use_peft", "lora_r", "lora_rank", "adapter", *TUNED)
WHOLE = ("false", "full", "none", "")
"""Arguments that add adapters, and values that add none. Source: huggingface/trl `ModelConfig`,
hiyouga/LLaMA-Factory `FinetuningArguments`, modelscope/ms-swift, axolotl-ai-cloud/axolotl."""
HF_MICRO = 8
"""Of TrainingArguments, where nothing is said."""
FULL = {"recompute": "full", "recompute_method": "uniform", "recompute_num_layers": 1}


FP32 = Entry("tf32", "assumed", "neither bf16 nor fp16")
"""Weights and products in fp32, which are priced as matrix units multiply them."""


class Script(NamedTuple):
    """Arguments of the script that say something of a layout."""

    options: Mapping[str, tuple[Word | None, Word]]
    """Value and option, by name without dashes in front and with underscores; the last of each."""

    def number(self, notes: Notes, *names: str) -> Entry | None:
        """A number of 1 or more; null: none of them is there."""
        for name in names:
            if name not in self.options:
                continue
            value, word = self.options[name]
            count = number(value)
            if count:
                assert value is not None
                return Entry(count, "stated", f"--{name} {value.text}", word.place)
            text = "nothing" if value is None else repr(value.text[:60])
            says = f"--{name} is given {text}, no number of 1 or more that can be read: write one"
            unread = value is not None and bool(value.unresolved)
            notes.problem("argument_value", "unread" if unread else "illegal", says, word.place)
        return None

    def switch(self, name: str) -> Entry | None:
        """`--name`, `--name true`; null: it is not there."""
        if name not in self.options:
            return None
        value, word = self.options[name]
        text = "true" if value is None else value.text.lower()
        on = text in ("true", "1", "yes", "y", "t")
        return Entry(on, "stated", f"--{name}", word.place)


def script_of(arguments: Sequence[Word]) -> Script:
    """The options of a script."""
    found: dict[str, tuple[Word | None, Word]] = {}
    for at, word in enumerate(arguments):
        if not word.text.startswith("--"):
            continue
        name, equals, text = word.text[2:].partition("=")
        value = Word(text, word.place, word.unresolved) if equals else None
        if value is None and at + 1 < len(arguments) and arguments[at + 1].text[:2] != "--":
            value = arguments[at + 1]
        found[name.replace("-", "_")] = (value, word)
    return Script(found)


def text_of(notes: Notes, path: Word, request: Request) -> str | None:
    """Text of a file that a launch names; else a problem.

    Where a run would tell the folder, as in exported scripts, it is sought beside the launch.
    """
    name = path.text.rpartition("/")[2] if path.unresolved else path.text
    text = None if "$" in name or not name else request.text_of(name)
    if text is None:
        says = f"there is no {path.text} to read: give that file alone, or run beside it"
        notes.problem("no_config", "unread", says, path.place)
    return text


def cluster_of(notes: Notes, launch: Launch, request: Request, ranks: int) -> ClusterSpec | None:
    """What so many ranks run on; else a problem."""
    machines = machines_of(launch, request, ranks)
    notes.fields += machines.fields
    notes.problems += machines.problems
    return machines.cluster


def model_of(notes: Notes, request: Request, script: Script) -> ModelSpec | None:
    """The model asked about; else a problem: no configuration says its shape."""
    if request.model is None:
        says = "the model is built by the training script, which is not run: give it with --model"
        notes.problem("unread_model", "unread", says)
        return None
    notes.note("model.name", Entry(request.model.name, "assumed"))
    for name, (value, word) in script.options.items():
        whole = name not in ADAPTED or (value is not None and value.text.lower() in WHOLE)
        if not whole and request.model.trained is None:
            says = f"--{name}: adapters of a script are not read: give them with --train"
            notes.problem("adapters", "unmodelled", says, word.place)
    notes.note("model.trained", Entry(getattr(request.model.trained, "text", "full"), "assumed"))
    return request.model


def sequence_of(notes: Notes, request: Request, script: Script) -> int | None:
    """Tokens of a sequence, from the arguments or as asked; else a problem."""
    written = script.number(notes, *SEQUENCE)
    if written is None and request.seq_length is not None:
        written = Entry(request.seq_length, "assumed", "--seq-length of `plan check`")
    if written is None:
        names = ", ".join(f"--{name}" for name in SEQUENCE)
        says = f"the length of a sequence is not told ({names}): give it with --seq-length"
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
