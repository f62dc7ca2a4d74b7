"""Parts that do not belong together are refused by file, and the encoder works once for systems
that read the same features."""

import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch

from speechssl import systems
from speechssl.artifacts import list_differences, read_json, write_json
from speechssl.audio import SAMPLE_RATE
from speechssl.cascade.model import CtcRecogniser
from speechssl.checkpoints import model_folder
from speechssl.cli import main
from speechssl.data.records import Passage, Question, Span
from speechssl.dual.model import load_reader, save_reader
from speechssl.encoders.load import SharedEncoder
from speechssl.options import Parts
from speechssl.pipelines import QA
from speechssl.report.build import evaluated_split
from speechssl.results import read_rows
from speechssl.systems import bundle, link_parts, load_systems
from speechssl.units.kmeans import Codebook, load_codebook

from .files import change_json, change_lines, refused


@pytest.fixture
def models(tmp_path: Path) -> Path:
    """A copy of the models that ship, to be damaged."""
    return Path(shutil.copytree(model_folder(), tmp_path / "models"))


@pytest.mark.slow
def test_the_shipped_set_loads_whole():
    names = ["dual", "cascade-ctc", "speechbert", "speechbert-aligned"]
    assert [s.name for s in load_systems(model_folder(), names)] == names


@pytest.mark.slow
def test_systems_with_one_recogniser_decode_a_recording_once(monkeypatch):
    samples, decoded = (
        np.random.default_rng(0).normal(0, 0.1, (2, SAMPLE_RATE)).astype(np.float32),
        [],
    )
    transcribe = CtcRecogniser.transcribe
    monkeypatch.setattr(
        CtcRecogniser, "transcribe", lambda self, x: decoded.append(x) or transcribe(self, x)
    )
    loaded = load_systems(
        model_folder(), ["cascade-ctc-greedy", "cascade-ctc-greedy@2", "speechbert"]
    )
    first, second = samples
    for x in (first, second, first):
        for system in loaded:
            system.encode(None, x)
    assert [x is first for x in decoded] == [True, False, True]


@pytest.mark.slow
@pytest.mark.parametrize("part", ["dual", "text-qa", "speechbert"])
def test_a_shipped_reader_loads_back_to_what_is_saved(part: str, tmp_path: Path):
    """Saved again it is the same file: every int8 step and every scale comes back as it is."""
    model, layout, card = load_reader(model_folder() / part)
    save_reader(
        tmp_path, model, layout, {k: v for k, v in card.items() if k not in ("layout", "weights")}
    )
    assert (tmp_path / "model.safetensors").read_bytes() == (
        model_folder() / part / "model.safetensors"
    ).read_bytes()


@pytest.mark.slow
@pytest.mark.parametrize(
    ("damage", "system", "message"),
    [
        ("dual/model.safetensors", "dual", "model.safetensors"),
        ("units.safetensors", "dual", "units.safetensors"),
        ("encoder/model.safetensors", "dual", "encoder"),
        ("ctc/head.safetensors", "cascade-ctc", "head.safetensors"),
        ("text-qa/tokenizer.json", "cascade-ctc", "tokeniser"),
        ("text-qa/card.json", "cascade-ctc", "card.json"),
    ],
)
def test_missing_parts_are_named(models: Path, damage: str, system: str, message: str):
    (models / damage).unlink()
    refused(message, load_systems, models, [system])


@pytest.mark.slow
def test_parts_that_are_missing_or_do_not_belong_together_are_refused(models: Path):
    refused("choose dual, speechbert, cascade-ctc", load_systems, models, ["duel"])
    shutil.rmtree(models / "ctc")
    refused("has no ctc/; train one", load_systems, models, ["cascade-ctc"])
    for units in ({"codebook": "other"}, None):
        change_json(models / "dual/card.json", units=units, codebooks=[])
        refused("trained on other units", load_systems, models, ["dual"])
    change_json(models / "units.card.json", encoder="0123456789abcdef")
    refused(
        r"units\.safetensors was fitted on encoder "
        r"0123456789abcdef",
        load_systems,
        models,
        ["dual"],
    )


