"""From files to examples: which file is which split, disjoint splits, and gold answers that their verifier takes."""

import dataclasses
import json
import os
import pickle
from pathlib import Path

import pytest
from toy_sums import Sums, problems, sums, write

import tasks
from tasks.sources import Field, Item, Row, load

ROWS = sums(range(400))


def everything(task):
    found = set()
    for split in tasks.SPLITS:
        try:
            found |= {(split, problem) for problem in problems(task, split)}
        except ValueError as error:
            if f"toy-sums has no {split} items" not in str(error):
                raise
    return found


@pytest.mark.parametrize(
    ("name", "split"),
    [
        ("train", "train"),
        ("validation", "validation"),
        ("valid", "validation"),
        ("val", "validation"),
        ("dev", "validation"),
        ("test", "test"),
        ("sums-test", "test"),
        ("sums_Train", "train"),
        ("a.b-dev", "validation"),
    ],
)
def test_a_stem_names_its_split(tmp_path, name, split):
    write(tmp_path / "data" / f"{name}.jsonl", sums(range(3)))
    (tmp_path / "data" / "README.md").write_text("no data")
    for source in (tmp_path / "data", tmp_path / "data" / f"{name}.jsonl"):
        splits = {part for part, _ in everything(Sums(source=str(source)))}
        assert splits <= ({"train", "validation"} if split == "train" else {split})
        assert split in splits


@pytest.mark.parametrize("name", ["contest", "trained", "latest", "test-set", "mydev"])
def test_a_file_whose_stem_names_no_split_is_parted_60_20_20(tmp_path, name):
    (tmp_path / "README.md").write_text("no data")
    task = Sums(source=write(tmp_path / f"{name}.jsonl", ROWS))
    sizes = {split: len(task.examples(split)) for split in tasks.SPLITS}
    assert sum(sizes.values()) == 400
    # binomial, two standard deviations: 240 +- 20 and 80 +- 16
    assert 220 <= sizes["train"] <= 260
    assert 64 <= sizes["validation"] <= 96
    assert Sums(source=str(tmp_path)).fingerprint() == task.fingerprint()  # the only file of its folder


def test_validation_is_a_tenth_of_train_where_there_is_none(tmp_path):
    task = Sums(train=write(tmp_path / "a.jsonl", ROWS), test=write(tmp_path / "b.jsonl", sums(range(400, 420))))
    assert 28 <= len(task.examples("validation")) <= 52  # 400 * load.VALIDATION_SHARE, two standard deviations
    assert len(task.examples("train")) + len(task.examples("validation")) == 400
    assert problems(task, "test") == [f"{n}+1" for n in range(400, 420)]
    assert load.VALIDATION_SHARE == 0.1


def test_membership_depends_on_the_text_alone(tmp_path):
    shuffled = [{**row, "id": f"x{n}"} for n, row in enumerate(reversed(ROWS[:200]))]
    for setting in ("train", "source"):
        first = everything(Sums(**{setting: write(tmp_path / "a.jsonl", ROWS)}))
        second = everything(Sums(**{setting: write(tmp_path / "b.jsonl", shuffled)}))
        assert second < first
        assert len(second) == 200


def test_the_order_is_that_of_the_file(tmp_path):
    task = Sums(source=write(tmp_path / "a.jsonl", ROWS))
    for split in tasks.SPLITS:
        numbers = [int(problem.split("+")[0]) for problem in problems(task, split)]
        assert numbers == sorted(numbers)


def test_a_split_that_is_not_there_says_how_to_give_it(tmp_path):
    task = Sums(test=write(tmp_path / "a.jsonl", sums(range(3))))
    assert len(task.examples("test")) == 3
    with pytest.raises(ValueError, match=r"^toy-sums has no train items: give train=\.\.\. a file, or a source that"):
        task.examples("train")
    with pytest.raises(ValueError, match="unknown split 'holdout'"):
        task.examples("holdout")


def test_folders_that_leave_a_choice_are_refused(tmp_path):
    rows = sums(range(3))
    write(tmp_path / "two" / "a-test.jsonl", rows)
    write(tmp_path / "two" / "b-test.jsonl", rows)
    with pytest.raises(ValueError, match=r"two files for test \(a-test\.jsonl, b-test\.jsonl\)"):
        Sums(source=str(tmp_path / "two")).examples("test")
    write(tmp_path / "none" / "a.jsonl", rows)
    write(tmp_path / "none" / "b.jsonl", rows)
    with pytest.raises(ValueError, match=r"has 2 data files and none names a split \(a\.jsonl, b\.jsonl\)"):
        Sums(source=str(tmp_path / "none")).examples("test")
    (tmp_path / "empty").mkdir()
    with pytest.raises(ValueError, match=r"empty holds no data file, expected e\.g\. train\.jsonl"):
        Sums(source=str(tmp_path / "empty")).examples("test")
    with pytest.raises(ValueError, match=r"nowhere\.jsonl': no such file or folder, and no hub name"):
        Sums(source=str(tmp_path / "nowhere.jsonl")).examples("test")
    with pytest.raises(ValueError, match=r"nowhere\.jsonl: no such file"):
        Sums(test=str(tmp_path / "nowhere.jsonl")).examples("test")


