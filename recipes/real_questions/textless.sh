#!/usr/bin/env bash
# NMSQA, spoken: DUAL on units of real questions, beside DUAL from scratch, cascades and SpeechBERT; and what more questions would give.
# Run from the repository root. Finished stages are skipped; a killed run continues with the same command. It uses what run.sh has
# made in the same folder (articles, reader of text), and makes it where it is missing.
#   bash recipes/real_questions/textless.sh recipes/real_questions/textless.yaml exp/real_questions /data/NMSQA   dev.parquet is needed; train.parquet, where it is, trains
#   bash recipes/real_questions/textless.sh recipes/real_questions/textless-smoke.yaml exp/textless-smoke            an invented miniature, two minutes
# Environment:
#   WITHOUT=FILE    ids of questions whose passages are left out, as in run.sh
CONFIG=recipes/real_questions/textless.yaml
EXP=exp/real_questions
. recipes/common.sh
. recipes/real_questions/reader.sh
has() { grep -q "^$1:" "$CONFIG"; } # SECTION: whether the configuration has it
OUT=$EXP/textless
SHIPPED=$(setting shipped) # the set of models with encoder and units
# Distinguishes the folders of another set than people-en in the same OUT; empty for people-en, of which alone there are a comparison
# (in stage 6), a curve (7) and a report (9).
NAME=$(setting name)
MODELS=$OUT/models${NAME:+-$NAME}
UNITS=$OUT/units${NAME:+-$NAME}
READER_CONFIG=$(setting reader) # the configuration of run.sh, for the articles and the reader of text
# A reader of words that ships: it teaches the reader of units and reads in the cascade. Where the configuration names none, a text
# encoder teaches, and run.sh's reader of text reads.
TEACHER=$(setting teacher)
PIECES=() # option of verbs that read pieces, merged n-grams of units; empty: they read units
! has pieces || PIECES=(--pieces "$MODELS/pieces.json")
mix() { # OUT CORPUS ... OPTION ...: joins readings of the articles into one corpus
  [ -f "$1/card.json" ] || python recipes/units/mix.py "$@" --distorted 0 --licence "CC BY-SA 4.0"
}
train_dual() { # NAME OPTION ...
  $LAUNCH speechssl train dual "$OUT/train" "$UNITS" "$MODELS/$1" "${@:2}" "${PIECES[@]}" --config "$CONFIG" --stage dual
}
evaluate() { # SPLIT FOLDER SECTION SYSTEM ...
  speechssl evaluate qa "$OUT/$1" "$OUT/$2${NAME:+-$NAME}" --models "$MODELS" --split "$1" --systems "${@:4}" --config "$CONFIG" --stage "$3"
}

if stage 1 "articles: as run.sh splits them"; then
  CONFIG=$READER_CONFIG prepare_articles
fi

if stage 2 "speech: every passage and question by several synthesisers; dev and test by others or other voices"; then
  SPOKEN=()
  for voice in $(setting voices); do
    SPOKEN+=("$OUT/spoken/$voice")
    speechssl prepare squad "$EXP/squad/train.json" "$OUT/spoken/$voice" --speak --config "$CONFIG" --stage "$voice"
  done
  mix "$OUT/train" "${SPOKEN[@]}" --articles # article by article: its first N passages are whole articles
  mix "$OUT/any" "${SPOKEN[@]}"              # the same passages in random order: the first N are of any article
  for split in dev test; do
    speechssl prepare squad "$EXP/squad/$split.json" "$OUT/spoken/$split" --speak --config "$CONFIG" --stage "$split"
    mix "$OUT/$split" "$OUT/spoken/$split" --split "$split"
  done
fi

