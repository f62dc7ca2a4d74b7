#!/usr/bin/env bash
# TOEFL-QA as text: what a reader gains by SQuAD's questions, and by other listening exams (DREAM) and stories (MCTest), before TOEFL's.
# Run from the repository root. Finished stages are skipped; a killed run continues with the same command.
#   DREAM=/data/dream MCTEST=/data/mctest bash recipes/toefl_qa/text.sh recipes/toefl_qa/text.yaml exp/toefl_qa-text /data/TOEFL-QA
# Environment:
#   DREAM, MCTEST   folders with DREAM's train.json and dev.json, and MCTest's mc*.tsv and mc*.ans
CONFIG=recipes/toefl_qa/text.yaml
EXP=exp/toefl_qa-text
. recipes/common.sh
choose_source toefl-qa
# An arm is what the reader learns before TOEFL's questions; ARM-only has not learnt TOEFL's:
#   minilm        nothing
#   minilm-long   nothing, in four times the steps
#   e5-long       the same, multilingual-e5-small in the place of all-MiniLM-L6-v2
#   exams         DREAM's and MCTest's questions
#   squad         SQuAD's
#   squad-exams   SQuAD's, then DREAM's and MCTest's
ARMS=$(setting arms)
START=$(setting start)
train_choice() { # CORPUS OUT STAGE OPTION ...
  $LAUNCH speechssl train choice "$EXP/$1" "$EXP/$2" --config "$CONFIG" --stage "$3" "${@:4}"
}

if stage 1 "corpora: DREAM and MCTest, TOEFL-QA; texts"; then
  speechssl prepare toefl-qa "$SOURCE" "$EXP/corpus"
  if [[ $ARMS == *exams* ]] && [ ! -f "$EXP/listening/card.json" ]; then
    [ -n "${DREAM:-}" ] && [ -n "${MCTEST:-}" ] || refuse "the arms exams of $CONFIG need DREAM and MCTest; name their folders in \
DREAM and MCTEST, or leave these arms out"
    python recipes/toefl_qa/exams.py "$DREAM" "$MCTEST" "$EXP/listening"
  fi
fi

if stage 2 "multiple choice on DREAM and MCTest"; then
  for arm in $ARMS; do
    case $arm in
      exams) train_choice listening exams-only/choice-text exams ;;
      squad-exams) train_choice listening squad-exams-only/choice-text exams --start "$START" ;;
    esac
  done
fi

if stage 3 "multiple choice on TOEFL-QA, from each beginning"; then
  for arm in $ARMS; do
    case $arm in
      minilm) train_choice corpus "$arm/choice-text" toefl ;;
      minilm-long) train_choice corpus "$arm/choice-text" toefl-long ;;
      e5-long)
        python recipes/fetch.py multilingual-e5-small
        train_choice corpus "$arm/choice-text" toefl-long --text-encoder intfloat/multilingual-e5-small
        ;;
      squad) train_choice corpus "$arm/choice-text" toefl --start "$START" ;;
      *exams) train_choice corpus "$arm/choice-text" toefl --start "$EXP/$arm-only/choice-text" ;;
    esac
  done
fi

if stage 4 "evaluation: EXP/SPLIT/ARM"; then
  for split in $(list_splits); do
    systems="text chance longest-option"
    for arm in $ARMS exams-only squad-exams-only; do
      [ -d "$EXP/$arm" ] || continue
      speechssl evaluate choice "$EXP/corpus" "$EXP/$split/$arm" --models "$EXP/$arm" --split "$split" --systems $systems \
        --config "$CONFIG" --stage evaluate
      systems=text # the other two need no reader: once is enough
    done
    python recipes/toefl_qa/text_table.py "$EXP/$split"
  done
fi
