#!/usr/bin/env bash
# Chooses DUAL's stages, the noise in its units and its steps on short windows, on the development passages of MiniSQA, whose voices,
# passages and values occur neither in training nor in the test. Run from the repository root, after stages 1 to 4 of run.sh.
#   bash recipes/minisqa/choose.sh EXP              trains every arm, evaluates them on dev, prints one table
#   bash recipes/minisqa/choose.sh EXP ARM ...      trains these arms and no others, so that several such commands can run at a time
#   bash recipes/minisqa/choose.sh EXP arms         prints the names of all arms
#   bash recipes/minisqa/choose.sh EXP table        evaluates what is trained, prints the table
# An arm is one-SHORT, two-SHORT-NOISE (starts from one-SHORT), three-SHORT-NOISE (starts from that two) or single-SHORT-NOISE; SHORT:
# steps on short windows; NOISE: share of the units replaced. Finished work is skipped; a killed run continues.
# Environment:
#   MODELS=FOLDER           has encoder/, units.safetensors and its card; default: EXP/models
#   CONDITIONS="pink@10"    of dev, beside clean, as `speechssl evaluate qa` writes them
#   CONFIG=FILE             default: recipes/minisqa/choose.yaml
set -euo pipefail
[ $# -gt 0 ] || { echo "speechssl: give the folder EXP of recipes/minisqa/run.sh" >&2; exit 2; }
EXP=$1
MODELS=${MODELS:-$EXP/models}
CONFIG=${CONFIG:-recipes/minisqa/choose.yaml}
OUT=$EXP/choose
SETTINGS=$(python recipes/settings.py "$CONFIG")
setting() { sed -n "s/^$1 //p" <<< "$SETTINGS"; }

arms() { # in an order in which every arm comes after the one it starts from
  local short noise kind
  for short in $(setting short-steps); do
    echo "one-$short"
    for noise in $(setting noise); do
      for kind in two three single; do echo "$kind-$short-$noise"; done
    done
  done
}

train() { # ARM
  local kind short noise options section start=
  IFS=- read -r kind short noise <<< "$1"
  case $kind in
    one) section=one options="--short-steps $short" ;;
    two) section=next start=one-$short options="--random-units $noise" ;;
    three) section=next start=two-$short-$noise options="--random-units $noise --seed 1" ;;
    single) section=single options="--short-steps $short --random-units $noise" ;;
    *) echo "speechssl: there is no arm $1; the names of all are: $(arms | tr '\n' ' ')" >&2; exit 2 ;;
  esac
  speechssl train dual "$EXP/corpus" "$EXP/units" "$OUT/models/dual-$1" ${start:+--start "$OUT/models/dual-$start"} $options \
    --config "$CONFIG" --stage "$section"
}

table() {
  local part done=()
  for part in encoder units.safetensors units.card.json; do
    [ -e "$OUT/models/$part" ] || ln -s "$(realpath "$MODELS/$part")" "$OUT/models/$part"
  done
  for part in $(arms); do [ ! -f "$OUT/models/dual-$part/card.json" ] || done+=("dual-$part"); done
  speechssl evaluate qa "$EXP/corpus" "$OUT" --models "$OUT/models" --split dev --systems "${done[@]}" --conditions clean ${CONDITIONS:-} \
    --config "$CONFIG" --stage evaluate
  python recipes/minisqa/choose.py "$OUT" "${done[@]}"
}

case ${2:-} in
  "") for arm in $(arms); do train "$arm"; done; table ;;
  arms) arms ;;
  table) table ;;
  *) for arm in "${@:2}"; do train "$arm"; done ;;
esac
