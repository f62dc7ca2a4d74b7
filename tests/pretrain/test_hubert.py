"""HuBERT pre-training: masks, crops, the loss against transformers' own forward, and the label head beside the encoder."""

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from safetensors.torch import load_file, save_file
from torch import nn
from torch.nn import functional
from transformers import AutoFeatureExtractor, HubertModel

from speechssl.encoders.export import save_encoder
from speechssl.encoders.training import training_states
from speechssl.errors import InputError
from speechssl.pretrain.data import cut_to_same, span_mask
from speechssl.pretrain.hubert import NAME, HubertPretraining, final, restore_label_head, save_label_head
from speechssl.timing import FrameGrid

GRID = FrameGrid(16_000, 320, 400)


@pytest.fixture(scope="module")
def hubert(hubert_folder):
    """A function () -> a fresh tiny HuBERT without dropout, always of the same weights."""
    quiet = {"hidden_dropout": 0.0, "attention_dropout": 0.0, "feat_proj_dropout": 0.0, "activation_dropout": 0.0}
    folder = hubert_folder("layer", layerdrop=0.0, **quiet)
    return lambda: HubertModel.from_pretrained(folder)


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
def test_rows_are_cut_to_as_many_masked_frames_as_the_row_with_fewest(rows, frames, probability, seed):
    rng = np.random.default_rng(seed)
    masks = np.stack([span_mask(rng, frames, probability, 10) for _ in range(rows)])
    cut = cut_to_same(rng, masks)
    assert set(cut.sum(axis=1)) == {masks.sum(axis=1).min()} and not (cut & ~masks).any()


# ---- the loss


def toy_batch(seed=0):
    """Two sounds that alternate, labelled by which it is, and half the frames hidden."""
    rng = np.random.default_rng(seed)
    labels = np.repeat(rng.integers(0, 3, (4, 10)), 5, axis=1)
    tones = np.sin(np.arange(GRID.samples_for(50)) * np.array([0.05, 0.4, 1.2])[:, None])
    owner = np.clip((np.arange(GRID.samples_for(50)) - GRID.offset) // GRID.hop, 0, 49)
    samples = tones[labels[:, owner], np.arange(len(owner))] + 0.05 * rng.standard_normal((4, len(owner)))
    mask = np.stack([span_mask(rng, 50, 0.5, 5) for _ in range(4)])
    return {"samples": torch.from_numpy(samples).float(), "labels": torch.from_numpy(labels), "mask": torch.from_numpy(mask)}


@pytest.mark.parametrize("visible_weight", [0.0, 1.0])
def test_the_loss_is_that_of_transformers_hidden_states(hubert, visible_weight):
    encoder, inputs = hubert().train(), toy_batch()
    model = HubertPretraining(encoder, 3, width=8, visible_weight=visible_weight)
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


def test_hidden_frames_are_not_seen(hubert):
    """With everything hidden, the speech makes no difference to the loss of the same labels."""
    model = HubertPretraining(hubert().eval(), 3, width=8, visible_weight=1.0)

    def loss(seed, hidden):
        inputs = toy_batch(seed) | {"labels": toy_batch()["labels"], "mask": torch.full((4, 50), hidden)}
        penalty = model.encoder.feature_extractor(inputs["samples"]).square().mean()
        return float(model(**inputs)["loss"] - 10 * penalty)

    with torch.no_grad():
        assert loss(0, True) == pytest.approx(loss(1, True), abs=1e-5)
        assert loss(0, False) != pytest.approx(loss(1, False), abs=1e-3)


def test_frames_without_a_label_do_not_count(hubert):
    """As if neither they nor their logits were there."""
    model, inputs = HubertPretraining(hubert().eval(), 3, width=8, visible_weight=1.0, penalty=0.0), toy_batch()
    labels = inputs["labels"].clone()
    labels[:, 20:] = -1
    found = model(**inputs | {"labels": labels})
    _, layers = training_states(model.encoder, inputs["samples"], inputs["mask"])
    hidden, mask = final(model.encoder, layers[-1])[:, :20], inputs["mask"][:, :20]
    expected = model.predict(hidden, labels[:, :20], mask)
    for name, value in expected.items():
        torch.testing.assert_close(found[name], value)
    none = model(**inputs | {"labels": torch.full_like(labels, -1)})
    assert none["loss"] == none["masked_accuracy"] == 0
    for mask in (torch.ones_like(inputs["mask"]), torch.zeros_like(inputs["mask"])):
        assert torch.isfinite(model(**inputs | {"mask": mask})["loss"])


# ---- the encoder that ships


@pytest.mark.parametrize(("norm", "attends"), [("layer", True), ("group", False)])
def test_transformers_is_made_to_leave_padding_out_where_the_encoder_can(hubert_folder, tmp_path, norm, attends):
    encoder = HubertModel.from_pretrained(hubert_folder(norm))
    save_encoder(encoder, tmp_path)
    extractor = AutoFeatureExtractor.from_pretrained(tmp_path)
    short, long = (np.random.default_rng(0).standard_normal(n).astype(np.float32) for n in (4_000, 8_000))
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
    return all(torch.equal(x, y) for x, y in zip(a.state_dict().values(), b.state_dict().values(), strict=True))


@pytest.fixture
def start(tmp_path):
    save_label_head(Model(), tmp_path, "cafe")
    return tmp_path


def test_a_shipped_encoder_is_not_given_the_head_of_a_folder_of_its_name(tmp_path, monkeypatch, capsys):
    save_label_head(Model(), tmp_path / "people-en/encoder", "cafe")
    monkeypatch.chdir(tmp_path)
    assert restore_label_head(Model(seed=1), "people-en/encoder", "cafe") is False
    assert "re-made" in (err := capsys.readouterr().err) or "has no label head" in err


@pytest.mark.parametrize(
    ("clusters", "width", "codebook"),
    [(5, 4, "cafe"), (7, 4, "cafe"), (5, 4, "beef"), (5, 6, "cafe")],
    ids=["same", "clusters", "codebook", "width"],
)
def test_the_head_of_the_same_codebook_goes_on_and_another_is_made_anew(start, capsys, clusters, width, codebook):
    model, restored = Model(clusters, width, seed=1), (clusters, width, codebook) == (5, 4, "cafe")
    assert restore_label_head(model, str(start), codebook) is restored
    assert same(model, Model() if restored else Model(clusters, width, seed=1))
    assert all(weight.requires_grad for weight in model.parameters())
    anew = f"it was re-made: {clusters} clusters in {width} dimensions for {codebook}"
    err = capsys.readouterr().err
    assert err == "" if restored else f"is 5 clusters in 4 dimensions for codebook cafe; {anew}" in err
    assert restore_label_head(Model(), str(start / "nothing"), "cafe") is False
    assert f"{start}/nothing has no label head; one for 5 clusters was made" in capsys.readouterr().err


@pytest.mark.parametrize("damage", ["cut", "labels", "project.weight", "flat"])
def test_a_damaged_head_is_one_sentence(start, damage):
    path = start / NAME
    if damage == "cut":
        path.write_bytes(path.read_bytes()[:40])
    else:
        state = load_file(path)
        state = state | {"labels": torch.zeros(5)} if damage == "flat" else {k: v for k, v in state.items() if k != damage}
        save_file(state, path, {"codebook": "cafe"})
    with pytest.raises(InputError, match=rf"^cannot read the label head .*{NAME} \([^\n]+\); delete it, and a new one is made$"):
        restore_label_head(Model(), str(start), "cafe")
