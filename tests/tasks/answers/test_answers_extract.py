"""Where the final answer stands: the last box, the last marker."""

import pytest

from tasks.answers import after_marker, last_boxed


@pytest.mark.parametrize(
    ("text", "content"),
    [
        (r"so \boxed{5}.", "5"),
        (r"\boxed{\frac{1}{2}}", r"\frac{1}{2}"),
        (r"\boxed{5}. Wrong; it is \boxed{7}", "7"),
        (r"\fbox{5}", "5"),
        (r"\boxed{5} \fbox{7}", "7"),
        (r"\boxed {5}", "5"),
        (r"\boxed 5", "5"),
        (r"$\boxed 5$ it is", "5"),
        ("\\boxed 5\nand so on", "5"),
        (r"\boxed 5 or 7", "5 or 7"),
        (r"\boxed 5. Wrong; \boxed{7}", "7"),
        (r"\boxed5", "5"),
        (r"\boxed{ 5 }", "5"),
        (r"\boxed{}", ""),
        (r"\boxed{\{1, 2\}}", r"\{1, 2\}"),
        (r"\boxed{\left\{1\right.}", r"\left\{1\right."),  # an escaped brace opens nothing
        (r"\boxed{\boxed{5}}", r"\boxed{5}"),
        (r"\boxed{5 \text{ or } \boxed{7}}", r"5 \text{ or } \boxed{7}"),  # the outer box of a nest
        (r"\boxed{5 and \boxed{7}", "7"),  # the outer one is not closed
        (r"{{{ \boxed{7}", "7"),
        (r"}}} \boxed{7}", "7"),
        ("\\boxed{a\nb}", "a\nb"),
        (r"\boxed{5", None),
        (r"\boxed{5} then \boxed{7", None),
        (r"\boxed{\}", None),
        (r"\boxed", None),
        (r"\boxedanswer{5}", None),
        (r"\\boxed{5}", None),  # a line break, then a word
        ("boxed{5}", None),
        ("5", None),
        ("", None),
    ],
)
def test_last_boxed(text, content):
    assert last_boxed(text) == content


def test_boxes_are_found_in_one_pass():
    # Each of these takes minutes where every box is searched for its end.
    assert last_boxed("\\boxed{" + "{" * 200_000) is None
    assert last_boxed("\\boxed{" * 50_000) is None
    assert last_boxed("\\boxed{5}" * 50_000) == "5"
    assert last_boxed("\\boxed 5 " * 50_000) == "5"
    assert last_boxed("\\boxed{" * 20_000 + "5" + "}" * 20_000 + "\\boxed{7}") == "7"
    assert last_boxed(("\\boxed" + " " * 100) * 10_000) is None


@pytest.mark.parametrize(
    ("text", "answer"),
    [
        ("9*2=18\n#### 18", "18"),
        ("#### 18\n", "18"),
        ("####18", "18"),
        ("#### 18  \r\n \t\n", "18"),
        ("#### 5\n#### 18", "18"),
        ("#### 5 #### 18", "18"),
        ("#### 1,800 eggs", "1,800 eggs"),
        ("##### 18", "18"),
        ("####", ""),
        ("####\n\n", ""),
        ("####\n18", None),
        ("#### 18\nNo, 19.", None),  # the data set's own format ends with the answer
        ("#### 18\n\nQuestion: another one", None),
        ("### 18", None),
        ("18", None),
        ("", None),
    ],
)
def test_after_marker(text, answer):
    assert after_marker(text, "####") == answer


def test_another_marker():
    assert after_marker("The answer is: 5", "The answer is:") == "5"


def test_an_empty_marker_is_refused():
    with pytest.raises(ValueError, match="marker is '', expected the text before an answer"):
        after_marker("5", "")
