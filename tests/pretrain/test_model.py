"""HuBERT pre-training: masks, crops, the loss against transformers' own forward, and the label head
beside the encoder."""

import copy
import json
import math
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from safetensors.torch import load_file, save_file
from sklearn.linear_model import LogisticRegression
from torch import nn
from torch.nn import functional
from transformers import (
    AutoFeatureExtractor,
    HubertModel,
    Wav2Vec2Config,
    Wav2Vec2ForPreTraining,
    Wav2Vec2Model,
)

from speechssl.augment.training import parse_distortions
from speechssl.encoders.load import load_checkpoint, load_encoder, save_encoder
from speechssl.encoders.training import training_states
from speechssl.errors import InputError
from speechssl.pretrain import model as room
from speechssl.pretrain.data import Cropper, LabelledAudio, equalise_masks, span_mask
from speechssl.pretrain.model import (
    HEADS,
    LABEL_HEAD,
    CleanTeacher,
    CollapseGuard,
    ContrastiveBatches,
    DomainAdversary,
    GumbelQuantiser,
    HubertPretraining,
    Wav2Vec2Pretraining,
    auxiliary_losses,
    draw_negatives,
    final_states,
    load_pretraining,
    restore_label_head,
    save_label_head,
    save_pretraining,
    temperature,
)
from speechssl.pretrain.options import (
    Adversary,
    Batches,
    Convolutions,
    Distillation,
    Distortion,
    Hubert,
    Masks,
    Prediction,
    Targets,
)
from speechssl.pretrain.run import decisive_options, name_model
from speechssl.timing import FrameGrid

from .conftest import CONVOLUTIONS, QUIET, TINY, contrast

GRID = FrameGrid(16_000, 320, 400)


# ---- masks


@pytest.mark.slow
@given(st.integers(1, 300), st.floats(0, 1), st.integers(1, 20), st.integers(0, 10**6))
def test_masks_are_made_of_whole_spans(frames, probability, length, seed):
    mask = span_mask(np.random.default_rng(seed), frames, probability, length)
    assert mask.shape == (frames,) and mask.dtype == bool
    edges = np.flatnonzero(np.diff(np.r_[0, mask.astype(int), 0]))
    runs = edges[1::2] - edges[::2]
    assert len(runs) >= 1 and runs.min() >= min(length, frames)
    assert mask.sum() <= max(int(frames * probability / length + 1), 2) * length


@pytest.mark.parametrize("probability", [0.1, 0.65, 0.8])
def test_the_share_that_is_hidden(probability):
    """A frame is seen when none of the ten places whose spans would cover it was drawn."""
    rng = np.random.default_rng(0)
    shares = [span_mask(rng, 1_000, probability, 10).mean() for _ in range(200)]
    assert np.mean(shares) == pytest.approx(1 - (1 - probability / 10) ** 10, abs=0.01)


@pytest.mark.slow
@given(st.integers(1, 8), st.integers(20, 300), st.floats(0.1, 0.8), st.integers(0, 10**6))
def test_rows_are_cut_to_as_many_masked_frames_as_the_row_with_fewest(
    rows, frames, probability, seed
):
    rng = np.random.default_rng(seed)
    masks = np.stack([span_mask(rng, frames, probability, 10) for _ in range(rows)])
    cut = equalise_masks(rng, masks)
    assert set(cut.sum(axis=1)) == {masks.sum(axis=1).min()} and not (cut & ~masks).any()


# ---- the loss


def hubert_model(encoder, clusters=3, visible_weight=1.0, penalty=10.0, auxiliary=()):
    prediction = Prediction(visible_weight=visible_weight, projection=8)
    return HubertPretraining(encoder, clusters, prediction, Convolutions(penalty, 1.0), auxiliary)


