#!/usr/bin/env bash
# A reader of real questions (SQuAD's, by way of NMSQA's dev table), on what recognisers write of speech by other synthesisers.
# Run from the repository root. Finished stages are skipped; a killed run continues with the same command.
#   bash recipes/real_questions/run.sh recipes/real_questions/base.yaml exp/real_questions /data/NMSQA    dev.parquet is needed; train.parquet, where it is, trains
#   bash recipes/real_questions/run.sh recipes/real_questions/smoke.yaml exp/real_questions-smoke         an invented miniature, a minute
# Environment:
#   WITHOUT=FILE    ids of questions whose passages are left out (those that NMSQA's test set asks about as well); default:
#                   dev_ids_also_in_test.txt beside dev.parquet, if there is one
CONFIG=recipes/real_questions/base.yaml
EXP=exp/real_questions
. recipes/common.sh
. recipes/real_questions/reader.sh

if stage 1 "corpus: dev articles split into train, dev and test"; then
  prepare_articles # of reader.sh: makes EXP/squad/{train,dev,test}.json and EXP/corpus
fi

if stage 2 "the reader: first on invented questions (MiniSQA), then on real ones"; then
  train_text_reader # of reader.sh: makes EXP/text-qa
fi

if stage 3 "articles that it did not see, written (all) and spoken (some), by a synthesiser that nothing was trained on"; then
  mkdir -p "$EXP/models"
  borrow "$(setting models)" "$EXP/models" encoder ctc
  # the n-gram that ships with the head knows other texts, and goes; one that was trained below has made_from.json
  [ -f "$EXP/models/ctc/ngram/made_from.json" ] || rm -rf "$EXP/models/ctc/ngram"
  speechssl prepare squad "$EXP/squad/dev.json" "$EXP/spoken-dev" --speak --config "$CONFIG" --stage speak-dev
  $LAUNCH speechssl train ngram "$EXP/corpus" "$EXP/models/encoder" "$EXP/models/ctc" --dev "$EXP/spoken-dev" \
    --config "$CONFIG" --stage ngram
  [ -e "$EXP/models/text-qa" ] || ln -s "$(realpath "$EXP/text-qa")" "$EXP/models/text-qa"
  for split in dev test; do
    speechssl evaluate qa "$EXP/corpus" "$EXP/written-$split" --models "$EXP/models" --systems text --conditions clean --split $split
  done
  speechssl prepare squad "$EXP/squad/test.json" "$EXP/test" --speak --config "$CONFIG" --stage speak
  speechssl evaluate qa "$EXP/test" "$EXP/spoken" --models "$EXP/models" --systems text cascade-ctc cascade-ctc-greedy $(get_whispers) \
    --config "$CONFIG" --stage evaluate
  python recipes/real_questions/losses.py "$EXP/spoken" "$EXP/test"
  speechssl report "$EXP/spoken" "$EXP/test"
fi
