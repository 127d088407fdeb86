"""Files of every kind give their rows with a place; every fault is one line with file and line number."""

import gzip
import json

import pytest

from tasks.sources.rows import Row, read_file


def values(path):
    return [row.values for row in read_file(path)]


def test_jsonl_rows_know_their_lines_and_blank_ones_are_skipped(tmp_path):
    path = tmp_path / "test.jsonl"
    path.write_bytes(b'{"a": 1}\r\n\n  \n{"a": 2}')
    assert read_file(path) == [Row("test.jsonl line 1", {"a": 1}), Row("test.jsonl line 4", {"a": 2})]


def test_a_byte_order_mark_is_no_part_of_the_text(tmp_path):
    path = tmp_path / "test.jsonl"
    path.write_bytes(b'\xef\xbb\xbf{"a": 1}\n')
    assert values(path) == [{"a": 1}]


def test_a_line_separator_inside_a_text_ends_no_line(tmp_path):
    path = tmp_path / "test.jsonl"
    path.write_text('{"a": "x\u2028y\u0085z"}\n', encoding="utf-8")
    assert values(path) == [{"a": "x\u2028y\u0085z"}]


def test_gz_json_and_csv_say_the_same_as_jsonl(tmp_path):
    rows = [{"a": "1", "b": 'x, "y"\nz'}, {"a": "2", "b": ""}]
    lines = "".join(json.dumps(row) + "\n" for row in rows)
    (tmp_path / "t.jsonl").write_text(lines)
    (tmp_path / "t.jsonl.gz").write_bytes(gzip.compress(lines.encode()))
    (tmp_path / "t.json").write_text(json.dumps(rows, indent=2))
    (tmp_path / "t.csv").write_text('a,b\n\n1,"x, ""y""\nz"\n2,\n')
    assert all(values(tmp_path / f"t.{ending}") == rows for ending in ("jsonl", "jsonl.gz", "json", "csv"))
    assert [row.place for row in read_file(tmp_path / "t.csv")] == ["t.csv line 3", "t.csv line 5"]
    assert [row.place for row in read_file(tmp_path / "t.json")] == ["t.json item 1", "t.json item 2"]


