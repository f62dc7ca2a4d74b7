"""The verbs: their help, their defaults, the recipes' files of options, and how they fail."""

from __future__ import annotations

import errno
import io
import json
import subprocess
import sys
from contextlib import redirect_stderr
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import soundfile
from tqdm import tqdm

from speechssl.artifacts import read_json, write_json
from speechssl.checkpoints import model_folder
from speechssl.cli import GROUPS, VERBS, Lines, config_of, main, overview, parse_arguments
from speechssl.cli.parser import make_parser, options_of
from speechssl.cli.verbs import function_of
from speechssl.options import BERT, HUBERT, PLAIN, Adam, TrainingOptions

ROOT = Path(__file__).parents[2]
MODELS = model_folder("people-en")


@pytest.fixture(autouse=True)
def any_input(monkeypatch: pytest.MonkeyPatch) -> None:
    """What verbs are given here need not be there."""
    monkeypatch.setattr("speechssl.cli.INPUTS", ())


@pytest.mark.parametrize("verb", VERBS)
def test_every_verb_has_help_for_every_option(verb: str) -> None:
    parser = make_parser(verb, config_of(verb))
    text = parser.format_help()
    assert not [a.dest for a in parser._actions if not a.help] and "None" not in text
    assert f"speechssl {verb}" in config_of(verb).__doc__ or verb.startswith("prepare ")
    assert f"\nspeechssl {verb}" not in text  # examples are indented


def test_overviews_name_every_verb(capsys: pytest.CaptureFixture[str]) -> None:
    assert (
        main([]) == 0
        and main(["--help"]) == 0
        and main(["units", "--help"]) == 0
        and main(["--version"]) == 0
    )
    assert all(f"  {verb} " in overview("") for verb in VERBS)
    for group in GROUPS:
        assert GROUPS[group] in overview(group)
    assert "did you mean" not in capsys.readouterr().out


def test_a_log_gets_a_line_of_a_bar_now_and_then(monkeypatch: pytest.MonkeyPatch) -> None:
    log, now = io.StringIO(), [0.0]
    monkeypatch.setattr("speechssl.cli.time.monotonic", lambda: now[0])
    with redirect_stderr(Lines(log)):
        with tqdm(total=60, mininterval=0, bar_format="{n}") as bar:
            for _ in range(60):
                now[0] += 1
                bar.update()
            tqdm.write("set aside", file=sys.stderr)
        for _ in tqdm(range(60), leave=False):
            pass
    assert log.getvalue() == "29\n59\nset aside\n60\n"


def test_every_verb_that_runs_a_model_takes_a_device() -> None:
    without = ("prepare", "convert", "compare", "report", "bundle")
    without += (
        "units import",
        "evaluate predictions",
        "superb export",
    )
    named = {
        verb
        for verb in VERBS
        if any(option.name == "device" for option in options_of(config_of(verb)))
    }
    assert named == {verb for verb in VERBS if not verb.startswith(without)}


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["unts"], "`speechssl` has no verb unts; did you mean units?"),
        (["unts", "--help"], "`speechssl` has no verb unts; did you mean units?"),
        (["eval", "qa"], "`speechssl` has no verb eval; did you mean evaluate?\n"),
        (["prepare", "SQuAD"], "did you mean squad?"),
        (["version"], "did you mean --version?"),
        (["--verson"], "`speechssl` has no option --verson; did you mean --version?"),
        (["units", "fitt"], "`speechssl units` has no verb fitt; did you mean fit?"),
        (["units"], "`speechssl units` needs a verb: fit, extract"),
        (["units", "fit", "c", "e", "o.safetensors", "--layr", "3"], "did you mean --layer?"),
        (["units", "extract", "a", "b", "c", "d", "--engine", "lokal"], "did you mean local?"),
        (["train", "dual", "a", "b", "c", "--question", "30"], "did you mean --max-question?"),
        (["train", "dual", "a", "b", "c", "--lr", "1e-5"], "did you mean --learning-rate?"),
        (["train", "dual", "a", "b", "c", "--gpu", "0"], "did you mean --device?"),
        (
            ["train", "text-qa", "a", "b", "--snr", "5"],
            "`speechssl train text-qa` has no option --snr; see --help",
        ),
        (
            ["train", "dual", "a", "b", "c", "--output-dir", "d"],
            "is given without a name, such as OUT",
        ),
        (["train", "dual", "a", "b", "c", "--model", "m"], "has no option --model; "),
        (["evaluate", "qa", "a", "b", "--babbel", "c"], "did you mean --babble?"),
        # which are not drawn
        (["units", "evaluate", "a", "mfcc", "b", "--recordings", "3"], "did you mean --first?"),
    ],
)
def test_an_unknown_verb_or_option_is_one_sentence(
    arguments: list[str], message: str, capsys: Any
) -> None:
    assert main(arguments) == 2
    text = capsys.readouterr().err
    assert message in text and text.startswith("speechssl: ") and text.count("\n") == 1


