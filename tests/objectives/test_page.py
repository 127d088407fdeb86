"""The generated page is the docstrings', and the docstrings say what it needs."""

import re
import sys

import pytest

import objectives
from objectives import trust_region
from objectives.page import FILE, render


def test_the_page_is_up_to_date() -> None:
    assert FILE.read_text(encoding="utf-8") == render(), "run: python -m objectives.page"


@pytest.mark.parametrize("name", objectives.names())
def test_an_objective_states_loss_weight_denominators_and_where_its_defaults_come_from(name: str) -> None:
    text = sys.modules[f"objectives.{name}"].__doc__ or ""
    for pattern in (r"^    .*(loss|policy) *=", r"^    c_t *=", r"^Weights: ", r"^Defaults(:| )", r"Differs from"):
        assert re.search(pattern, text, re.MULTILINE), pattern


def test_the_page_has_a_section_for_every_name() -> None:
    headings = re.findall(r"^### (\w+)$", render(), re.MULTILINE)
    assert headings == [*objectives.names(), *trust_region.names()]
