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
CONFIG=recipes/nmsqa/base.yaml
EXP=exp/nmsqa
. recipes/common.sh
choose_source nmsqa
SHIPPED=$(setting shipped) # of smoke.yaml: a set of models whose parts are not trained again
MODELS=$EXP/models

if stage 1 "corpus: segments joined to passages, answers in seconds"; then
  speechssl prepare nmsqa "$SOURCE" "$EXP/corpus" --config "$CONFIG" --stage corpus
fi

if stage 2 "units: HuBERT, k-means, then the whole training set"; then
  [ -d "$EXP/encoder" ] || speechssl convert "$(setting encoder)" "$EXP/encoder" --to huggingface
  for K in $(setting codebooks); do
    [ -z "$SHIPPED" ] || borrow "$SHIPPED" "$MODELS/hubert-$K"
    units=$MODELS/hubert-$K/units.safetensors
    mkdir -p "$MODELS/hubert-$K"
    [ -e "$MODELS/hubert-$K/encoder" ] || ln -s "$(realpath "$EXP/encoder")" "$MODELS/hubert-$K/encoder"
    released=$(tr ' ' '\n' <<< "${KMEANS:-}" | sed -n "s/^$K=//p")
    if [ -n "$released" ]; then
      speechssl units import "$released" "$EXP/encoder" "$units" --config "$CONFIG" --stage import
    elif [ -z "$SHIPPED" ]; then
      [ -n "${LIBRISPEECH:-}" ] || echo "LIBRISPEECH names no folder: the codebook is fitted on the training passages, not as published"
      speechssl units fit "${LIBRISPEECH:-$EXP/corpus}" "$EXP/encoder" "$units" --clusters "$K" --config "$CONFIG" --stage units
    fi
    ! has_training_set || speechssl units extract "$EXP/corpus" "$EXP/encoder" "$units" "$EXP/units/$K" --config "$CONFIG" --stage extract
  done
fi

if stage 3 "DUAL: a text encoder of long sequences is trained to answer from units, one reader a codebook" && has_training_set; then
  for K in $(setting codebooks); do
    reader=$MODELS/hubert-$K/dual # of a shipped set, from which training goes on
    $LAUNCH speechssl train dual "$EXP/corpus" "$EXP/units/$K" "$reader-$K" $([ ! -d "$reader" ] || echo --start "$reader") \
      --config "$CONFIG" --stage dual
  done
fi

if stage 4 "the cascade's text QA, on the words of the training set"; then
  if [ -n "$SHIPPED" ]; then
    borrow "$SHIPPED" "$MODELS/cascade"
  else
    mkdir -p "$MODELS/cascade"
    $LAUNCH speechssl train text-qa "$EXP/corpus" "$MODELS/cascade/text-qa" --config "$CONFIG" --stage text-qa
    [ -e "$MODELS/cascade/encoder" ] || ln -s "$(realpath "$EXP/encoder")" "$MODELS/cascade/encoder"
  fi
fi

if stage 5 "a CTC head on the same encoder with an n-gram, and SpeechBERT, whose words it segments; they need the times of words"; then
  if [ -z "$SHIPPED" ] && grep -qm1 '"words": \[\[' "$EXP/corpus/train/passages.jsonl"; then
    $LAUNCH speechssl train ctc "$EXP/corpus" "$EXP/encoder" "$MODELS/cascade/ctc" --config "$CONFIG" --stage ctc
    if [ -d "$EXP/corpus/dev" ]; then # which chooses its weight
      $LAUNCH speechssl train ngram "$EXP/corpus" "$EXP/encoder" "$MODELS/cascade/ctc" --config "$CONFIG" --stage ngram
    fi
    $LAUNCH speechssl train speechbert "$EXP/corpus" "$EXP/encoder" "$MODELS/cascade/speechbert" \
      --ctc "$MODELS/cascade/ctc" --config "$CONFIG" --stage speechbert
  fi
fi

if stage 6 "evaluation, split by split: EXP/SPLIT"; then
  WHISPERS=$(python recipes/whispers.py $(setting whispers))
  evaluate() { # MODELS SYSTEM ...
    speechssl evaluate qa "$EXP/corpus" "$EXP/$split" --models "$MODELS/$1" --systems "${@:2}" --split "$split" \
      --config "$CONFIG" --stage evaluate
  }
  for split in $(list_splits); do
    for K in $(setting codebooks); do # DUAL is scored by times alone, which not every copy of a split has
      ! grep -q '"start": *[0-9]' "$EXP/corpus/$split/questions.jsonl" \
        || evaluate "hubert-$K" $(cd "$MODELS/hubert-$K" && ls -d dual*)
    done
    evaluate cascade $(setting cascades) $WHISPERS \
      $([ ! -d "$MODELS/cascade/speechbert" ] || echo cascade-ctc cascade-ctc-greedy speechbert) text
    speechssl report "$EXP/$split" "$EXP/corpus" --models "$MODELS/hubert-$K" --split "$split" --config "$CONFIG" --stage report
  done
fi