@pytest.mark.slow
def test_a_reader_of_units_that_were_carried_over_loads_and_of_others_does_not(models: Path):
    """The codebook of another encoder, whose units mean what the reader's units mean, or what those
    they were carried from mean."""
    book, path = load_codebook(models / "units.safetensors"), models / "units.safetensors"
    # the units that the reader was trained on
    read = read_json(models / "dual/card.json")["units"]["codebook"]
    Codebook(book.centroids + 1e-3, book.card | {"carried_from": read}).save(path)
    (system,) = load_systems(models, ["dual"])
    assert system.name == "dual" and system.card["codebook"] not in (book.hash, read)
    card = book.card | {"transferred_through": []}
    Codebook(book.centroids + 1e-3, card).save(path)  # a sibling of the reader's
    assert load_systems(models, ["dual"])[0].card["codebook"] == load_codebook(path).hash
    Codebook(book.centroids + 1e-3, card | {"carried_from": "0123456789abcdef"}).save(path)
    refused("trained on other units", load_systems, models, ["dual"])


@pytest.mark.slow
def test_the_text_half_needs_no_encoder_and_knows_times_where_the_manifest_does(models: Path):
    shutil.rmtree(models / "encoder")
    text, given = load_systems(model_folder(models), ["text", "cascade-given"])
    words = (
        Span("anna", 0.0, 0.5),
        Span("lost", 0.5, 1.0),
        Span("silver", 1.0, 1.5),
        Span("lanterns", 1.5, 2.0),
    )
    passage = Passage(
        "p",
        "",
        0.0,
        "anna lost silver lanterns",
        "s",
        "en",
        words,
        transcript=("anna lost sliver lanterns"),
    )
    asked = Question(
        "q", "p", "", 0.0, "what did anna lose", "s", "en", transcript="what did anna loose"
    )
    for system, timed, word in ((text, True, "silver"), (given, False, "sliver")):
        encoded = [system.encode(record, None) for record in (asked, passage)]
        assert word in encoded[1].text
        (found,) = system.answer_all([tuple(encoded)])
        assert (found.start == found.start) == timed and found.text in encoded[1].text
    with pytest.raises(
        ValueError, match=("p has no transcript that the system cascade-given could read")
    ):
        given.encode(replace(passage, text="", transcript=" "), None)
    assert given.encode(replace(asked, transcript=""), None).text == "what did anna lose"
    with pytest.raises(ValueError, match="reads the text of a corpus"):
        text.encode(None, np.zeros(16_000, np.float32))


@pytest.mark.slow
@pytest.mark.parametrize(
    ("system", "part"), [("dual", "dual"), ("text", "text-qa"), ("speechbert", "speechbert")]
)
def test_a_reader_with_other_windows_or_longest_answers_is_another_system(
    models: Path, system: str, part: str
):
    """Stride and longest answer change no weight in training, and so not the hash of the
    weights."""
    before = load_systems(models, [system])[0].card
    card = read_json(models / part / "card.json")
    write_json(models / part / "card.json", card | {"layout": card["layout"] | {"stride": 10}})
    after = load_systems(models, [system])[0].card
    assert list_differences(before, after) == ["layout.stride"]


def test_recognisers_of_their_own_need_no_encoder(models: Path, monkeypatch: pytest.MonkeyPatch):
    shutil.rmtree(models / "encoder")
    other = SimpleNamespace(name="whisper-base", card={}, transcribe=None)
    monkeypatch.setattr(systems, "load_recogniser", lambda *_: other)
    whisper, text = load_systems(models, ["cascade-openai/whisper-base", "text"])
    assert (whisper.name, text.name) == ("cascade-whisper-base", "text")
    heard = [systems.parse_system(name) for name in ("dual@5", "cascade-ctc-small", "speechbert")]
    assert all(system.needs_encoder for system in heard)
    assert not systems.parse_system("cascade-openai/whisper-base").needs_encoder