def test_help_is_a_word_too(capsys: Any) -> None:
    printed = []
    for words in (
        "help",
        "--help",
        "help units",
        "units -h",
        "help evaluate qa",
        "evaluate qa --help",
    ):
        try:
            assert main(words.split()) == 0
        except SystemExit as end:
            assert end.code == 0
        printed.append(capsys.readouterr().out)
    assert printed[::2] == printed[1::2] and len(set(printed)) == 3


@pytest.mark.slow
def test_neither_help_nor_the_report_imports_torch() -> None:
    """The report draws what is there; torch and transformers alone take seconds to import."""
    code = (
        "import sys; from speechssl.cli import main, overview; overview(''); main(['units', "
        "'--help'])\n"
    )
    code += (
        "from speechssl.cli import VERBS, config_of\nfrom speechssl.cli.parser import make_parser\n"
    )
    code += (
        "for verb in VERBS: make_parser(verb, config_of(verb)).format_help()\nimport "
        "speechssl.report.spoken_qa\n"
    )
    code += "sys.exit(bool({'torch', 'transformers.modeling_utils'} & set(sys.modules)))"
    assert subprocess.run([sys.executable, "-c", code], cwd=ROOT, timeout=120).returncode == 0


def test_help_of_a_corpus_imports_neither_numpy_nor_what_it_prepares_with() -> None:
    code = (
        "import sys; from speechssl.cli import VERBS, config_of\n"
        "for verb in VERBS:\n"
        "    if VERBS[verb].options.startswith(('data.', 'synth.')): config_of(verb)\n"
        "heavy = {'numpy', 'torch', 'pyarrow', 'soundfile', 'speechssl.data.prepare'}\n"
        "sys.exit(str(heavy & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True)
    assert done.stderr.strip() == "set()"


@pytest.mark.slow
def test_an_answer_of_what_ships_imports_little_beside_torch(tmp_path: Path) -> None:
    """Every one of these takes a third of a second and more, transformers' models three seconds.

    torchaudio is not among them: it aligns the words that the n-gram found.
    """
    sound = np.random.default_rng(0).normal(0, 0.1, 32_000) * np.repeat([0.2, 1, 0.5, 0.1], 8_000)
    soundfile.write(tmp_path / "a.wav", sound, 16_000)
    away = {
        "transformers",
        "scipy",
        "sklearn",
        "pandas",
        "librosa",
        "matplotlib",
        "pyarrow",
        "torch._dynamo",
    }
    asked = (
        f"answer --passage {tmp_path}/a.wav --question {tmp_path}/a.wav Where? --systems "
        "dual cascade-ctc"
    ).split()
    code = (
        f"import sys; from speechssl.cli import main; assert main({asked}) == 0; "
        f"sys.exit(str({away} & set(sys.modules)))"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT, timeout=120, capture_output=True, text=True
    )
    assert done.stderr.splitlines()[-1] == "set()"


# Defaults


def training(config: Any) -> TrainingOptions:
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
def test_adamw_and_the_longest_answer_are_by_default_those_of_the_source(
    verb: str, adam: Adam
) -> None:
    made = training(parse_arguments(verb.split()))
    assert Adam(made.adam_betas, made.adam_epsilon, made.weight_decay) == adam
    longest = {"dual": 275, "text-qa": 30, "speechbert": 30}.get(verb.split()[1])
    assert longest is None or parse_arguments(verb.split()).qa.answer == longest
    given = [
        *verb.split(),
        "--adam-betas",
        "0.8",
        "0.9",
        "--adam-epsilon",
        "1e-3",
        "--weight-decay",
        "0.5",
    ]
    made = training(parse_arguments(given))
    assert (made.adam_betas, made.adam_epsilon, made.weight_decay) == ((0.8, 0.9), 1e-3, 0.5)


@pytest.mark.slow
def test_options_of_units_evaluate_arrive(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[Any] = []
    monkeypatch.setattr(
        "speechssl.units.quality.evaluate_units", lambda o: seen.append(o) or {"K": 1}
    )
    assert (
        main(
            (
                "units evaluate s e b --precision int8 --device cpu --span 1 2 --picture p.png"
            ).split()
        )
        == 0
    )
    assert (seen[0].precision, seen[0].device, seen[0].span, seen[0].split) == (
        "int8",
        "cpu",
        (1.0, 2.0),
        None,
    )


# SpeechBERT: options become three stages


def test_options_become_three_stages() -> None:
    given = (
        "--word-steps 7 --mask-steps 8 --mask-learning-rate 3e-4 --steps 9 --horizon 20 "
        "--pull 0.5 --seed 3"
    ).split()
    o = parse_arguments(["train", "speechbert", "corpus", "people-en/encoder", "out", *given])
    assert (o.words.steps, o.masked.steps, o.qa.training.steps) == (7, 8, 9)
    assert (o.words.horizon, o.masked.horizon, o.qa.training.horizon) == (None, None, 20)
    assert o.masked.learning_rate == 3e-4 and o.stages.pull == 0.5
    assert not o.words.bf16 and o.masked.bf16
    assert {stage.seed for stage in (o.words, o.masked, o.qa.training)} == {3}


@pytest.mark.slow
def test_features_and_recogniser_read_one_encoder_and_mfccs_need_none() -> None:
    from speechssl.speechbert.train import load_hearing

    line = "train speechbert corpus people-en/encoder out --layer 5 --ctc people-en/ctc"
    features, recogniser = load_hearing(parse_arguments(line.split()))
    assert features.layer == 5 and recogniser.encoder.hash == features.encoder
    assert recogniser.card == {"asr": read_json(MODELS / "ctc/card.json")["weights"]}
    features, recogniser = load_hearing(
        parse_arguments(["train", "speechbert", "corpus", "mfcc", "out"])
    )
    assert features.encoder == "mfcc" and recogniser is None


@pytest.mark.parametrize(
    ("encoder", "more", "message"),
    [
        ("mfcc", ["--ctc", str(MODELS / "ctc")], "leave out --ctc"),
        ("mfcc", ["--layer", "5"], "mfcc has no layer 5; leave out --layer"),
        (str(MODELS / "encoder"), ["--layer", "77"], "has the layers 0 to 5, not 77"),
        (str(MODELS / "encoder"), [], "has the layers 0 to 5; choose one with --layer"),
        (str(MODELS / "encoder"), ["--layer", "5", "--ctc", "nowhere"], "nowhere"),
    ],
)
def test_parts_that_do_not_fit_are_one_sentence(
    encoder: str, more: list[str], message: str, tmp_path: Path, capsys: Any
) -> None:
    assert main(["train", "speechbert", "corpus", encoder, str(tmp_path / "out"), *more]) == 2
    text = capsys.readouterr().err
    assert message in text and text.count("\n") == 1 and not (tmp_path / "out").exists()


# Corpora

QA = [
    verb
    for verb in VERBS
    if VERBS[verb].options.startswith("data.") and hasattr(config_of(verb), "speak")
]
SETS = [
    verb
    for verb in VERBS
    if VERBS[verb].options.startswith("data.") and hasattr(config_of(verb), "any_count")
]


@pytest.mark.parametrize("verb", [*QA, *SETS])
def test_help_of_a_corpus_shows_its_layout_and_source(verb: str) -> None:
    text = make_parser(verb, config_of(verb)).format_help()
    assert "SOURCE/" in text if verb in QA else ".wav" in text or ".flac" in text
    assert verb not in QA or any(
        place in text for place in ("github.com/", "github.io/", "huggingface.co/")
    )
    assert "Nothing is downloaded" in text or "nothing is downloaded" in text


@pytest.mark.parametrize("verb", [*QA, *SETS])
def test_a_corpus_has_a_function_that_takes_its_options(verb: str) -> None:
    needed = {"lexicon": ("one.txt",)} if "librispeech" in verb else {}
    needed |= {"diarization": Path("c")} if "libri2mix" in verb else {}
    config = config_of(verb)
    function = function_of(config(source=Path("a"), out=Path("b"), **needed))
    assert function.__name__ == f"prepare_{verb.removeprefix('prepare ').replace('-', '_')}"


@pytest.mark.parametrize(("tag", "known"), [("zh-TW", True), ("cmn", True), ("de", False)])
def test_a_language_tag_is_read_by_its_rules_and_others_are_refused(
    tag: str, known: bool, tmp_path: Path, capsys: Any
) -> None:
    (tmp_path / "dev.json").write_text('{"data": []}')
    assert main(["prepare", "drcd", str(tmp_path), str(tmp_path / "out"), "--language", tag]) == 2
    assert ("has no usable question" in (text := capsys.readouterr().err)) == known
    assert known or "'de'" in text


def test_a_corpus_is_made_and_reported(tmp_path: Path, capsys: Any) -> None:
    content = {
        "data": [
            {
                "paragraphs": [
                    {"context": "Rome.", "qas": [{"id": "q", "question": "", "answers": []}]}
                ]
            }
        ]
    }
    (tmp_path / "dev.json").write_text(json.dumps(content))
    assert (
        main(["prepare", "squad", str(tmp_path / "dev.json"), str(tmp_path / "out"), "--no-audio"])
        == 0
    )
    text = capsys.readouterr().out
    assert (
        "dev questions: 1 read, 0 kept, 1 set aside" in text
        and ("1 set aside: empty question") in text
    )
    assert json.loads((tmp_path / "out/set_aside.jsonl").read_text())["id"] == "q"


def test_minisqa_names_the_splits_that_it_has(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Any
) -> None:
    monkeypatch.setattr("speechssl.synth.minisqa._write_split", lambda *_: None)
    monkeypatch.setattr("speechssl.synth.minisqa.data_hash", lambda *_: "")
    counts = "--passages 1 --dev-passages 0 --test-passages 2".split()
    assert main(["prepare", "minisqa", str(tmp_path / "out"), *counts]) == 0
    printed = capsys.readouterr().out
    assert printed == f"{tmp_path / 'out'}: MiniSQA en, 1 train passage, 2 test passages\n"


@pytest.mark.parametrize(
    "verb",
    [
        *(f"prepare {name}" for name in ("odsqa", "spoken-squad", "heysquad", "squad", "drcd")),
        *SETS,
    ],
)
def test_another_folder_than_that_of_a_corpus_is_one_sentence(
    verb: str, tmp_path: Path, capsys: Any
) -> None:
    needed = {
        "prepare librispeech": ["--tasks", "asr"],
        "prepare libri2mix": ["--tasks", "ss"],
    }.get(verb, [])
    assert main([*verb.split(), str(tmp_path), str(tmp_path / "out"), *needed]) == 2
    text = capsys.readouterr().err
    assert (
        "does not exist; give the folder" if verb in SETS else ("has no file of this corpus; give ")
    ) in text
    assert text.count("\n") == 1 and not (tmp_path / "out").exists()


def test_a_part_of_a_set_is_taken_with_a_warning(tmp_path: Path, capsys: Any) -> None:
    for part in (
        "clean_trainset_28spk_wav",
        "noisy_trainset_28spk_wav",
        "clean_testset_wav",
        "noisy_testset_wav",
    ):
        (tmp_path / "vb" / part).mkdir(parents=True)
        for name in ("p226_001", "p227_001"):
            soundfile.write(tmp_path / f"vb/{part}/{name}.wav", np.full(1_600, 0.1), 16_000)
    out = tmp_path / "out"
    assert main(["prepare", "voicebank-demand", str(tmp_path / "vb"), str(out)]) == 2
    assert (
        "has 1 train and not 10,802, 1 dev and not 770, 2 test and not 824 as published"
    ) in capsys.readouterr().err
    assert main(["prepare", "voicebank-demand", str(tmp_path / "vb"), str(out), "--any-count"]) == 0
    printed = capsys.readouterr()
    assert (
        "warning: " in printed.err
        and (f"{out / 'se'}: 1 train, 1 dev, 2 test recordings") in printed.out
    )
    assert json.loads((out / "se/card.json").read_text())["any_count"] is True


# Failures


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EDQUOT])
def test_a_full_disk_is_called_so(
    number: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Any
) -> None:
    def full(*_: object, **__: object) -> None:
        # as a write says it: without the name of the file
        raise OSError(number, "No space left on device")

    monkeypatch.setattr(Path, "write_text", full)
    monkeypatch.setattr(
        "speechssl.units.fit.fit_units", lambda *_: write_json(tmp_path / "book.json", {})
    )
    assert main(["units", "fit", "c", "e", "o"]) == 2
    text = (
        f"speechssl: the disk of {tmp_path / 'book.json'} is full; free space and give the "
        "same command\n"
    )
    assert capsys.readouterr().err == text and not list(tmp_path.iterdir())


