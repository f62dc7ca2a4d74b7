#!/usr/bin/env bash
# Speed and exactness of speechssl, transformers, torchaudio, s3prl and scikit-learn, all in one process.
# Run from the repository root, on an otherwise idle machine: ratios are more robust to other load than times, but not to any load.
#   bash recipes/speed/run.sh                                           the published run (some hours of 2 cores)
#   bash recipes/speed/run.sh recipes/speed/smoke.yaml exp/speed-smoke  the same in a minute, only to show that it runs
set -euo pipefail
. recipes/options.sh
CONFIG=${1:-recipes/speed/base.yaml}
EXP=${2:-exp/speed}
configure
step() { stage "$2"; python "recipes/speed/$1.py" "$CONFIG" "$EXP"; }

step encoders  "1 encoders: the same weights and audio, turn by turn"
step agreement "2 units in bf16 and int8 against those of fp32"
step chunks    "3 what cutting long audio does to units"
step hour      "4 an hour of audio in one file: time and memory"
step extraction "5 hours of FLAC and MP3 through units extract: how much of it is the encoder"
step kmeans    "6 nearest centroids, beside scikit-learn"
step training  "7 steps of pre-training, beside transformers"
step reading   "8 steps of DUAL on long passages, beside the published Longformer, and on windows"
step distortions "9 distortions on the fly, beside the training that hears them"
step gpu       "10 batches and training on a GPU, where there is one"
step tables    "11 the tables"
