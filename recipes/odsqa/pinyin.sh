#!/usr/bin/env bash
# Plain reader against a reader with pinyin, on ODSQA's transcripts of people: whether sub-word units reduce the effect of a recogniser's
# errors (1808.02280). Both once more, trained on passages with simulated errors of that recogniser, fitted on half of ODSQA's articles.
# It needs `speechssl[chinese]`. Run from the repository root. Finished stages are skipped; a killed run continues with the same command.
#   bash recipes/odsqa/text.sh recipes/odsqa/text.yaml exp/odsqa-text /data --stop-stage 1     # questions and transcripts
#   bash recipes/odsqa/pinyin.sh recipes/odsqa/pinyin.yaml exp/odsqa-pinyin                    # three hours of 2 cores
# Environment:
#   TEXT=FOLDER   the folder of the first command; default: as above
CONFIG=recipes/odsqa/pinyin.yaml
EXP=exp/odsqa-pinyin
. recipes/common.sh
TEXT=${TEXT:-exp/odsqa-text}
[ -d "$TEXT/odsqa/test-textq" ] || refuse "there is no $TEXT/odsqa/test-textq; first run recipes/odsqa/text.sh"
# A reader is its sub-word units and what it learns from:
#   plain, pinyin                  written passages
#   plain-errors, pinyin-errors    the same with simulated errors
READERS=$(setting readers)
SEEDS=$(setting seeds)

if stage 1 "questions: passages with errors of ODSQA's recogniser, fitted on half of its articles"; then
  [ -f "$EXP/questions/fitted.txt" ] \
    || python recipes/minisqa/mishear.py "$TEXT/questions/short" "$TEXT/odsqa" test-textq "$EXP/questions"
  speechssl prepare squad "$EXP/questions" "$EXP/corpus-errors" --language zh
fi

if stage 2 "text QA: every reader, every seed"; then
  case $(setting text-encoder) in intfloat/multilingual-e5-small) python recipes/fetch.py multilingual-e5-small ;; esac
  for seed in $SEEDS; do
    for reader in $READERS; do
      corpus=$TEXT/corpus-short options=()
      case $reader in *-errors) corpus=$EXP/corpus-errors ;; esac
      case $reader in pinyin*) options=(--subwords pinyin) ;; esac
      $LAUNCH speechssl train text-qa "$corpus" "$EXP/models/$reader/$seed/text-qa" --text-encoder "$(setting text-encoder)" \
        --seed "$seed" "${options[@]}" --config "$CONFIG" --stage text-qa
    done
  done
fi

if stage 3 "evaluation: EXP/answers/READER/SEED/SPLIT"; then
  for seed in $SEEDS; do
    for reader in $READERS; do
      for split in "$TEXT"/odsqa/*/; do
        split=$(basename "$split")
        speechssl evaluate qa "$TEXT/odsqa" "$EXP/answers/$reader/$seed/$split" --models "$EXP/models/$reader/$seed" --split "$split" \
          --systems cascade-given text --config "$CONFIG" --stage evaluate
      done
    done
  done
fi

if stage 4 "the table: F1 of every reader, and the gain by pinyin, by the errors of a passage"; then
  python recipes/odsqa/pinyin_table.py "$EXP"
fi