def test_a_place_that_cannot_be_written_is_one_sentence(tmp_path: Path, capsys: Any) -> None:
    (tmp_path / "file").write_text("")
    assert main(["prepare", "minisqa", str(tmp_path / "file/corpus"), "--passages", "0"]) == 2
    text = capsys.readouterr().err
    assert "file/corpus (Not a directory)" in text
    assert text.count("\n") == 1


@pytest.mark.parametrize(
    "arguments",
    [
        ["evaluate", "qa", "no-such-corpus", "out"],
        ["report", "no-such-folder", "no-such-corpus"],
        ["evaluate", "qa", "c", "o", "--conditions", "pink"],
        ["prepare", "minisqa", "OUT", "--language", "xx", "--passages", "1"],
        ["train", "dual", "c", "no-such-units", "o"],
        ["train", "ctc", "c", "e", "o", "--layer", "five"],
        ["convert", "a", "b", "--to", "fairseq", "--pre-norm", "--post-norm"],
        ["answer", "--passage", "a.wav", "--question", "b.wav", "--systems", "speechbert"],
        ["evaluate", "qa", "c", "o", "--workers", "0"],
        ["pretrain", "hubert", "c", "o", "--learning-rate", "0"],
        ["evaluate", "qa", "c", "o", "--device", "gpu"],
        ["train", "dual", "c", "u", "o", "--device", "cuda:31"],
    ],
)
def test_what_cannot_be_done_is_one_sentence(
    arguments: list[str], tmp_path: Path, monkeypatch, capsys
) -> None:
    monkeypatch.chdir(tmp_path)
    assert main(arguments) == 2
    text = capsys.readouterr().err
    assert (
        text.startswith("speechssl: ") and text.count("\n") == 1 and not (tmp_path / "out").exists()
    )


def test_a_short_q_for_the_question_is_said_to_be_quiet(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["answer", "lecture.mp3", "-q", "question.wav"]) == 2
    error = capsys.readouterr().err
    assert (
        "no argument lecture.mp3 question.wav; it needs --passage and --question (-q is "
        "--quiet); see"
    ) in error
