"""One browser and one set of documents for all tests of reports."""

import pytest

from tests.browser.chromium import Browser
from tests.browser.documents import MADE, Documents


@pytest.fixture(scope="session")
def browser():
    """A tab; skipped with a word where the machine has no Chromium."""
    one = Browser()
    yield one
    one.quit()


@pytest.fixture(scope="session")
def documents(tmp_path_factory):
    """Documents of every kind."""
    return Documents(tmp_path_factory.mktemp("reports"))


@pytest.fixture(scope="module", params=MADE)
def kind(request):
    """Kind of a document."""
    return request.param
