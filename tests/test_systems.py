"""Parts that do not belong together are refused by file, and the encoder works once for systems
that read the same features."""

import math
import shutil
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch

from speechssl import systems
from speechssl.artifacts import list_differences, read_json, write_json
from speechssl.checkpoints import model_folder
from speechssl.cli import main
from speechssl.data.records import Passage, Question, Span
from speechssl.dual.model import load_reader, save_reader
from speechssl.encoders.encoder import SharedEncoder
from speechssl.options import Parts
from speechssl.report.build import find_evaluated_split
from speechssl.results import read_rows
from speechssl.systems import bundle, link_parts, load_systems
from speechssl.units.codebook import Codebook, load_codebook

from .files import change_json, change_lines, refused


@pytest.fixture
def models(tmp_path: Path) -> Path:
    """A copy of the models that ship, to be damaged."""
    return Path(shutil.copytree(model_folder(), tmp_path / "models"))


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
        (None, "duel", "choose dual, speechbert, cascade-ctc"),
        (None, "speechbert@2", "there is no system 'speechbert@2'"),
        (None, "dual@0", "there is no system 'dual@0'"),
        (None, "cascade-ctc-other", "has no ctc-other/; train one"),
    ],
)
def test_missing_parts_and_systems_are_named(
    models: Path, damage: str | None, system: str, message: str
) -> None:
    if damage:
        (models / damage).unlink()
    refused(message, load_systems, models, [system])


@pytest.mark.slow
def test_parts_that_do_not_belong_together_are_refused(models: Path) -> None:
    change_json(models / "dual/card.json", units={"codebook": "other"}, codebooks=[])
    refused("no reader of the units", load_systems, models, ["dual"])
    change_json(models / "units.card.json", encoder="0123456789abcdef")
    refused(
        "was not fitted on encoder .* but on encoder 0123456789abcdef",
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
    refused("no reader of the units", load_systems, models, ["dual"])


@pytest.mark.slow
def test_the_text_half_needs_no_encoder_and_knows_times_where_the_manifest_does(
    models: Path,
) -> None:
    shutil.rmtree(models / "encoder")
    text, given = load_systems(models, ["text", "cascade-given"])
    said = "anna lost silver lanterns"
    words = tuple(Span(word, i / 2, i / 2 + 0.5) for i, word in enumerate(said.split()))
    heard = said.replace("silver", "sliver")
    passage = Passage("p", "", 0.0, said, "s", "en", words, transcript=heard)
    question = Question("q", "p", "", 0.0, "what did anna lose", "s", "en")
    for system, timed, word in ((text, True, "silver"), (given, False, "sliver")):
        encoded = [system.encode(record, None) for record in (question, passage)]
        assert word in encoded[1].text
        (found,) = system.answer_all([tuple(encoded)])
        assert math.isnan(found.start) != timed
        assert found.text in encoded[1].text
    with pytest.raises(ValueError, match="p has no transcript"):
        given.encode(replace(passage, text="", transcript=" "), None)
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
    monkeypatch.setattr("speechssl.encoders.encoder.KEPT", 0)  # bytes
    shared.features(samples.copy(), 2)
    assert calls == [1, "all", 2]


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
    given = parts(dual="people-en/dual", text_qa=str(MODELS / "text-qa"))
    card = bundle(given, tmp_path / "mine")
    assert card["systems"] == ["dual", "text"]
    assert set(card["parts"]) == {"encoder", "units", "dual", "text-qa"}
    assert not (tmp_path / "mine/dual").is_symlink()
    # the same by content
    assert bundle(replace(given, text_qa=Path("people-en/text-qa")), tmp_path / "mine") == card
    (mine,), (shipped,) = load_systems(tmp_path / "mine", ["dual"]), load_systems(MODELS, ["dual"])
    assert dict(mine.card) == dict(shipped.card)


def test_a_head_is_copied_with_its_ngram_which_is_a_part(tmp_path: Path) -> None:
    ctc = Path(shutil.copytree(MODELS / "ctc", tmp_path / "ctc"))
    mine = Parts("people-en/encoder", ctc=ctc, text_qa=Path("people-en/text-qa"))
    bundle(mine, tmp_path / "mine")
    beam, greedy = load_systems(tmp_path / "mine", ["cascade-ctc", "cascade-ctc-greedy"])
    assert beam.card["decoding"] == read_json(ctc / "ngram/card.json")["decoding"]
    assert greedy.card["decoding"] == "greedy"
    # another n-gram of the same head
    change_json(ctc / "ngram/card.json", order=2)
    refused(r"was made from other inputs \(ctc differs\)", bundle, mine, tmp_path / "mine")


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        (
            {"codebook": "people-en/words.safetensors", "dual": "people-en/dual"},
            "dual is no reader of the units of",
        ),
        ({"dual": "people-en/text-qa"}, "is no reader of"),
        ({"dual": "nowhere"}, "found no reader at nowhere"),
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


@pytest.mark.slow
def test_one_model_as_parts_and_as_a_folder_is_one_row(mini_corpus, tmp_path, capsys):
    corpus = mini_corpus((16_000,))
    answers = [{"text": "a", "start": 0.1, "end": 0.4}]
    change_lines(corpus / "train/questions.jsonl", {"answers": answers})
    out = tmp_path / "out"

    def evaluate(*more: str) -> int:
        call = f"evaluate qa {corpus} {out} --split train --conditions clean --workers 1"
        return main([*call.split(), *more])

    def labels() -> set[tuple[str, str]]:
        return {(row.system, row.encoder) for row in read_rows(out / "results.jsonl")}

    named = ["--encoder", "people-en/encoder", "--dual", "people-en/dual"]
    named += ["--codebook", "people-en/units.safetensors"]
    assert evaluate(*named) == 0
    assert labels() == {("dual", "people-en/dual")}
    made = (out / "predictions/dual/clean.parquet").stat().st_mtime_ns
    assert evaluate("--systems", "dual", "--label", "mine") == 0
    assert labels() == {("dual", "mine")}
    # the same model: nothing was computed again
    assert (out / "predictions/dual/clean.parquet").stat().st_mtime_ns == made
    assert find_evaluated_split(out) == "train"
    assert evaluate("--encoder", "people-en/encoder") == 2
    assert (
        "--encoder, --codebook and --dual (the reader of units) go together"
        in capsys.readouterr().err
    )
    assert evaluate(*named, "--models", "mine") == 2
    assert "go together, in the place of --models" in capsys.readouterr().err


def test_an_error_names_the_parts_that_were_linked(models: Path) -> None:
    change_json(models / "dual/card.json", units={"codebook": "other"}, codebooks=[])
    given = Parts("people-en/encoder", codebook=models / "units.safetensors", dual=models / "dual")

    def load() -> None:
        with link_parts(given) as folder:
            load_systems(folder, ["dual"])

    refused(f"^{models / 'dual'} is no reader", load)
