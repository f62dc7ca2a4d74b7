"""A recogniser of phones learns to recognise distorted speech as it recognises clean speech.

hama (`encoders/hama.py`) was trained on recordings of people, and noise confuses it. Here it
teaches itself, as noisy students do (Xie et al. 2020, arXiv 1911.04252; of speech Park et al. 2020,
arXiv 2005.09629): the teacher, which stays as it was, gets the clean crop, the student a distorted
version. The label of a frame is the last symbol of the teacher's greedy decoding up to it, so that
a linear head on the last layer gives units that last as long as phones do, and `<wb>` between
words.

Letters: B crops, N samples, T frames, D width, K symbols without the blank.
"""

from __future__ import annotations

import copy
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from speechssl.encoders.hama import GRID, LAYERS, Conformer, load_hama, save_hama
from speechssl.encoders.load import load_encoder
from speechssl.errors import InputError
from speechssl.pretrain.options import Phones
from speechssl.pretrain.run import prepare_run, print_encoder
from speechssl.pretrain.spin import compute_label_loss, make_head_codebook
from speechssl.training import Batch, fit, write_by_main
from speechssl.units.codebook import Codebook
from speechssl.units.features import make_features
from speechssl.units.fit import make_phone_codebook

NEVER = -1e4  # score of the blank in a trained student, so that it is never decoded


class NoisyStudent(nn.Module):
    """A student gets distorted crops and predicts the phones that its teacher recognises in the
    clean crops. Its head begins with the weights of the teacher's symbols."""

    def __init__(self, start: Conformer) -> None:
        super().__init__()
        self.teacher = copy.deepcopy(start).eval().requires_grad_(False)
        self.student = start.requires_grad_(True)
        self.student.proj.requires_grad_(False)  # `head` takes its place
        self.head = nn.Linear(start.proj.in_channels, start.blank)
        with torch.no_grad():
            self.head.weight.copy_(start.proj.weight[: start.blank, :, 0])
            self.head.bias.copy_(start.proj.bias[: start.blank])

    @torch.no_grad()
    def finish(self) -> Conformer:
        """Return the student with the trained head in the place of its old one. It gives every
        frame a symbol, never a blank, and can be the teacher of another student."""
        proj, blank = self.student.proj, self.student.blank
        proj.weight[:blank, :, 0] = self.head.weight
        proj.bias[:blank] = self.head.bias
        proj.weight[blank] = 0.0
        proj.bias[blank] = NEVER
        return self.student

    def forward(self, samples: Tensor, clean_samples: Tensor, **_: Tensor) -> Batch:
        """Return the loss and the share of frames with the teacher's symbol. samples: (B, N),
        distorted; clean_samples: (B, N)."""
        with torch.no_grad():
            labels = self.teacher.decode(self.teacher(clean_samples)[-1])
        scores = self.head(self.student(samples)[-1])
        # frame by frame, not CTC
        loss, accuracy = compute_label_loss(scores, labels, by_order=False)
        return {"loss": loss, "label_accuracy": accuracy}


def train_phones(o: Phones) -> None:
    """Train OUT/encoder, and OUT/units.safetensors, a codebook of phones. Finished work is not
    repeated.

    Raises InputError for a start that is not hama or one of its students, and where OUT was made
    from other inputs.
    """
    run = prepare_run(o)
    with run.begin() as step:
        if not step.done:
            codebook = make_phone_codebook()  # before the training: it needs the package
            audio = run.load_unlabelled(GRID)
            torch.manual_seed(o.training.seed)
            model = NoisyStudent(load_start(o.start))
            batches = run.make_cropper(audio, GRID, normalise=False, clean=True)
            metrics = fit(model, batches, o.training, o.out / "checkpoints")
            facts = {"what": "recogniser of phones, its own noisy student", "training": metrics}
            write_by_main(save_hama, model.finish(), run.folder)
            write_by_main(save_units, model.head, codebook, o.out)
            write_by_main(run.write_card, facts)
    print_encoder(o)


def load_start(start: str) -> Conformer:
    """Load the recogniser to go on from. Raises InputError for any other encoder."""
    engine: Any = load_encoder(start, device="cpu").engine
    if not isinstance(getattr(engine, "model", None), Conformer):
        raise InputError(f"{start} is no recogniser of phones; start from hama or its student")
    model: Conformer = engine.model
    return model


def save_units(head: nn.Linear, codebook: Codebook, out: Path) -> None:
    """Write the head as a codebook of the last layer of OUT/encoder. Its units are those of
    `codebook`, which is that of `hama:phones`."""
    facts = make_features(load_hama(out / "encoder"), LAYERS, smooth=1).card
    facts["read_out"] = "phones that hama hears in the clean signal"
    facts["symbols"] = codebook.card["symbols"]
    make_head_codebook(head, facts | codebook.lineage).save(out / "units.safetensors")
