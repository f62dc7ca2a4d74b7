"""AdamW as the sources of what is trained here have it."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Adam:
    """By the names of `TrainingOptions`."""

    adam_betas: tuple[float, float]
    adam_epsilon: float
    weight_decay: float


HUBERT = Adam((0.9, 0.98), 1e-6, 0.01)  # and wav2vec 2.0: arXiv 2106.07447, section IV-C; 2006.11477 and fairseq's configurations
BERT = Adam((0.9, 0.999), 1e-6, 0.01)  # arXiv 1810.04805, appendix A.2, and its code, which fine-tunes with the same
# The defaults of torch and of transformers' Trainer: released DUAL (its baseline.yaml names no other), transformers'
# run_squad.py, and with Adam, which AdamW without decay is, the ASR of SUPERB (s3prl 0.4.18)
PLAIN = Adam((0.9, 0.999), 1e-8, 0.0)
