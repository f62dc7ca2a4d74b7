"""Test systems that are loaded by name, and folders of models that are made of parts: parts that are
missing or do not belong together are refused by name."""

import math
import shutil
from dataclasses import replace
from pathlib import Path

import pytest

from speechssl.artifacts import list_differences, read_json, write_json
from speechssl.checkpoints import model_folder
from speechssl.cli.answer import bundle_parts
from speechssl.cli.options import Bundle
from speechssl.data.records import Passage, Question, Span
from speechssl.options import Parts
from speechssl.systems import bundle, link_parts, load_systems
from speechssl.units.codebook import Codebook, load_codebook

from .files import change_json, refused


@pytest.fixture
def models(tmp_path):
    """A copy of the shipped models, which a test may damage."""
    return Path(shutil.copytree(model_folder(), tmp_path / "models"))


@pytest.mark.slow
@pytest.mark.parametrize(
    ("damage", "system", "message"),
    [
        ("dual/model.safetensors", "dual", "model.safetensors"),
        ("units.safetensors", "dual", "units.safetensors"),
        ("encoder/model.safetensors", "dual", "encoder"),
        ("ctc/head.safetensors", "cascade-ctc", "head.safetensors"),
        ("text-qa/tokenizer.json", "cascade-ctc", r"tokenizer\*.json"),
        ("text-qa/card.json", "cascade-ctc", "card.json"),
        (None, "dual@0", "there is no system 'dual@0'"),
        (None, "cascade-ctc-other", "has no ctc-other/; train one"),
    ],
)
def test_missing_parts_and_unknown_systems_are_refused(models, damage, system, message):
    if damage:
        (models / damage).unlink()
    refused(message, load_systems, models, [system])


@pytest.mark.slow
def test_a_reader_accepts_codebooks_that_were_carried_over_from_its_own(models):
    """A codebook that `units transfer` carried over from another has units of the same meaning. The
    reader accepts one that was carried over from its own, or from the same codebook as its own."""
    path = models / "units.safetensors"
    book = load_codebook(path)
    trained_on = read_json(models / "dual/card.json")["units"]["codebook"]
    Codebook(book.centroids + 1e-3, book.card | {"carried_from": trained_on}).save(path)
    assert load_systems(models, ["dual"])[0].card["codebook"] not in (book.hash, trained_on)
    card = book.card | {"transferred_through": []}
    Codebook(book.centroids + 1e-3, card).save(path)  # carried over from the same codebook
    assert load_systems(models, ["dual"])[0].card["codebook"] == load_codebook(path).hash
    Codebook(book.centroids + 1e-3, card | {"carried_from": "0123456789abcdef"}).save(path)
    refused("no reader of the units", load_systems, models, ["dual"])


@pytest.mark.slow
def test_text_systems_need_no_encoder_and_take_times_from_the_manifest(models):
    shutil.rmtree(models / "encoder")
    text_system, given = load_systems(models, ["text", "cascade-given"])
    text = "anna lost silver lanterns"
    words = tuple(Span(word, i / 2, i / 2 + 0.5) for i, word in enumerate(text.split()))
    transcript = text.replace("silver", "sliver")
    passage = Passage("p", text=text, words=words, transcript=transcript)
    question = Question("q", "p", text="what did anna lose")
    # the manifest has times for the words of the text, and none for those of the transcript
    for system, has_times, word in ((text_system, True, "silver"), (given, False, "sliver")):
        encoded_question = system.encode(question, None)
        encoded_passage = system.encode(passage, None)
        assert word in encoded_passage.text
        (answer,) = system.answer_all([(encoded_question, encoded_passage)])
        assert math.isnan(answer.start) != has_times
        assert answer.text in encoded_passage.text
    with pytest.raises(ValueError, match="p has no transcript"):
        given.encode(replace(passage, text="", transcript=" "), None)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("system", "part"), [("dual", "dual"), ("text", "text-qa"), ("speechbert", "speechbert")]
)
def test_the_card_of_a_system_states_the_layout_of_windows(models, system, part):
    """The stride of windows is not in the hash of the weights, and changes the answers."""
    before = load_systems(models, [system])[0].card
    card = read_json(models / part / "card.json")
    write_json(models / part / "card.json", card | {"layout": card["layout"] | {"stride": 10}})
    after = load_systems(models, [system])[0].card
    assert list_differences(before, after) == ["layout.stride"]


