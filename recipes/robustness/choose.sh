#!/usr/bin/env bash
# Choose the settings of continual noisy pre-training on dev splits, in the noise `dev`, which is used neither in training nor in the test:
# arms that differ from `base` in one setting each (choose.yaml), trained on 1.7 h, and one table that names the best of them by the
# criterion that RESULTS.md and choose.py state. No test data and no test noise is read.
# Run from the repository root. Finished work is skipped; a killed training continues from its checkpoint.
#   bash recipes/robustness/choose.sh EXP                  everything, one arm after another
#   bash recipes/robustness/choose.sh EXP data             the corpus and the spoken sets alone
#   bash recipes/robustness/choose.sh EXP train ARM...     pre-training and units of these arms (default: all)
#   bash recipes/robustness/choose.sh EXP evaluate ARM...  their scores; heads are trained here, on clean speech
#   bash recipes/robustness/choose.sh EXP ARM...           train and evaluate these; several such commands may run at once, after `data`
#   bash recipes/robustness/choose.sh EXP table            the table of all arms that have been evaluated
# Arms: those of choose.yaml, and `start`, the encoder that all of them start from, which is only evaluated.
# A GPU is used if there is one; CUDA_VISIBLE_DEVICES= uses the CPU.
# Environment:
#   STEPS=3000       of every arm but steps-third and steps-double (6000)
#   SEED=1           of sets, trainings, heads and noise (0)
#   WORKERS=8        threads of `evaluate` (2)
#   CORPUS=FOLDER    a MiniSQA corpus; default: that of recipes/minisqa, made here if it is missing
#   EVAL_TASKS=dual  the tasks of `evaluate` beside units, where time is short: of ks ic sid style dual (all)
#   TASKS=FOLDER     the spoken sets of recipes/superb/minisuperb.py; default: EXP/tasks, made here if they are missing
#   START=FOLDER     the models to start from (exp/minisqa/models, of recipes/minisqa)
#   CONFIG=FILE      default: recipes/robustness/choose.yaml
set -euo pipefail
EXP=${1:?the folder of the experiment comes first: choose.sh EXP [data|train|evaluate|table] [ARM...]}
shift
ARMS=(base snr-related snr-constant snr-low shares-related shares-equal silence-0 distil-0 distil-1 distil-5 distorted-half steps-third steps-double)
CONFIG=${CONFIG:-recipes/robustness/choose.yaml} STEPS=${STEPS:-6000} SEED=${SEED:-0} WORKERS=${WORKERS:-2}
START=${START:-exp/minisqa/models}
READERS=$(python recipes/models.py "$START")
TASKS=${TASKS:-$EXP/tasks}
if [ -z "${CORPUS:-}" ]; then
  CORPUS=exp/minisqa/corpus
  if grep -q "^corpus:" "$CONFIG"; then CORPUS=$EXP/corpus; fi # a small one of its own
fi

print_steps() { # ARM: how many steps it trains
  case $1 in
    steps-third) echo $(((STEPS + 2) / 3)) ;;
    steps-double) echo $((2 * STEPS)) ;;
    *) echo "$STEPS" ;;
  esac
}

make_data() {
  if [ ! -f "$CORPUS/card.json" ]; then
    if grep -q "^corpus:" "$CONFIG"; then
      speechssl prepare minisqa "$CORPUS" --config "$CONFIG" --stage corpus
    else
      speechssl prepare minisqa "$CORPUS" --config recipes/minisqa/base.yaml --stage corpus
    fi
  fi
  [ -f "$TASKS/style/card.json" ] || python recipes/superb/minisuperb.py "$TASKS" --seed "$SEED" --config "$CONFIG" --stage sets
}

train() { # ARM
  if [ "$1" = start ]; then return; fi
  local out=$EXP/$1
  speechssl pretrain continue "$CORPUS" "$out" --start "$START/encoder" --codebook "$START/units.safetensors" --seed "$SEED" --steps "$(print_steps "$1")" \
    --config "$CONFIG" --stage "$1"
  speechssl units transfer "$CORPUS" "$START/encoder" "$START/units.safetensors" "$out/encoder" "$out/units.safetensors" \
    --config "$CONFIG" --stage transfer
  ln -sfn "$READERS/dual" "$out/dual"
}

evaluate() { # ARM
  local models=$EXP/$1
  if [ "$1" = start ]; then models=$START; fi
  local task tasks=("units=$CORPUS")
  for task in ${EVAL_TASKS:-ks ic sid style dual}; do
    if [ "$task" = dual ]; then tasks+=("dual=$CORPUS"); else tasks+=("$task=$TASKS/$task"); fi
  done
  speechssl evaluate robustness "$EXP/$1" --encoders "$1=$models" --split dev --seen --unseen dev --seed "$SEED" --workers "$WORKERS" \
    --tasks "${tasks[@]}" --config "$CONFIG" --stage evaluate
}

print_table() { python recipes/robustness/choose.py "$EXP" "$CONFIG"; }

COMMAND=all
case ${1:-} in data | train | evaluate | table) COMMAND=$1 && shift ;; esac
if [ $# -gt 0 ]; then
  for arm in "$@"; do
    [[ " start ${ARMS[*]} " = *" $arm "* ]] || { echo "there is no arm $arm; choose from start ${ARMS[*]}" >&2 && exit 2; }
  done
fi
case $COMMAND in
  data) make_data ;;
  table) print_table ;;
  *)
    SELECTED=("$@")
    if [ $# -eq 0 ]; then SELECTED=(start "${ARMS[@]}"); fi
    make_data
    for arm in "${SELECTED[@]}"; do
      echo "== $arm"
      if [ "$COMMAND" != evaluate ]; then train "$arm"; fi
      if [ "$COMMAND" != train ]; then evaluate "$arm"; fi
    done
    if [ "$COMMAND" = all ] && [ $# -eq 0 ]; then print_table; fi
    ;;
esac
