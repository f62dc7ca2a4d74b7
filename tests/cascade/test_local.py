"""Which recogniser and which reader are taken of those that lie on a machine."""

import shutil
from pathlib import Path

import pytest

import speechssl
from speechssl import systems
from speechssl.cascade import local
from speechssl.cascade.local import known_languages, languages_of, readers, recognisers, trained_on
from speechssl.io import write_json
from speechssl.systems import best_systems

from ..files import refused, write_checkpoint

ENGLISH, CHINESE, GERMAN = ("x" * 100_000 + word for word in ("\nwhose\n", "\n谁\n", "\nwessen\n"))


def whisper(folder, width=8, codes=(), layers=2, heads=(1,), language=None, readme=""):
    config = {
        "model_type": "whisper",
        "d_model": width,
        "encoder_layers": layers,
        "decoder_layers": layers,
    }
    write_checkpoint(folder, config, readme=readme)
    known = {
        "is_multilingual": bool(codes),
        "lang_to_id": {f"<|{code}|>": 1 for code in codes},
        "language": language,
    }
    write_json(folder / "generation_config.json", known | {"alignment_heads": [*heads]})


def reader(
    folder, width=8, vocabulary="", readme="", kind="BertForQuestionAnswering", model_type="bert"
):
    config = {
        "model_type": model_type,
        "architectures": [kind],
        "hidden_size": width,
        "num_hidden_layers": 2,
    }
    write_checkpoint(folder, config, vocabulary, readme)


@pytest.fixture
def root(tmp_path, monkeypatch):
    """The models folder; the hub's cache is empty."""
    monkeypatch.setenv("SPEECHSSL_MODELS", str(tmp_path / "root"))
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(tmp_path / "cache"))
    (tmp_path / "root").mkdir()
    return tmp_path / "root"


def test_the_largest_whisper_that_knows_the_language_is_the_first_and_ctc_models_follow(
    root, tmp_path
):
    whisper(root / "me/small.en", 16)
    whisper(root / "me/small", 16, ("en", "zh"))
    whisper(root / "me/hindi", 32, ("en", "hi", "zh"), language="hindi")
    whisper(root / "me/large", 64, ("en",), heads=())  # no word times
    whisper(root / "me/german", 64, ("en", "de"), readme="---\nlanguage: de\n---\n")
    whisper(root / "turbo", 16, ("en", "zh"), layers=1)
    for name, letters in (("a", "ABC"), ("b", "AÄ"), ("c", "一丁")):
        write_checkpoint(
            root / f"me/ctc-{name}",
            {"architectures": ["XForCTC"], "conv_kernel": [1], "hidden_size": 99},
            depth=1,
        )
        write_json(
            root / f"me/ctc-{name}/vocab.json",
            {"<pad>": 0, "|": 1} | {letter: 2 for letter in letters},
        )
    write_checkpoint(root / "me/hubert", {"architectures": ["HubertModel"]})
    assert recognisers(tmp_path / "mine", "en") == [
        "me/small.en",
        "me/small",
        str(root / "turbo"),
        "me/ctc-a",
    ]
    assert recognisers(tmp_path / "mine", "zh") == ["me/small", str(root / "turbo"), "me/ctc-c"]
    whisper(tmp_path / "mine/tiny", 4)  # small, but in the folder of models that was asked for
    assert recognisers(tmp_path / "mine", "en")[0] == str(tmp_path / "mine/tiny")
    (root / "me/small.en/model.safetensors").unlink()
    assert "me/small.en" not in recognisers(tmp_path / "mine", "en")


def test_the_largest_reader_that_learnt_from_questions_is_the_first(root, tmp_path):
    reader(root / "me/small", 8, ENGLISH)
    reader(root / "me/both", 16, ENGLISH + CHINESE)
    reader(root / "me/english", 16, ENGLISH)
    reader(root / "me/german", 32, GERMAN)
    reader(root / "me/stated", 12, GERMAN, "---\nlanguage:\n- zh\n---\n")
    reader(root / "me/masked", 32, ENGLISH, kind="BertForMaskedLM")
    reader(
        root / "me/pages", 32, ENGLISH, kind="LayoutLMForQuestionAnswering", model_type="layoutlm"
    )
    for corpus, width in (("squad", 4), ("minisqa", 64)):
        write_checkpoint(
            root / f"me/{corpus}", {"symbols": [1], "hidden_size": width, "num_hidden_layers": 1}
        )
        write_json(
            root / f"me/{corpus}/card.json",
            {"what": "text QA", "corpus": {"corpus": corpus, "settings": {"language": "en"}}},
        )
    assert readers(tmp_path, "en") == [
        f"me/{name}" for name in ("english", "both", "small", "squad")
    ]
    assert readers(tmp_path, "zh") == ["me/both", "me/stated"]