@pytest.mark.slow
def test_the_names_and_cards_of_systems_state_their_number_of_windows():
    names = ["dual", "dual@1", "cascade-ctc", "cascade-ctc@1"]
    dual, dual_1, cascade, cascade_1 = load_systems(model_folder(), names)
    assert [s.name for s in (dual, dual_1, cascade, cascade_1)] == names
    assert dual_1.card == {**dual.card, "windows": 1}
    assert cascade_1.card == {**cascade.card, "windows": 1}
    assert dual_1.reader.retrieve == 1
    assert cascade_1.qa.reader.reader.retrieve == 1


@pytest.mark.slow
def test_a_head_without_an_ngram_decodes_greedily_and_its_name_says_so(models, capsys):
    shutil.rmtree(models / "ctc/ngram")
    default, greedy = load_systems(models, ["cascade-ctc@2", "cascade-ctc-greedy@2"])
    assert default.name == greedy.name == "cascade-ctc-greedy@2"
    assert default.card == greedy.card
    assert "ctc has no n-gram and decodes greedily, as ctc-greedy" in capsys.readouterr().err


# ---- a folder of models from its parts: copied, or linked for one evaluation

MODELS = model_folder("people-en")


def make_parts(dual, codebook="people-en/units.safetensors", **parts):
    """Make parts of the shipped encoder, a codebook, a reader of DUAL and others by name."""
    return Parts("people-en/encoder", codebook and Path(codebook), Path(dual), **parts)


@pytest.mark.slow
def test_parts_are_copied_and_every_system_of_them_is_loaded(tmp_path, capsys):
    parts = make_parts("people-en/dual", text_qa=MODELS / "text-qa")
    card = bundle(parts, tmp_path / "mine")
    assert card["systems"] == ["dual", "text"]
    assert not (tmp_path / "mine/dual").is_symlink()
    # text QA by another name, with the same content
    same_parts = replace(parts, text_qa=Path("people-en/text-qa"))
    again = Bundle(out=tmp_path / "mine", parts=same_parts)
    assert bundle_parts(again)["card"] == card
    assert "an encoder and 50 units; systems: dual, text" in capsys.readouterr().out
    (mine,), (shipped,) = load_systems(tmp_path / "mine", ["dual"]), load_systems(MODELS, ["dual"])
    assert dict(mine.card) == dict(shipped.card)


def test_a_head_is_copied_with_its_ngram(tmp_path):
    ctc = Path(shutil.copytree(MODELS / "ctc", tmp_path / "ctc"))
    mine = Parts("people-en/encoder", ctc=ctc, text_qa=Path("people-en/text-qa"))
    bundle(mine, tmp_path / "mine")
    beam, greedy = load_systems(tmp_path / "mine", ["cascade-ctc", "cascade-ctc-greedy"])
    assert beam.card["decoding"] == read_json(ctc / "ngram/card.json")["decoding"]
    assert greedy.card["decoding"] == "greedy"
    # another n-gram of the same head makes other models
    change_json(ctc / "ngram/card.json", order=2)
    refused(r"was made from other inputs \(ctc differs\)", bundle, mine, tmp_path / "mine")


@pytest.mark.parametrize(
    ("dual", "codebook", "message"),
    [
        ("people-en/dual", "people-en/words.safetensors", "dual is no reader of the units of"),
        ("people-en/text-qa", "people-en/units.safetensors", "is no reader of"),
        ("nowhere", "people-en/units.safetensors", "found no reader at nowhere"),
        ("people-en/dual", None, "--dual people-en/dual reads units; give the codebook"),
    ],
)
def test_parts_that_do_not_belong_together_are_not_bundled(dual, codebook, message, tmp_path):
    refused(message, bundle, make_parts(dual, codebook), tmp_path / "mine")
    assert not (tmp_path / "mine").exists()


def test_an_error_names_the_parts_instead_of_their_links(models):
    change_json(models / "dual/card.json", units={"codebook": "other"}, codebooks=[])
    parts = make_parts(models / "dual")

    def load():
        with link_parts(parts) as folder:
            load_systems(folder, ["dual"])

    refused(f"^{models / 'dual'} is no reader", load)


def test_a_head_that_is_cut_off_is_refused(models):
    path = models / "ctc/head.safetensors"
    path.write_bytes(path.read_bytes()[:100])
    refused("head.safetensors", load_systems, models, ["cascade-ctc"])