if stage 3 "units of $SHIPPED"; then
  mkdir -p "$MODELS"
  borrow "$SHIPPED" "$MODELS" encoder units.safetensors units.card.json
  # --price: what a change of unit costs, so that units change less often (0: nothing)
  speechssl units extract "$OUT/train" "$MODELS/encoder" "$MODELS/units.safetensors" "$UNITS" --split train --price "$(setting price)"
  [ ${#PIECES[@]} = 0 ] || [ -f "$MODELS/pieces.json" ] \
    || speechssl units pieces "$UNITS/train" "$MODELS/pieces.json" --config "$CONFIG" --stage pieces
fi

if stage 4 "DUAL: the arms of the configuration, at equal steps"; then
  for arm in $(setting arms); do
    case $arm in
      dual-taught) # before it is asked, the reader of units learns the teacher's vectors of the words that are said
        start=() teacher=() width=()
        if [ -n "$TEACHER" ]; then
          teacher=(--teacher "$TEACHER") # the student begins as its copy
        elif [ -d "$(python recipes/models.py "$SHIPPED")/dual" ]; then
          start=(--start "$(python recipes/models.py "$SHIPPED")/dual")
        fi
        $LAUNCH speechssl train unit-words "$OUT/train" "$UNITS" "$MODELS/taught" "${start[@]}" "${teacher[@]}" "${PIECES[@]}" \
          --config "$CONFIG" --stage teacher
        python recipes/real_questions/nearest_words.py "$MODELS/taught" "$OUT/dev" "$MODELS" --split dev "${teacher[@]}"
        [ -z "$(setting attention-width)" ] || width=(--attention-width "$(setting attention-width)")
        train_dual dual-taught --start "$MODELS/taught" "${width[@]}" ;;
      dual) train_dual dual --start "$(python recipes/models.py "$SHIPPED")/dual" ;;
      dual-text) train_dual dual-text ;; # from the text encoder, without MiniSQA
      dual-scratch) train_dual dual-scratch --assignment scratch ;;
      *) refuse "there is no arm $arm; choose from dual dual-taught dual-text dual-scratch" ;;
    esac
  done
fi

if has ctc && stage 5 "cascade and SpeechBERT: a reader of text, a CTC head on the same encoder, audio words"; then
  if [ -n "$TEACHER" ]; then
    borrow "${TEACHER%/*}" "$MODELS" text-qa
  else
    CONFIG=$READER_CONFIG train_text_reader
    [ -e "$MODELS/text-qa" ] || ln -s "$(realpath "$EXP/text-qa")" "$MODELS/text-qa"
  fi
  $LAUNCH speechssl train ctc "$OUT/any" "$MODELS/encoder" "$MODELS/ctc" --config "$CONFIG" --stage ctc
  $LAUNCH speechssl train ngram "$OUT/any" "$MODELS/encoder" "$MODELS/ctc" --dev "$OUT/dev" --config "$CONFIG" --stage ngram
  ! has speechbert || $LAUNCH speechssl train speechbert "$OUT/any" "$MODELS/encoder" "$MODELS/speechbert" --ctc "$MODELS/ctc" \
    --start "$MODELS/text-qa" --config "$CONFIG" --stage speechbert
fi

if stage 6 "evaluation on articles that no model saw; Whisper, which is slow, and all others on some of the passages"; then
  systems=$(setting arms)
  ! has ctc || systems+=" cascade-ctc cascade-ctc-greedy text"
  ! has speechbert || systems+=" speechbert"
  for split in dev test; do evaluate $split on-$split evaluate $systems; done
  if [ -z "$NAME" ]; then
    evaluate test on-some evaluate-some $systems $(get_whispers)
    speechssl compare "$OUT/on-test" --out "$OUT/compare" --metric ff1
    speechssl compare "$OUT/on-some" --out "$OUT/compare-some" --metric ff1 # where the cascades fall below DUAL
    python recipes/real_questions/table.py "$OUT"
  fi
fi

if [ -z "$NAME" ] && stage 7 "what more questions would give: DUAL on whole articles with a part of the questions, at equal steps"; then
  PARTS=()
  for part in $(setting parts); do
    passages=$(python recipes/real_questions/curve.py passages "$OUT" "$part")
    train_dual "dual-$part" --start "$(python recipes/models.py "$SHIPPED")/dual" --passages "$passages"
    PARTS+=("dual-$part")
  done
  evaluate dev parts evaluate "${PARTS[@]}"
  python recipes/real_questions/curve.py fit "$OUT" "${PARTS[@]}" dual
fi

if stage 8 "retrieval of passages: by words, by n-grams of units, and by the vectors that the taught reader gives units"; then
  # embeddings-SOURCE@N: a passage is as near as its nearest window of N tokens: words' pieces, or units
  systems=(bm25-text embeddings-text@16 tfidf-units)
  [ ! -d "$MODELS/taught" ] || systems+=(embeddings-taught@100)
  for split in dev test; do
    python recipes/minisqa/retrieval.py "$OUT/$split" "$OUT/retrieval${NAME:+-$NAME}-$split" --models "$MODELS" --split "$split" \
      --systems "${systems[@]}" --config "$CONFIG" --stage retrieval
  done
fi

if [ -z "$NAME" ] && stage 9 "report"; then
  speechssl report "$OUT/on-test" "$OUT/test" --tables "$OUT/table.json" "$OUT/curve.json"
fi
