"""The page of a study: what is on it, that it is whole by itself, and that nothing on it can act."""

import re

import pytest

from harness.reports.figures import FIGURES
from harness.reports.figures.saving import save
from harness.reports.page import CellSamples, PageSources, Provenance, render_page
from harness.reports.page.content import MOST_ROWS, SHOWN_ROWS, Grid, arm_grid, cell_grid, failure_grid, grid
from harness.reports.tables import all_tables

HOSTILE = '<script>document.title="owned"</script><img src=x onerror=alert(1)>" onload="alert(2) </pre>\u202eabc\x00'


def sample(response, verdict="wrong", value=0.0):
    row = {"id": "test-1", "prompt": "1+1=", "response": response, "reason": HOSTILE, "split": "test"}
    return row | {"difficulty": "", "verdict": verdict, "value": value, "fraction": 1.0}


SOURCES = PageSources(
    Provenance(
        "kills & <b>bold</b>", HOSTILE, f"name = '{HOSTILE}'", {"a.b": HOSTILE}, [("torch", HOSTILE)], [HOSTILE]
    ),
    [CellSamples("abc", HOSTILE, [("best", sample(HOSTILE, "pass", 1.0)), ("worst", sample("", "infra", None))])],
    "Of all cells.",
)


@pytest.fixture(scope="module")
def page(study, drawn):
    pictures = {"final_scores": save(drawn["final_scores"], "png", None)}
    return render_page(study, "grpo", all_tables(study), pictures, SOURCES).decode()


def test_the_page_loads_nothing_from_anywhere(page) -> None:
    for address in re.findall(r'(?:src|href)="([^"]+)"', page):
        assert address.startswith(("data:image/png;base64,", "#", "tables/")), address
    assert "http://" not in page
    assert "https://" not in page
    assert "@import" not in page


def test_what_a_model_wrote_is_escaped_everywhere(page) -> None:
    assert "<script>document" not in page
    assert "<img src=x" not in page
    assert page.count("<script") == 1
    assert "\u202e" not in page
    assert "\x00" not in page
    assert page.count("&lt;script&gt;document.title=") >= 7
    assert "\\u202e" in page


def test_every_unfinished_cell_is_on_top_with_its_cause(study, page) -> None:
    rows = failure_grid(study).rows
    assert [row[:5] for row in rows] == [
        ["failed", "gspo", "arithmetic", "tiny-arithmetic", "2"],
        ["running", "gspo+dual", "arithmetic", "tiny-arithmetic", "0"],
        ["missing", "grpo", "synthesis", "tiny-synthesis", "1"],
    ]
    assert rows[0][5:7] == ["nan loss", "100%"]  # the synthetic study spends its budget in 6 iterations
    assert page.index("nan loss") < page.index("Objectives at matched compute")
    assert "27 completed" in page
    assert "1 failed" in page


def test_an_unfinished_cell_has_no_score_among_the_cells(study) -> None:
    table = cell_grid(study)
    final = list(table.header).index("final")
    assert len(table.rows) == 30
    assert {row[0]: row[final] for row in table.rows if row[0] != "completed"} == dict.fromkeys(
        ("failed", "running", "missing"), "n/a"
    )


def test_every_table_but_the_wall_clock_is_there(study, page) -> None:
    for table in all_tables(study):
        assert (f'id="table-{table.name}"' in page) == (table.name != "timing")
    assert 'href="tables/timing.md"' in page


def test_arms_show_what_is_theirs(study) -> None:
    assert arm_grid(study).rows[3] == ["gspo+dual", "gspo", "dual", "lr = 1e-4"]


def test_equal_records_give_equal_bytes(study, drawn, page) -> None:
    pictures = {"final_scores": save(drawn["final_scores"], "png", None)}
    assert render_page(study, "grpo", all_tables(study), pictures, SOURCES).decode() == page


def test_a_table_of_many_rows_is_cut_and_says_so(study, monkeypatch) -> None:
    from harness.reports.page import render

    many = Grid("cells", "Cells", ["arm", "seed"], [["a", str(n)] for n in range(MOST_ROWS)], num_rows=5_000)
    monkeypatch.setattr(render, "cell_grid", lambda _: many)
    text = render_page(study, "grpo", [], {}, SOURCES).decode()
    assert "The first 2,000 of 5,000 rows" in text
    assert f'data-shown="{SHOWN_ROWS}"' in text
    assert "<h2>Figures</h2>" not in text


@pytest.mark.parametrize(
    ("entries", "numeric"),
    [
        (["0.512 ± 0.034", "n/a (0 seeds)", "-"], True),
        (["1.23e+12", "12,800"], True),
        (["+0.100 [-0.1, +0.2]", "baseline"], True),
        (["2/3 seeds, 1 failed", "3/3 seeds"], False),
        (["3rd", "4"], False),
        (["n/a", "-"], False),
        (["grpo"], False),
    ],
)
def test_a_column_sorts_as_numbers_only_if_all_of_it_is(entries, numeric) -> None:
    assert Grid("t", "t", ["x"], [[entry] for entry in entries]).numeric == [numeric]


def test_every_figure_has_a_caption() -> None:
    assert all(draw.__doc__ for draw in FIGURES.values())


def test_a_table_of_the_report_links_its_numbers(study) -> None:
    assert grid(all_tables(study)[0]).csv == "tables/comparison.csv"
