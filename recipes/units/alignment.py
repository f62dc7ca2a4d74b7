"""Measure how well the times of reference readings fit.

    python recipes/units/alignment.py LIST.txt TEACHER CODEBOOK

Of every folder, the first readings are measured whose reference is in another folder: the share of
frames whose target, read off the reference at the time that LIST.reference.jsonl gives, is the
teacher's own cluster of the frame, and their mutual information in bits. Both readings are of one
text, so that better times raise both.
"""

import sys
from collections import defaultdict
from pathlib import Path

import numpy as np
import torch

from speechssl.audio import read_audio
from speechssl.pretrain.data import training_data
from speechssl.units.codebook import load_codebook
from speechssl.units.features import load_matching_features

MEASURED = 25  # recordings of a folder


def mutual_information(a: np.ndarray, b: np.ndarray, clusters: int) -> float:
    """Return bits. a, b: (T,) int."""
    joint = np.zeros((clusters, clusters))
    np.add.at(joint, (a, b), 1 / len(a))
    known = joint > 0
    independent = joint.sum(1, keepdims=True) * joint.sum(0, keepdims=True)
    return float((joint[known] * np.log2(joint[known] / independent[known])).sum())


def main(listed: Path, teacher: str, codebook_path: str) -> None:
    codebook = load_codebook(codebook_path)
    features = load_matching_features(codebook, teacher)

    def clusters(path: Path) -> np.ndarray:
        return codebook.assign(torch.cat(list(features.stream(read_audio(path)))))

    folders = defaultdict(list)
    for recording in training_data(listed).recordings:
        elsewhere = recording.target_audio.parent.parent != recording.path.parent.parent
        if recording.anchors is not None and elsewhere:
            folders[recording.path.parent].append(recording)
    for folder, recordings in folders.items():
        own, targets = [], []
        for recording in recordings[:MEASURED]:
            own.append(clusters(recording.path))
            reference = clusters(recording.target_audio)
            frames = recording.align_frames(features.grid, len(own[-1]), len(reference))
            targets.append(reference[frames])
        ours, theirs = np.concatenate(own), np.concatenate(targets)
        bits = mutual_information(ours, theirs, codebook.size)
        same = 100 * (ours == theirs).mean()
        print(f"{folder}: {len(ours):,} frames, {same:.1f} % the same, {bits:.2f} bits")


if __name__ == "__main__":
    main(Path(sys.argv[1]), *sys.argv[2:])
