"""`--lengths`: histograms in files, distributions, and what is refused."""

import pytest

from trainplan.cli.values.lengths import with_lengths
from trainplan.costmodel.base.errors import SpecError
from trainplan.costmodel.job.job import LengthSpec, Lognormal, TrainingSpec

TRAINING = TrainingSpec(seq_length=4096, global_batch_size=8, tokens=10**9)


def read(tmp_path, text, name="lengths.csv", packing="greedy"):
    path = tmp_path / name
    path.write_text(text, encoding="utf-8")
    return with_lengths(TRAINING, str(path), packing)


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("a.csv", "length,count\n512,3\n1024,1.5\n\n512,1\n"),
        ("a.csv", " 1024 , 1.5 \n512,4"),
        ("a.json", '{"512": 4, "1024": 1.5}'),
        ("a.json", "[[1024, 1.5], [512, 4]]"),
    ],
)
def test_a_histogram_is_read_from_csv_and_json(tmp_path, name, text):
    found = read(tmp_path, text, name)
    assert found.lengths == LengthSpec(counts=((512, 4.0), (1024, 1.5)))
    assert (found.packing, found.tokens, found.seq_length) == ("greedy", 10**9, 4096)


def test_a_distribution_is_two_numbers():
    found = with_lengths(TRAINING, "lognormal:2048,1.5", None)
    assert found.lengths == LengthSpec(lognormal=Lognormal(mean=2048, sigma=1.5))
    assert found.packing == "none"


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("512,-3\n", r"lengths.csv line 1: count -3 is negative"),
        ("512,0\n1024,0\n", "all counts are 0"),
        ("length,count\n", "no lengths: write a line LENGTH,COUNT"),
        ("1,1\n51.5,2\n", r"line 2: length 51.5 is no whole number"),
        ("long,2\n", "line 1: length 'long' is no whole number"),
        ("0,2\n", "line 1: length 0: must be 1 to"),
        ("512,many\n", "line 1: count 'many' is no number"),
        ("512,nan\n", "line 1: count nan is no number"),
        ("512;3\n", "line 1: '512;3': write LENGTH,COUNT"),
        ("5000,1\n", "5000 tokens does not fit a row of seq_length = 4096: raise seq_length"),
    ],
)
def test_a_wrong_histogram_is_refused_with_its_line(tmp_path, text, says):
    with pytest.raises(SpecError, match=says):
        read(tmp_path, text)


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("{", "not JSON"),
        ("3", r"entry 1: 3: write \[\[LENGTH, COUNT\]"),
        ("[[512]]", "entry 1: a list: write"),
        ('{"x": 1}', "entry 1: length 'x' is no whole number"),
        ("[[512, true]]", "entry 1: count true is no number"),
        (f"[[512, 1{'0' * 400}]]", "is no number"),
    ],
)
def test_wrong_json_is_refused_with_its_entry(tmp_path, text, says):
    with pytest.raises(SpecError, match=says):
        read(tmp_path, text, "lengths.json")


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("lognormal:4096", "write lognormal:MEAN,SIGMA"),
        ("lognormal:a,b", "write lognormal:MEAN,SIGMA"),
        ("lognormal:0,1", "mean must be at least 1"),
        ("lognormal:4096,-1", "sigma must be at least 0"),
    ],
)
def test_a_wrong_distribution_is_refused(text, says):
    with pytest.raises(SpecError, match=says):
        with_lengths(TRAINING, text, "greedy")


def test_packing_without_lengths_says_what_is_missing():
    assert with_lengths(TRAINING, None, "none") is TRAINING
    with pytest.raises(SpecError, match="--packing balanced needs --lengths"):
        with_lengths(TRAINING, None, "balanced")
