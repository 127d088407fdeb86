"""The run folder: one writer, whole files, streams cut back to a checkpoint."""

import json
import os
import threading

import pytest

from harness.config.errors import CorruptRecordError, UserError
from harness.sweeps.run_folder import RunFolder, read_status, read_stream

IDENTITY = {"config": {"seed": 0, "update": {"learning_rate": 1e-4}}}


def opened(path, identity=IDENTITY, wait=0.2):
    return RunFolder.open(path, identity, wait)


def add_bytes(path, content):
    with path.open("ab") as file:
        file.write(content)


def test_streams_are_cut_back_to_the_offsets_of_a_checkpoint(tmp_path):
    with opened(tmp_path / "cell") as folder:
        folder.append("metrics", {"b": 1, "a": None})
        offsets = folder.flush()
        folder.append("metrics", {"a": 2})
        folder.append("evals", {"a": 3})
    add_bytes(tmp_path / "cell/metrics.jsonl", b'{"torn')
    with opened(tmp_path / "cell") as folder:
        folder.truncate(offsets)
        folder.append("metrics", {"a": 4})
        folder.finish("completed", totals={"updates": 1})
    assert (tmp_path / "cell/metrics.jsonl").read_bytes() == b'{"a":null,"b":1}\n{"a":4}\n'
    assert (tmp_path / "cell/evals.jsonl").read_bytes() == b""
    status = read_status(tmp_path / "cell")
    assert (status["status"], status["totals"]) == ("completed", {"updates": 1})


def test_no_offsets_empty_everything(tmp_path):
    with opened(tmp_path) as folder:
        folder.append("timing", {"a": 1})
        folder.truncate({})
        folder.append("metrics", {"a": 2})
        folder.flush()
    assert read_stream(tmp_path, "timing") == []
    assert read_stream(tmp_path, "metrics") == [{"a": 2}]


def test_a_stream_shorter_than_its_checkpoint_is_told_and_nothing_is_cut(tmp_path):
    with opened(tmp_path) as folder:
        folder.append("metrics", {"a": 1})
        with pytest.raises(CorruptRecordError, match=r"evals\.jsonl holds 0 bytes, its checkpoint counts 9"):
            folder.truncate({"metrics": 0, "evals": 9})
    assert read_stream(tmp_path, "metrics") == [{"a": 1}]


def test_an_offset_inside_a_line_is_told(tmp_path):
    with opened(tmp_path) as folder:
        folder.append("metrics", {"a": 1})
        with pytest.raises(CorruptRecordError, match=r"metrics\.jsonl is corrupt; delete"):
            folder.truncate({"metrics": 3})


def test_nan_is_refused(tmp_path):
    with opened(tmp_path) as folder, pytest.raises(ValueError, match="not JSON compliant"):
        folder.append("metrics", {"loss": float("nan")})


def test_checked_files_round_trip_and_every_changed_byte_is_noticed(tmp_path):
    with opened(tmp_path) as folder:
        assert folder.read_checked("checkpoint") is None
        folder.write_checked("checkpoint", b"payload")
        assert folder.read_checked("checkpoint") == b"payload"
        raw = (tmp_path / "checkpoint").read_bytes()
        for position in range(len(raw)):
            changed = raw[:position] + bytes([raw[position] ^ 1]) + raw[position + 1 :]
            (tmp_path / "checkpoint").write_bytes(changed)
            with pytest.raises(CorruptRecordError, match="checkpoint is corrupt; delete it to start the cell anew"):
                folder.read_checked("checkpoint")
        for length in range(len(raw)):
            (tmp_path / "checkpoint").write_bytes(raw[:length])
            with pytest.raises(CorruptRecordError):
                folder.read_checked("checkpoint")
        folder.remove("checkpoint")
        folder.remove("checkpoint")


def test_a_living_writer_keeps_others_out(tmp_path):
    with opened(tmp_path) as folder:
        with pytest.raises(UserError, match="another process is running this cell"):
            opened(tmp_path)
        folder.append("metrics", {"a": 1})
    with opened(tmp_path):
        pass


def test_the_wait_ends_when_the_lock_is_released(tmp_path):
    held = opened(tmp_path)
    released = []

    def release():
        released.append(True)
        held.__exit__(None, None, None)

    timer = threading.Timer(0.3, release)
    timer.start()
    with opened(tmp_path, wait=60):
        assert released
    timer.join()