GOOD = b'{"a": 1}\n'
ZIPPED = gzip.compress(GOOD * 100)
FAULTS = {
    "truncated": ("t.jsonl", GOOD + b'{"a": "tex', r"t\.jsonl line 2: not valid JSON .*the file may be cut short"),
    "syntax": ("t.jsonl", b"{'a': 1}\n" + GOOD, r"t\.jsonl line 1: not valid JSON .* column 2"),
    "two on a line": ("t.jsonl", b'{"a": 1}{"a": 2}\n', r"t\.jsonl line 1: not valid JSON"),
    "list": ("t.jsonl", GOOD + b"[1, 2]\n", r"t\.jsonl line 2: found a list, expected an object"),
    "text": ("t.jsonl", b'"a"\n', r"t\.jsonl line 1: found a text, expected an object"),
    "number": ("t.jsonl", b"3\n", r"t\.jsonl line 1: found a number, expected an object"),
    "null": ("t.jsonl", b"null\n", r"t\.jsonl line 1: found null, expected an object"),
    "latin-1": ("t.jsonl", GOOD + b'{"a": "caf\xe9"}\n', r"t\.jsonl line 2: not UTF-8 \(byte 0xe9\)"),
    "utf-16": ("t.jsonl", '{"a": 1}\n'.encode("utf-16"), r"t\.jsonl line 1: not UTF-8"),
    "a gz in disguise": ("t.jsonl", ZIPPED, r"t\.jsonl line 1: not UTF-8"),
    "cut gz": ("t.jsonl.gz", ZIPPED[:-12], r"t\.jsonl\.gz is damaged or cut short"),
    "damaged gz": ("t.jsonl.gz", ZIPPED[:12] + b"\xff\xff\xff" + ZIPPED[15:], r"t\.jsonl\.gz is damaged or cut short"),
    "no gz": ("t.jsonl.gz", GOOD, r"t\.jsonl\.gz is damaged or cut short"),
    "empty": ("t.jsonl", b"", r"t\.jsonl is empty"),
    "blank": ("t.jsonl", b"\n \n", r"t\.jsonl is empty"),
    "empty gz": ("t.jsonl.gz", gzip.compress(b""), r"t\.jsonl\.gz is empty"),
    "empty list": ("t.json", b"[]", r"t\.json holds no records"),
    "header alone": ("t.csv", b"a,b\n", r"t\.csv holds no records"),
    "unknown ending": ("t.parquet", GOOD, r"t\.parquet: unknown ending, expected one of \.jsonl,"),
    "no ending": ("t", GOOD, r"t: unknown ending"),
    "NaN": ("t.jsonl", GOOD + b'{"a": NaN}\n', r"t\.jsonl line 2: NaN is no JSON number"),
    "infinity": ("t.jsonl", b'{"a": [-Infinity]}\n', r"t\.jsonl line 1: -Infinity is no JSON number"),
    "overflow": ("t.jsonl", b'{"a": 1e999}\n', r"t\.jsonl line 1: 1e999 is too large"),
    "many digits": ("t.jsonl", b'{"a": ' + b"9" * 5000 + b"}\n", r"t\.jsonl line 1: cannot be read"),
    "deep": ("t.jsonl", b'{"a": ' + b"[" * 100_000 + b"\n", r"t\.jsonl line 1: cannot be read \(nested too deeply\)"),
    "key twice": ("t.jsonl", GOOD + b'{"a": 1, "a": 2}\n', r"t\.jsonl line 2: field 'a' occurs twice"),
    "inner key twice": ("t.json", b'[{"b": {"a": 1, "a": 2}}]', r"t\.json: field 'a' occurs twice"),
    "an object": ("t.json", b'{"a": 1}', r"t\.json holds an object, expected a list of objects"),
    "a list of numbers": ("t.json", b'[{"a": 1}, 2]', r"t\.json item 2: found a number, expected an object"),
    "jsonl named json": ("t.json", GOOD + GOOD, r"t\.json line 2: not valid JSON .* name a file .* \.jsonl"),
    "cells": ("t.csv", b"a,b\n1,2\n1,2,3\n", r"t\.csv line 3: 3 cells, expected 2 \(a, b\)"),
    "column twice": ("t.csv", b"a,b,a\n1,2,3\n", r"t\.csv line 1: field 'a' occurs twice"),
    "open quote": ("t.csv", b'a,b\n1,2\n3,"x\ny\n', r"t\.csv line 3: not valid CSV"),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_a_fault_is_one_line_with_its_place(tmp_path, fault):
    name, data, message = FAULTS[fault]
    (tmp_path / name).write_bytes(data)
    with pytest.raises(ValueError, match=message) as refusal:
        read_file(tmp_path / name)
    assert "\n" not in str(refusal.value)
    assert type(refusal.value) is ValueError


def test_a_missing_file_and_a_folder_are_named(tmp_path):
    with pytest.raises(ValueError, match=r"nowhere\.jsonl: no such file; check the path"):
        read_file(tmp_path / "nowhere.jsonl")
    (tmp_path / "d.jsonl").mkdir()
    with pytest.raises(ValueError, match=r"d\.jsonl is a folder, expected a file"):
        read_file(tmp_path / "d.jsonl")


def test_what_is_no_regular_file_is_refused_and_never_waited_for(tmp_path):
    import os

    os.mkfifo(tmp_path / "pipe.jsonl")
    (tmp_path / "loop.jsonl").symlink_to(tmp_path / "loop.jsonl")
    for name, cause in (("pipe", "no regular file"), ("loop", "cannot be read"), ("x" * 5000, "cannot be read")):
        with pytest.raises(ValueError, match=cause) as refusal:
            read_file(tmp_path / f"{name}.jsonl")
        assert "\n" not in str(refusal.value)
        assert len(str(refusal.value)) < 500


def test_a_long_cell_of_a_csv_is_read(tmp_path):
    (tmp_path / "x.csv").write_text(f"a,b\n1,{'x' * 200_000}\n")
    assert len(read_file(tmp_path / "x.csv")[0].values["b"]) == 200_000
