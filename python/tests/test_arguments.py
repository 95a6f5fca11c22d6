"""Arguments that commands share: each is declared once, and has the same meaning everywhere."""

import pytest
from forebay import ForebayError, arguments
from forebay.commands import representatives
from forebay.lab.commands import advise, fleet, study

COMMANDS = {
    "representatives": (representatives, ["--limit"]),
    "advise": (advise, ["--limit", "--workers"]),
    "fleet": (fleet, ["--points", "--max-blocks", "--workers"]),
    "study": (study, ["--workers"]),
}


@pytest.mark.parametrize("name", COMMANDS)
def test_numbers_of_things_are_whole_and_above_0(name, capsys):
    command, options = COMMANDS[name]
    for option in options:
        for value in ("0", "-1", "some"):
            with pytest.raises(SystemExit) as ended:
                command(["something", "-o", "out", f"{option}={value}"])
            assert ended.value.code == 2
            assert "is not a whole number above 0" in capsys.readouterr().err


def test_a_place_that_cannot_be_written_is_named_before_any_work(tmp_path, capsys):
    (tmp_path / "file").touch()
    missing = str(tmp_path / "missing.csv")
    (tmp_path / "s.toml").write_text('traces = [{ spec = "zipf:requests=10" }]')
    is_directory = f"cannot write {tmp_path}: it is a directory"
    no_directory = f"the directory {tmp_path / 'none'} does not exist"
    is_file = f"{tmp_path / 'file'}: it is a file, not a directory"
    cases = [
        (representatives, [missing, missing, "-o", tmp_path], is_directory),
        (representatives, [missing, missing, "--parquet", tmp_path], is_directory),
        (representatives, [missing, "--html", tmp_path / "none" / "x"], no_directory),
        (advise, [missing, "-o", tmp_path], is_directory),
        (advise, [missing, "--html", tmp_path], is_directory),
        (study, [tmp_path / "s.toml", "-o", tmp_path / "file"], is_file),
        (study, [tmp_path / "s.toml", "-o", tmp_path / "file" / "x"], "Not a directory"),
    ]  # fmt: skip
    for command, words, says in cases:
        assert command([str(word) for word in words]) == 1
        error = capsys.readouterr().err
        assert error.startswith("forebay: cannot write") and says in error, error
        assert "Errno" not in error


def test_a_file_that_cannot_be_read_is_named_once(tmp_path, capsys):
    missing = str(tmp_path / "missing")
    for command, words in (
        (study, [missing]),
        (representatives, ["--features", missing]),
        (advise, ["x.csv", "--model", missing]),
    ):
        assert command(words) == 1
        error = capsys.readouterr().err
        assert error.endswith(f"{missing}: No such file or directory\n"), error
        assert error.count(missing) == 1 and "Errno" not in error


def test_a_command_ends_with_the_status_of_what_stopped_it(capsys):
    def fail(error):
        def work():
            raise error

        return work

    assert arguments.guarded(lambda: None) == 0
    assert arguments.guarded(fail(ForebayError("no such policy", 2))) == 2
    assert arguments.guarded(fail(OSError("no space"))) == 1
    assert arguments.guarded(fail(KeyboardInterrupt())) == 1
    said = capsys.readouterr().err.splitlines()
    assert said[:2] == ["forebay: no such policy", "forebay: no space"]
    assert "stopped by a signal" in said[2]
