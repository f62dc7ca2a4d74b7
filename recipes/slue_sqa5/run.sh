#!/usr/bin/env bash
# SLUE-SQA-5: questions and documents of real speech; DUAL, cascades with two recognisers and with Whisper, SpeechBERT, and the topline on the text, by frame-F1.
# Run from the repository root. Finished stages are skipped; a killed run continues with the same command.
#   bash recipes/slue_sqa5/run.sh recipes/slue_sqa5/base.yaml exp/slue_sqa5 /data/slue-phase-2      the published settings (a GPU)
#   bash recipes/slue_sqa5/run.sh recipes/slue_sqa5/smoke.yaml exp/slue_sqa5-smoke      on an invented miniature, two minutes
# Environment:
#   LIBRISPEECH=FOLDER      train-clean-100, which the codebook is fitted on (else on the fine-tuning documents, a deviation)
#   SPEECHSSL_MODELS=FOLDER checkpoints as FOLDER/facebook/hubert-large-ll60k and so on, if the hub cannot be reached
CONFIG=recipes/slue_sqa5/base.yaml
EXP=exp/slue_sqa5
. recipes/common.sh
choose_source slue-sqa5
SHIPPED=$(setting shipped) # of smoke.yaml: its SpeechBERT and CTC head are evaluated, and its readers where there is no training set
MODELS=$EXP/models

if stage 1 "corpus: documents and questions, words with their times"; then
  speechssl prepare slue-sqa5 "$SOURCE" "$EXP/corpus" --config "$CONFIG" --stage corpus
fi

if stage 2 "units: HuBERT, k-means, then the whole fine-tuning set"; then
  [ -d "$EXP/encoder" ] || speechssl convert "$(setting encoder)" "$EXP/encoder" --to huggingface
  mkdir -p "$MODELS"
  [ -e "$MODELS/encoder" ] || ln -s "$(realpath "$EXP/encoder")" "$MODELS/encoder"
  if has_training_set; then
    [ -n "${LIBRISPEECH:-}" ] || echo "LIBRISPEECH names no folder: the codebook is fitted on the fine-tuning set, not as published"
    speechssl units fit "${LIBRISPEECH:-$EXP/corpus}" "$EXP/encoder" "$MODELS/units.safetensors" --config "$CONFIG" --stage units
    speechssl units extract "$EXP/corpus" "$EXP/encoder" "$MODELS/units.safetensors" "$EXP/units" --config "$CONFIG" --stage extract
  else
    borrow "$SHIPPED" "$MODELS" units.safetensors units.card.json dual text-qa
  fi
fi

if stage 3 "DUAL" && has_training_set; then
  $LAUNCH speechssl train dual "$EXP/corpus" "$EXP/units" "$MODELS/dual" --config "$CONFIG" --stage dual
fi

if stage 4 "text QA on the words of the fine-tuning set, for the cascades and the topline" && has_training_set; then
  $LAUNCH speechssl train text-qa "$EXP/corpus" "$MODELS/text-qa" --config "$CONFIG" --stage text-qa
fi

if stage 5 "a CTC head on the same encoder with an n-gram, and SpeechBERT, whose words it segments; they need the times of words"; then
  if [ -n "$SHIPPED" ]; then
    borrow "$SHIPPED" "$MODELS" ctc speechbert
  elif grep -qm1 '"words": \[\[' "$EXP/corpus/train/passages.jsonl"; then
    $LAUNCH speechssl train ctc "$EXP/corpus" "$EXP/encoder" "$MODELS/ctc" --config "$CONFIG" --stage ctc
    if [ -d "$EXP/corpus/dev" ]; then # which chooses its weight
      $LAUNCH speechssl train ngram "$EXP/corpus" "$EXP/encoder" "$MODELS/ctc" --config "$CONFIG" --stage ngram
    fi
    $LAUNCH speechssl train speechbert "$EXP/corpus" "$EXP/encoder" "$MODELS/speechbert" --ctc "$MODELS/ctc" \
      --config "$CONFIG" --stage speechbert
  fi
fi

if stage 6 "evaluation: EXP/SPLIT; FF1 is SLUE's frame-F1"; then
  WHISPERS=$(python recipes/whispers.py $(setting whispers))
  for split in $(list_splits); do
    speechssl evaluate qa "$EXP/corpus" "$EXP/$split" --models "$MODELS" --split "$split" \
      --systems $(setting systems) $WHISPERS $([ ! -d "$MODELS/speechbert" ] || echo cascade-ctc cascade-ctc-greedy speechbert) \
      --config "$CONFIG" --stage evaluate
    speechssl report "$EXP/$split" "$EXP/corpus" --models "$MODELS" --split "$split" --config "$CONFIG" --stage report
  done
fi
