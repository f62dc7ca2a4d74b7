"""Measure how well the times of reference readings fit.

    python recipes/units/alignment.py LIST.txt TEACHER CODEBOOK

Many recordings of LIST.txt have a reference, another reading of the same text. LIST.reference.jsonl
says where in the reference every word is, so that each frame has a target: the teacher's cluster of
the frame of the reference at that time. Measured are the share of frames whose target is also their
own cluster, and the mutual information of both in bits; better times raise both. The first MEASURED
recordings of every folder whose reference is in another folder are read.
"""

from collections import defaultdict
from pathlib import Path

import numpy as np
import torch

from speechssl.audio import read_audio
from speechssl.cli import run_program
from speechssl.pretrain.data import list_training_data
from speechssl.units.codebook import load_codebook
from speechssl.units.features import load_matching_features

MEASURED = 25  # recordings of a folder


def mutual_information(a: np.ndarray, b: np.ndarray, clusters: int) -> float:
    """Return the mutual information of two sequences of clusters in bits. a, b: (T,) int."""
    joint = np.zeros((clusters, clusters))
    np.add.at(joint, (a, b), 1 / len(a))
    known = joint > 0
    independent = joint.sum(1, keepdims=True) * joint.sum(0, keepdims=True)
    return float((joint[known] * np.log2(joint[known] / independent[known])).sum())


def main(recordings_list: Path, teacher: str, codebook_path: str) -> None:
    codebook = load_codebook(codebook_path)
    features = load_matching_features(codebook, teacher)

    def assign_clusters(path: Path) -> np.ndarray:
        """Return the cluster (T,) of every frame."""
        return codebook.assign(torch.cat(list(features.stream(read_audio(path)))))

    folders = defaultdict(list)
    for recording in list_training_data(recordings_list).recordings:
        elsewhere = recording.target_audio.parent.parent != recording.path.parent.parent
        if recording.anchors is not None and elsewhere:
            folders[recording.path.parent].append(recording)
    for folder, recordings in folders.items():
        own_clusters, targets = [], []
        for recording in recordings[:MEASURED]:
            clusters = assign_clusters(recording.path)
            reference = assign_clusters(recording.target_audio)
            frames = recording.align_frames(features.grid, len(clusters), len(reference))
            own_clusters.append(clusters)
            targets.append(reference[frames])
        own, target = np.concatenate(own_clusters), np.concatenate(targets)
        bits = mutual_information(own, target, codebook.size)
        same = 100 * (own == target).mean()
        print(f"{folder}: {len(own):,} frames, {same:.1f} % the same, {bits:.2f} bits")


if __name__ == "__main__":
    run_program(main)
