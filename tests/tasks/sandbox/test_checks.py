"""What of a test goes to the program, and what stays with the judge."""

import pytest

from tasks.sandbox import defined_names, read_checks


def one(test, **names):
    (check,) = read_checks([test], **names)
    return check


@pytest.mark.parametrize(
    ("test", "call", "expected"),
    [
        ("assert f(1, [2]) == 3", "f(1, [2])", 3),
        ("assert (1, 2) == f()", "f()", (1, 2)),
        ("assert f('a')=={'a': -1}", "f('a')", {"a": -1}),
        ("assert f(Pair(1, 2)) == True", "f(Pair(1, 2))", True),
        ("assert solve(2).total == 5", "solve(2).total", 5),
        ("assert list(f(1)) == [2]", "list(f(1))", [2]),
        ("assert sorted(set(f(1))) == [2]", "sorted(set(f(1)))", [2]),
        ("assert f(1)[0] == 2", "f(1)[0]", 2),
        ("assert PI == 3", "PI", 3),
    ],
)
def test_an_equality_is_held_by_the_parent(test, call, expected):
    check = one(test)
    assert check.calls == (call,)
    assert (check.expected, check.expression, check.driver) == (expected, "", "")


def test_the_expected_value_is_in_nothing_that_goes_to_the_program():
    for test in (
        "assert f(1) == 4711",
        "assert abs(f(1) - 4711) < 1",
        "assert f(1) in (4711, 4712)",
        "assert 4711 < f(1)",
    ):
        check = one(test)
        assert not any("4711" in call for call in check.calls)


@pytest.mark.parametrize(
    ("test", "expression"),
    [
        ("assert abs(f(2) - 0.5) < 1e-6", "abs(_value0 - 0.5) < 1e-06"),
        ("assert f(1) == f(2)", "_value0 == _value1"),
        ("assert not f(0)", "not _value0"),
        ("assert sorted(f(1), key=abs) == [1]", "sorted(_value0, key=abs) == [1]"),
        ("assert round(f(1), 2) == 1.5", "round(_value0, 2) == 1.5"),
        ("assert f(1) == sys.getsizeof((1,))", "_value0 == sys.getsizeof((1,))"),
        ("assert f(1) is None", "_value0 is None"),
        ("assert f(1) != 3", "_value0 != 3"),
    ],
)
def test_anything_else_is_evaluated_by_the_judge(test, expression):
    assert one(test).expression == expression


@pytest.mark.parametrize(
    "test",
    [
        "assert all(f(x) == x for x in (1, 2))",
        "for x in range(3):\n    assert f(x) == x",
        "assert max([1], key=f) == 1",
    ],
)
def test_calls_that_hang_on_the_tests_own_variables_are_made_by_the_judge(test):
    check = one(test)
    assert check.driver == test
    assert check.names == ("f",)
    assert not check.calls


def test_a_helpers_value_is_not_left_to_the_program():
    check = one("assert decode(encode('abc')) == 'abc'", known={"encode"}, defined={"decode"})
    assert check.driver
    assert check.names == ("decode",)


def test_a_function_may_be_called_like_a_builtin():
    assert one("assert sum(10, 15) == 6", defined={"sum"}).calls == ("sum(10, 15)",)
    with pytest.raises(ValueError, match=r"'assert sum\(10, 15\) == 6' calls nothing of the program's"):
        one("assert sum(10, 15) == 6")


@pytest.mark.parametrize("test", ["assert f(1) ==", "x = (", "\x00"])
def test_a_test_that_is_no_python_is_named(test):
    with pytest.raises(ValueError, match="is no Python"):
        one(test)


def test_defined_names_are_functions_classes_and_variables():
    code = "import math\nfrom re import sub\nA = 1\nclass B:\n    C = 2\ndef d(e):\n    f = 3\n"
    assert defined_names(code) == {"A", "B", "d"}
    assert defined_names("def (") == frozenset()
