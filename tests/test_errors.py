"""What a user reads when something cannot be done."""

import pickle

from speechssl.errors import InputError, MissingExtra, tell_set_aside


def test_a_worker_can_hand_its_refusal_to_its_parent():
    error = pickle.loads(pickle.dumps(MissingExtra("synthetic speech", "synth")))
    assert isinstance(error, InputError) and 'pip install "speechssl[synth]"' in str(error)


def test_what_was_set_aside_is_listed_and_counted_on_stderr(capsys):
    tell_set_aside({"a": "no audio", "b": "silent"}, "units")
    tell_set_aside({}, "more")
    said = capsys.readouterr()
    assert said.out == "" and said.err.splitlines() == [
        "set aside a: no audio",
        "set aside b: silent",
        "units: 2 recordings set aside",
    ]
