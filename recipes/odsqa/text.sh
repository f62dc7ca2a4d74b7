#!/usr/bin/env bash
# Text QA on real Mandarin questions (DRCD, CMRC 2018, XQuAD), tested on DRCD's development set as text, and on ODSQA's own transcripts.
# Run from the repository root. Finished stages are skipped; a killed run continues with the same command.
#   bash recipes/odsqa/text.sh recipes/odsqa/text.yaml exp/odsqa-text /data
# /data has, anywhere below it: DRCD_test.json (and DRCD_training.json), cmrc2018*.json, xquad.zh.json, which train; DRCD_dev.json and
# ODSQA_*_test-v1.1.json, which test.
# Environment:
#   ENGLISH=FOLDER          a prepared corpus of English questions; without it the readers that learn from them alone are left out:
#                           speechssl prepare squad SQUAD FOLDER
#   SPEECHSSL_MODELS=FOLDER checkpoints as FOLDER/intfloat/multilingual-e5-small, if the hub cannot be reached
CONFIG=recipes/odsqa/text.yaml
EXP=exp/odsqa-text
. recipes/common.sh
[ -n "$SOURCE" ] || refuse "$CONFIG needs DRCD and ODSQA; give a folder with them as the third argument (data/odsqa/README.md says \
where to get them)"
SOURCE=$(realpath "$SOURCE") # links into it are made below EXP
find_files() { find -L "$SOURCE" -type f \( "$@" \) | sort; } # tests of find, joined by -o
# A reader is what it learns, and what is added to its states:
#   all              all Mandarin questions
#   last             then those with short answers once more
#   english          English questions alone
#   mean-difference  the reader english, where Mandarin's mean state is replaced by that of English
#   zero-mean        English questions, with the mean of either language taken away
READERS=
for reader in $(setting readers); do
  case $reader in
    all | last) READERS="$READERS $reader" ;;
    *) [ -z "${ENGLISH:-}" ] || READERS="$READERS $reader" ;;
  esac
done
ENCODER=$(setting text-encoder)
find_model() { # READER: prints the folder of its model
  [ "$1" != mean-difference ] || set -- english
  echo "$EXP/models/$1"
}
find_shift() { # READER: prints the file of its shift for Mandarin
  echo "$EXP/shifts/$1.safetensors"
}
train() { # READER CORPUS SECTION [OPTION ...]
  $LAUNCH speechssl train text-qa "$2" "$(find_model "$1")/text-qa" --config "$CONFIG" --stage "$3" "${@:4}"
}
write_shift() { # FILE FIRST SECOND ENCODER METHOD
  python recipes/text_side/vector.py "$2" "$3" "$4" "$1" --method "$5" --config "$CONFIG" --stage vector
}
evaluate() { # READER CORPUS CORPUS_SPLIT SPLIT SYSTEM: EXP/answers/READER/SPLIT
  local options=()
  case $1 in mean-difference | zero-mean) options=(--shift "$(find_shift "$1")") ;; esac
  speechssl evaluate qa "$2" "$EXP/answers/$1/$4" --models "$(find_model "$1")" --split "$3" --systems "$5" "${options[@]}" \
    --config "$CONFIG" --stage evaluate
}

if stage 1 "corpora: real questions to train on, DRCD's development set, ODSQA"; then
  mapfile -t training < <(find_files -name 'DRCD_test*.json' -o -name 'DRCD_training*.json' -o -name 'cmrc2018*.json' -o -name 'xquad.zh.json')
  mapfile -t odsqa < <(find_files -name 'ODSQA_*_test-*.json')
  drcd=$(find_files -name 'DRCD_dev*.json' | head -n 1) # copies of it may lie beside several corpora
  [ "${#training[@]}" -gt 0 ] && [ "${#odsqa[@]}" -gt 0 ] && [ -n "$drcd" ] || refuse "$SOURCE lacks DRCD_dev.json, \
ODSQA_textq_test-v1.1.json, or what trains: DRCD_test.json, cmrc2018_dev.json, xquad.zh.json"
  [ -f "$EXP/questions/unseen/test.json" ] && [ -f "$EXP/questions/known.txt" ] \
    || python recipes/odsqa/questions.py "$EXP/questions" "${training[@]}" --test "$drcd"
  speechssl prepare squad "$EXP/questions" "$EXP/corpus" --language zh
  speechssl prepare squad "$EXP/questions/short" "$EXP/corpus-short" --language zh
  speechssl prepare drcd "$drcd" "$EXP/drcd"
  mkdir -p "$EXP/tests"
  for file in "$drcd" "${odsqa[@]}"; do ln -sf "$file" "$EXP/tests"; done
  speechssl prepare odsqa "$EXP/tests" "$EXP/odsqa"
fi

if stage 2 "text QA on Mandarin questions"; then
  case $ENCODER in intfloat/multilingual-e5-small) python recipes/fetch.py "${ENCODER#*/}" ;; esac
  train all "$EXP/corpus" text-qa --text-encoder "$ENCODER"
  [[ " $READERS " != *" last "* ]] || train last "$EXP/corpus-short" last --text-encoder "$ENCODER" --start "$(find_model all)/text-qa"
fi

if [ -n "${ENGLISH:-}" ] && stage 3 "text QA on English questions, as it is and with shifts"; then
  for reader in $READERS; do
    case $reader in
      english) train english "$ENGLISH" english --text-encoder "$ENCODER" ;;
      mean-difference) write_shift "$(find_shift mean-difference)" "$ENGLISH" "$EXP/corpus" "$(find_model english)/text-qa" mean-difference ;;
      zero-mean)
        write_shift "$(find_shift zero-mean-english)" "$EXP/corpus" "$ENGLISH" "$ENCODER" zero-mean
        train zero-mean "$ENGLISH" english --text-encoder "$ENCODER" --shift "$(find_shift zero-mean-english)"
        write_shift "$(find_shift zero-mean)" "$ENGLISH" "$EXP/corpus" "$(find_model zero-mean)/text-qa" zero-mean
        ;;
    esac
  done
fi

if stage 4 "evaluation: EXP/answers/READER/written, DRCD as text; .../SPLIT, the transcripts; .../dev, questions with short answers"; then
  for reader in $READERS; do
    evaluate "$reader" "$EXP/corpus-short" dev dev text
    evaluate "$reader" "$EXP/drcd" dev written text
    for folder in "$EXP"/odsqa/*/; do
      split=$(basename "$folder")
      evaluate "$reader" "$EXP/odsqa" "$split" "$split" cascade-given
      speechssl report "$EXP/answers/$reader/$split" "$EXP/odsqa" --split "$split"
    done
  done
fi

if stage 5 "the table: all articles, those that training does not know, by the errors of a passage"; then
  python recipes/odsqa/text_table.py "$EXP"
fi
