"""Releases of the software: which one a name is, and what is said where it is none."""

import pytest

from trainplan.costmodel.catalog import release_of


@pytest.mark.parametrize(
    ("stated", "container"),
    [
        ("nemo:26.04.01", "26.04"),
        ("nvcr.io/nvidia/nemo:26.08.rc2", "26.08"),
        ("core 0.17.1", "26.04"),
        ("2026-05", "26.06"),
        ("26.03", "26.02"),
        ("27.01", "26.08"),
        ("core 0.30", "26.08"),
        ("24.07", "25.11"),
        ("core 0.9", "25.11"),
        ("main", "26.08"),
        ("99.99", "26.08"),
        (None, "26.08"),
    ],
)
def test_a_name_is_the_last_release_before_it(stated, container):
    assert release_of(stated).container == container


def test_a_note_names_the_release_that_is_priced_for_an_unknown_one():
    def notes(stated):
        return list(release_of(stated).notes(stated))

    assert notes("nemo:26.04.01") == notes("core 0.17.1") == []
    assert notes("2026-07") == [
        "release '2026-07' is not in the catalog: priced as 26.06 (Megatron Core 0.18)"
    ]
    [unread] = notes("\x1bmain")
    assert "'\\x1bmain' is not known: priced as 26.08 (Megatron Core 0.19), the newest" in unread