@pytest.mark.parametrize(
    "config",
    [
        "[",
        "[]",
        '{"encoder_layers": 12, "hidden_size": 768}',
        '{"model_type": "whisper", "architectures": {"a": 1}}',
        '{"architectures": ["XForQuestionAnswering"], "hidden_size": 1, "num_hidden_layers": '
        "1e999}",
        '{"architectures": ["XForCTC"], "conv_kernel": [], "hidden_size": "wide"}',
        '{"architectures": ["XForQuestionAnswering"], "model_type": 1}',
        '{"a": ' * 100_000,
    ],
)
def test_whatever_else_lies_there_is_no_choice_and_no_matter(config, root, tmp_path):
    write_checkpoint(root / "me/broken", config)
    write_json(root / "me/broken/vocab.json", {"A": 0})
    # the hub's client refuses the name a/b/c
    (tmp_path / "cache/models--a--b--c").mkdir(parents=True)
    whisper(root / "me/ears")
    reader(root / "me/eyes")
    assert (recognisers(tmp_path, "en"), readers(tmp_path, "en")) == (["me/ears"], ["me/eyes"])


def test_a_size_without_a_decoder_is_that_of_the_encoder(root, tmp_path):
    ctc = {"architectures": ["XForCTC"], "conv_kernel": [1], "hidden_size": 8, "encoder_layers": 2}
    write_checkpoint(root / "me/ctc", ctc)
    write_json(root / "me/ctc/vocab.json", {"A": 0})
    assert recognisers(tmp_path, "en") == ["me/ctc"]


def test_a_folder_that_cannot_be_read_is_no_choice(root, tmp_path, monkeypatch):
    reader(root / "me/locked")
    read = Path.read_bytes

    def locked(path):
        if path.parent.name == "locked":
            raise PermissionError(13, "Permission denied")
        return read(path)

    monkeypatch.setattr(Path, "read_bytes", locked)
    assert readers(tmp_path, "en") == []


@pytest.mark.parametrize("name", ["preprocessor_config.json", "vocab.txt", "model.safetensors"])
def test_what_is_not_whole_is_no_choice(name, root, tmp_path):
    whisper(root / "me/ears")
    reader(root / "me/eyes")
    for folder in ("ears", "eyes"):
        (root / "me" / folder / name).unlink()
    assert recognisers(tmp_path, "en") == []
    assert readers(tmp_path, "en") == ["me/eyes"] * (name == "preprocessor_config.json")
    if name == "preprocessor_config.json":  # transformers 5 has it in the other
        (root / "me/ears/processor_config.json").write_text("{}")
        assert recognisers(tmp_path, "en") == ["me/ears"]


def test_a_vocabulary_is_read_once(root, tmp_path, monkeypatch):
    reader(root / "me/eyes", vocabulary=ENGLISH)
    read, paths = Path.read_bytes, []
    monkeypatch.setattr(Path, "read_bytes", lambda path: paths.append(path.name) or read(path))
    assert readers(tmp_path, "en") == ["me/eyes"] and paths.count("vocab.txt") == 1


def test_what_lies_in_the_cache_of_the_hub_is_found_by_its_name(root, tmp_path, monkeypatch):
    reader(tmp_path / "cache/models--me--mine/snapshots/0")
    config = str(tmp_path / "cache/models--me--mine/snapshots/0/config.json")
    monkeypatch.setattr(
        "huggingface_hub.try_to_load_from_cache",
        lambda name, _: config if name == "me/mine" else None,
    )
    assert readers(tmp_path / "mine", "en") == ["me/mine"]


