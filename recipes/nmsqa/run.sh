#!/usr/bin/env bash
# NMSQA: DUAL on three codebooks, the cascade with two recognisers and with Whisper, SpeechBERT, the topline on the text; clean and in noise.
# Run from the repository root. Finished stages are skipped; a killed run continues with the same command.
#   bash recipes/nmsqa/run.sh recipes/nmsqa/base.yaml exp/nmsqa /data/NMSQA     the published settings (a GPU; see README.md)
#   bash recipes/nmsqa/run.sh recipes/nmsqa/smoke.yaml exp/nmsqa-smoke          shipped models on an invented miniature, two minutes
#   bash recipes/nmsqa/run.sh recipes/nmsqa/smoke.yaml exp/nmsqa-slice /data/NMSQA   the same on the corpus, or any part of it
# Environment:
#   LIBRISPEECH=FOLDER      train-clean-100, which the codebooks are fitted on (else on the training passages, a deviation)
#   KMEANS="128=FILE ..."   DUAL's released codebooks (speeech-content-encoder/km_100h_c128/km_feat_layer_22) instead of fitting
#   SPEECHSSL_MODELS=FOLDER checkpoints as FOLDER/facebook/hubert-large-ll60k and so on, if the hub cannot be reached
set -euo pipefail
. recipes/options.sh
CONFIG=${1:-recipes/nmsqa/base.yaml}
EXP=${2:-exp/nmsqa}
SOURCE=${3:-}
. recipes/spoken_qa.sh

stage "1 corpus: segments joined to passages, answers in seconds"
published nmsqa
speechssl prepare nmsqa "$SOURCE" "$EXP/corpus" $(with corpus)

stage "2 units: HuBERT, k-means, then the whole training set"
[ -d "$EXP/encoder" ] || speechssl convert "$(setting encoder)" "$EXP/encoder" --to huggingface
for K in $(setting codebooks); do
  of=$EXP/models/hubert-$K
  models "$of"
  released=$(tr ' ' '\n' <<< "${KMEANS:-}" | sed -n "s/^$K=//p")
  if [ -n "$released" ]; then
    speechssl units import "$released" "$EXP/encoder" "$of/units.safetensors" $(with import)
  elif [ -z "$(setting shipped)" ]; then
    [ -n "${LIBRISPEECH:-}" ] || echo "LIBRISPEECH names no folder: the codebook is fitted on the training passages, not as published"
    speechssl units fit "${LIBRISPEECH:-$EXP/corpus}" "$EXP/encoder" "$of/units.safetensors" --clusters "$K" $(with units)
  fi
  if trains "DUAL of $K units"; then speechssl units extract "$EXP/corpus" "$EXP/encoder" "$of/units.safetensors" "$EXP/units/$K" $(with extract); fi
done

stage "3 DUAL: a text encoder of long sequences is trained to answer from units, one reader a codebook"
for K in $(setting codebooks); do
  of=$EXP/models/hubert-$K # a shipped set has a reader, from which training goes on
  if [ -d "$EXP/corpus/train" ]; then
    speechssl train dual "$EXP/corpus" "$EXP/units/$K" "$of/dual-$K" $([ -d "$of/dual" ] && echo "--start $of/dual") $(with dual)
  fi
done

stage "4 the cascade's text QA, on the words of the training set"
models "$EXP/models/cascade"
[ -z "$(setting shipped)" ] || echo "not trained: that of $(setting shipped) is used"
[ -n "$(setting shipped)" ] || speechssl train text-qa "$EXP/corpus" "$EXP/models/cascade/text-qa" $(with text-qa)

stage "5 SpeechBERT: audio words, segmented by a CTC head on the same encoder"
if [ -n "$(setting shipped)" ]; then
  echo "not trained: that of $(setting shipped) is used"
elif aligned; then
  speechssl train ctc "$EXP/corpus" "$EXP/encoder" "$EXP/models/cascade/ctc" $(with ctc)
  speechssl train speechbert "$EXP/corpus" "$EXP/encoder" "$EXP/models/cascade/speechbert" \
    --ctc "$EXP/models/cascade/ctc" $(with speechbert)
fi

stage "6 evaluation, split by split: EXP/SPLIT"
WHISPERS=$(whispers)
for split in $(splits); do
  has "$split" || continue
  evaluate() { speechssl evaluate qa "$EXP/corpus" "$EXP/$split" --models "$EXP/models/$1" --systems "${@:2}" --split "$split" $(with evaluate); }
  for K in $(setting codebooks); do # DUAL is scored by times alone, which not every copy of a split has
    ! grep -q '"start": *[0-9]' "$EXP/corpus/$split/questions.jsonl" \
      || evaluate "hubert-$K" $(cd "$EXP/models/hubert-$K" && ls -d dual*)
  done
  evaluate cascade $(setting cascades) $WHISPERS $([ ! -d "$EXP/models/cascade/speechbert" ] || echo speechbert) text
  speechssl report "$EXP/$split" "$EXP/corpus" --models "$EXP/models/hubert-$K" --split "$split" $(with report)
done
