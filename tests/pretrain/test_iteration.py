"""One iteration of pre-training from a corpus to an encoder folder; the next one goes on from it."""

import json

import numpy as np
import pytest
import torch

from speechssl.audio import write_flac
from speechssl.data.records import data_hash
from speechssl.encoders.load import load_checkpoint, small_config
from speechssl.errors import InputError
from speechssl.pretrain import run as iteration
from speechssl.pretrain.data import MaskOptions
from speechssl.pretrain.run import HubertOptions, pretrain
from speechssl.pretrain.targets import material, packed
from speechssl.timing import FrameGrid
from speechssl.trainer import TrainingOptions
from speechssl.units.fit import draw
from speechssl.units.kmeans import load_codebook


def options(**changes):
    training = TrainingOptions(steps=2, learning_rate=1e-4, warmup_steps=1, save_every=1, bf16=False)
    common = {"training": training, "clusters": 6, "mask": MaskOptions(0.5, 4, 1.0), "crops": 2, "seconds": 0.5}
    return HubertOptions(**common | changes)


@pytest.fixture
def first(mini_corpus, tmp_path):
    root = mini_corpus()
    pretrain(root, tmp_path / "first", options())
    return root, tmp_path / "first"


def test_an_iteration_leaves_an_encoder_that_says_what_made_it(first):
    root, out = first
    card = json.loads((out / "encoder/card.json").read_text())
    assert card["targets"]["encoder"] == "mfcc" and card["training"]["steps"] == 2
    assert packed(data_hash(root, "train"), out).is_dir()
    before = (out / "encoder/model.safetensors").stat().st_mtime_ns
    pretrain(root, out, options())
    assert (out / "encoder/model.safetensors").stat().st_mtime_ns == before


def test_the_next_iteration_goes_on_in_full_precision_from_rounded_weights(first, tmp_path):
    root, _ = first
    rounded = pretrain(root, tmp_path / "rounded", options(save_bf16=True))
    assert all(torch.equal(p, p.bfloat16().float()) for p in load_checkpoint(tmp_path / "rounded/encoder").model.parameters())
    teacher = str(tmp_path / "rounded/encoder")
    second = pretrain(root, tmp_path / "second", options(teacher=teacher, start=teacher, layer=1, smooth=3))
    assert second.hash != rounded.hash
    assert not all(torch.equal(p, p.bfloat16().float()) for p in load_checkpoint(tmp_path / "second/encoder").model.parameters())


def test_other_inputs_are_refused(first):
    root, out = first
    with pytest.raises(InputError, match="options.clusters"):
        pretrain(root, out, options(clusters=7))


def test_a_start_that_is_no_hubert_or_is_not_there_is_refused(first, tmp_path, text_encoder):
    text_encoder().save_pretrained(tmp_path / "bert")
    for start in (str(tmp_path / "bert"), str(tmp_path / "nowhere")):
        with pytest.raises(InputError, match="bert|nowhere"):
            pretrain(first[0], tmp_path / "next", options(start=start))


def test_a_start_that_cannot_be_trained_is_said_before_targets_are_made(first, tmp_path, hubert_folder, monkeypatch):
    monkeypatch.setattr(iteration, "make_targets", lambda *_: pytest.fail("targets were made"))
    with pytest.raises(InputError, match=" is a hubert model, but no plain HuBERT .* go on from another"):
        pretrain(first[0], tmp_path / "next", options(start=str(hubert_folder("layer", hidden_act="relu"))))
    assert not (tmp_path / "next").exists()


def test_targets_are_fitted_on_recordings_of_all_speakers(tmp_path):
    """A list in the order of speakers, 20 of 5 short recordings each: a third of the list finds most of them, not the first 7."""
    rng = np.random.default_rng(0)
    for speaker in range(20):
        for number in range(5):
            write_flac(tmp_path / f"voices/{speaker:02}/{number}.flac", rng.uniform(-0.5, 0.5, 10_000 + 100 * speaker))
    pretrain(tmp_path / "voices", tmp_path / "out", options(share=0.34, budget=500, starts=2))
    book = load_codebook(tmp_path / "out/targets.safetensors")
    assert book.card.items() >= {"recordings": 34, "drawn_from": 100, "budget": 500, "starts": 2, "seed": 0}.items()
    chosen, _ = draw(material(tmp_path / "voices").readings, 0, 0.34)
    assert len({reading.id.split("/")[0] for reading in chosen}) > 15
    grid = FrameGrid.of_convolutions(16_000, small_config().conv_kernel, small_config().conv_stride)
    assert book.card["frames"] == sum(grid.frames(10_000 + 100 * int(reading.id[:2])) for reading in chosen)


def test_a_run_killed_before_its_codebook_is_written_draws_the_same_again(mini_corpus, tmp_path, monkeypatch):
    root, fit_targets = mini_corpus(tuple(range(16_000, 24_000, 1_000))), iteration.fit_targets
    for name in ("once", "killed"):
        if name == "killed":
            monkeypatch.setattr(iteration, "fit_targets", lambda *_: (_ for _ in ()).throw(KeyboardInterrupt))
            with pytest.raises(KeyboardInterrupt):
                pretrain(root, tmp_path / name, options(share=0.5))
            monkeypatch.setattr(iteration, "fit_targets", fit_targets)
        pretrain(root, tmp_path / name, options(share=0.5))
    hashes = {load_codebook(tmp_path / name / "targets.safetensors").hash for name in ("once", "killed")}
    assert len(hashes) == 1
    monkeypatch.setattr(iteration, "fit_targets", lambda *_: pytest.fail("the codebook was fitted again"))
    pretrain(root, tmp_path / "killed", options(share=0.5))


def test_whoever_asks_for_another_draw_is_refused_and_whoever_asks_for_none_is_not(first):
    root, out = first
    made_from = json.loads((out / "made_from.json").read_text())["options"]
    assert not {"share", "budget", "starts"} & made_from.keys() and "same_masks" not in made_from["mask"]
    for name, changed in (("share", 0.5), ("budget", 99), ("starts", 3)):
        with pytest.raises(InputError, match=f"options.{name} differ"):
            pretrain(root, out, options(**{name: changed}))
    with pytest.raises(InputError, match=r"options.mask.same_masks differ"):
        pretrain(root, out, options(mask=MaskOptions(0.5, 4, 1.0, same_masks=True)))