def test_a_readme_says_language_and_data_and_a_damaged_one_nothing(tmp_path):
    reader(
        tmp_path / "a",
        readme=("---\nlanguage: [en-GB, multilingual]\ndatasets:\n- squad\n- mine\n---\n# A\n"),
    )
    assert languages_of(tmp_path / "a") == {"en"} and trained_on(tmp_path / "a") == (
        ", trained on squad and mine"
    )
    assert (
        known_languages(tmp_path / "a") == {"en"} and known_languages(tmp_path / "nowhere") == set()
    )
    for number, text in enumerate(
        ("---\n: [\n---\n", "---\n", "# A\n---\nlanguage: de\n---\n", "")
    ):
        reader(tmp_path / f"b{number}", readme=text)
        assert (
            not languages_of(tmp_path / f"b{number}") and trained_on(tmp_path / f"b{number}") == ""
        )
    assert trained_on(tmp_path / "b0", "me/mine") == (
        " (its folder does not say what it was trained on)"
    )
    assert "speech from the web" in trained_on(None, "openai/whisper-tiny")


@pytest.mark.slow
def test_folders_made_on_the_spot_answer_under_any_name_and_need_no_models_beside_them(
    root, whisper_folder, checkpoint, tmp_path
):
    only = tmp_path / "only"
    only.mkdir()
    (root / "x").mkdir()
    (root / "x/ears").symlink_to(whisper_folder)
    qa = checkpoint("BERT", "AutoModelForQuestionAnswering")
    (only / "eyes").symlink_to(qa)
    assert best_systems(only) == (["cascade-x/ears"], str(only / "eyes"))
    unknown = "(its folder does not say what it was trained on)"
    made = {"cascade-ears": f"words by x/ears {unknown}; answers by {only / 'eyes'} {unknown}"}
    assert speechssl.QA(only).about == made
    (only / "eyes").unlink()
    (only / "ears").symlink_to(whisper_folder)
    refused("only lacks a reader of real questions .*; add it$", speechssl.QA, only)
    assert speechssl.QA(only, reader=qa).systems  # as it says
    german = tmp_path / "german"
    german.mkdir()
    for path in qa.iterdir():
        (german / path.name).symlink_to(path)
    (german / "README.md").write_text("---\nlanguage: de\n---\n")
    refused(
        "german was trained on the language de, not on en",
        speechssl.QA,
        systems="cascade-ctc",
        reader=german,
    )


@pytest.mark.slow
def test_what_cannot_be_loaded_is_left_out_with_a_line_and_what_was_named_is_refused(
    root, whisper_folder, checkpoint, tmp_path, capsys, monkeypatch
):
    (tmp_path / "only").mkdir()
    calls = []
    for module, name in ((local, "_best"), (systems, "load_recogniser"), (systems, "load_text_qa")):
        function = getattr(module, name)
        monkeypatch.setattr(
            module,
            name,
            lambda *a, name=name, function=function: calls.append(name) or function(*a),
        )
    eyes = checkpoint("BERT", "AutoModelForQuestionAnswering")
    for name, folder in (("ears", whisper_folder), ("eyes", eyes)):
        shutil.copytree(folder, root / f"me/{name}")
        broken = tmp_path / f"only/{name}"  # which come first
        shutil.copytree(folder, broken)
        (broken / "model.safetensors").write_bytes((broken / "model.safetensors").read_bytes()[:-9])
    qa = speechssl.QA(tmp_path / "only")
    assert (
        "words by me/ears" in qa.about["cascade-ears"]
        and ("answers by me/eyes") in qa.about["cascade-ears"]
    )
    lines = [line for line in capsys.readouterr().err.splitlines() if "left out" in line]
    for line, name in zip(lines, ("ears", "eyes"), strict=True):
        assert line.startswith(f"{tmp_path / 'only' / name} is left out: cannot load the ")
    # nothing is looked for or loaded again
    assert calls == ["_best"] * 2 + ["load_recogniser"] * 2 + ["load_text_qa"] * 2
    # whatever reader it is for
    refused("nan is no threshold", speechssl.QA, tmp_path / "only", null_threshold=float("nan"))
    for named in ({"systems": f"cascade-{tmp_path}/only/ears"}, {"reader": tmp_path / "only/eyes"}):
        refused("cannot load the (weights|reader)", speechssl.QA, **named)
    shutil.rmtree(root / "me")
    refused("only lacks a recogniser [^;]*; add it$", speechssl.QA, tmp_path / "only", reader=eyes)
    capsys.readouterr()
    assert (
        set(speechssl.QA().about) == {"dual", "cascade-ctc"}
        and "is left out" not in capsys.readouterr().err
    )
    shutil.copytree(tmp_path / "only", root / "me")
    assert set(speechssl.QA().about) == {"dual", "cascade-ctc"}  # what ships
    assert "me/ears is left out: cannot load the weights of" in capsys.readouterr().err
