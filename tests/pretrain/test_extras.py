"""What may be added to a training: of which layers, and what has to be there for it."""

import pytest
from transformers import HubertModel

from speechssl.augment.training import parse_distortions
from speechssl.errors import InputError
from speechssl.pretrain.adversarial import AdversaryOptions
from speechssl.pretrain.distil import DistilOptions, auxiliary_losses
from speechssl.pretrain.run import HubertOptions, Wav2Vec2Options, named, plain
from speechssl.trainer import TrainingOptions

NOISE = parse_distortions("g+b")


@pytest.fixture(scope="module")
def folder(hubert_folder):
    return str(hubert_folder("layer"))


def added(folder, **options):
    everything = {"start": folder, "distort": NOISE, "distil": None, "adversary": None} | options
    return auxiliary_losses(HubertModel.from_pretrained(folder), **everything)


def test_nothing_is_added_that_was_not_asked_for(folder):
    assert added(folder) == [] == added(folder, distort=None)


def test_by_default_all_layers_are_taught_and_the_last_is_judged(folder):
    teacher, adversary = added(folder, distil=DistilOptions(2.0), adversary=AdversaryOptions("multi"))
    assert teacher.layers == (0, 1, 2) and teacher.weight == 2.0
    assert adversary.options.layers == (2,) and len(adversary.classifiers) == 1 and adversary.classes == 3
    teacher, adversary = added(folder, distil=DistilOptions(1.0, (1,)), adversary=AdversaryOptions("binary", (0, 1)))
    assert teacher.layers == (1,) and adversary.options.layers == (0, 1) and adversary.classes == 2


@pytest.mark.parametrize("options", [{"distil": DistilOptions()}, {"adversary": AdversaryOptions()}])
def test_both_need_distorted_speech(folder, options):
    with pytest.raises(InputError, match=r"a clean teacher and a domain classifier need distorted speech; give --distort"):
        added(folder, distort=None, **options)


def test_a_teacher_needs_a_start(folder):
    with pytest.raises(InputError, match="the clean teacher is the encoder that training starts from; name one with --from"):
        added(folder, start=None, distil=DistilOptions())


@pytest.mark.parametrize("options", [{"distil": DistilOptions(1.0, (1, 3))}, {"adversary": AdversaryOptions(layers=(-1,))}])
def test_layers_that_there_are_not_are_refused(folder, options):
    with pytest.raises(InputError, match="the encoder has the layers 0 to 2, not (1, 3|-1); choose among them"):
        added(folder, **options)


def test_a_card_names_what_was_used_and_not_where_it_lay():
    options = HubertOptions(TrainingOptions(2, 1e-3), "/home/me/exp/one/encoder", codebook="k.safetensors", distort=NOISE)
    assert plain(options)["teacher"] == "/home/me/exp/one/encoder" and plain(options)["distort"] == NOISE.card
    found = named(options)
    assert found["teacher"] == "one/encoder" and found["codebook"] == "k.safetensors" and "start" not in found
    assert not {"distil", "adversary", "size"} & set(found)
    assert named(HubertOptions(TrainingOptions(2, 1e-3)))["teacher"] == "mfcc"
    assert named(Wav2Vec2Options(TrainingOptions(2, 1e-3), start="facebook/wav2vec2-base"))["start"] == "facebook/wav2vec2-base"
