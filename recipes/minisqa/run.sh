#!/usr/bin/env bash
# MiniSQA from nothing to the table: corpus, encoder, units, DUAL, cascade, evaluation, report.
# Run from the repository root. Finished stages are skipped; a killed run continues with the same command.
#   bash recipes/minisqa/run.sh                      the published run (5 to 6 hours of 2 cores, no GPU needed)
#   bash recipes/minisqa/run.sh recipes/minisqa/smoke.yaml exp/smoke     the same in a few minutes, only to show that it runs
set -euo pipefail
. recipes/options.sh
CONFIG=${1:-recipes/minisqa/base.yaml}
EXP=${2:-exp/minisqa}
configure
MODELS=$EXP/models

stage "1 corpus: text from a generator, speech by espeak-ng"
speechssl prepare minisqa "$EXP/corpus" $(with corpus)
speechssl prepare minisqa "$EXP/held-out/corpus" --held-out $(with held-out) # a test of new words and sentences

stage "2 HuBERT, iteration 1: predict MFCC clusters"
speechssl pretrain hubert "$EXP/corpus" "$EXP/hubert-1" $(with hubert-1)

stage "3 HuBERT, iteration 2: predict clusters of iteration 1"
speechssl pretrain hubert "$EXP/corpus" "$EXP/hubert-2" --teacher "$EXP/hubert-1/encoder" --start "$EXP/hubert-1/encoder" $(with hubert-2)
mkdir -p "$MODELS" && cp -r "$EXP/hubert-2/encoder" "$MODELS/"

stage "4 units: k-means on a layer, then the whole training set"
speechssl units fit "$EXP/corpus" "$MODELS/encoder" "$MODELS/units.safetensors" $(with units)
speechssl units fit "$EXP/corpus" "$EXP/hubert-1/encoder" "$EXP/units-iteration-1.safetensors" $(with units)
mkdir -p "$EXP/quality"
inspect() { [ -f "$EXP/quality/$1.json" ] || speechssl units evaluate "$EXP/corpus" "${@:2}" --out "$EXP/quality/$1.json" $(with inspect); }
inspect phones phones
inspect mfcc mfcc "$EXP/hubert-1/targets.safetensors"
inspect iteration-1 "$EXP/hubert-1/encoder" "$EXP/units-iteration-1.safetensors"
inspect shipped "$MODELS/encoder" "$MODELS/units.safetensors"
speechssl units extract "$EXP/corpus" "$MODELS/encoder" "$MODELS/units.safetensors" "$EXP/units" $(with extract)

stage "5 DUAL: a text BERT is trained to answer from units; then, shorter, the five ways of giving units to it"
dual() { speechssl train dual "$EXP/corpus" "$EXP/units" "$1" "${@:2}"; }
dual "$EXP/dual-1" $(with dual-1)
dual "$EXP/dual-2" --start "$EXP/dual-1" $(with dual-2)
dual "$MODELS/dual" --start "$EXP/dual-2" $(with dual)
for assignment in most-frequent least-frequent random re-init scratch; do
  dual "$MODELS/dual-$assignment" --assignment $assignment $(with assignment)
done
# from scratch with the settings and steps of dual-1, which begins with the text-pre-trained encoder
dual "$MODELS/dual-1-scratch" --assignment scratch $(with dual-1)
[ -d "$MODELS/dual-1" ] || cp -r "$EXP/dual-1" "$MODELS/dual-1"

stage "6 the cascade: a CTC head on the same encoder with an n-gram of the training texts, and the same text BERT on words"
speechssl train ctc "$EXP/corpus" "$MODELS/encoder" "$MODELS/ctc" $(with ctc)
speechssl train ngram "$EXP/corpus" "$MODELS/encoder" "$MODELS/ctc" $(with ngram)
speechssl train text-qa "$EXP/corpus" "$MODELS/text-qa" $(with text-qa)

stage "7 SpeechBERT: audio words read by the text BERT of the cascade"
speechssl train speechbert "$EXP/corpus" "$MODELS/encoder" "$MODELS/speechbert" --ctc "$MODELS/ctc" --start "$MODELS/text-qa" $(with speechbert)

stage "8 evaluation on unseen voices, passages and values"
speechssl evaluate qa "$EXP/corpus" "$EXP" --models "$MODELS" $(with evaluate)
speechssl evaluate qa "$EXP/held-out/corpus" "$EXP/held-out" --models "$MODELS" $(with evaluate)
speechssl evaluate qa "$EXP/corpus" "$EXP" --models "$MODELS" $(with assignments) # and the two of equal steps
WHISPERS=$(python recipes/whispers.py $(setting whispers))
[ -z "$WHISPERS" ] || speechssl evaluate qa "$EXP/corpus" "$EXP" --models "$MODELS" --systems $WHISPERS $(with whispers)
python recipes/minisqa/retrieval.py "$EXP/corpus" "$EXP/retrieval" --models "$MODELS" $(with retrieval) # the passage among all of them

stage "9 the comparison: WER varied by noise, by smaller recognisers and by simulated errors; where the lines cross"
speechssl train ctc "$EXP/corpus" "$MODELS/encoder" "$MODELS/ctc-small" $(with ctc-small)
speechssl train ngram "$EXP/corpus" "$MODELS/encoder" "$MODELS/ctc-small" $(with ngram)
speechssl train ctc "$EXP/corpus" "$MODELS/encoder" "$MODELS/ctc-tiny" $(with ctc-tiny)
speechssl train ngram "$EXP/corpus" "$MODELS/encoder" "$MODELS/ctc-tiny" $(with ngram)
python recipes/minisqa/confusions.py "$EXP/corpus" "$EXP/errors" --models "$MODELS" $(with confusions)
speechssl evaluate qa "$EXP/corpus" "$EXP/sweep" --models "$MODELS" --errors "$EXP/errors/simulated.jsonl" $(with sweep)
speechssl compare "$EXP" "$EXP/sweep" --out "$EXP/compare" $(with compare)
# the same with Whisper, on the questions that it was asked
[ -z "$WHISPERS" ] || speechssl compare "$EXP" "$EXP/sweep" --out "$EXP/compare-whisper" --common \
  --systems dual speechbert cascade-ctc cascade-ctc-greedy $(for name in $WHISPERS; do echo "cascade-${name##*/}"; done) text

stage "10 report"
python recipes/minisqa/tables.py "$EXP"
speechssl report "$EXP" "$EXP/corpus" --models "$MODELS" --tables "$EXP"/tables/{held-out,units,assignments}.json