def test_settings_that_contradict_each_other_are_refused():
    with pytest.raises(ValueError, match=r"'source' \('a'\) and 'test' \('b'\) are both given, expected source alone"):
        Sums(source="a", test="b")
    with pytest.raises(ValueError, match="setting 'on_bad_item' is 'skip', expected \"stop\" or \"drop\""):
        Sums(source="a", on_bad_item="skip")
    with pytest.raises(ValueError, match=r"toy-sums has no published data set: give source=\.\.\. a file, a folder"):
        Sums().examples("test")
    with pytest.raises(ValueError, match="no sample of toy-sums ships"):
        Sums(source="sample").examples("test")


def assert_refused(task, message):
    with pytest.raises(ValueError, match=message) as refusal:
        task.examples("test")
    assert "\n" not in str(refusal.value)
    return str(refusal.value)


def test_a_prompt_in_two_splits_stops_and_with_drop_leaves_test_whole(tmp_path):
    train = write(tmp_path / "train.jsonl", sums(range(300)))
    test = write(tmp_path / "test.jsonl", sums(range(290, 310)))
    text = assert_refused(Sums(source=str(tmp_path)), r"10 of 320 items occur twice: train\.jsonl line \d+ \(")
    assert "train.jsonl line 291 (train) has the prompt of test.jsonl line 1 (test)" in text
    assert 'on_bad_item="drop"' in text
    task = Sums(train=train, test=test, on_bad_item="drop")
    assert problems(task, "test") == [f"{n}+1" for n in range(290, 310)]
    assert len(task.examples("train")) + len(task.examples("validation")) == 290
    assert len(task.dropped()) == 10


def test_a_prompt_twice_in_one_split_names_both_places_whatever_its_white_space(tmp_path):
    rows = [*sums(range(3)), {"problem": " 1+1 \n", "answer": 2}]
    task = Sums(test=write(tmp_path / "t.jsonl", rows))
    assert_refused(task, r"t\.jsonl line 4 \(test\) has the prompt of t\.jsonl line 2 \(test\)")
    kept = dataclasses.replace(task, on_bad_item="drop")
    assert problems(kept, "test") == ["0+1", "1+1", "2+1"]
    assert kept.dropped() == ("t.jsonl line 4 (test) has the prompt of t.jsonl line 2 (test)",)


def test_within_a_split_a_prompt_may_come_twice_with_other_data_and_ids(tmp_path):
    class Noted(Sums):
        shares_prompts = True

        def parse(self, row):
            item = super().parse(row)
            return dataclasses.replace(item, data={**item.data, "note": row.values["note"]})

    rows = [*sums([1], id="a", note="x"), *sums([1], id="b", note="y"), *sums([1], id="c", note="y")]
    task = Noted(test=write(tmp_path / "t.jsonl", rows))
    assert_refused(
        task, r"1 of 3 items occur twice: t\.jsonl line 3 \(test\) has the prompt of t\.jsonl line 2 \(test\)"
    )
    kept = dataclasses.replace(task, on_bad_item="drop")
    assert [example.id for example in kept.examples("test")] == ["a", "b"]
    one = Sums(test=write(tmp_path / "w.jsonl", rows[:2]))
    assert_refused(
        one, r"1 of 2 items occur twice: w\.jsonl line 2 \(test\) has the prompt of w\.jsonl line 1 \(test\)"
    )
    train = write(tmp_path / "u.jsonl", sums([1], id="d", note="z"))
    assert_refused(
        Noted(validation=train, test=write(tmp_path / "v.jsonl", rows[:1])), r"u\.jsonl line 1 \(validation\) has the p"
    )


def test_an_id_twice_names_both_places(tmp_path):
    rows = [*sums([1], id="a"), *sums([2], id=7), *sums([3], id="7")]
    task = Sums(test=write(tmp_path / "t.jsonl", rows))
    assert_refused(
        task, r"1 of 3 items occur twice: t\.jsonl line 3 \(test\) has the id '7' of t\.jsonl line 2 \(test\)"
    )
    kept = dataclasses.replace(task, on_bad_item="drop")
    assert [example.id for example in kept.examples("test")] == ["a", "7"]


