"""Test the verbs: their help, their defaults, their sentences for bad input, and what they import."""

import subprocess
import sys
from importlib import import_module
from pathlib import Path

import numpy as np
import pytest
import soundfile

from speechssl.cli import (
    GROUPS,
    VERBS,
    format_overview,
    import_options,
    main,
    parse_arguments,
)
from speechssl.cli.parser import make_parser
from speechssl.options import BERT, HUBERT, PLAIN, Adam

ROOT = Path(__file__).parents[2]


def options(call):
    """Parse a call as it is typed; return its options."""
    return parse_arguments(call.split())[0]


@pytest.mark.parametrize("verb", VERBS)
def test_every_verb_has_help_for_every_option_and_a_function(verb):
    parser = make_parser(f"speechssl {verb}", import_options(verb))
    text = parser.format_help()
    assert not [a.dest for a in parser._actions if not a.help]
    assert "None" not in text
    assert f"speechssl {verb}" in import_options(verb).__doc__ or verb.startswith("prepare ")
    module, function = VERBS[verb].function.split(":")
    assert callable(getattr(import_module(f"speechssl.{module}"), function))


def test_overviews_name_every_verb(capsys):
    for words in ([], ["--help"], ["units", "--help"], ["--version"]):
        assert main(words) == 0
    assert all(format_overview("").count(f"\n  {verb} ") == 1 for verb in VERBS)
    assert all(GROUPS[group] in format_overview(group) for group in GROUPS)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        ("unts", "no verb unts; did you mean units?"),
        ("units", "`speechssl units` needs a verb: units fit, "),
        ("answer lecture.mp3 -q question.wav", "required: --passage, --question"),
        ("prepare librispeech . out --tasks asr", "does not exist"),
        ("evaluate qa no-such-corpus out", "no-such-corpus"),
        ("evaluate qa c out --conditions pink", "pink"),
        ("train dual c u out --device cuda:31", "there is no device cuda:31"),
        ("train ctc c e out --layer five", "--layer five is not a layer"),
        ("prepare minisqa file/corpus --passages 0", "file"),
        ("report no-such-folder no-such-corpus", "no-such-folder"),
    ],
)
def test_bad_input_is_refused_by_one_sentence(call, message, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    Path("file").write_text("")
    assert main(call.split()) == 2
    sentence = capsys.readouterr().err.rpartition("\r")[2]  # behind the text of a progress bar
    assert sentence.startswith("speechssl: ")
    assert sentence.count("\n") == 1
    assert message in sentence
    assert not Path("out").exists()


def find_imported(modules, code):
    """Return which of the modules a process imports that runs the code."""
    code += "\nimport sys\nprint(*sys.modules)"
    call = [sys.executable, "-c", code]
    done = subprocess.run(call, cwd=ROOT, capture_output=True, text=True, check=True)
    return {*modules} & {*done.stdout.splitlines()[-1].split()}


@pytest.mark.parametrize(
    ("loaded", "heavy"),
    [
        ("", {"numpy", "torch", "yaml", "tqdm", "speechssl.data.prepare"}),
        ("import speechssl.report.spoken_qa", {"torch", "transformers.modeling_utils"}),
    ],
)
def test_help_and_report_import_no_heavy_modules(loaded, heavy):
    code = f"""
from speechssl.cli import VERBS, import_options, format_overview
from speechssl.cli.parser import make_parser
format_overview("")
for verb in VERBS:
    make_parser(verb, import_options(verb)).format_help()
{loaded}"""
    assert not find_imported(heavy, code)


@pytest.mark.slow
def test_an_answer_of_the_shipped_models_imports_little_beside_torch(tmp_path):
    """Importing any of these modules takes a third of a second or more, transformers' models three
    seconds."""
    # two seconds of noise at four levels
    sound = np.random.default_rng(0).normal(0, 0.1, 32_000) * np.repeat([0.2, 1, 0.5, 0.1], 8_000)
    soundfile.write(tmp_path / "a.wav", sound, 16_000)
    heavy = "transformers scipy sklearn pandas librosa matplotlib pyarrow torch._dynamo".split()
    call = f"answer --passage {tmp_path}/a.wav --question {tmp_path}/a.wav Where?".split()
    code = f"from speechssl.cli import main\nassert main({call}) == 0"
    assert not find_imported(heavy, code)


def get_training(config):
    """Return the training options in the options of a verb."""
    for part in ("training", "qa", "options", "head"):
        if hasattr(config, part):
            config = getattr(config, part)
    return getattr(config, "training", config)


@pytest.mark.parametrize(
    ("verb", "adam", "longest_answer"),
    [
        ("pretrain continue c o --start e", HUBERT, None),
        ("train dual c u o", PLAIN, 275),
        ("train text-qa c o", PLAIN, 30),
        ("train ctc c e o", PLAIN, None),
        ("train speechbert c e o", BERT, 30),
        ("train transfer-speechbert c e s n o", BERT, None),
        ("train choice c o", BERT, None),
    ],
)
def test_defaults_of_adamw_and_the_longest_answer_are_those_of_the_papers(
    verb, adam, longest_answer
):
    training = get_training(options(verb))
    assert Adam(training.adam_betas, training.adam_epsilon, training.weight_decay) == adam
    if longest_answer:
        assert options(verb).qa.answer == longest_answer
    typed = "--adam-betas 0.8 0.9 --adam-epsilon 1e-3 --weight-decay 0.5"
    training = get_training(options(f"{verb} {typed}"))
    assert training.adam_betas == (0.8, 0.9)
    assert training.adam_epsilon == 1e-3
    assert training.weight_decay == 0.5


def test_options_of_speechbert_become_three_stages():
    o = options(
        "train speechbert corpus people-en/encoder out --word-steps 7 --mask-steps 8 "
        "--mask-learning-rate 3e-4 --steps 9 --horizon 20 --pull 0.5 --seed 3"
    )
    assert (o.words.steps, o.masked.steps, o.qa.training.steps) == (7, 8, 9)
    assert (o.words.horizon, o.masked.horizon, o.qa.training.horizon) == (None, None, 20)
    assert (o.masked.learning_rate, o.stages.pull) == (3e-4, 0.5)
    assert (o.words.bf16, o.masked.bf16) == (False, None)
    assert {stage.seed for stage in (o.words, o.masked, o.qa.training)} == {3}
