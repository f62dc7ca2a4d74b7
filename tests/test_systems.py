"""Parts that do not belong together are refused by file, and the encoder works once for systems
that read the same features."""

import math
import shutil
from dataclasses import replace
from pathlib import Path

import numpy as np
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
    """A copy of the models that ship, to be damaged."""
    return Path(shutil.copytree(model_folder(), tmp_path / "models"))


@pytest.mark.slow
@pytest.mark.parametrize(
    ("damage", "system", "message"),
    [
        ("dual/model.safetensors", "dual", "model.safetensors"),
        ("units.safetensors", "dual", "units.safetensors"),
        ("encoder/model.safetensors", "dual", "encoder"),
        ("ctc/head.safetensors", "cascade-ctc", "head.safetensors"),
        ("text-qa/tokenizer.json", "cascade-ctc", r"tokenizer\*.json does not match its card"),
        ("text-qa/card.json", "cascade-ctc", "card.json"),
        (None, "duel", "choose dual, speechbert, cascade-ctc"),
        (None, "speechbert@2", "there is no system 'speechbert@2'"),
        (None, "dual@0", "there is no system 'dual@0'"),
        (None, "cascade-ctc-other", "has no ctc-other/; train one"),
    ],
)
def test_missing_parts_and_systems_are_named(models, damage, system, message):
    if damage:
        (models / damage).unlink()
    refused(message, load_systems, models, [system])


@pytest.mark.slow
def test_parts_that_do_not_belong_together_are_refused(models):
    change_json(models / "dual/card.json", units={"codebook": "other"}, codebooks=[])
    refused("no reader of the units", load_systems, models, ["dual"])
    change_json(models / "units.card.json", encoder="0123456789abcdef")
    wanted = "was not fitted on encoder .* but on encoder 0123456789abcdef"
    refused(wanted, load_systems, models, ["dual"])


@pytest.mark.slow
def test_a_reader_of_units_that_were_carried_over_loads_and_of_others_does_not(models):
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
def test_the_text_half_needs_no_encoder_and_knows_times_where_the_manifest_does(models):
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
def test_a_reader_with_other_windows_or_longest_answers_is_another_system(models, system, part):
    """Stride and longest answer change no weight in training, and so not the hash of the
    weights."""
    before = load_systems(models, [system])[0].card
    card = read_json(models / part / "card.json")
    write_json(models / part / "card.json", card | {"layout": card["layout"] | {"stride": 10}})
    after = load_systems(models, [system])[0].card
    assert list_differences(before, after) == ["layout.stride"]


@pytest.mark.slow
def test_systems_that_read_few_windows_say_so():
    names = ["dual", "dual@1", "cascade-ctc", "cascade-ctc@1"]
    dual, one, cascade, other = load_systems(model_folder(), names)
    assert [s.name for s in (dual, one, cascade, other)] == names
    assert one.card == {**dual.card, "windows": 1} and other.card == {**cascade.card, "windows": 1}
    pairs = ((dual.reader, one.reader), (cascade.qa.reader.reader, other.qa.reader.reader))
    for whole, few in pairs:
        assert (whole.retrieve, few.retrieve) == (None, 1)


@pytest.mark.slow
def test_rows_of_a_head_without_an_ngram_say_that_it_decodes_greedily(models, capsys):
    shutil.rmtree(models / "ctc/ngram")
    asked, greedy = load_systems(models, ["cascade-ctc@2", "cascade-ctc-greedy@2"])
    assert asked.name == greedy.name == "cascade-ctc-greedy@2"
    assert asked.card == greedy.card
    assert "ctc has no n-gram and decodes greedily, as ctc-greedy" in capsys.readouterr().err


# ---- a folder of models from its parts: copied, or linked for one evaluation

MODELS = model_folder("people-en")


def parts(codebook="people-en/units.safetensors", **changes):
    given = {"codebook": codebook} | changes
    return Parts(
        "people-en/encoder", **{name: value and Path(value) for name, value in given.items()}
    )


@pytest.mark.slow
def test_parts_are_copied_and_every_system_of_them_is_loaded(tmp_path, capsys):
    given = parts(dual="people-en/dual", text_qa=str(MODELS / "text-qa"))
    card = bundle(given, tmp_path / "mine")
    assert card["systems"] == ["dual", "text"]
    assert set(card["parts"]) == {"encoder", "units", "dual", "text-qa"}
    assert not (tmp_path / "mine/dual").is_symlink()
    # the same by content
    again = Bundle(out=tmp_path / "mine", parts=replace(given, text_qa=Path("people-en/text-qa")))
    assert bundle_parts(again)["card"] == card
    assert "an encoder and 50 units; systems: dual, text" in capsys.readouterr().out
    (mine,), (shipped,) = load_systems(tmp_path / "mine", ["dual"]), load_systems(MODELS, ["dual"])
    assert dict(mine.card) == dict(shipped.card)


def test_a_head_is_copied_with_its_ngram_which_is_a_part(tmp_path):
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
        (["words.safetensors", "dual"], "dual is no reader of the units of"),
        (["units.safetensors", "text-qa"], "is no reader of"),
        (["units.safetensors", "nowhere"], "found no reader at people-en/nowhere"),
        ([None, "dual"], "--dual people-en/dual reads units; give the codebook"),
    ],
)
def test_parts_that_do_not_belong_together_leave_nothing(changes, message, tmp_path):
    codebook, dual = (name and f"people-en/{name}" for name in changes)
    refused(message, bundle, parts(codebook, dual=dual), tmp_path / "mine")
    assert not (tmp_path / "mine").exists()


def test_an_error_names_the_parts_that_were_linked(models):
    change_json(models / "dual/card.json", units={"codebook": "other"}, codebooks=[])
    given = Parts("people-en/encoder", codebook=models / "units.safetensors", dual=models / "dual")

    def load():
        with link_parts(given) as folder:
            load_systems(folder, ["dual"])

    refused(f"^{models / 'dual'} is no reader", load)


def test_a_cut_head_is_one_sentence(models):
    path = models / "ctc/head.safetensors"
    path.write_bytes(path.read_bytes()[:100])
    refused("does not have the weights of its card", load_systems, models, ["cascade-ctc"])
