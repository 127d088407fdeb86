"""Fields are checked row by row; a refusal names place, field, what was found and what was expected."""

import pytest

from tasks.sources.rows import Row
from tasks.sources.schema import Field, check

PLACE = "test.jsonl line 7"


def row(**values):
    return Row(PLACE, values)


FITS = {
    "str": ["", "x"],
    "int": [0, -3],
    "number": [1, 1.5],
    "bool": [True, False],
    "int or str": [3, "3"],
    "list": [[], [1, "x"]],
    "list of str": [[], ["x"]],
    "object": [{}, {"a": 1}],
    "any": [0, "", [], False],
}
MISFITS = {
    "str": [1, None, ["x"], True],
    "int": [1.0, "1", True, None],
    "number": ["1", False, None],
    "bool": [0, "true", None],
    "int or str": [1.5, True, None],
    "list": ["x", {}, None],
    "list of str": [["x", 1], "x", None],
    "object": [[], "x", None],
    "any": [None],
}


@pytest.mark.parametrize("kind", FITS)
def test_values_of_the_kind_are_taken_and_others_refused(kind):
    for value in FITS[kind]:
        check(row(a=value, further=None), [Field("a", kind)])
    for value in MISFITS[kind]:
        with pytest.raises(ValueError, match=rf"^test\.jsonl line 7: field 'a' is .*, expected {kind}$"):
            check(row(a=value), [Field("a", kind)])


def test_a_misspelt_field_is_hinted_at():
    with pytest.raises(ValueError, match=r"^test\.jsonl line 7: no field 'question' \(str\), did you mean 'qestion'\?"):
        check(row(qestion="x", answer="y"), [Field("question", "str")])


def test_a_foreign_row_shows_its_fields():
    with pytest.raises(ValueError, match=r"no field 'question' \(str\); fields found: 'text', 'code'$"):
        check(row(text="x", code="y"), [Field("question", "str")])
    with pytest.raises(ValueError, match=r"no field 'question' \(str\); fields found: 'solution'$"):
        check(row(solution="x"), [Field("question", "str")])
    with pytest.raises(ValueError, match=r"fields found: none$"):
        check(row(), [Field("question", "str")])


def test_null_is_taken_where_said_and_stands_for_absence_of_an_optional_field():
    check(row(a=None), [Field("a", "str", nullable=True)])
    check(row(a=None), [Field("a", "str", required=False)])
    check(row(), [Field("a", "str", required=False)])
    with pytest.raises(ValueError, match="no field 'a'"):
        check(row(), [Field("a", "str", nullable=True)])
    with pytest.raises(ValueError, match=r"field 'a' is 3 \(int\), expected str"):
        check(row(a=3), [Field("a", "str", required=False)])


def test_half_a_surrogate_pair_is_refused_wherever_it_hides():
    for value in ("x\ud800", ["x", "\udfff"], {"\ud800": 1}, {"a": ["\ud800"]}):
        with pytest.raises(ValueError, match="line 7: field 'a' holds half a surrogate pair"):
            check(row(a=value), [Field("a", "any")])
    check(row(a="\U0001f600 \u00e9"), [Field("a", "any")])


def test_a_long_value_is_cut():
    with pytest.raises(ValueError, match="expected int") as refusal:
        check(row(a="x" * 10_000), [Field("a", "int")])
    assert len(str(refusal.value)) < 120


def test_an_unknown_kind_is_refused():
    with pytest.raises(ValueError, match="field 'a' has the kind 'string', expected one of str, int"):
        Field("a", "string")