def test_one_array_is_encoded_once(encoder, monkeypatch):
    calls = []

    def stream(samples, layer):
        calls.append(layer)
        return encoder.stream(samples, layer)

    def hidden_states(samples):
        calls.append("all")
        return encoder.hidden_states(samples)

    counting = SimpleNamespace(
        **vars(encoder) | {"stream": stream, "device": "cpu", "hidden_states": hidden_states}
    )
    shared, samples = (
        SharedEncoder(counting),
        np.random.default_rng(0).normal(size=4_000).astype(np.float32),
    )
    first = shared.features(samples, 1)
    assert torch.equal(shared.features(samples, 1), first) and calls == [1]
    assert torch.equal(first, encoder.features(samples, 1))
    # as much as the last
    assert torch.equal(shared.features(samples, 2), encoder.features(samples, 2)) and calls == [
        1,
        "all",
    ]
    assert torch.equal(shared.hidden_states(samples)[1], first) and torch.equal(
        shared.features(samples, 1), first
    )
    assert calls == [1, "all"]
    monkeypatch.setattr("speechssl.encoders.load.KEPT", 0)  # bytes
    shared.features(samples.copy(), 2)
    assert calls == [1, "all", 2]


@pytest.mark.parametrize("name", ["speechbert@2", "text@2", "dual@0", "dual@x"])
def test_only_dual_and_cascades_read_few_windows(name: str, tmp_path: Path):
    refused(f"there is no system '{name}'", load_systems, tmp_path, [name])


@pytest.mark.slow
def test_systems_that_read_few_windows_say_so():
    names = ["dual", "dual@1", "cascade-ctc", "cascade-ctc@1"]
    dual, one, cascade, other = load_systems(model_folder(), names)
    assert [s.name for s in (dual, one, cascade, other)] == names
    assert one.card == {**dual.card, "windows": 1} and other.card == {**cascade.card, "windows": 1}
    pairs = ((dual.reader, one.reader), (cascade.qa.reader.reader, other.qa.reader.reader))
    for whole, few in pairs:
        assert (whole.retrieve, few.retrieve) == (None, 1)
    assert [few.ngram for _, few in pairs] == [3, 1]


# ---- a folder of models from its parts: copied, or linked for one evaluation

MODELS = model_folder("people-en")


def parts(**changes: Any) -> Parts:
    codebook = "people-en/units.safetensors"
    given = {
        name: value and Path(value) for name, value in ({"codebook": codebook} | changes).items()
    }
    return Parts("people-en/encoder", **given)


@pytest.mark.slow
def test_parts_are_copied_and_every_system_of_them_is_loaded(tmp_path: Path) -> None:
    card = bundle(parts(dual="people-en/dual", text_qa=str(MODELS / "text-qa")), tmp_path / "mine")
    assert card["systems"] == ["dual", "text"] and set(card["parts"]) == {
        "encoder",
        "units",
        "dual",
        "text-qa",
    }
    assert (
        model_folder(tmp_path / "mine") == tmp_path / "mine"
        and not (tmp_path / "mine/dual").is_symlink()
    )
    # the same by content
    assert (
        bundle(parts(dual="people-en/dual", text_qa="people-en/text-qa"), tmp_path / "mine") == card
    )
    (mine,), (shipped,) = load_systems(tmp_path / "mine", ["dual"]), load_systems(MODELS, ["dual"])
    assert dict(mine.card) == dict(shipped.card)


def test_a_head_is_copied_with_its_ngram_which_is_a_part(tmp_path: Path) -> None:
    ctc = shutil.copytree(MODELS / "ctc", tmp_path / "ctc")
    mine = Parts("people-en/encoder", ctc=ctc, text_qa=Path("people-en/text-qa"))
    card = bundle(mine, tmp_path / "mine")
    assert {"ctc", "ngram"} < set(card["parts"])
    beam, greedy = load_systems(tmp_path / "mine", ["cascade-ctc", "cascade-ctc-greedy"])
    assert (
        beam.card["decoding"] == read_json(ctc / "ngram/card.json")["decoding"]
        and greedy.card["decoding"] == "greedy"
    )
    # another n-gram of the same head
    write_json(ctc / "ngram/card.json", read_json(ctc / "ngram/card.json") | {"order": 2})
    refused(r"was made from other inputs \(ngram differs\)", bundle, mine, tmp_path / "mine")


