#!/usr/bin/env bash
# Spoken-SQuAD: text QA on the transcripts of the corpus, at three word error rates, and the ceiling that they allow.
# Run from the repository root. Finished stages are skipped; a killed run continues with the same command.
#   bash recipes/spoken_squad/run.sh recipes/spoken_squad/base.yaml exp/spoken_squad /data/Spoken-SQuAD     the published settings
#   bash recipes/spoken_squad/run.sh recipes/spoken_squad/smoke.yaml exp/spoken_squad-smoke      on an invented miniature, a minute
# Environment:
#   TEXT_QA=FOLDER          a reader of `speechssl train text-qa` instead of stage 2, if there are only tests
#   SPEECHSSL_MODELS=FOLDER checkpoints as FOLDER/google-bert/bert-base-uncased, if the hub cannot be reached
CONFIG=recipes/spoken_squad/base.yaml
EXP=exp/spoken_squad
. recipes/common.sh
choose_source spoken-squad

if stage 1 "corpus: transcripts, questions, and (with dev-v1.1.json of SQuAD beside them) the text; recordings if there are any"; then
  speechssl prepare spoken-squad "$SOURCE" "$EXP/corpus" --config "$CONFIG" --stage corpus
fi

if stage 2 "text QA on the transcripts of the training set"; then
  mkdir -p "$EXP/models"
  if [ -n "${TEXT_QA:-}" ]; then
    [ -d "$EXP/models/text-qa" ] || cp -r "$TEXT_QA" "$EXP/models/text-qa"
  elif has_training_set; then
    $LAUNCH speechssl train text-qa "$EXP/corpus" "$EXP/models/text-qa" --config "$CONFIG" --stage text-qa
  else
    borrow "$(setting shipped)" "$EXP/models" text-qa
  fi
fi

if stage 3 "evaluation on every test set: EXP/SPLIT"; then
  WHISPERS=$(python recipes/whispers.py $(setting whispers))
  topline=$(find "$SOURCE" -name dev-v1.1.json) # SQuAD's own text of the tests, which is not in the release
  for split in $(list_splits); do
    whispers=$WHISPERS # for splits with recordings, which the noisy ones lack; questions are written
    if [ -n "$WHISPERS" ] && grep -q '"audio": ""' "$EXP/corpus/$split/passages.jsonl"; then
      whispers=
      echo "left out: $WHISPERS, since $split is text only"
    fi
    speechssl evaluate qa "$EXP/corpus" "$EXP/$split" --models "$EXP/models" --systems cascade-given $whispers ${topline:+text} \
      --split "$split" --config "$CONFIG" --stage evaluate
    speechssl report "$EXP/$split" "$EXP/corpus" --split "$split" --config "$CONFIG" --stage report
  done
fi

if stage 4 "F1 against word error rate, and the share of questions whose answer is in the transcript"; then
  python recipes/spoken_squad/tables.py "$EXP" $(list_splits)
  python recipes/spoken_squad/picture.py "$EXP" $(list_splits)
fi
