#!/usr/bin/env bash
# Text QA on real Mandarin questions (DRCD, CMRC 2018, XQuAD), tested on DRCD's development set as text, and on ODSQA's own transcripts.
# Run from the repository root. Finished stages are skipped; a killed run continues with the same command.
#   bash recipes/odsqa/text.sh recipes/odsqa/text.yaml exp/odsqa-text /data
# /data has, anywhere below it: DRCD_test.json (and DRCD_training.json), cmrc2018*.json, xquad.zh.json, which train; DRCD_dev.json and
# ODSQA_*_test-v1.1.json, which test.
# Environment:
#   SPEECHSSL_MODELS=FOLDER checkpoints as FOLDER/intfloat/multilingual-e5-small, if the hub cannot be reached
CONFIG=recipes/odsqa/text.yaml
EXP=exp/odsqa-text
. recipes/common.sh
[ -n "$SOURCE" ] || refuse "$CONFIG needs DRCD and ODSQA; give a folder with them as the third argument (data/odsqa/README.md says \
where to get them)"
SOURCE=$(realpath "$SOURCE") # links into it are made below EXP
find_files() { find -L "$SOURCE" -type f \( "$@" \) | sort; } # tests of find, joined by -o
MODELS=$EXP/models

if stage 1 "corpora: real questions to train on, DRCD's development set, ODSQA"; then
  mapfile -t training < <(find_files -name 'DRCD_test*.json' -o -name 'DRCD_training*.json' -o -name 'cmrc2018*.json' -o -name 'xquad.zh.json')
  mapfile -t odsqa < <(find_files -name 'ODSQA_*_test-*.json')
  drcd=$(find_files -name 'DRCD_dev*.json' | head -n 1) # copies of it may lie beside several corpora
  [ "${#training[@]}" -gt 0 ] && [ "${#odsqa[@]}" -gt 0 ] && [ -n "$drcd" ] || refuse "$SOURCE lacks DRCD_dev.json, \
ODSQA_textq_test-v1.1.json, or what trains: DRCD_test.json, cmrc2018_dev.json, xquad.zh.json"
  [ -f "$EXP/questions/dev.json" ] || python recipes/odsqa/questions.py "$EXP/questions" "${training[@]}" --test "$drcd"
  speechssl prepare squad "$EXP/questions" "$EXP/corpus" --language zh
  speechssl prepare drcd "$drcd" "$EXP/drcd"
  mkdir -p "$EXP/tests"
  for file in "$drcd" "${odsqa[@]}"; do ln -sf "$file" "$EXP/tests"; done
  speechssl prepare odsqa "$EXP/tests" "$EXP/odsqa"
fi

if stage 2 "text QA"; then
  name=$(setting text-encoder)
  case $name in intfloat/multilingual-e5-small) python recipes/fetch.py "${name#*/}" ;; esac
  $LAUNCH speechssl train text-qa "$EXP/corpus" "$MODELS/text-qa" --text-encoder "$name" --config "$CONFIG" --stage text-qa
fi

if stage 3 "evaluation: EXP/written, DRCD as text; EXP/SPLIT, the transcripts"; then
  for folder in "$EXP"/odsqa/*/; do
    split=$(basename "$folder")
    speechssl evaluate qa "$EXP/odsqa" "$EXP/$split" --models "$MODELS" --split "$split" --systems cascade-given \
      --config "$CONFIG" --stage evaluate
    speechssl report "$EXP/$split" "$EXP/odsqa" --split "$split"
  done
  speechssl evaluate qa "$EXP/drcd" "$EXP/written" --models "$MODELS" --split dev --systems text --config "$CONFIG" --stage evaluate
  speechssl evaluate qa "$EXP/corpus" "$EXP/written-dev" --models "$MODELS" --split dev --systems text --config "$CONFIG" --stage evaluate
fi

if stage 4 "the table: all articles, those that training does not know, by the errors of a passage"; then
  python recipes/odsqa/text_table.py "$EXP"
fi
