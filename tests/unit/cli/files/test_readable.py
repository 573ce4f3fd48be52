"""Who asks through a server learns nothing of files outside the folders that may be read."""

import os

import pytest

from trainplan.cli.files.disk import read_text
from trainplan.cli.files.inputs import load_cluster, read_model
from trainplan.cli.files.looks import LOOKS, Looks
from trainplan.cli.files.readable import is_folder, is_there
from trainplan.cli.values.stated import parse_options
from trainplan.costmodel.base.errors import PlanError


@pytest.fixture
def outside(tmp_path):
    """A folder that may not be read, beside the only one that may."""
    (tmp_path / "inside").mkdir()
    (tmp_path / "outside" / "folder").mkdir(parents=True)
    (tmp_path / "outside" / "config.json").write_text("{}")
    (tmp_path / "outside" / "rank0.jsonl").write_text("")
    token = LOOKS.set(Looks(((tmp_path / "inside").resolve(),)))
    yield tmp_path / "outside"
    LOOKS.reset(token)


def written(call, text):
    """The refusal of a text, without it."""
    with pytest.raises(PlanError) as caught:
        call(text)
    return str(caught.value).replace(text, "")


def routing(text):
    return parse_options((f"routing={text}",))


@pytest.mark.parametrize("call", [read_model, load_cluster, routing])
@pytest.mark.parametrize("name", ["config.json", "folder"])
def test_a_file_that_is_there_and_one_that_is_not_are_refused_alike(outside, call, name):
    there, missing = (f"{folder}/{name}" for folder in (outside, outside.parent / "nothing"))
    assert written(call, there) == written(call, missing)
    assert "--allow-files" in written(call, there)


def test_a_name_of_the_catalog_is_read_whatever_lies_in_the_folder_of_the_server(
    outside, monkeypatch
):
    monkeypatch.chdir(outside)
    (outside / "Qwen3-8B").mkdir()
    assert read_model("Qwen3-8B").model.name == "qwen3-8b"


def test_only_files_are_read_for_others(outside):
    pipe = outside.parent / "inside" / "pipe"
    os.mkfifo(pipe)
    with pytest.raises(PlanError, match="is no regular file"):
        read_text(pipe)


@pytest.mark.parametrize("name", ["x" * 5000, "a\0b"])
def test_no_file_has_such_a_name(name, tmp_path):
    assert not is_there(tmp_path / name)
    assert not is_folder(tmp_path / name)
    with pytest.raises(PlanError, match="no such file"):
        routing(name)