def test_an_item_without_an_id_is_named_by_its_text(tmp_path):
    rows = [*sums([1], id="a"), *sums([2], id=0), *sums([3], id=None), *sums([4], id=""), *sums([5])]
    ids = [example.id for example in Sums(test=write(tmp_path / "t.jsonl", rows)).examples("test")]
    assert ids[:2] == ["a", "0"]
    assert all(len(name) == 16 and set(name) <= set("0123456789abcdef") for name in ids[2:])
    assert ids[2:] == [e.id for e in Sums(test=write(tmp_path / "u.jsonl", sums([3, 4, 5]))).examples("test")]


def test_wrong_gold_answers_stop_the_load_and_are_listed(tmp_path):
    rows = [{"problem": f"{n}+1", "answer": n} for n in range(13)]
    task = Sums(test=write(tmp_path / "t.jsonl", [*sums([50]), *rows]))
    text = assert_refused(
        task, r"13 of 14 items have a gold answer that does not pass: t\.jsonl line 2: wrong \(expected 1\);"
    )
    assert "t.jsonl line 11: wrong (expected 10); and 3 more. " in text
    assert "line 12" not in text
    assert 'on_bad_item="drop"' in text
    kept = dataclasses.replace(task, on_bad_item="drop")
    assert problems(kept, "test") == ["50+1"]
    assert len(kept.dropped()) == 13
    assert kept.dropped()[0] == "t.jsonl line 2: wrong (expected 1)"


def test_where_every_item_is_dropped_the_reason_is_told(tmp_path):
    task = Sums(test=write(tmp_path / "t.jsonl", [{"problem": "1+1", "answer": 3}]), on_bad_item="drop")
    assert_refused(
        task, r"no test items \(1 items were dropped, first t\.jsonl line 1: wrong \(expected 2\)\): give test="
    )


@pytest.mark.parametrize("on_bad_item", ["stop", "drop"])
def test_a_verifier_that_cannot_run_stops_in_any_case(tmp_path, on_bad_item):
    rows = [*sums([1]), {"problem": "0+0", "answer": 0}, {"problem": "1+2", "answer": 9}]
    task = Sums(test=write(tmp_path / "t.jsonl", rows), on_bad_item=on_bad_item)
    assert_refused(
        task,
        r"could not be run on 1 of 3 gold answers, first t\.jsonl line 2 \(the adder is out of order\); .* at fault",
    )


def test_rows_that_cannot_be_used_are_listed_or_dropped(tmp_path):
    rows = [*sums([1]), {"problem": "1-1", "answer": 0}, {"problem": " \n", "answer": 0}]
    task = Sums(test=write(tmp_path / "t.jsonl", rows))
    assert_refused(
        task, r"2 of 3 items cannot be read: t\.jsonl line 2: the problem is no sum; t\.jsonl line 3: the problem is"
    )
    kept = dataclasses.replace(task, on_bad_item="drop")
    assert problems(kept, "test") == ["1+1"]


@pytest.mark.parametrize("on_bad_item", ["stop", "drop"])
def test_a_foreign_file_is_refused_in_any_case(tmp_path, on_bad_item):
    rows = [*sums([1]), {"question": "?", "answer": 1}]
    task = Sums(test=write(tmp_path / "t.jsonl", rows), on_bad_item=on_bad_item)
    assert_refused(task, r"^t\.jsonl line 2: no field 'problem' \(str\); fields found: 'question', 'answer'$")


def test_data_of_a_task_must_be_plain(tmp_path):
    class Odd(Sums):
        def parse(self, row):
            return dataclasses.replace(super().parse(row), data={"problem": "1+1", "answer": {1, 2}})

    assert_refused(
        Odd(test=write(tmp_path / "t.jsonl", sums([1]))), r"t\.jsonl line 1: .* no plain JSON values .*mend its parse"
    )


def test_constructing_reads_nothing_and_an_instance_keeps_what_it_read(tmp_path):
    path = tmp_path / "t.jsonl"
    task, late = Sums(test=str(path)), Sums(test=str(path))
    write(path, sums(range(3)))
    first = task.examples("test")
    write(path, sums(range(4)))
    assert task.examples("test") is first
    assert len(late.examples("test")) == 4
    path.unlink()
    assert task.examples("test") is first


def test_instances_with_equal_settings_share_one_reading_until_a_file_changes(tmp_path):
    path = tmp_path / "t.jsonl"
    write(path, sums(range(3)))
    first = Sums(test=str(path)).examples("test")
    assert Sums(test=str(path)).examples("test") is first
    status = path.stat()
    write(path, sums(range(3, 6)))  # of the same size
    os.utime(path, ns=(status.st_atime_ns, status.st_mtime_ns + 1))
    assert problems(Sums(test=str(path)), "test") == ["3+1", "4+1", "5+1"]


