#!/usr/bin/env bash
# Readers for the encoder that ships: DUAL, a recogniser and SpeechBERT, trained on what synthesisers say, part of it distorted; then
# DUAL and the others on the test set in clean speech, in noise, and spoken by a synthesiser that nobody trained on.
# Run from the repository root, after run.sh, or with MODELS=FOLDER (encoder/ and words.safetensors). Finished stages are skipped.
#   bash recipes/units/readers.sh                                            the published run (RESULTS.md has its times)
#   bash recipes/units/readers.sh recipes/units/smoke.yaml exp/units-smoke    almost nothing, only to show that it runs
# Environment: KITCHEN=FILE as in run.sh; MODELS=FOLDER (default: EXP/people-en)
CONFIG=recipes/units/base.yaml
EXP=exp/units
. recipes/common.sh
FILE=${CONFIG##*/}
MODELS=${MODELS:-$EXP/people-en}
START=$(setting start) # the set of models to start from: a folder, or a shipped name
START_MODELS=$(python recipes/models.py "$START") # its folder
SHIPPED=$EXP/shipped/people-en
train_dual() { # OUT START SECTION
  $LAUNCH speechssl train dual "$EXP/readers/mixed" "$EXP/readers/units" "$1" --start "$2" --config "$CONFIG" --stage "$3"
}

if stage 1 "speech to learn from, by espeak-ng, flite, and kokoro where run.sh has it, a share of it distorted"; then
  corpora=()
  for part in $(setting readers); do # SYNTHESISER or SYNTHESISER-NUMBER, with a section readers-PART
    by=${part%-[0-9]} out=$EXP/readers/${part/espeak-ng/espeak}
    if [ "$by" = espeak-ng ] || command -v "$by" > /dev/null; then
      speechssl prepare minisqa "$out" --synthesiser "$by" --config "$CONFIG" --stage "readers-$part"
      corpora+=("$out")
    else
      echo "left out: speech by $by, which is not installed (Debian package $by)"
    fi
  done
  [ ! -d "$EXP/kokoro" ] || corpora+=("$EXP/kokoro")
  copies=$(setting copies) distorted=$(setting distorted)
  [ -f "$EXP/readers/mixed/card.json" ] || python recipes/units/mix.py "$EXP/readers/mixed" "${corpora[@]}" --distort "$(setting distort)" \
    ${copies:+--copies $copies} ${distorted:+--distorted "$distorted"}
fi

if stage 2 "units: those that the reader of $START knows, by a linear head that learns them from clean and distorted speech"; then
  read -r arm _ <<< "$(setting ship)"
  [ -f "$EXP/$arm/known-out.safetensors" ] || # the encoder's own head gives them: run.sh put them there
    speechssl units transfer "$EXP/readers/espeak" "$START_MODELS/encoder" "$START_MODELS/units.safetensors" "$MODELS/encoder" \
      "$MODELS/units.safetensors" --config "$CONFIG" --stage transfer
  speechssl units extract "$EXP/readers/mixed" "$MODELS/encoder" "$MODELS/units.safetensors" "$EXP/readers/units" \
    --config "$CONFIG" --stage extract
fi

if stage 3 "DUAL: goes on from the reader of $START, on all synthesisers and in noise"; then
  [ -d "$MODELS/dual-0" ] || cp -r "$START_MODELS/dual" "$MODELS/dual-0"
  before=dual-0
  for part in $(setting dual-stages); do
    train_dual "$MODELS/$part" "$MODELS/$before" "$part"
    before=$part
  done
fi

if stage 4 "the cascade's recogniser, and SpeechBERT; the reader of words is that of $START, for words do not depend on the encoder"; then
  [ -d "$MODELS/text-qa" ] || cp -r "$START_MODELS/text-qa" "$MODELS/"
  $LAUNCH speechssl train ctc "$EXP/readers/mixed" "$MODELS/encoder" "$MODELS/ctc" --config "$CONFIG" --stage ctc
  $LAUNCH speechssl train ngram "$EXP/readers/mixed" "$MODELS/encoder" "$MODELS/ctc" --dev "$EXP/readers/espeak" \
    --config "$CONFIG" --stage ngram
  if grep -q "^speechbert:" "$CONFIG"; then
    $LAUNCH speechssl train speechbert "$EXP/readers/mixed" "$MODELS/encoder" "$MODELS/speechbert" --ctc "$MODELS/ctc" \
      --start "$MODELS/text-qa" --config "$CONFIG" --stage speechbert
  else # its vectors of words are learned again, from those that the encoder before gives
    $LAUNCH speechssl train transfer-speechbert "$EXP/readers/espeak" "$START_MODELS/encoder" "$START_MODELS/speechbert" "$MODELS/encoder" \
      "$MODELS/speechbert" --config "$CONFIG" --stage transfer-speechbert
  fi
fi

if stage 5 "dev: every stage of DUAL; and from the first reader, with equal steps, other shares of random units, and in two stages"; then
  for share in $(setting random-units); do
    $LAUNCH speechssl train dual "$EXP/readers/mixed" "$EXP/readers/units" "$MODELS/dual-short-$share" --start "$MODELS/dual-0" \
      --random-units $share --config "$CONFIG" --stage dual-short
  done
  if grep -q "^dual-short-1:" "$CONFIG"; then
    train_dual "$MODELS/dual-short-1" "$MODELS/dual-0" dual-short-1
    train_dual "$MODELS/dual-short-staged" "$MODELS/dual-short-1" dual-short-2
  fi
  speechssl evaluate qa "$EXP/readers/espeak" "$EXP/readers/dev-espeak" --models "$MODELS" --config "$CONFIG" --stage dev
  if [ -d "$EXP/piper/dev" ]; then # which nobody trained on; its words get their times here
    speechssl align "$EXP/piper" "$EXP/readers/piper" --config "$CONFIG" --stage align
    speechssl evaluate qa "$EXP/readers/piper" "$EXP/readers/dev-piper" --models "$MODELS" \
      --config "$CONFIG" --stage dev --conditions clean
  fi
fi

if stage 6 "what ships: $EXP/shipped/people-en, to be copied to speechssl/models/"; then
  [ -f "$SHIPPED/text-qa/card.json" ] \
    || python recipes/ship.py "$MODELS" "$MODELS/ctc" "$EXP/readers/espeak" "$SHIPPED" "recipes/units/readers.sh, $FILE"
fi

if stage 7 "test: measure.sh, with the scores in the cards of what ships"; then
  MODELS=$SHIPPED CARDS=$SHIPPED bash recipes/units/measure.sh "$(setting measure)" "$EXP/measure"
fi
