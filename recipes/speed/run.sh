#!/usr/bin/env bash
# Speed and exactness of speechssl, transformers, torchaudio, s3prl, OpenVINO and ONNX Runtime, which take turns.
# Run from the repository root, on an otherwise idle machine: ratios are more robust to other load than times, but not to any load.
#   bash recipes/speed/run.sh                                           the published run (some hours of 2 cores)
#   bash recipes/speed/run.sh recipes/speed/smoke.yaml exp/speed-smoke  the same in a minute, only to show that it runs
CONFIG=recipes/speed/base.yaml
EXP=exp/speed
. recipes/common.sh

if stage 1 "encoders: the same weights and audio, turn by turn"; then python recipes/speed/encoders.py "$CONFIG" "$EXP"; fi
if stage 2 "an hour of audio in one file: time and memory"; then python recipes/speed/hour.py "$CONFIG" "$EXP"; fi
if stage 3 "hours of FLAC and MP3 through units extract: how much of it is the encoder"; then python recipes/speed/extraction.py "$CONFIG" "$EXP"; fi
if stage 4 "steps of pre-training, beside transformers"; then python recipes/speed/training.py "$CONFIG" "$EXP"; fi
if stage 5 "steps of DUAL on long passages, beside the published Longformer"; then python recipes/speed/reading.py "$CONFIG" "$EXP"; fi
if stage 6 "growth: time and memory on 1, 10 and 100 times the data"; then python recipes/speed/growth.py "$CONFIG" "$EXP"; fi
if stage 7 "batches and training on a GPU, where there is one"; then python recipes/speed/gpu.py "$CONFIG" "$EXP"; fi
if stage 8 "the tables"; then python recipes/speed/tables.py "$CONFIG" "$EXP"; fi
