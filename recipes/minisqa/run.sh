#!/usr/bin/env bash
# MiniSQA from nothing to the table: corpus, encoder, units, DUAL, cascade, evaluation, report.
# Run from the repository root. Finished stages are skipped; a killed run continues with the same command.
#   bash recipes/minisqa/run.sh                      the published run (5 to 6 hours of 2 cores, no GPU needed)
#   bash recipes/minisqa/run.sh recipes/minisqa/smoke.yaml exp/smoke     the same in a few minutes, only to show that it runs
CONFIG=recipes/minisqa/base.yaml
EXP=exp/minisqa
. recipes/common.sh
MODELS=$EXP/models
WHISPERS=$(python recipes/whispers.py $(setting whispers)) # those that are on this machine

if stage 1 "corpus: text from a generator, speech by espeak-ng"; then
  speechssl prepare minisqa "$EXP/corpus" --config "$CONFIG" --stage corpus
  speechssl prepare minisqa "$EXP/held-out/corpus" --held-out \
    --config "$CONFIG" --stage held-out # a test of new words and sentences
fi

if stage 2 "HuBERT, iteration 1: predict MFCC clusters"; then
  $LAUNCH speechssl pretrain hubert "$EXP/corpus" "$EXP/hubert-1" --config "$CONFIG" --stage hubert-1
fi

if stage 3 "HuBERT, iteration 2: predict clusters of iteration 1"; then
  $LAUNCH speechssl pretrain hubert "$EXP/corpus" "$EXP/hubert-2" --teacher "$EXP/hubert-1/encoder" --start "$EXP/hubert-1/encoder" \
    --config "$CONFIG" --stage hubert-2
  mkdir -p "$MODELS" && cp -r "$EXP/hubert-2/encoder" "$MODELS/"
fi

if stage 4 "units: k-means on a layer, then the whole training set"; then
  speechssl units fit "$EXP/corpus" "$MODELS/encoder" "$MODELS/units.safetensors" --config "$CONFIG" --stage units
  speechssl units fit "$EXP/corpus" "$EXP/hubert-1/encoder" "$EXP/units-iteration-1.safetensors" --config "$CONFIG" --stage units
  mkdir -p "$EXP/quality"
  inspect() { [ -f "$EXP/quality/$1.json" ] || python recipes/minisqa/unit_pairs.py "$EXP/corpus" "${@:2}" --out "$EXP/quality/$1.json" \
    --config "$CONFIG" --stage inspect; }
  inspect phones phones none
  inspect mfcc mfcc "$EXP/hubert-1/targets.safetensors"
  inspect iteration-1 "$EXP/hubert-1/encoder" "$EXP/units-iteration-1.safetensors"
  inspect shipped "$MODELS/encoder" "$MODELS/units.safetensors"
  speechssl units extract "$EXP/corpus" "$MODELS/encoder" "$MODELS/units.safetensors" "$EXP/units" \
    --config "$CONFIG" --stage extract
fi

if stage 5 "DUAL: a text BERT is trained to answer from units; then, shorter, the five ways of giving units to it"; then
  train_dual() { $LAUNCH speechssl train dual "$EXP/corpus" "$EXP/units" "$1" "${@:2}"; }
  train_dual "$EXP/dual-1" --config "$CONFIG" --stage dual-1
  train_dual "$EXP/dual-2" --start "$EXP/dual-1" --config "$CONFIG" --stage dual-2
  train_dual "$MODELS/dual" --start "$EXP/dual-2" --config "$CONFIG" --stage dual
  for assignment in $(setting assignments); do
    train_dual "$MODELS/dual-$assignment" --assignment $assignment --config "$CONFIG" --stage assignment
  done
  # from scratch with the settings and steps of dual-1, which begins with the text-pre-trained encoder
  train_dual "$MODELS/dual-1-scratch" --assignment scratch --config "$CONFIG" --stage dual-1
  [ -d "$MODELS/dual-1" ] || cp -r "$EXP/dual-1" "$MODELS/dual-1"
fi

if stage 6 "the cascade: a CTC head on the same encoder with an n-gram of the training texts, and the same text BERT on words"; then
  $LAUNCH speechssl train ctc "$EXP/corpus" "$MODELS/encoder" "$MODELS/ctc" --config "$CONFIG" --stage ctc
  $LAUNCH speechssl train ngram "$EXP/corpus" "$MODELS/encoder" "$MODELS/ctc" --config "$CONFIG" --stage ngram
  $LAUNCH speechssl train text-qa "$EXP/corpus" "$MODELS/text-qa" --config "$CONFIG" --stage text-qa
fi

if stage 7 "SpeechBERT: audio words read by the text BERT of the cascade"; then
  $LAUNCH speechssl train speechbert "$EXP/corpus" "$MODELS/encoder" "$MODELS/speechbert" --ctc "$MODELS/ctc" --start "$MODELS/text-qa" \
    --config "$CONFIG" --stage speechbert
fi

if stage 8 "evaluation on unseen voices, passages and values"; then
  speechssl evaluate qa "$EXP/corpus" "$EXP" --models "$MODELS" --config "$CONFIG" --stage evaluate
  speechssl evaluate qa "$EXP/held-out/corpus" "$EXP/held-out" --models "$MODELS" --config "$CONFIG" --stage evaluate
  speechssl evaluate qa "$EXP/corpus" "$EXP" --models "$MODELS" --config "$CONFIG" --stage assignments # all five, and dual-1 with and without pre-training on text
  [ -z "$WHISPERS" ] || speechssl evaluate qa "$EXP/corpus" "$EXP" --models "$MODELS" --systems $WHISPERS \
    --config "$CONFIG" --stage whispers
  python recipes/minisqa/retrieval.py "$EXP/corpus" "$EXP/retrieval" --models "$MODELS" \
    --config "$CONFIG" --stage retrieval # the passage among all of them
fi

if stage 9 "the comparison: WER varied by noise, by smaller recognisers and by simulated errors; where the lines cross"; then
  for ctc in $(setting recognisers); do
    $LAUNCH speechssl train ctc "$EXP/corpus" "$MODELS/encoder" "$MODELS/$ctc" --config "$CONFIG" --stage "$ctc"
    $LAUNCH speechssl train ngram "$EXP/corpus" "$MODELS/encoder" "$MODELS/$ctc" --config "$CONFIG" --stage ngram
  done
  python recipes/minisqa/confusions.py "$EXP/corpus" "$EXP/errors" --models "$MODELS" --config "$CONFIG" --stage confusions
  speechssl evaluate qa "$EXP/corpus" "$EXP/sweep" --models "$MODELS" --errors "$EXP/errors/simulated.jsonl" \
    --config "$CONFIG" --stage sweep
  speechssl compare "$EXP" "$EXP/sweep" --out "$EXP/compare" --config "$CONFIG" --stage compare
  # the same with Whisper, on the questions that it was asked
  [ -z "$WHISPERS" ] || speechssl compare "$EXP" "$EXP/sweep" --out "$EXP/compare-whisper" --common \
    --systems dual speechbert cascade-ctc cascade-ctc-greedy $(for name in $WHISPERS; do echo "cascade-${name##*/}"; done) text
fi

if stage 10 "report"; then
  python recipes/minisqa/tables.py "$EXP"
  speechssl report "$EXP" "$EXP/corpus" --models "$MODELS" --tables "$EXP"/tables/{held-out,units,assignments}.json
fi