def test_relative_paths_start_at_the_working_directory(tmp_path, monkeypatch):
    for name, numbers in (("a", range(2)), ("b", range(2, 4))):
        write(tmp_path / name / "t-test.jsonl", sums(numbers))
        monkeypatch.chdir(tmp_path / name)
        assert problems(Sums(source="t-test.jsonl"), "test") == [f"{n}+1" for n in numbers]


def test_the_fingerprint_knows_items_and_settings_but_not_paths(tmp_path):
    rows = sums(range(30))
    base = Sums(test=write(tmp_path / "a.jsonl", rows)).fingerprint()
    assert base == Sums(source=write(tmp_path / "elsewhere" / "test.jsonl", rows)).fingerprint()
    assert base == Sums(test=str(tmp_path / "a.jsonl"), on_bad_item="drop").fingerprint()
    (tmp_path / "test.json").write_text(json.dumps(rows))
    assert base == Sums(test=str(tmp_path / "test.json")).fingerprint()
    others = [
        Sums(test=str(tmp_path / "a.jsonl"), polite=True),
        Sums(validation=str(tmp_path / "a.jsonl")),
        Sums(test=write(tmp_path / "b.jsonl", rows[:-1])),
        Sums(test=write(tmp_path / "c.jsonl", rows[::-1])),
        Sums(test=write(tmp_path / "d.jsonl", [*rows[:-1], {"problem": "1+29", "answer": 30}])),
        Sums(test=write(tmp_path / "e.jsonl", [*rows[:-1], {**rows[-1], "id": "x"}])),
    ]
    prints = {base, *(task.fingerprint() for task in others)}
    assert len(prints) == 1 + len(others)


def test_a_copy_in_another_process_carries_the_settings_alone(tmp_path):
    task = Sums(test=write(tmp_path / "t.jsonl", sums(range(300))))
    task.examples("test")
    packed = pickle.dumps(task)
    assert len(packed) < 1000
    assert pickle.loads(packed) == task
    assert problems(pickle.loads(packed), "test") == problems(task, "test")


def test_a_sample_ships_with_the_package(monkeypatch):
    class Sampled(Sums):
        name = "gsm8k"

        def parse(self, row):
            return Item(row.values["question"], "", {"problem": "1+1", "answer": 2})

        def prompt(self, example):
            return example.id

        fields = (Field("question", "str"),)

    monkeypatch.chdir(Path(__file__).parent)
    assert [len(Sampled(source="sample").examples(split)) for split in tasks.SPLITS] == [12, 6, 6]


def test_white_space_moves_no_item_to_another_split(tmp_path):
    spaced = [{**row, "problem": f"  {row['problem']} \n"} for row in ROWS[:100]]
    for setting in ("train", "source"):
        first = everything(Sums(**{setting: write(tmp_path / "a.jsonl", ROWS[:100])}))
        second = everything(Sums(**{setting: write(tmp_path / "b.jsonl", spaced)}))
        assert {(split, problem.strip()) for split, problem in second} == first


def test_one_file_may_hold_all_published_splits(tmp_path):
    class Published(Sums):
        def parse(self, row):
            return dataclasses.replace(super().parse(row), split=row.values["part"])

    rows = [*sums(range(3), part="test"), *sums(range(3, 6), part="validation"), *sums(range(6, 9), part="train")]
    task = Published(source=write(tmp_path / "all.jsonl", rows))
    assert [problems(task, split) for split in ("test", "validation", "train")] == [
        [f"{n}+1" for n in range(start, start + 3)] for start in (0, 3, 6)
    ]


def test_a_problem_without_text_is_refused(tmp_path):
    class Loose(Sums):
        def parse(self, row):
            return Item(row.values["problem"], "", {"problem": "1+1", "answer": 2})

    assert_refused(
        Loose(test=write(tmp_path / "t.jsonl", [{"problem": " \n", "answer": 2}])),
        r"1 of 1 items cannot be read: t\.jsonl line 1: the prompt is empty",
    )


def test_the_fingerprint_knows_what_a_prompt_does_not_show(tmp_path):
    class Noted(Sums):
        def parse(self, row):
            item = super().parse(row)
            return dataclasses.replace(item, data={**item.data, "note": row.values["note"]})

    first, second = (Noted(test=write(tmp_path / f"{note}.jsonl", sums([1], note=note))) for note in ("a", "b"))
    assert first.fingerprint() != second.fingerprint()


def test_two_hub_splits_for_one_are_refused(monkeypatch):
    rows = [Row("me/sums dev row 1", sums([1])[0])]
    monkeypatch.setattr("tasks.sources.hub.read", lambda name, known: {"validation": rows, "dev": rows})
    assert_refused(Sums(source="me/sums"), r"has two splits for validation \(validation, dev\); save them as files")
