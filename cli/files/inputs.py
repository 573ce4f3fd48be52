"""What `--model` and `--cluster` name: a catalog entry, a short form or a file."""

import re
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import NoReturn

from trainplan.cli.files.disk import errors_of
from trainplan.cli.files.documents import Document, read_document, read_json
from trainplan.cli.files.readable import FILE_SUFFIXES, is_folder, is_there
from trainplan.cli.terminal import remark
from trainplan.costmodel.architecture import ModelSpec
from trainplan.costmodel.base import (
    CatalogError,
    SpecError,
    UnsupportedError,
    shortened,
    unknown_name,
)
from trainplan.costmodel.catalog import gpu, host
from trainplan.costmodel.families import NOT_MODELLED, Reading, read_config
from trainplan.costmodel.hardware import MOST_GPUS, ClusterSpec
from trainplan.costmodel.model import num_parameters
from trainplan.costmodel.presets import (
    note_of,
    preset_config,
    preset_named,
    preset_names,
    read_cluster,
    repositories,
)

CONFIG = "config.json"
ENDLESS = ("time_step_limit",)
"""Fields of it that published files leave without a bound: steps of state spaces, no size. Source:
transformers `configuration_mamba2.py` and its kin."""
INDEX = "model.safetensors.index.json"
"""Next to it in a folder of weights. Source: transformers `modeling_utils.py`, save_pretrained."""
REPOSITORY = re.compile(r"[A-Za-z0-9][\w.-]{0,95}/[A-Za-z0-9][\w.-]{0,95}")
"""A name of Hugging Face that a command may be shown with. Source: huggingface_hub
`utils/_validators.py`, validate_repo_id: letters, digits, `-_.`, at most 96 characters."""


def load_model(text: str) -> ModelSpec:
    """As `read_model`, the model alone; prints which preset another name is."""
    model = read_model(text).model
    if intended := _text_of(text, model):
        remark(intended)
    return model


def _text_of(text: str, model: ModelSpec) -> str:
    """What a name of Hugging Face was taken for; empty where it is the preset's own, or a file."""
    if text == model.name or model.name not in preset_names() or model.name != preset_named(text):
        return ""
    known, note = repositories(model.name), note_of(model.name)
    named = f"model {model.name} ({known[0]})" if known else f"model {model.name}"
    same = (
        "" if text.lower() in map(str.lower, known) else f", the architecture of {shortened(text)}"
    )
    return f"{named}{same}" + (f": {note}" if note else "")


def read_model(text: str) -> Reading:
    """A preset or its Hugging Face name, a `config.json`, its folder, or our YAML, as it was read.

    Raises:
        PlanError: It is none of these, or the file is wrong; the message has the place.
    """
    if text in preset_names():
        return read_config(preset_config(text), text)
    path = Path(text) / CONFIG if text and is_folder(Path(text)) else Path(text)
    if not text or not is_there(path):
        if preset := preset_named(text):
            return read_config(preset_config(preset), preset)
        _unknown_model(text)
    document = read_document(path, endless=ENDLESS)
    if path.suffix.lower() in (".yaml", ".yml"):
        model = _named(document, path).validated(ModelSpec)
        return Reading(model, document.values, {}, (), ())
    with errors_of(path):
        reading = read_config(document.values, _model_name(path))
    return replace(reading, notes=(*reading.notes, *_checked(reading.model, path.parent)))


def _checked(model: ModelSpec, folder: Path) -> Iterator[str]:
    """What the index of the weights has, where it is next to the file and differs."""
    path = folder / INDEX
    if not is_there(path):
        return
    metadata = read_json(path)[1].values.get("metadata")
    stated = metadata.get("total_parameters") if isinstance(metadata, dict) else None
    counted = num_parameters(model)
    if isinstance(stated, int) and stated != counted:
        yield f"{INDEX} states {stated:,} parameters, {counted:,} were read of {CONFIG}"


def load_cluster(text: str) -> ClusterSpec:
    """What `costmodel.presets.clusters` reads, or our YAML; prints what was not in the text.

    Raises:
        PlanError: It is neither, the file is wrong or a GPU is unknown.
    """
    path = Path(text)
    is_file = text and is_there(path) and not is_folder(Path(text))
    if path.suffix.lower() not in FILE_SUFFIXES and not is_file:
        written = read_cluster(text)
        for one in written.remarks:
            remark(one)
        return written.cluster
    document = read_document(path)
    cluster = document.validated(ClusterSpec)
    for number, group in enumerate(cluster.groups):
        _check(gpu, group.gpu, document, number, "gpu")
        if group.host and group.host.like:
            _check(host, group.host.like, document, number, "host", "like")
    if cluster.num_gpus > MOST_GPUS:
        raise SpecError(
            f"cluster {shortened(text)!r} has {cluster.num_gpus:,} GPUs: at most {MOST_GPUS:,} "
            "are planned"
        )
    return cluster


def _check(known: Callable[[str], object], name: str, document: Document, *key: str | int) -> None:
    """Is a name of a group in its catalog?"""
    try:
        known(name)
    except CatalogError as error:
        raise document.error(str(error), ("groups", *key)) from error


def _named(document: Document, path: Path) -> Document:
    """Our YAML may leave its name to the file's."""
    values = {"name": _model_name(path), **document.values}
    return Document(document.path, values, document.root)


def _model_name(path: Path) -> str:
    return path.resolve().parent.name if path.name == CONFIG else path.stem


def _unknown_model(text: str) -> NoReturn:
    if text and is_folder(Path(text)):
        raise SpecError(f"{text}: no {CONFIG} in this folder")
    if Path(text).suffix.lower() in FILE_SUFFIXES:
        raise SpecError(f"{text}: no such file; give a config.json, its folder or a preset's name")
    name = text.rstrip("/").rsplit("/", 1)[-1].lower()
    words = re.split(r"[^a-z0-9]+", name)
    for model_type, what in NOT_MODELLED.items():
        if model_type in words or model_type == name:
            raise UnsupportedError(
                f"model {text!r} {what}, which is not modelled; give a decoder-only transformer "
                "(`plan catalog models` lists presets)"
            )
    hint = "`plan catalog models` lists presets; a Hugging Face config.json or its folder works too"
    if REPOSITORY.fullmatch(text):
        hint = (
            "nothing is fetched from Hugging Face: give --model the folder of its config.json "
            f"(`hf download {text} config.json --local-dir {name}`), or a preset "
            "(`plan catalog models`)"
        )
    raise unknown_name("model", text, preset_names(), hint, alike=name)
