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
    parsed_call = parse_arguments(call.split())
    assert parsed_call
    return parsed_call[0]


def refused(call, capsys):
    """Assert that a call ends with exit code 2 and one sentence on stderr; return the sentence."""
    assert main(call.split()) == 2
    text = capsys.readouterr().err.rpartition("\r")[2]  # behind the text of a progress bar
    assert text.startswith("speechssl: ")
    assert text.count("\n") == 1
    return text


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
        ("unts", "speechssl has no verb unts; did you mean units?"),
        ("prepare SQuAD", "no verb prepare SQuAD"),
        ("units", "`speechssl units` needs a verb: units fit, "),
        ("units fit c e o.safetensors --layr 3", "did you mean --layer?"),
        ("answer lecture.mp3 -q question.wav", "required: --passage, --question"),
        ("prepare librispeech . out --tasks asr", "does not exist"),
        ("evaluate qa no-such-corpus out", "no-such-corpus"),
        ("evaluate qa c out --conditions pink", "pink"),
        ("evaluate qa c out --device gpu", "there is no device gpu"),
        ("train dual c u out --device cuda:31", "there is no device cuda:31"),
        ("train ctc c e out --layer five", "--layer five is not a layer"),
        ("convert a out --to fairseq --pre-norm --post-norm", "exclude each other"),
        ("prepare minisqa file/corpus --passages 0", "file"),
        ("report no-such-folder no-such-corpus", "no-such-folder"),
        ("answer --passage a.wav --question b.wav --systems speechbert", "a.wav"),
    ],
)
def test_bad_input_is_refused_by_one_sentence(call, message, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    Path("file").write_text("")
    assert message in refused(call, capsys)
    assert not Path("out").exists()


@pytest.mark.parametrize(
    ("loaded", "heavy"),
    [
        ("", {"numpy", "torch", "yaml", "tqdm", "speechssl.data.prepare"}),
        ("import speechssl.report.spoken_qa", {"torch", "transformers.modeling_utils"}),
    ],
)
def test_help_and_report_import_no_heavy_modules(loaded, heavy):
    code = f"""import sys
from speechssl.cli import VERBS, import_options, format_overview
from speechssl.cli.parser import make_parser
format_overview("")
for verb in VERBS:
    make_parser(verb, import_options(verb)).format_help()
{loaded}
sys.exit(str({heavy} & set(sys.modules)))"""
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True)
    assert done.stderr.strip() == "set()"


def test_the_overview_takes_less_than_a_user_notices():
    """Users notice about a third of a second."""
    code = """import sys, time
from speechssl.cli import main
main(["--help"])
sys.exit(f"{time.process_time():.2f}")"""
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True)
    assert float(done.stderr) < 0.3


@pytest.mark.slow
def test_an_answer_of_the_shipped_models_imports_little_beside_torch(tmp_path):
    """Importing any of these modules takes a third of a second or more, transformers' models three
    seconds."""
    # two seconds of noise at four levels
    sound = np.random.default_rng(0).normal(0, 0.1, 32_000) * np.repeat([0.2, 1, 0.5, 0.1], 8_000)
    soundfile.write(tmp_path / "a.wav", sound, 16_000)
    heavy = "transformers scipy sklearn pandas librosa matplotlib pyarrow torch._dynamo".split()
    call = f"answer --passage {tmp_path}/a.wav --question {tmp_path}/a.wav Where?".split()
    code = f"""import sys
from speechssl.cli import main
assert main({call}) == 0
sys.exit(str({{*{heavy}}} & set(sys.modules)))"""
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True)
    assert done.stderr.splitlines()[-1] == "set()"


def get_training(config):
    """Return the training options in the options of a verb."""
    for part in ("training", "qa", "options", "head"):
        if hasattr(config, part):
            config = getattr(config, part)
    return getattr(config, "training", config)


@pytest.mark.parametrize(
    ("verb", "adam"),
    [
        ("pretrain continue c o --start e", HUBERT),
        ("train dual c u o", PLAIN),
        ("train text-qa c o", PLAIN),
        ("train ctc c e o", PLAIN),
        ("train speechbert c e o", BERT),
        ("train transfer-speechbert c e s n o", BERT),
        ("train choice c o", BERT),
    ],
)
def test_defaults_of_adamw_and_the_longest_answer_are_those_of_the_papers(verb, adam):
    training = get_training(options(verb))
    assert Adam(training.adam_betas, training.adam_epsilon, training.weight_decay) == adam
    longest = {"dual": 275, "text-qa": 30, "speechbert": 30}.get(verb.split()[1])
    assert longest is None or options(verb).qa.answer == longest
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
