"""Arguments that commands share: each is declared once, and the same word means the same everywhere."""

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