def test_a_head_decoded_greedily_is_described_as_one_of_the_models() -> None:
    about = QA("people-en", systems=["cascade-ctc", "cascade-ctc-greedy"]).about
    assert (
        about["cascade-ctc"] == about["cascade-ctc-greedy"] and "people-en" in about["cascade-ctc"]
    )


def test_a_reader_of_hugging_face_with_other_weights_is_another_part(
    checkpoint: Callable[..., Path], tmp_path: Path
) -> None:
    import transformers

    folder = shutil.copytree(
        checkpoint("BERT", "AutoModelForQuestionAnswering"), tmp_path / "reader"
    )
    mine = Parts("people-en/encoder", text_qa=folder)
    card = bundle(mine, tmp_path / "mine")
    assert bundle(mine, tmp_path / "mine") == card
    model = transformers.AutoModelForQuestionAnswering.from_pretrained(folder)
    model.qa_outputs.bias.data += 1
    model.save_pretrained(folder)
    refused(r"was made from other inputs \(text-qa differs\)", bundle, mine, tmp_path / "mine")


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        (
            {"codebook": "people-en/words.safetensors", "dual": "people-en/dual"},
            "^people-en/dual was .* than those of people-en/words",
        ),
        (
            {"dual": "people-en/text-qa"},
            "--dual people-en/text-qa is text QA, and a DUAL reader is wanted",
        ),
        ({"dual": "nowhere"}, "--dual nowhere is not a folder"),
        (
            {"dual": "people-en/dual", "codebook": None},
            "--dual people-en/dual reads units; give the codebook",
        ),
    ],
)
def test_parts_that_do_not_belong_together_leave_nothing(
    changes: dict[str, Any], message: str, tmp_path: Path
) -> None:
    refused(message, bundle, parts(**changes), tmp_path / "mine")
    assert not (tmp_path / "mine").exists()


def test_links_are_removed() -> None:
    with link_parts(parts(dual="people-en/dual", text_qa="people-en/text-qa")) as folder:
        assert sorted(p.name for p in folder.iterdir()) == [
            "dual",
            "encoder",
            "text-qa",
            "units.card.json",
            "units.safetensors",
        ]
        assert (folder / "text-qa").is_symlink()
    assert not folder.exists()


@pytest.mark.slow
def test_one_model_as_parts_and_as_a_folder_is_one_row(mini_corpus, tmp_path, capsys):
    corpus = mini_corpus((16_000,))
    change_lines(
        corpus / "train/questions.jsonl", {"answers": [{"text": "a", "start": 0.1, "end": 0.4}]}
    )
    (corpus / "card.json").unlink()  # nobody needs one
    out = tmp_path / "out"
    call = [
        "evaluate",
        "qa",
        str(corpus),
        str(out),
        "--split",
        "train",
        "--conditions",
        "clean",
        "--workers",
        "1",
    ]
    named = [
        "--encoder",
        "people-en/encoder",
        "--codebook",
        "people-en/units.safetensors",
        "--dual",
        "people-en/dual",
    ]
    assert main([*call, *named]) == 0
    assert {(row.system, row.encoder) for row in read_rows(out / "results.jsonl")} == {
        ("dual", "people-en/dual")
    }
    made = (out / "predictions/dual/clean.parquet").stat().st_mtime_ns
    assert main([*call, "--systems", "dual", "--label", "mine"]) == 0
    assert {(row.system, row.encoder) for row in read_rows(out / "results.jsonl")} == {
        ("dual", "mine")
    }
    # the same model: nothing was computed again
    assert (out / "predictions/dual/clean.parquet").stat().st_mtime_ns == made
    assert evaluated_split(out) == "train"
    assert main([*call, "--encoder", "people-en/encoder"]) == 2
    assert (
        "--encoder, --codebook and --dual (the reader of units) go together"
    ) in capsys.readouterr().err
    assert main([*call, *named, "--models", "mine"]) == 2
    assert "go together, in the place of --models" in capsys.readouterr().err
