#!/usr/bin/env bash
# What a set of models answers, on test sets that this script makes: most tables of RESULTS.md, retrieval of recipes/minisqa. Nothing is trained.
# Run from the repository root. Finished work is skipped; a killed run continues with the same command.
#   bash recipes/units/measure.sh                                                     what ships: some three hours of a core (estimate)
#   bash recipes/units/measure.sh recipes/units/measure-smoke.yaml exp/measure-smoke  almost nothing, only to show that it runs
# Environment:
#   MODELS=FOLDER   models to measure (default: the set that the configuration names)
#   KITCHEN=FILE    a recording of noise as in run.sh; without it the column is left out
#   CARDS=FOLDER    a folder of models whose cards get the scores, from which the right half of README's figure is drawn (EXP/results.svg)
CONFIG=recipes/units/measure.yaml
EXP=exp/measure
. recipes/common.sh
MODELS=${MODELS:-$(setting set)}
WHISPERS=$(python recipes/whispers.py $(setting whispers))

# The sets: a section each. Of `festival` and `flite` only those that are installed.
SETS=()
for name in $(setting sets); do
  case $name in
    festival | flite) command -v "$name" > /dev/null || { echo "left out: $name, which is not installed"; continue; } ;;
  esac
  SETS+=("$name")
done
evaluate() { # SET KIND OPTION ...: in the conditions of its section, and the first set in the kitchen
  speechssl evaluate qa "$EXP/$1" "$EXP/$2-$1" --models "$MODELS" "${@:3}" --config "$CONFIG" --stage "$2-$1"
  if [ "$1" = espeak ] && [ -n "${KITCHEN:-}" ]; then
    speechssl evaluate qa "$EXP/$1" "$EXP/$2-$1" --models "$MODELS" "${@:3}" --conditions "$KITCHEN@5" \
      --config "$CONFIG" --stage "$2-$1"
  fi
}
list_folders() { # [NAME=]FOLDER of every evaluation; NAME: who speaks or what is said, unless it is the first set
  for name in "${SETS[@]}"; do
    local prefix="$name="
    [ "$name" != espeak ] || prefix=
    [ "$name" != held-out ] || prefix="held-out-words=" # held-out alone is a noise
    for kind in test whisper; do [ ! -f "$EXP/$kind-$name/results.jsonl" ] || echo "$prefix$EXP/$kind-$name"; done
  done
}

if stage 1 "test sets: other voices than in training; a language whose words and sentences are not in training; another synthesiser"; then
  for name in "${SETS[@]}"; do speechssl prepare minisqa "$EXP/$name" --config "$CONFIG" --stage "$name"; done
fi

if stage 2 "every system, in clean speech and in noise"; then
  for name in "${SETS[@]}"; do evaluate "$name" test; done
fi

if stage 3 "Whisper, a recogniser of real speech, on some of the passages"; then
  for name in ${WHISPERS:+"${SETS[@]}"}; do evaluate "$name" whisper --systems $WHISPERS; done
fi

if stage 4 "simulated errors, as many as wanted: where text QA falls below DUAL"; then
  python recipes/minisqa/confusions.py "$EXP/espeak" "$EXP/errors" --models "$MODELS" --config "$CONFIG" --stage confusions
  speechssl evaluate qa "$EXP/espeak" "$EXP/sweep" --models "$MODELS" --errors "$EXP/errors/simulated.jsonl" \
    --config "$CONFIG" --stage sweep
fi

if stage 5 "comparisons: paired differences, and where the lines cross"; then
  speechssl compare "$EXP/test-espeak" "$EXP/sweep" --out "$EXP/compare-espeak" --config "$CONFIG" --stage compare
  for name in "${SETS[@]}"; do
    [ "$name" = espeak ] || speechssl compare "$EXP/test-$name" --out "$EXP/compare-$name" --config "$CONFIG" --stage compare
    [ -z "$WHISPERS" ] || speechssl compare "$EXP/test-$name" "$EXP/whisper-$name" --out "$EXP/compare-whisper-$name" --common \
      --config "$CONFIG" --stage compare
  done
fi

if stage 6 "the passage that a question is about, among the first of every test set"; then
  for name in "${SETS[@]}"; do
    python recipes/minisqa/retrieval.py "$EXP/$name" "$EXP/retrieval-$name" --models "$MODELS" --config "$CONFIG" --stage retrieval
  done
fi

if stage 7 "the table; scores into the cards, and the figure that is drawn from them"; then
  python recipes/units/measured.py $(list_folders)
  if [ -n "${CARDS:-}" ]; then
    python recipes/ship.py scores "$CARDS" $(list_folders)
    python recipes/picture.py "$CARDS" "$EXP/results.svg"
  fi
fi