def test_another_cell_is_refused_and_the_differing_settings_are_named(tmp_path):
    with opened(tmp_path) as folder:
        folder.finish("completed")
    before = {f: f.read_bytes() for f in tmp_path.rglob("*") if f.is_file()}
    other = {"config": {"seed": 1, "update": {"learning_rate": 2e-4}}}
    with pytest.raises(UserError, match=r"it differs in config\.seed, config\.update\.learning_rate"):
        opened(tmp_path, other)
    assert {f: f.read_bytes() for f in tmp_path.rglob("*") if f.is_file()} == before


def test_a_strange_folder_is_refused_and_not_touched(tmp_path):
    (tmp_path / "thesis.tex").write_text("x")
    with pytest.raises(UserError, match=r"is no cell's folder \(it holds thesis.tex\)"):
        opened(tmp_path)
    assert [f.name for f in tmp_path.iterdir()] == ["thesis.tex"]


def test_a_file_in_place_of_the_folder_is_a_user_error(tmp_path):
    (tmp_path / "file").write_text("x")
    with pytest.raises(UserError, match="cannot write to"):
        opened(tmp_path / "file")
    with pytest.raises(UserError, match="cannot write to"):
        opened(tmp_path / "file/below")


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write anywhere")
def test_a_read_only_place_is_a_user_error(tmp_path):
    tmp_path.chmod(0o500)
    with pytest.raises(UserError, match="cannot write to"):
        opened(tmp_path / "cell")


def test_leftovers_of_a_killed_write_are_removed(tmp_path):
    with opened(tmp_path):
        pass
    (tmp_path / ".checkpoint.tmp").write_bytes(b"half")
    with opened(tmp_path):
        pass
    assert not (tmp_path / ".checkpoint.tmp").exists()


def test_an_error_in_the_block_is_the_cells_failure(tmp_path):
    with pytest.raises(KeyError), opened(tmp_path):
        raise KeyError("x")
    status = read_status(tmp_path)
    assert (status["status"], status["cause"]) == ("failed", "KeyError: 'x'")


def test_an_interruption_leaves_the_cell_running(tmp_path):
    with pytest.raises(KeyboardInterrupt), opened(tmp_path):
        raise KeyboardInterrupt
    assert read_status(tmp_path)["status"] == "running"


def test_an_absent_cell_is_missing(tmp_path):
    assert read_status(tmp_path / "nothing") == {"status": "missing", "cause": "", "failure": ""}
    assert read_stream(tmp_path / "nothing", "metrics") == []


def test_a_torn_last_line_is_ignored_while_running_and_told_when_completed(tmp_path):
    with opened(tmp_path) as folder:
        folder.append("timing", {"a": 1})
        folder.flush()
        add_bytes(tmp_path / "timing.jsonl", b'{"a')
        assert read_stream(tmp_path, "timing") == [{"a": 1}]
        folder.finish("completed")
    with pytest.raises(CorruptRecordError, match=r"timing\.jsonl line 2 is cut off"):
        read_stream(tmp_path, "timing")


def test_a_bad_line_is_named(tmp_path):
    with opened(tmp_path) as folder:
        folder.append("metrics", {"a": 1})
        folder.flush()
    add_bytes(tmp_path / "metrics.jsonl", b'{"a":\n[1]\n')
    with pytest.raises(CorruptRecordError, match=r"metrics\.jsonl line 2 is no record"):
        read_stream(tmp_path, "metrics")


def test_records_of_a_completed_cell_must_be_as_they_were(tmp_path):
    with opened(tmp_path) as folder:
        folder.append("metrics", {"a": 1})
        folder.write_atomic("weights.safetensors", b"w")
        folder.finish("completed", digests={"weights.safetensors": "0"})
    (tmp_path / "metrics.jsonl").write_bytes(b'{"a":2}\n')
    with pytest.raises(CorruptRecordError, match="was changed after completion"):
        read_status(tmp_path)
    (tmp_path / "metrics.jsonl").write_bytes(b'{"a":1}\n')
    (tmp_path / "weights.safetensors").unlink()
    with pytest.raises(CorruptRecordError, match=r"weights\.safetensors is missing"):
        read_status(tmp_path)


@pytest.mark.parametrize("content", ["", "[]", '{"status": "fine"}', '{"status'])
def test_an_unreadable_status_is_told(tmp_path, content):
    (tmp_path / "status.json").write_text(content)
    with pytest.raises(CorruptRecordError, match=r"status\.json"):
        read_status(tmp_path)


def test_config_json_is_pretty_and_sorted(tmp_path):
    with opened(tmp_path, {"b": 1, "a": {"d": None, "c": 2}}):
        pass
    assert (tmp_path / "config.json").read_text() == json.dumps({"a": {"c": 2, "d": None}, "b": 1}, indent=1) + "\n"
