#!/usr/bin/env bash
# What a set of models answers, on test sets that this script makes: README's table and figure. Nothing is trained.
# Run from the repository root. Finished work is skipped; a killed run continues with the same command.
#   bash recipes/units/measure.sh                                                     what ships: some two hours of a core
#   bash recipes/units/measure.sh recipes/units/measure-smoke.yaml exp/measure-smoke  almost nothing, only to show that it runs
# Environment:
#   MODELS=FOLDER   models to measure (default: the set that the configuration names)
#   KITCHEN=FILE    a recording of noise as in run.sh; without it the column is left out
#   CARDS=FOLDER    a folder of models whose cards get the scores, from which the figure is drawn (EXP/results.svg)
set -euo pipefail
. recipes/options.sh
CONFIG=${1:-recipes/units/measure.yaml}
EXP=${2:-exp/measure}
configure
MODELS=${MODELS:-$(setting set)}

# The sets: a section each. Of `festival` and `flite` only those that are installed.
SETS=()
for name in $(setting sets); do
  case $name in
    festival | flite) command -v "$name" > /dev/null || { echo "left out: $name, which is not installed"; continue; } ;;
  esac
  SETS+=("$name")
done
evaluate() { # SET KIND OPTION ...: in the conditions of its section, and the first set in the kitchen
  speechssl evaluate qa "$EXP/$1" "$EXP/$2-$1" --models "$MODELS" "${@:3}" $(with "$2-$1")
  if [ "$1" = espeak ] && [ -n "${KITCHEN:-}" ]; then
    speechssl evaluate qa "$EXP/$1" "$EXP/$2-$1" --models "$MODELS" "${@:3}" --conditions "$KITCHEN@5" $(with "$2-$1")
  fi
}
folders() { # the evaluations, with the name of who speaks or what is said where it is not the first set
  for name in "${SETS[@]}"; do
    local prefix="$name="
    [ "$name" != espeak ] || prefix=
    [ "$name" != held-out ] || prefix="held-out-words=" # held-out alone is a noise
    for kind in test whisper; do [ ! -f "$EXP/$kind-$name/results.jsonl" ] || echo "$prefix$EXP/$kind-$name"; done
  done
}

stage "1 test sets: other voices than in training; a language whose words and sentences are not in training; another synthesiser"
for name in "${SETS[@]}"; do speechssl prepare minisqa "$EXP/$name" $(with "$name"); done

stage "2 every system, in clean speech and in noise"
for name in "${SETS[@]}"; do evaluate "$name" test; done

stage "3 Whisper, a recogniser of real speech, on some of the passages"
WHISPERS=$(python recipes/whispers.py $(setting whispers))
for name in ${WHISPERS:+"${SETS[@]}"}; do evaluate "$name" whisper --systems $WHISPERS; done

stage "4 simulated errors, as many as wanted: where text QA falls below DUAL"
python recipes/minisqa/confusions.py "$EXP/espeak" "$EXP/errors" --models "$MODELS" $(with confusions)
speechssl evaluate qa "$EXP/espeak" "$EXP/sweep" --models "$MODELS" --errors "$EXP/errors/simulated.jsonl" $(with sweep)

stage "5 comparisons: paired differences, and where the lines cross"
speechssl compare "$EXP/test-espeak" "$EXP/sweep" --out "$EXP/compare-espeak" $(with compare)
for name in "${SETS[@]}"; do
  [ "$name" = espeak ] || speechssl compare "$EXP/test-$name" --out "$EXP/compare-$name" $(with compare)
  [ -z "$WHISPERS" ] || speechssl compare "$EXP/test-$name" "$EXP/whisper-$name" --out "$EXP/compare-whisper-$name" --common \
    $(with compare)
done

stage "6 the passage that a question is about, among all of a test set"
python recipes/minisqa/retrieval.py "$EXP/espeak" "$EXP/retrieval" --models "$MODELS" $(with retrieval)

stage "7 the table; scores into the cards, and the figure that is drawn from them"
python recipes/units/measured.py $(folders)
if [ -n "${CARDS:-}" ]; then
  python recipes/ship.py scores "$CARDS" $(folders)
  python recipes/picture.py "$CARDS" "$EXP/results.svg"
fi
