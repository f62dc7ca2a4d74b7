#!/usr/bin/env bash
# TOEFL-QA: listening comprehension by multiple choice, on units, in the cascade and by SpeechBERT.
# Its audio was never published, so it is synthesised.
# Run from the repository root. Finished stages are skipped; a killed run continues with the same command.
#   bash recipes/toefl_qa/run.sh recipes/toefl_qa/base.yaml exp/toefl_qa /data/TOEFL-QA      large models, trained on its train split
#   bash recipes/toefl_qa/run.sh recipes/toefl_qa/smoke.yaml exp/toefl_qa-smoke              shipped ones on an invented miniature
#   bash recipes/toefl_qa/run.sh recipes/toefl_qa/smoke.yaml exp/toefl_qa-slice /data/TOEFL-QA
# Environment:
#   START_UNITS=FOLDER      a reader of the units that training goes on from (else that of a shipped set, if there is one)
#   LIBRISPEECH=FOLDER      train-clean-100, which the codebook is fitted on (else on the synthesised stories)
#   SPEECHSSL_MODELS=FOLDER checkpoints as FOLDER/facebook/hubert-large-ll60k and so on, if the hub cannot be reached
CONFIG=recipes/toefl_qa/base.yaml
EXP=exp/toefl_qa
. recipes/common.sh
choose_source toefl-qa
SHIPPED=$(setting shipped) # a set whose codebook, recogniser and reader are used; empty: codebook and recogniser are trained here
MODELS=$EXP/models
# in the place of that of common.sh: without a training set chance and the longest option alone are evaluated
has_training_set() { [ -d "$EXP/corpus/train" ] || { echo "left out: $SOURCE has no train" && false; }; }

if stage 1 "corpus: stories, questions and options, synthesised by espeak-ng"; then
  speechssl prepare toefl-qa "$SOURCE" "$EXP/corpus" --speak --config "$CONFIG" --stage corpus
fi

if stage 2 "units of stories, questions and options" && has_training_set; then
  [ -d "$EXP/encoder" ] || speechssl convert "$(setting encoder)" "$EXP/encoder" --to huggingface
  if [ -n "$SHIPPED" ]; then
    borrow "$SHIPPED" "$MODELS" encoder units.safetensors units.card.json dual ctc text-qa
  else
    mkdir -p "$MODELS"
    [ -e "$MODELS/encoder" ] || ln -s "$(realpath "$EXP/encoder")" "$MODELS/encoder"
    speechssl units fit "${LIBRISPEECH:-$EXP/corpus}" "$EXP/encoder" "$MODELS/units.safetensors" --config "$CONFIG" --stage units
  fi
  speechssl units extract "$EXP/corpus" "$EXP/encoder" "$MODELS/units.safetensors" "$EXP/units" --config "$CONFIG" --stage extract
fi

if stage 3 "multiple choice on units" && has_training_set; then
  start=${START_UNITS:-$MODELS/dual}
  $LAUNCH speechssl train choice "$EXP/corpus" "$MODELS/choice-units" --units "$EXP/units" \
    $([ ! -d "$start" ] || echo --start "$start") --config "$CONFIG" --stage choice-units
fi

if stage 4 "multiple choice on words" && has_training_set; then
  $LAUNCH speechssl train choice "$EXP/corpus" "$MODELS/choice-text" --config "$CONFIG" --stage choice-text
fi

if stage 5 "a recogniser: a CTC head on the same encoder, trained on the stories" && has_training_set; then
  ctc=$MODELS/$(setting recogniser)
  $LAUNCH speechssl train ctc "$EXP/corpus" "$EXP/encoder" "$ctc" --config "$CONFIG" --stage ctc
  $LAUNCH speechssl train ngram "$EXP/corpus" "$EXP/encoder" "$ctc" --config "$CONFIG" --stage ngram
fi

if stage 6 "SpeechBERT: audio words and masked words of the stories, then multiple choice; a CTC head segments the words" && has_training_set; then
  # models/ctc is the recogniser of a shipped set, beside which stage 5 trains a second one, or else that of stage 5
  $LAUNCH speechssl train speechbert "$EXP/corpus" "$EXP/encoder" "$MODELS/speechbert" --ctc "$MODELS/ctc" --no-spans \
    --config "$CONFIG" --stage speechbert
  $LAUNCH speechssl train choice "$EXP/corpus" "$MODELS/choice-speechbert" --speechbert "$MODELS/speechbert" --encoder "$EXP/encoder" \
    --ctc "$MODELS/ctc" --config "$CONFIG" --stage choice-speechbert
fi

if stage 7 "evaluation: EXP/SPLIT; chance and the longest option beside the systems"; then
  systems="chance longest-option"
  ! has_training_set || systems="$(setting systems) $(python recipes/whispers.py $(setting whispers))"
  for split in $(list_splits); do
    speechssl evaluate choice "$EXP/corpus" "$EXP/$split" --models "$MODELS" --split "$split" --systems $systems \
      --config "$CONFIG" --stage evaluate
    speechssl report "$EXP/$split" "$EXP/corpus" --split "$split"
  done
fi
