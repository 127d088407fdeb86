"""``evengrad verify``: verdicts on a file of responses, and one clear line for every bad one."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

import tasks
from harness.cli import main
from tasks import VERDICTS

ROOT = Path(__file__).parents[2]
TASK = tasks.make("arithmetic", test_size=6, validation_size=3, train_size=4)
WORDS = ("test_size=6", "validation_size=3", "train_size=4")
EXAMPLES = TASK.examples("test")
STRANGE = '''
import math
from dataclasses import dataclass
from tasks.arithmetic import Arithmetic
from tasks.base import Score


@dataclass(frozen=True)
class Strange(Arithmetic):
    """Judges words: half a point, a broken sandbox, or the number."""

    def score(self, example, response):
        if response == "half":
            return Score(0.5, "wrong", "2 of 4 tests")
        if response == "gone":
            return Score(math.nan, "infra", "sandbox is gone")
        return super().score(example, response)


@dataclass(frozen=True)
class Mistaken(Arithmetic):
    """Gives a wrong gold answer to its longest problems."""

    def gold(self, example):
        return super().gold(example) + ("0" if example.difficulty == "4 operands" else "")


@dataclass(frozen=True)
class Unread(Arithmetic):
    """Cannot read its data."""

    def examples(self, split):
        raise ValueError("gsm8k.jsonl line 3: answer is missing")
'''


@pytest.fixture(autouse=True)
def _own_folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("strange.py").write_text(STRANGE)


def write(*rows, name="responses.jsonl"):
    Path(name).write_text("".join((row if isinstance(row, str) else json.dumps(row)) + "\n" for row in rows))
    return name


def row(number, response):
    return {"id": EXAMPLES[number].id, "response": response}


def verify(*words, task="arithmetic", responses="responses.jsonl"):
    return main(["verify", task, "--responses", responses, *words, *WORDS])


def refused(capsys, *words, **options):
    """Return what a refused command says; it must be one line and exit 2."""
    assert verify(*words, **options) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err.startswith("evengrad: ")
    assert captured.err.count("\n") == 1
    return captured.err


def table(text, head):
    """Return {first word: other words} of the rows of one table."""
    lines = text.split(f"\n{head} ", 1)[1].split("\n\n")[0].splitlines()[1:]
    return {line.split()[0]: line.split()[1:] for line in lines}


def test_verdicts_are_counted_in_their_fixed_order(capsys):
    write(row(0, TASK.gold(EXAMPLES[0])), row(1, "#999999"), row(2, "no answer"), row(2, ""))
    assert verify() == 0
    text = capsys.readouterr().out
    found = table(text, "verdict")
    assert tuple(found) == VERDICTS
    assert (found["pass"], found["wrong"], found["format"]) == (["1", "25.0%"], ["1", "25.0%"], ["2", "50.0%"])
    assert all(found[word] == ["0", "0.0%"] for word in VERDICTS[3:])
    assert "4 responses to 3 of 6 examples" in text
    assert "mean reward   0.333 " in text  # prompts 1, 0, 0
    assert "infra rate     0.0%" in text
    assert f"expected {EXAMPLES[1].data['answer']}, got 999999" in text


def test_infra_and_partial_credit_are_told_apart(capsys):
    write(row(0, "half"), row(1, "gone"), row(2, TASK.gold(EXAMPLES[2])), row(3, "gone"))
    assert verify(task="strange.py:Strange") == 0
    text = capsys.readouterr().out
    assert "mean reward   0.750 " in text
    assert "pass@1        0.500 " in text
    assert "infra rate    50.0%" in text
    assert "2 of 4 responses (50.0%) could not be scored (infra) and are left out" in text
    assert "counted as wrong, pass@1 would be 0.250" in text


def test_nothing_that_could_be_scored_is_missing_and_not_zero(capsys):
    write(row(0, "gone"))
    assert verify(task="strange.py:Strange") == 0
    text = capsys.readouterr().out
    assert "pass@1 leaves out 1 prompt with no scored response." in text
    assert "\nmean reward       - " in text
    assert "\npass@1            -  no interval" in text


def test_difficulties_count_their_prompts(capsys):
    rows = [row(i, TASK.gold(example)) for i, example in enumerate(EXAMPLES)]
    write(*rows, *rows[:1])
    assert verify() == 0
    lines = capsys.readouterr().out.splitlines()
    for label in {example.difficulty for example in EXAMPLES}:
        number = sum(example.difficulty == label for example in EXAMPLES)
        (line,) = [line for line in lines if line.startswith(label)]
        assert line.split()[2] == "1.000"
        assert line.endswith(f"{number}/{number}")


def test_a_list_of_responses_is_as_good_as_several_lines(capsys):
    texts = ["#1", "nothing", TASK.gold(EXAMPLES[0])]
    write({"id": EXAMPLES[0].id, "responses": texts})
    assert verify("--out", "a.jsonl") == 0
    write(*(row(0, text) for text in texts))
    assert verify("--out", "b.jsonl") == 0
    assert Path("a.jsonl").read_bytes() == Path("b.jsonl").read_bytes()
    outs = capsys.readouterr().out
    assert outs[: len(outs) // 2] == outs[len(outs) // 2 :]


def test_scores_are_written_in_the_order_of_the_file():
    texts = [(1, "#5"), (0, "é\x1b[2J"), (1, TASK.gold(EXAMPLES[1])), (0, "\ud800")]
    write(*(row(number, text) for number, text in texts))
    assert verify("--out", "scored.jsonl") == 0
    rows = [json.loads(line) for line in Path("scored.jsonl").read_text().splitlines()]
    assert [(r["id"], r["response"]) for r in rows] == [(EXAMPLES[n].id, text) for n, text in texts]
    assert [(r["prompt_index"], r["sample_index"]) for r in rows] == [(0, 0), (1, 0), (0, 1), (1, 1)]
    assert [r["verdict"] for r in rows] == ["wrong", "format", "pass", "format"]
    assert verify(responses="scored.jsonl") == 0  # other keys are left alone


def test_the_number_of_reasons_is_chosen(capsys):
    write(*(row(0, f"#{99990 + i}") for i in range(5)))
    for show in (0, 1, 5):
        assert verify("--show", str(show)) == 0
        assert capsys.readouterr().out.count("got 9999") == show
    assert main(["verify", "arithmetic", "--responses", "responses.jsonl", "--show", "-1"]) == 2


def test_model_text_cannot_act_on_the_terminal(capsys):
    write(row(0, "\x1b[31m#5\x07 \u202e\x9b2J [bold]x[/bold]"), row(1, "#\x00"))
    assert verify() == 0
    text = capsys.readouterr().out
    assert not {c for c in text if not c.isprintable()} - {"\n"}
    assert r"\x1b[31m#5\x07 \u202e\x9b2J [bold]x[/bold]" in text


@pytest.mark.parametrize("split", ["train", "validation", "test"])
def test_gold_answers_pass(capsys, split):
    assert verify("--split", split, responses="gold") == 0
    number = {"train": 4, "validation": 3, "test": 6}[split]
    assert f"{number} gold responses to {number} of {number} examples" in capsys.readouterr().out


def test_a_gold_answer_that_does_not_pass_gives_status_1(capsys):
    bad = [example for example in EXAMPLES if example.difficulty == "4 operands"]
    assert 0 < len(bad) < 6
    assert verify(task="strange.py:Mistaken", responses="gold") == 1
    text = capsys.readouterr().out
    assert table(text, "verdict")["wrong"][0] == str(len(bad))
    assert bad[0].id in text


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ('{"id": "x", "response": ', "line 2 is not valid JSON: Expecting value at character 25"),
        ('{"id": "x", "id": "y", "response": "1"}', "line 2: key 'id' is there twice"),
        ('["x", "1"]', "line 2 should be a JSON object, got ['x', '1']"),
        ('{"response": "1"}', 'line 2: id is missing (keys there: response); expected {"id": ..., "response": ...}'),
        ('{"id": 7, "response": "1"}', "line 2: id = 7 should be text"),
        ('{"id": "ID"}', "line 2: response is missing (keys there: id)"),
        ('{"id": "ID", "reponse": "1"}', "line 2: response is missing, did you mean 'response' by 'reponse'?"),
        ('{"id": "ID", "response": null}', "line 2: a response should be text, got null"),
        ('{"id": "ID", "response": 7}', "line 2: a response should be text, got a number (7)"),
        ('{"id": "ID", "responses": "7"}', "line 2: responses should be a list of texts, got text"),
        ('{"id": "ID", "responses": []}', "line 2: responses should be a list of texts, got an empty one"),
        ('{"id": "ID", "responses": ["1", {}]}', "line 2: a response should be text, got an object"),
        ('{"id": "ID", "response": "1", "responses": ["1"]}', "line 2: both response and responses"),
        ('{"id": "NEAR", "response": "1"}', "line 2: unknown id 'NEAR' in split test, did you mean 'ID"),
        ('{"id": "OTHER", "response": "1"}', "it is of split train, not test; give --split train"),
        ("[" * 100_000, "line 2 is not valid JSON: "),
        ("9" * 10_000, "line 2 is not valid JSON: "),
    ],
)
def test_a_bad_line_is_named(capsys, line, message):
    names = {"NEAR": EXAMPLES[0].id[:-1] + "z", "OTHER": TASK.examples("train")[0].id, "ID": EXAMPLES[0].id}
    for short, name in names.items():
        line, message = line.replace(short, name), message.replace(short, name)
    write(row(0, "#1"), line)
    assert message in refused(capsys)


@pytest.mark.parametrize("content", [b"", b"\n\n  \n"])
def test_a_file_without_responses_is_refused(capsys, content):
    Path("responses.jsonl").write_bytes(content)
    assert "responses.jsonl holds no responses: write lines such as" in refused(capsys)


def test_bytes_that_are_no_text_are_named(capsys):
    Path("responses.jsonl").write_bytes(b'{"id": "\xff"}\n')
    assert "responses.jsonl line 1 is not UTF-8 text (byte 9 of the line)" in refused(capsys)


def test_windows_line_ends_and_a_byte_order_mark_do_no_harm(capsys):
    text = "\ufeff" + json.dumps(row(0, TASK.gold(EXAMPLES[0]))) + "\r\n\r\n"
    Path("responses.jsonl").write_bytes(text.encode())
    assert verify() == 0
    assert table(capsys.readouterr().out, "verdict")["pass"] == ["1", "100.0%"]


@pytest.mark.parametrize(
    ("words", "options", "message"),
    [
        ((), {"responses": "none.jsonl"}, "cannot read none.jsonl: No such file or directory"),
        ((), {"responses": "."}, "cannot read .: Is a directory"),
        ((), {"task": "arithmetik"}, "unknown task 'arithmetik'; did you mean 'arithmetic'"),
        ((), {"task": "none.py:Task"}, "cannot read none.py"),
        ((), {"task": "strange.py:Unread"}, "gsm8k.jsonl line 3: answer is missing"),
        (("max_operan=9",), {}, "unknown setting 'max_operan' of Arithmetic, did you mean 'max_operand'"),
        (("max_operand=nan",), {}, "max_operand = nan should be a finite number"),
        (("max_operand",), {}, "'max_operand' is no setting: write key=value"),
        (("name=synthesis",), {}, "name=synthesis: the task is named by the first word, arithmetic"),
        (("--split", "tests"), {}, "invalid choice: 'tests'"),
        (("--out", "responses.jsonl"), {}, "--out responses.jsonl would overwrite the responses"),
        (("--out", "none/out.jsonl"), {}, "the folder none does not exist"),
        (("--out", "."), {}, "--out . is a folder"),
    ],
)
def test_bad_input_is_one_line(capsys, words, options, message):
    write(row(0, "#1"))
    before = Path("responses.jsonl").read_bytes()
    assert message in refused(capsys, *words, **options)
    assert Path("responses.jsonl").read_bytes() == before


def test_neither_verify_nor_samples_imports_torch():
    program = """
import sys
from harness.cli import main
assert main(["verify", "arithmetic", "--responses", "gold", "--out", "scored.jsonl", "test_size=5"]) == 0
assert main(["samples", "scored.jsonl"]) == 0
sys.exit("torch" in sys.modules or "transformers" in sys.modules)
"""
    environment = {"PYTHONPATH": str(ROOT), "PATH": "/usr/bin:/bin"}
    done = subprocess.run([sys.executable, "-c", program], env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert "[5/5] pass" in done.stdout