def toy_batch(seed=0):
    """Two sounds that alternate, labelled by which it is, and half the frames hidden."""
    rng = np.random.default_rng(seed)
    labels = np.repeat(rng.integers(0, 3, (4, 10)), 5, axis=1)
    tones = np.sin(np.arange(GRID.samples_for(50)) * np.array([0.05, 0.4, 1.2])[:, None])
    owner = np.clip((np.arange(GRID.samples_for(50)) - GRID.offset) // GRID.hop, 0, 49)
    samples = tones[labels[:, owner], np.arange(len(owner))] + 0.05 * rng.standard_normal(
        (4, len(owner))
    )
    mask = np.stack([span_mask(rng, 50, 0.5, 5) for _ in range(4)])
    return {
        "samples": torch.from_numpy(samples).float(),
        "labels": torch.from_numpy(labels),
        "mask": torch.from_numpy(mask),
    }


@pytest.mark.parametrize("visible_weight", [0.0, 1.0])
def test_the_loss_is_that_of_transformers_hidden_states(quiet, visible_weight):
    encoder, inputs = quiet().train(), toy_batch()
    model = hubert_model(encoder, visible_weight=visible_weight)
    found = model(**inputs)
    output = encoder(inputs["samples"], mask_time_indices=inputs["mask"])
    vectors = model.project(output.last_hidden_state)
    cosines = functional.cosine_similarity(vectors[:, :, None], model.labels[None, None], dim=-1)
    mask, right = inputs["mask"], inputs["labels"]
    masked, visible = (functional.cross_entropy(cosines[m] / 0.1, right[m]) for m in (mask, ~mask))
    penalty = encoder.feature_extractor(inputs["samples"]).square().mean()
    expected = (masked + visible_weight * visible) / (1 + visible_weight) + 10 * penalty
    torch.testing.assert_close(found["loss"], expected, atol=1e-5, rtol=1e-5)
    hits = (cosines.argmax(-1) == right).float()
    assert found["masked_accuracy"] == pytest.approx(float(hits[mask].mean()))
    assert found["visible_accuracy"] == pytest.approx(float(hits[~mask].mean()))


def test_hidden_frames_are_not_seen(quiet):
    """With everything hidden, the speech makes no difference to the loss of the same labels."""
    model = hubert_model(quiet().eval())

    def loss(seed, hidden):
        inputs = toy_batch(seed) | {
            "labels": toy_batch()["labels"],
            "mask": torch.full((4, 50), hidden),
        }
        penalty = model.encoder.feature_extractor(inputs["samples"]).square().mean()
        return float(model(**inputs)["loss"] - 10 * penalty)

    with torch.no_grad():
        assert loss(0, True) == pytest.approx(loss(1, True), abs=1e-5)
        assert loss(0, False) != pytest.approx(loss(1, False), abs=1e-3)


def test_frames_without_a_label_do_not_count(quiet):
    """As if neither they nor their logits were there."""
    model, inputs = (
        hubert_model(quiet().eval(), penalty=0.0),
        toy_batch(),
    )
    labels = inputs["labels"].clone()
    labels[:, 20:] = -1
    found = model(**inputs | {"labels": labels})
    _, layers = training_states(model.encoder, inputs["samples"], inputs["mask"])
    hidden, mask = final_states(model.encoder, layers[-1])[:, :20], inputs["mask"][:, :20]
    expected = model.predict(hidden, labels[:, :20], mask)
    for name, value in expected.items():
        torch.testing.assert_close(found[name], value)
    none = model(**inputs | {"labels": torch.full_like(labels, -1)})
    assert none["loss"] == none["masked_accuracy"] == 0
    for mask in (torch.ones_like(inputs["mask"]), torch.zeros_like(inputs["mask"])):
        assert torch.isfinite(model(**inputs | {"mask": mask})["loss"])


# ---- the encoder that ships


@pytest.mark.parametrize(("norm", "attends"), [("layer", True), ("group", False)])
def test_transformers_is_made_to_leave_padding_out_where_the_encoder_can(
    hubert_folder, tmp_path, norm, attends
):
    encoder = HubertModel.from_pretrained(hubert_folder(norm))
    save_encoder(encoder, tmp_path)
    extractor = AutoFeatureExtractor.from_pretrained(tmp_path)
    short, long = (
        np.random.default_rng(0).standard_normal(n).astype(np.float32) for n in (4_000, 8_000)
    )
    batch = extractor([short, long], sampling_rate=16_000, padding=True, return_tensors="pt")
    assert ("attention_mask" in batch) is attends
    if attends:
        alone = extractor(short, sampling_rate=16_000, return_tensors="pt")
        with torch.no_grad():
            apart, together = (encoder.eval()(**x).last_hidden_state for x in (alone, batch))
        torch.testing.assert_close(together[0, : apart.shape[1]], apart[0], atol=1e-4, rtol=1e-4)


class Model(nn.Module):
    """As much of a `HubertPretraining` as has to do with it."""

    def __init__(self, clusters=5, width=4, seed=0):
        super().__init__()
        torch.manual_seed(seed)
        self.project, self.labels = nn.Linear(8, width), nn.Parameter(torch.randn(clusters, width))


def same(a, b):
    return all(
        torch.equal(x, y)
        for x, y in zip(a.state_dict().values(), b.state_dict().values(), strict=True)
    )


@pytest.fixture
def start(tmp_path):
    save_label_head(Model(), tmp_path, "cafe")
    return tmp_path


def test_a_shipped_encoder_is_not_given_the_head_of_a_folder_of_its_name(
    tmp_path, monkeypatch, capsys
):
    save_label_head(Model(), tmp_path / "people-en/encoder", "cafe")
    monkeypatch.chdir(tmp_path)
    assert restore_label_head(Model(seed=1), "people-en/encoder", "cafe") is False
    assert "re-made" in (err := capsys.readouterr().err) or "has no label head" in err


@pytest.mark.parametrize(
    ("clusters", "width", "codebook"),
    [(5, 4, "cafe"), (7, 4, "cafe"), (5, 4, "beef"), (5, 6, "cafe")],
    ids=["same", "clusters", "codebook", "width"],
)
def test_the_head_of_the_same_codebook_goes_on_and_another_is_made_anew(
    start, capsys, clusters, width, codebook
):
    model, restored = Model(clusters, width, seed=1), (clusters, width, codebook) == (5, 4, "cafe")
    assert restore_label_head(model, str(start), codebook) is restored
    assert same(model, Model() if restored else Model(clusters, width, seed=1))
    assert all(weight.requires_grad for weight in model.parameters())
    anew = f"it was re-made: {clusters} clusters in {width} dimensions for {codebook}"
    err = capsys.readouterr().err
    assert (
        err == ""
        if restored
        else (f"is 5 clusters in 4 dimensions for codebook cafe; {anew}") in err
    )
    assert restore_label_head(Model(), str(start / "nothing"), "cafe") is False
    assert (
        f"{start}/nothing has no label head; one for 5 clusters was made"
    ) in capsys.readouterr().err


@pytest.mark.parametrize("damage", ["cut", "labels", "project.weight", "flat"])
def test_a_damaged_head_is_one_sentence(start, damage):
    path = start / LABEL_HEAD
    if damage == "cut":
        path.write_bytes(path.read_bytes()[:40])
    else:
        state = load_file(path)
        state = (
            state | {"labels": torch.zeros(5)}
            if damage == "flat"
            else {k: v for k, v in state.items() if k != damage}
        )
        save_file(state, path, {"codebook": "cafe"})
    with pytest.raises(
        InputError,
        match=(
            rf"^cannot read the label head .*{LABEL_HEAD} \([^\n]+\); "
            r"delete it, and a new one is made$"
        ),
    ):
        restore_label_head(Model(), str(start), "cafe")


FIVE = contrast(codebooks=2, entries=5, width=16, dropout=0.0)
FREE = Convolutions(feature_penalty=0.0, gradient_scale=1.0)


def config(norm="layer"):
    heads = {
        "num_codevector_groups": 2,
        "num_codevectors_per_group": 5,
        "codevector_dim": 16,
        "proj_codevector_dim": 16,
    }
    return Wav2Vec2Config(
        **QUIET | TINY | heads, feat_extract_norm=norm, do_stable_layer_norm=norm == "layer"
    )


def pair(norm="layer", convolutions=FREE):
    """transformers' model and ours with the same weights, which share none."""
    torch.manual_seed(0)
    theirs = Wav2Vec2ForPreTraining(config(norm)).train()
    ours = Wav2Vec2Pretraining(copy.deepcopy(theirs.wav2vec2), FIVE, convolutions)
    for name in ("quantizer", "project_q", "project_hid"):
        getattr(ours, name).load_state_dict(getattr(theirs, name).state_dict())
    return theirs, ours


def inputs(rows=3, frames=50, seed=0, negatives=7):
    rng = np.random.default_rng(seed)
    samples = torch.from_numpy(
        rng.standard_normal((rows, GRID.samples_for(frames))).astype(np.float32)
    )
    samples *= torch.linspace(0, 6, samples.shape[1]).sin() + 1.1  # not all frames alike
    mask = np.zeros((rows, frames), bool)
    for row in mask:
        row[rng.choice(frames, 20, replace=False)] = True
    drawn = torch.from_numpy(draw_negatives(rng, rows, 20, negatives))
    return {
        "samples": samples,
        "mask": torch.from_numpy(mask),
        "negatives": drawn,
        "temperature": torch.tensor(1.3),
    }


def in_frames(made):
    """(B, T, K) negatives as transformers numbers them: frames of the whole batch."""
    rows, frames = made["mask"].shape
    found = torch.zeros(rows, frames, made["negatives"].shape[-1], dtype=torch.long)
    for i, mask in enumerate(made["mask"]):
        found[i, mask] = i * frames + mask.nonzero()[:, 0][made["negatives"][i]]
    return found


@pytest.fixture
def fixed_noise(monkeypatch):
    """Gumbel noise that belongs to the frame, however many frames are quantised at once."""

    def use(mask, noise=None):
        if noise is None:
            uniform = torch.rand(*mask.shape, 2, 5, generator=torch.Generator().manual_seed(3))
            noise = -(-uniform.clamp(1e-6).log()).log()

        def gumbel_softmax(logits, tau=1, hard=False, dim=-1):
            here = noise if logits.numel() == noise.numel() else noise[mask]
            soft = ((logits + here.reshape(logits.shape)) / tau).softmax(dim)
            return (
                functional.one_hot(soft.argmax(-1), 5).float() - soft.detach() + soft
                if hard
                else soft
            )

        monkeypatch.setattr(functional, "gumbel_softmax", gumbel_softmax)
        return noise

    return use


def gradients(model, loss):
    model.zero_grad()
    loss.backward()
    renamed = {
        name.replace("encoder.", "wav2vec2.", 1) if name.startswith("encoder.") else name: p
        for name, p in model.named_parameters()
    }
    return {name: p.grad for name, p in renamed.items() if p.grad is not None}


# ---- the loss


@pytest.mark.parametrize("norm", ["layer", "group"])
def test_loss_and_gradients_are_those_of_transformers(norm, fixed_noise):
    theirs, ours = pair(norm)
    made = inputs()
    fixed_noise(made["mask"])
    theirs.set_gumbel_temperature(1.3)
    expected = theirs(
        made["samples"], mask_time_indices=made["mask"], sampled_negative_indices=in_frames(made)
    )
    found, hidden = ours(**made), int(made["mask"].sum())
    assert found["contrastive_loss"].item() == pytest.approx(
        expected.contrastive_loss.item() / hidden, rel=1e-5
    )
    diversity = (found["loss"] - found["contrastive_loss"]) / FIVE.diversity
    assert diversity.item() == pytest.approx(expected.diversity_loss.item() / hidden, abs=2e-5)
    assert found["loss"].item() == pytest.approx(expected.loss.item() / hidden, rel=1e-5)
    right, mine = gradients(theirs, expected.loss / hidden), gradients(ours, found["loss"])
    assert right.keys() == mine.keys() and len(mine) > 40
    for name, gradient in right.items():
        torch.testing.assert_close(
            mine[name],
            gradient,
            atol=2e-5,
            rtol=2e-3,
            msg=lambda text, name=name: f"{name}: {text}",
        )


@pytest.mark.parametrize("norm", ["layer", "group"])
def test_hard_choices_are_those_of_transformers_where_negatives_equal_the_positive(norm):
    theirs, ours = pair(norm)
    theirs.eval(), ours.eval()
    made = inputs(negatives=40)
    with torch.no_grad():
        expected = theirs(
            made["samples"],
            mask_time_indices=made["mask"],
            sampled_negative_indices=in_frames(made),
        )
        found = ours(**made)
        codes = ours.quantise(
            ours.encoder.feature_extractor(made["samples"]).transpose(1, 2)[made["mask"]]
        ).codes
    of_negatives = torch.stack(
        [
            row[chosen]
            for row, chosen in zip(codes.unflatten(0, (3, 20)), made["negatives"], strict=True)
        ]
    )
    again = (of_negatives == codes.view(3, 20, 1, 2)).all(-1)
    assert 0.02 < again.float().mean() < 0.9  # negatives that are the positive once more
    assert found["contrastive_loss"].item() == pytest.approx(
        expected.contrastive_loss.item() / 60, rel=1e-5
    )
    assert found["code_perplexity"].item() * 2 == pytest.approx(
        expected.codevector_perplexity.item(), abs=1e-3
    )


def test_equal_entries_count_for_none_while_training_too(fixed_noise):
    """Straight-through sums that are one only to rounding would let equal entries pass for
    different ones."""
    _, ours = pair()
    made = inputs()
    fixed_noise(made["mask"])
    with torch.no_grad():
        ours.quantizer.weight_proj.weight.zero_()
        ours.quantizer.weight_proj.bias.copy_(torch.tensor([50.0, 0, 0, 0, 0] * 2))
    found = ours(**made)
    # nothing to be distinguished from is nothing found
    assert found["contrastive_loss"] == found["contrastive_accuracy"] == 0
    assert found["code_perplexity"] == pytest.approx(1.0, abs=1e-4)
    assert torch.isfinite(
        torch.cat([g.ravel() for g in gradients(ours, found["loss"]).values()])
    ).all()


def test_the_feature_penalty_is_the_mean_square_before_the_layer_norm():
    made = inputs()
    with_it, without = (pair(convolutions=Convolutions(p, 0.1))[1].eval() for p in (10.0, 0.0))
    with torch.no_grad():
        square = with_it.encoder.feature_extractor(made["samples"]).square().mean()
        found = with_it(**made)
        difference = found["loss"] - without(**made)["loss"]
    assert found["feature_penalty"].item() == pytest.approx(square.item())
    assert difference.item() == pytest.approx(10 * square.item(), rel=1e-4)


def test_the_gradient_into_the_convolutions_is_a_tenth(fixed_noise):
    made = inputs()
    fixed_noise(made["mask"])
    _, whole = pair(convolutions=Convolutions(10.0, 1.0))
    _, tenth = pair(convolutions=CONVOLUTIONS)
    full, less = (gradients(model, model(**made)["loss"]) for model in (whole, tenth))
    for name, gradient in full.items():
        factor = 0.1 if "feature_extractor" in name else 1.0
        torch.testing.assert_close(less[name], factor * gradient, atol=1e-6, rtol=1e-4)


def test_targets_of_distorted_speech_are_those_of_the_clean(fixed_noise):
    _, ours = pair()
    made, clean = inputs(), inputs(seed=1)["samples"]
    fixed_noise(made["mask"])
    quantised = []
    quantise = ours.quantise
    ours.quantise = lambda features, temperature: (
        quantised.append(features) or quantise(features, temperature)
    )
    found, plain = ours(**made, clean_samples=clean), ours(**made)
    expected = (
        ours.encoder.feature_extractor(clean).transpose(1, 2)[made["mask"]].unflatten(0, (3, -1))
    )
    torch.testing.assert_close(quantised[0], expected)
    assert quantised[0].requires_grad and not torch.equal(quantised[0], quantised[1])
    assert found["contrastive_loss"] != plain["contrastive_loss"]
    assert found["feature_penalty"] == plain["feature_penalty"]
    same = ours(**made, clean_samples=made["samples"])
    torch.testing.assert_close(same["loss"], plain["loss"])


def test_processes_that_share_a_batch_have_its_loss_and_gradient(monkeypatch, fixed_noise):
    """Two processes are played one after the other: what they would average is known from a first
    round."""
    _, ours = pair(convolutions=CONVOLUTIONS)
    made = inputs(rows=4)
    noise = fixed_noise(made["mask"])
    whole = ours(**made)
    expected, sent = gradients(ours, whole["loss"]), [[], []]

    def play(mean):
        losses = []
        for number in (0, 1):
            half = {name: x[number::2] if x.ndim else x for name, x in made.items()}
            fixed_noise(half["mask"], noise[number::2])
            calls = iter(range(100))
            monkeypatch.setattr(room, "processes", lambda: 2)
            monkeypatch.setattr(
                room, "mean_of_processes", lambda x, n=number, c=calls: mean(n, next(c), x)
            )
            losses.append(ours(**half))
        return losses

    # equal counts: the other values are right too
    play(lambda number, call, x: sent[number].append(x.detach().clone()) or x)
    means = [(a + b) / 2 for a, b in zip(*sent, strict=True)]
    assert len(means) > 4
    found = play(lambda number, call, x: means[call])
    for name in (
        "loss",
        "contrastive_loss",
        "contrastive_accuracy",
        "code_perplexity",
        "feature_penalty",
    ):
        torch.testing.assert_close(
            (found[0][name] + found[1][name]) / 2, whole[name], atol=1e-5, rtol=1e-4
        )
    for name, gradient in gradients(ours, (found[0]["loss"] + found[1]["loss"]) / 2).items():
        torch.testing.assert_close(
            gradient,
            expected[name],
            atol=1e-5,
            rtol=1e-4,
            msg=lambda text, name=name: f"{name}: {text}",
        )


# ---- batches


def crops(frames=100, **changes):
    samples = np.random.default_rng(0).integers(-3000, 3000, 90_000).astype(np.int16)
    bounds = np.cumsum([0, GRID.frames(40_000), GRID.frames(50_000)])
    data = LabelledAudio(
        samples, np.array([0, 40_000, 90_000]), np.zeros(bounds[-1], np.int16), bounds
    )
    return Cropper(data, GRID, Masks(0.65, 10), Batches(4, frames / 50), **changes)


def test_a_batch_depends_on_seed_and_step_only():
    first, again = (ContrastiveBatches(crops(seed=5), contrast(), seed=5) for _ in range(2))
    [first(step) for step in (0, 3)]
    for name, value in first(7).items():
        assert torch.equal(value, again(7)[name])
    for other in (again(8), ContrastiveBatches(crops(seed=5), contrast(), seed=6)(7)):
        assert not torch.equal(first(7)["mask"], other["mask"])
        a, b = first(7)["negatives"], other["negatives"]
        assert a.shape != b.shape or not torch.equal(a, b)


def test_all_rows_hide_as_many_frames_and_only_what_the_mask_hid():
    make = ContrastiveBatches(crops(), contrast())
    for step in range(5):
        made, cut = make(step), crops()(step)
        assert torch.equal(made["samples"], cut["samples"]) and "labels" not in made
        counts = made["mask"].sum(1)
        assert (counts == cut["mask"].sum(1).min()).all() and not (
            made["mask"] & ~cut["mask"]
        ).any()
        assert made["negatives"].shape == (4, counts[0], 100)


def test_all_others_are_drawn_alike():
    drawn = draw_negatives(np.random.default_rng(0), 1, 5, 40_000)[0]
    for own, row in enumerate(drawn):
        shares = np.bincount(row, minlength=5) / 40_000
        assert shares[own] == 0 and np.delete(shares, own) == pytest.approx(0.25, abs=0.01)


def test_the_temperature_counts_updates_not_batches():
    fast = contrast(temperature_decay=0.5, temperature_floor=0.4)
    make = ContrastiveBatches(crops(), fast, accumulation=2)
    assert [make(step)["temperature"].item() for step in range(6)] == pytest.approx(
        [2, 2, 1, 1, 0.5, 0.5]
    )
    assert make(9)["temperature"].item() == pytest.approx(0.4)
    assert temperature(contrast(), 100_000) == pytest.approx(2 * 0.999995**100_000)
    assert temperature(contrast(), 10**6) == 0.5


def test_a_crop_that_hides_one_frame_is_refused():
    with pytest.raises(
        InputError,
        match=(
            "a crop has 1 masked frames, too few for the contrastive loss; give a "
            "longer --crop-seconds"
        ),
    ):
        ContrastiveBatches(crops(1), contrast())(0)


# ---- training


def test_a_collapse_is_reported_loudly_and_not_before_it_lasts(capsys):
    guard = CollapseGuard(320, patience=3)
    for used in (1.01, 1.02, 40.0, 1.01, 1.01):
        guard(used)
    assert capsys.readouterr().err == ""
    [guard(1.01) for _ in range(4)]
    err = capsys.readouterr().err
    assert (
        err.count("a codebook uses 1.01 of 320 entries; start again with a lower learning rate")
        == 2
    )
    assert "THE QUANTISER HAS COLLAPSED: for 3 batches" in err and "for 6 batches" in err


def test_one_collapsed_codebook_of_two_is_a_collapse(capsys):
    _, ours = pair()
    ours.guard.patience = 2
    with torch.no_grad():
        ours.quantizer.weight_proj.bias[:5] += torch.tensor([500.0, 0, 0, 0, 0])
    [ours(**inputs()) for _ in range(2)]
    assert "for 2 batches a codebook uses 1.00 of 5 entries" in capsys.readouterr().err
    ours.eval()
    [ours(**inputs()) for _ in range(2)]
    assert capsys.readouterr().err == ""


def test_a_width_that_the_codebooks_cannot_share_is_refused():
    with pytest.raises(
        InputError, match=("a width of 16 is no multiple of 3 codebooks; give a multiple of 3")
    ):
        Wav2Vec2Pretraining(Wav2Vec2Model(config()), contrast(codebooks=3, width=16), FREE)


@pytest.fixture
def quantiser():
    torch.manual_seed(0)
    return GumbelQuantiser(8, codebooks=2, entries=5, width=6)


def test_noise_is_drawn_while_training_only(quantiser):
    x = torch.randn(200, 8) / 10
    likely = quantiser.eval()(x, 1.0)
    assert torch.equal(likely.codes, likely.likely.argmax(-1)) and torch.equal(
        likely.codes, quantiser(x, 9.0).codes
    )
    first, second = quantiser.train()(x, 1.0), quantiser(x, 1.0)
    assert not torch.equal(first.codes, second.codes) and torch.equal(first.likely, likely.likely)


def test_choices_are_made_in_full_precision_under_bf16(quantiser):
    with torch.autocast("cpu", torch.bfloat16):
        found = quantiser(torch.randn(9, 8), torch.tensor(0.5))
    assert found.vectors.dtype == found.likely.dtype == torch.float32


SIX = contrast(codebooks=2, entries=6, width=12, kappa=0.2, diversity=0.3, dropout=0.05)


@pytest.fixture
def model():
    torch.manual_seed(0)
    return Wav2Vec2Pretraining(Wav2Vec2Model(config()), SIX, CONVOLUTIONS, normalise=False)


@pytest.fixture
def folder(model, tmp_path):
    save_pretraining(model, tmp_path / "saved")
    return tmp_path / "saved"


def test_transformers_reads_what_is_saved(model, folder):
    theirs, info = Wav2Vec2ForPreTraining.from_pretrained(folder, output_loading_info=True)
    assert not any(info[name] for name in ("missing_keys", "unexpected_keys", "mismatched_keys"))
    assert same(theirs.wav2vec2, model.encoder) and same(theirs.project_q, model.project_q)
    for name, value in model.quantizer.state_dict().items():
        assert torch.equal(theirs.quantizer.state_dict()[name], value)
    assert (
        theirs.config.num_codevectors_per_group == 6
        and theirs.config.contrastive_logits_temperature == 0.2
    )
    assert json.loads((folder / "preprocessor_config.json").read_text())["do_normalize"] is False
    assert (
        same(load_checkpoint(folder).model, model.encoder)
        and load_encoder(folder).normalise is False
    )


# (4, 3): as many entries in all
@pytest.mark.parametrize("shape", [(2, 6, 12), (2, 9, 12), (4, 6, 12), (4, 3, 12), (2, 6, 8)])
def test_pre_training_goes_on_with_the_heads_that_fit_and_the_others_are_made_anew(
    model, folder, capsys, shape
):
    codebooks, entries, width = shape
    changed = replace(SIX, codebooks=codebooks, entries=entries, width=width)
    again = load_pretraining(folder, changed, CONVOLUTIONS)
    assert same(again.encoder, model.encoder) and again.normalise is False
    assert all(weight.requires_grad for weight in again.parameters()) and again.training
    err, names = capsys.readouterr().err, list(HEADS.values())
    assert again.quantizer.codevectors.shape == (1, codebooks * entries, width // codebooks)
    if changed == SIX:
        assert same(again, model)
        assert f"saved, heads of pre-training: {', '.join(names)} as trained\n" in err
    elif width == 12:
        assert same(again.project_q, model.project_q) and same(again.project_hid, model.project_hid)
        assert f"{names[0]} made anew; {', '.join(names[1:])} as trained\n" in err
    else:
        assert again.project_hid.out_features == 8 and f": {', '.join(names)} made anew\n" in err


def test_an_encoder_without_heads_gets_new_ones(model, tmp_path, capsys):
    save_encoder(model.encoder, tmp_path / "plain", model.normalise)
    again = load_pretraining(tmp_path / "plain", SIX, CONVOLUTIONS)
    assert same(again.encoder, model.encoder)
    assert "made anew, for the checkpoint has none that can be read" in capsys.readouterr().err


def test_heads_of_which_a_part_is_missing_are_refused(folder):
    weights = load_file(folder / "model.safetensors")
    del weights["quantizer.codevectors"]
    save_file(weights, folder / "model.safetensors", {"format": "pt"})
    with pytest.raises(
        InputError,
        match=(
            r"saved lacks 1 weights of its heads "
            r"\(quantizer.codevectors\); fetch or make it again"
        ),
    ):
        load_pretraining(folder, SIX, CONVOLUTIONS)


def test_an_encoder_of_another_kind_is_refused(hubert_folder):
    assert isinstance(load_checkpoint(hubert_folder()).model, HubertModel)
    with pytest.raises(
        InputError,
        match=("is a hubert encoder; start contrastive pre-training from a plain wav2vec 2.0"),
    ):
        load_pretraining(hubert_folder(), SIX, CONVOLUTIONS)


# ---- auxiliary losses: a teacher that is no part of the student, and an adversary whose gradient
# makes a domain unlearnt

ADVERSARY = Adversary(
    domain_adversary="binary", domain_adversary_schedule="constant", domain_adversary_width=8
)
MASK = torch.zeros(4, 6, dtype=torch.bool)


def batch(domains=(0, 1, 2, 0), progress=0.5, step=0):
    return {
        "domains": torch.tensor(domains),
        "progress": torch.tensor(progress),
        "step": torch.tensor(step),
    }


def layers(seed=0, count=3):
    """(4, 6, 5) each, leaves of the graph."""
    drawn = torch.randn(count, 4, 6, 5, generator=torch.Generator().manual_seed(seed))
    return [layer.clone().requires_grad_() for layer in drawn]


def adversary(domains=3, numbers=(2,), labels="binary", **changes):
    changes = {f"domain_adversary_{name}": value for name, value in changes.items()}
    torch.manual_seed(0)
    return DomainAdversary(
        5, domains, replace(ADVERSARY, domain_adversary=labels, **changes), numbers
    )


def gradient(loss, *of):
    return torch.autograd.grad(loss, of, allow_unused=True)


# ---- the gradient


def test_lambda_is_ganins():
    # 2 / (1 + e^(-10 p)) - 1 = tanh(5 p)
    expected = {0.0: 0.0, 0.1: 0.46211716, 0.5: 0.98661430, 1.0: 0.99990920}
    for progress, value in expected.items():
        assert value == pytest.approx(math.tanh(5 * progress), abs=1e-7)
        found = adversary(schedule="ganin", weight=0.3)(layers(), MASK, batch(progress=progress))
        assert found["adversary_weight"].item() == pytest.approx(0.3 * value, abs=1e-6)


@pytest.mark.parametrize("labels", ["binary", "multi"])
def test_the_classifier_learns_and_the_encoder_gets_minus_lambda_of_it(labels):
    """Against the cross-entropy by hand: a classifier without any reversal."""
    model, hidden, given_batch = adversary(labels=labels, weight=0.7), layers(), batch()
    classifier, wanted = (
        model.classifiers[0],
        torch.tensor([0, 1, 1, 0] if labels == "binary" else [0, 1, 2, 0]),
    )
    logits = classifier(hidden[2].mean(1))
    expected = functional.cross_entropy(logits, wanted)
    found = model(hidden, MASK, given_batch)
    assert logits.shape[-1] == (2 if labels == "binary" else 3)
    torch.testing.assert_close(found["loss"], expected)
    right = (logits.argmax(-1) == wanted).float().mean()
    assert (
        found["domain_accuracy"] == pytest.approx(right.item())
        and not found["domain_accuracy"].requires_grad
    )
    straight = gradient(expected, hidden[2], *classifier.parameters())
    turned = gradient(found["loss"], hidden[2], *classifier.parameters())
    torch.testing.assert_close(turned[0], -0.7 * straight[0])
    for ours, theirs in zip(turned[1:], straight[1:], strict=True):
        torch.testing.assert_close(ours, theirs)


def test_every_chosen_layer_has_a_classifier_and_the_others_none():
    model, hidden = adversary(numbers=(0, 2)), layers()
    assert len(model.classifiers) == 2
    found = model(hidden, MASK, batch())
    parts = [gradient(found["loss"], layer)[0] for layer in hidden]
    assert parts[1] is None and all(part.abs().max() > 0 for part in (parts[0], parts[2]))
    alone = adversary(numbers=(0,))
    alone.classifiers[0].load_state_dict(model.classifiers[0].state_dict())
    # a mean over layers
    torch.testing.assert_close(
        gradient(alone(hidden, MASK, batch())["loss"], hidden[0])[0] / 2, parts[0]
    )


@pytest.mark.parametrize("step", [0, 1, 6, 7])
def test_alternating_trains_the_classifier_in_even_steps_and_the_encoder_in_odd_ones(step):
    model, hidden = adversary(mode="alternating", weight=0.4), layers()
    found = model(hidden, MASK, batch(step=step))
    into, *own = gradient(found["loss"], hidden[2], *model.classifiers.parameters())
    reference, plain = layers(), adversary(weight=0.4)
    expected = gradient(
        plain(reference, MASK, batch())["loss"], reference[2], *plain.classifiers.parameters()
    )
    if step % 2:
        # not zero, by which an optimiser would still let momentum and decay move it
        assert own == [None] * 4
        torch.testing.assert_close(into, expected[0])
    else:
        assert into is None
        for ours, theirs in zip(own, expected[1:], strict=True):
            torch.testing.assert_close(ours, theirs)


# ---- a toy whose encoder shows the domain, and no longer does


@pytest.mark.slow
@pytest.mark.parametrize("mode", [None, "reversal", "alternating"])
def test_with_an_adversary_the_domain_is_chance_and_the_task_is_still_learnt(mode):
    """Four numbers, one of the class and one of the domain, through a linear encoder whose output
    is noisy. The classifier learns ten times as fast as the encoder: one that lags behind is fled
    from in circles."""
    torch.manual_seed(1)
    encoder, head, rng, steps = (
        nn.Linear(4, 6),
        nn.Linear(6, 2),
        torch.Generator().manual_seed(2),
        500,
    )
    options = Adversary("binary", 0.5, None, mode or "reversal", domain_adversary_width=16)
    adversary = DomainAdversary(6, 2, options, (0,))

    def drawn(count, rng):
        classes, domains = (torch.randint(2, (count,), generator=rng) for _ in range(2))
        x = torch.randn(count, 4, generator=rng) * 0.3
        x[:, 0] += 4.0 * domains - 2
        x[:, 1] += 2.0 * classes - 1
        return encoder(x) + 0.5 * torch.randn(count, 6, generator=rng), classes, domains

    optimiser, accuracies = torch.optim.SGD([*encoder.parameters(), *head.parameters()], lr=0.1), []
    if mode:
        optimiser.add_param_group(
            {"params": adversary.parameters(), "lr": 1.0, "weight_decay": 0.01}
        )
    schedule = torch.optim.lr_scheduler.LinearLR(optimiser, 1.0, 0.0, steps)
    for step in range(steps):
        code, classes, domains = drawn(64, rng)
        loss = functional.cross_entropy(head(code), classes)
        if mode:
            found = adversary([code[:, None]], None, batch(domains.tolist(), step / steps, step))
            loss, accuracies = loss + found["loss"], [*accuracies, float(found["domain_accuracy"])]
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
        schedule.step()
    rng = torch.Generator().manual_seed(3)
    with torch.no_grad():
        (code, _, before), (other, classes, after) = drawn(2000, rng), drawn(2000, rng)
    domain = LogisticRegression().fit(code, before).score(other, after)  # a fresh classifier
    assert (head(other).argmax(1) == classes).float().mean() > 0.95
    assert domain < 0.6 if mode else domain > 0.95
    if mode:  # the classifier knew, and was misled
        assert np.mean(accuracies[-50:]) < 0.6 and max(accuracies) > 0.95


# ---- the clean teacher, and what is added

HIDDEN = torch.zeros(2, 20, dtype=torch.bool)
HIDDEN[:, 4:12] = True


def speech(seed=0):
    return torch.randn(2, 400 + 19 * 320, generator=torch.Generator().manual_seed(seed))


def states(model, samples, mask=None):
    return training_states(model, samples, mask)[1]


def test_a_student_that_is_the_teacher_and_gets_the_same_has_no_distance(quiet):
    student, teacher = quiet().train(), CleanTeacher(quiet(), (0, 1, 2), weight=3.0)
    found = teacher(
        states(student, speech()), torch.zeros_like(HIDDEN), {"clean_samples": speech()}
    )
    assert found["loss"] == found["distillation"] == 0
    noisy = teacher(
        states(student, speech() + 0.5 * speech(1)),
        torch.zeros_like(HIDDEN),
        {"clean_samples": speech()},
    )
    assert noisy["distillation"] > 0.01
    torch.testing.assert_close(noisy["loss"], 3 * noisy["distillation"])


def test_the_distance_is_in_variances_and_of_the_chosen_layers(quiet):
    """By hand; what the teacher's mean would get is 1."""
    teacher, student = CleanTeacher(quiet(), (1, 2)), states(quiet(), speech(1))
    wanted, seen = states(quiet().eval(), speech()), ~HIDDEN
    parts = [
        (student[i][seen] - wanted[i][seen]).square().mean()
        / wanted[i][seen].var(0, unbiased=False).mean()
        for i in range(3)
    ]
    found = teacher(student, HIDDEN, {"clean_samples": speech()})
    torch.testing.assert_close(found["loss"], (parts[1] + parts[2]) / 2)
    means = [w[seen].mean(0).expand_as(w) for w in wanted]
    assert teacher(means, HIDDEN, {"clean_samples": speech()})["loss"].item() == pytest.approx(
        1.0, abs=1e-5
    )


def test_hidden_frames_do_not_count(quiet):
    teacher, student = (
        CleanTeacher(quiet(), (2,)),
        [x.detach().requires_grad_() for x in states(quiet(), speech(1))],
    )
    teacher(student, HIDDEN, {"clean_samples": speech()})["loss"].backward()
    assert (
        student[2].grad[HIDDEN].abs().max() == 0
        and student[2].grad[~HIDDEN].abs().min(1)[0].max() > 0
    )
    student[2].grad = None
    nothing = teacher(student, torch.ones_like(HIDDEN), {"clean_samples": speech()})["loss"]
    nothing.backward()
    assert nothing == 0 and student[2].grad.abs().max() == 0


def test_the_teacher_is_no_part_of_the_student_and_is_not_trained(quiet):
    extra = CleanTeacher(quiet().train(), (0, 1, 2))
    model = hubert_model(quiet(), 5, visible_weight=0.0, auxiliary=[extra]).train()
    assert len(model.auxiliary) == 1 and not any("auxiliary" in name for name in model.state_dict())
    assert not list(extra.parameters()) and not extra.hidden[0].training
    before = {name: value.clone() for name, value in extra.hidden[0].state_dict().items()}
    optimiser = torch.optim.AdamW(model.parameters(), lr=1e-2)
    found = model(
        speech(1), torch.zeros_like(HIDDEN, dtype=torch.long), HIDDEN, clean_samples=speech()
    )
    found["loss"].backward()
    optimiser.step()
    assert all(
        torch.equal(value, before[name]) for name, value in extra.hidden[0].state_dict().items()
    )
    assert all(weight.grad is None for weight in extra.hidden[0].parameters())
    assert not torch.equal(
        model.encoder.encoder.layers[0].final_layer_norm.weight,
        before["encoder.layers.0.final_layer_norm.weight"],
    )


def test_processes_that_share_a_batch_have_its_distance_and_gradient(quiet, monkeypatch):
    """Two processes with unequal numbers of seen frames, played one after the other until what they
    tell each other stands."""
    mask = HIDDEN.clone()
    mask[1, 2:18] = True
    teacher, student = CleanTeacher(quiet(), (2,)), [x.detach() for x in states(quiet(), speech(1))]

    def play(rows):
        own = [x[rows].clone().requires_grad_() for x in student]
        loss = teacher(own, mask[rows], {"clean_samples": speech()[rows]})["loss"]
        return loss, torch.autograd.grad(loss, own[2])[0]

    whole, expected = play(slice(0, 2))
    sent, halves = [[], []], [None, None]

    def mean(number, calls):
        def of_both(value):
            place = next(calls)
            sent[number][place:] = [value.detach().float().clone(), *sent[number][place + 1 :]]
            other = sent[1 - number]
            return (value + other[place]) / 2 if place < len(other) else value.float()

        return of_both

    monkeypatch.setattr("speechssl.pretrain.model.processes", lambda: 2)
    for number in (0, 1) * 4:  # each round makes one more of the three numbers right
        monkeypatch.setattr(
            "speechssl.pretrain.model.mean_of_processes", mean(number, iter(range(9)))
        )
        halves[number] = play(slice(number, number + 1))
    torch.testing.assert_close((halves[0][0] + halves[1][0]) / 2, whole)
    torch.testing.assert_close(torch.cat([halves[0][1], halves[1][1]]) / 2, expected)


NOISE = parse_distortions("g+b")
DISTORTED = Distortion(distort="g+b")


@pytest.fixture(scope="module")
def hubert(hubert_folder):
    return str(hubert_folder("layer"))


def auxiliary(hubert, **groups):
    o = Hubert(source=Path("s"), out=Path("o"), start=hubert, **groups)
    distort = NOISE if groups else None
    return auxiliary_losses(HubertModel.from_pretrained(hubert), o, hubert, distort)


@pytest.mark.parametrize(
    ("groups", "message"),
    [
        (
            {"distillation": Distillation(1.0, (1, 3))},
            "the encoder has the layers 0 to 2, not 1, 3; choose among them",
        ),
        (
            {"adversary": Adversary("binary", domain_adversary_layers=(-1,))},
            "the encoder has the layers 0 to 2, not -1; choose among them",
        ),
    ],
)
def test_what_cannot_be_added_is_refused(hubert, groups, message):
    with pytest.raises(InputError, match=message):
        auxiliary(hubert, distortion=DISTORTED, **groups)


def test_by_default_all_layers_are_taught_and_the_classifier_reads_the_last(hubert):
    assert auxiliary(hubert) == [] == auxiliary(hubert, distortion=DISTORTED)
    teacher, adversary = auxiliary(
        hubert,
        distortion=DISTORTED,
        distillation=Distillation(2.0),
        adversary=Adversary("multi"),
    )
    assert teacher.layers == (0, 1, 2) and teacher.weight == 2.0
    assert adversary.numbers == (2,) and len(adversary.classifiers) == 1
    assert adversary.classes == 3
    teacher, adversary = auxiliary(
        hubert,
        distortion=DISTORTED,
        distillation=Distillation(1.0, (1,)),
        adversary=Adversary("binary", domain_adversary_layers=(0, 1)),
    )
    assert teacher.layers == (1,) and adversary.numbers == (0, 1) and adversary.classes == 2


def test_a_card_names_what_was_used_and_not_where_it_lay():
    o = Hubert(
        source=Path("/home/me/corpus"),
        out=Path("/home/me/exp/two"),
        teacher="/home/me/exp/one/encoder",
        targets=Targets(codebook="k.safetensors"),
        distortion=Distortion(distort="g+b", noise_cache=Path("/home/me/noise")),
    )
    found = decisive_options(o, NOISE, name_model)
    assert found["teacher"] == "one/encoder" and found["targets"]["codebook"] == "k.safetensors"
    assert found["distort"] == NOISE.card and found["start"] is None
    assert "/home" not in json.dumps(found)
    assert (
        decisive_options(replace(o, teacher="org/hubert"), None, name_model)["teacher"]
        == "org/hubert"
    )
