"""Writing numbers and tables: one way, escaped, balanced."""

import math

import pytest

from harness.reports.comparison import comparison_table
from harness.reports.formats import Table, amount, escape_latex, number, scientific, to_csv, to_latex, to_markdown


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("gspo_subsequence & 5%", r"gspo\_subsequence \& 5\%"),
        (r"a\b{c}", r"a\textbackslash{}b\{c\}"),
        ("~^#$", r"\textasciitilde{}\textasciicircum{}\#\$"),
        ("2.00e+12", r"$2.00 \times 10^{12}$"),
        ("1.5e-05", r"$1.5 \times 10^{-5}$"),
        ("-0.012 [-0.2, +0.1]", "$-$0.012 [$-$0.2, +0.1]"),
        ("0.5 ± 0.1", r"0.5 $\pm$ 0.1"),
        ("gspo-2", "gspo-2"),
        ('say "x" with `--retry-failed`', r"say ''x'' with \textasciigrave{}-{}-retry-failed\textasciigrave{}"),
    ],
)
def test_latex_escaping(text, expected):
    assert escape_latex(text) == expected


def test_latex_is_booktabs_with_every_column_and_balanced_rows(study):
    table = comparison_table(study)
    text = to_latex(table)
    assert [text.count(rule) for rule in (r"\toprule", r"\bottomrule", r"\begin{tabular}", r"\end{tabular}")] == [3] * 4
    assert {column for part in table.parts for column in part} == set(range(len(table.header)))
    width = 0
    for line in text.splitlines():
        if line.startswith(r"\begin{tabular}"):
            width = line.count("l", len(r"\begin{tabular}"))
        if line.endswith(r" \\"):
            assert line.replace(r"\&", "").count(" & ") == width - 1


def test_latex_rules_stand_between_groups_and_not_between_all_rows():
    def rules(rows):
        return to_latex(Table("t", "T", ["task", "arm"], rows, [], [])).count(r"\midrule")

    assert rules([["a", "x"], ["a", "y"], ["b", "x"]]) == 2
    assert rules([["x", "1"], ["y", "2"], ["z", "3"]]) == 1


def test_latex_sets_failures_apart_in_lines_and_leaves_out_a_list_of_none():
    def text(*failures):
        rows = [["t", f"arm {place}", cause] for place, cause in enumerate(failures)]
        return to_latex(Table("t", "T", ["task", "arm", "failures"], rows, [], [], [[0, 1], [0, 1, 2]]))

    broken = text("none", "failed: seed 1 (" + 40 * "x " + ")")
    assert broken.count(r"\begin{tabular}") == 2
    assert r"\begin{tabular}{llp{0.36\linewidth}}" in broken
    assert "All cells completed" not in broken
    whole = text("none", "none")
    assert whole.count(r"\begin{tabular}") == 1
    assert "All cells completed." in whole


def test_a_part_that_says_more_than_none_stays():
    parts = [[0], [0, 1, 2]]
    table = Table("t", "T", ["arm", "fit", "failures"], [["x", "refused: why", "none"]], [], [], parts)
    assert "refused: why" in to_latex(table)


def test_markdown_cannot_be_broken_by_a_cause():
    table = Table("t", "T", ["a"], [["x | y\nz"]], ["n"], [{"a": 'say "x, y"'}])
    assert r"| x \| y z |" in to_markdown(table)
    assert to_csv(table) == 'a\n"say ""x, y"""\n'


def test_numbers_are_written_one_way():
    assert [number(-0.0001), number(math.nan), number(0.25, signed=True), number(-0.0001, signed=True)] == [
        *("0.000", "n/a", "+0.250", "0.000"),
    ]
    assert [amount(12_800.0), amount(2.5e6), scientific(math.nan)] == ["12,800", "2.50e+06", "n/a"]
