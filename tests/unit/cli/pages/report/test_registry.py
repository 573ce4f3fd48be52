"""Which documents have a page, and what is said of those that have none."""

import pytest

from trainplan.cli.pages.report.registry import Request, page_of
from trainplan.costmodel.base.errors import CatalogError, SpecError

NOTHING_FITS = {
    "schema": "trainplan/infeasible/v1",
    "relaxations": [["twice the GPUs", "recompute=full"]],
}


@pytest.mark.parametrize(
    ("values", "error", "says"),
    [
        ({}, SpecError, "key 'schema' is missing; `plan search --output` writes plans"),
        ({"schema": 3}, SpecError, "key 'schema' is missing"),
        ({"schema": "trainplan/plan/v0"}, SpecError, "is not 'trainplan/plan/v1'"),
        ({"schema": "trainplan/plon/v1"}, CatalogError, "did you mean 'trainplan/plan/v1'"),
        (NOTHING_FITS, SpecError, "it fits with: twice the GPUs and recompute=full"),
        ({"schema": "trainplan/infeasible/v1"}, SpecError, "nothing fits"),
    ],
)
def test_a_document_without_a_page_is_refused_with_the_reason(values, error, says):
    with pytest.raises(error, match=says):
        page_of(Request("x.json", "{}", values))
