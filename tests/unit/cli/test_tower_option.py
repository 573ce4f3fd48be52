"""`--tower` and `--fix tower=`: what is stated of a tower."""

import pytest

from tests.conftest import SMALL_DENSE, SMALL_SEEING
from trainplan.cli.values.tower import place_of, with_tower
from trainplan.costmodel.base.errors import SpecError


def test_what_is_stated_replaces_what_the_model_says():
    tower = with_tower(SMALL_SEEING, "samples=2,patches=256,frozen=encoder").tower
    assert (tower.samples_per_sequence, tower.patches_per_sample) == (2, 256)
    assert tower.frozen == "encoder"
    assert tower.hidden_size == SMALL_SEEING.tower.hidden_size


def test_patches_that_are_stated_are_not_assumed():
    assumed = SMALL_SEEING.tower.model_copy(update={"patches_assumed": True})
    model = SMALL_SEEING.model_copy(update={"tower": assumed})
    assert not with_tower(model, "patches=256").tower.patches_assumed
    assert with_tower(model, "samples=2").tower.patches_assumed


def test_none_leaves_the_text_alone():
    assert with_tower(SMALL_SEEING, "none").tower is None
    assert with_tower(SMALL_SEEING, None) is SMALL_SEEING


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("wide=3", "write none, or some of samples=VALUE"),
        ("samples", "write none, or some of samples=VALUE"),
        ("samples=2,samples=3", "samples is given twice"),
        ("samples=0", "above 0"),
        ("patches=255", "not a multiple of merged_patches = 4"),
        ("frozen=half", "frozen=half"),
    ],
)
def test_a_text_that_is_wrong_is_refused_in_one_line(text, says):
    with pytest.raises(SpecError, match=says) as refused:
        with_tower(SMALL_SEEING, text)
    assert "\n" not in str(refused.value)


def test_a_model_that_neither_sees_nor_hears_has_no_tower():
    with pytest.raises(SpecError, match="small-dense has no tower"):
        with_tower(SMALL_DENSE, "samples=2")


def test_the_place_of_a_tower_is_held_beside_fields_of_the_layout():
    assert place_of(("tp=2", "tower=apart")) == ("apart", ("tp=2",))
    assert place_of(("tower=unified",)) == ("unified", ())
    assert place_of(("tp=2",)) == ("unified", ("tp=2",))


@pytest.mark.parametrize("fix", [("tower=aside",), ("tower=apart", "tower=unified")])
def test_a_tower_is_in_one_of_two_places(fix):
    with pytest.raises(SpecError, match="--fix tower"):
        place_of(fix)
