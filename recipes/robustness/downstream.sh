#!/usr/bin/env bash
# Domain-adversarial training (DAT) as arXiv 2203.16104 has it: models of SUPERB's tasks trained with their encoder on labelled clean and
# distorted speech against a domain classifier; beside heads trained on clean speech, without a classifier, and on the continual encoder.
# run.sh calls it (stage 6); it needs EXP/tasks and EXP/continual alone, and goes on where it was killed.
#   bash recipes/robustness/downstream.sh recipes/robustness/base.yaml exp/robustness
#   JOBS=8 DEVICE=cuda bash recipes/robustness/downstream.sh ...       eight arms side by side, on a GPU
# Environment: SEED, UNSEEN and MUSAN as in run.sh, and
#   START=exp/minisqa/models               the models to start from
#   JOBS=1   DEVICE=auto   WORKERS=2        arms at a time; of each: where it runs, and threads that read and distort
#   WEIGHTS="0.1 0.3 1"                     the weights of the classifier that dev chooses from
#   MODES="reversal alternating"            and its modes
#   CONTINUAL=EXP/continual/encoder         the encoder that went on training on distorted speech without labels
#   HEADS=clean                             heads on distorted speech go on from those on clean speech; default: from random ones
set -euo pipefail
CONFIG=$1
EXP=$2
OUT=$EXP/downstream
SEED=${SEED:-0}
WEIGHTS=${WEIGHTS:-0.1 0.3 1}
MODES=${MODES:-reversal alternating}
mkdir -p "$OUT"
PIDS=()
NAMES=()
trap 'kill "${PIDS[@]}" 2>/dev/null || true' EXIT

# NAME ENCODER SECTION OPTION ...: starts an arm in the background as soon as fewer than JOBS run; its log is OUT/NAME.log
run_arm() {
  while [ "${#PIDS[@]}" -ge "${JOBS:-1}" ]; do wait_for_oldest; done
  echo "   $1"
  (exec speechssl superb run "$OUT/$1" --encoders "$2" --data "$EXP/tasks" --seed "$SEED" --device "${DEVICE:-auto}" \
    --workers "${WORKERS:-2}" ${MUSAN:+--noise "musan=$MUSAN"} --config "$CONFIG" --stage "$3" "${@:4}" > "$OUT/$1.log" 2>&1) &
  PIDS+=($!)
  NAMES+=("$1")
}
wait_for_oldest() { # and forget it at once, before its process number can be another's
  wait "${PIDS[0]}" || { tail -n 5 "$OUT/${NAMES[0]}.log" >&2; exit 1; }
  PIDS=("${PIDS[@]:1}")
  NAMES=("${NAMES[@]:1}")
}
wait_for_all() { while [ "${#PIDS[@]}" -gt 0 ]; do wait_for_oldest; done; }
NOISE=(--noise-cache "$EXP/noise")
BASELINE=baseline=${START:-exp/minisqa/models}
CONTINUED=continual=${CONTINUAL:-$EXP/continual/encoder}
TEST=(--seen m+g+r --unseen held-out ${UNSEEN:-})

# options of arms on distorted speech that start from heads on clean speech: of BASELINE, and of CONTINUED
START_BASELINE=()
START_CONTINUED=()
if [ "${HEADS:-}" = clean ]; then
  echo "== heads on clean speech, from which the others go on"
  run_arm clean "$BASELINE" downstream --train-only
  run_arm continual "$CONTINUED" downstream --train-only
  wait_for_all
  START_BASELINE=(--start "$OUT/clean/heads/baseline")
  START_CONTINUED=(--start "$OUT/continual/heads/continual")
fi

echo "== trained on the training set, evaluated on dev alone"
run_arm distorted "$BASELINE" downstream-distorted "${NOISE[@]}" "${START_BASELINE[@]}" --finetune --train-only
wait_for_all # it generates the noise that stands in for MUSAN, for all arms
for labels in binary multi; do for mode in $MODES; do for weight in $WEIGHTS; do
  run_arm "dat-$labels-$mode-$weight" "$BASELINE" downstream-distorted "${NOISE[@]}" "${START_BASELINE[@]}" --train-only \
    --finetune --domain-adversary "$labels" --domain-adversary-mode "$mode" --domain-adversary-weight "$weight"
done; done; done
wait_for_all

echo "== the mode and the weight that do best on dev"
python recipes/robustness/downstream.py choose "$OUT"

echo "== the columns, in clean speech, seen and unseen noise"
run_arm clean "$BASELINE" downstream "${TEST[@]}"
run_arm continual "$CONTINUED" downstream "${TEST[@]}"
run_arm distorted-head "$BASELINE" downstream-head "${NOISE[@]}" "${START_BASELINE[@]}" "${TEST[@]}"
run_arm distorted "$BASELINE" downstream-distorted "${NOISE[@]}" "${START_BASELINE[@]}" --finetune "${TEST[@]}"
run_arm more-distorted "$CONTINUED" downstream-distorted "${NOISE[@]}" "${START_CONTINUED[@]}" --finetune "${TEST[@]}"
while read -r kind name labels mode weight; do # lines of downstream.py choose: two of kind dat, one of kind both
  dat=(--finetune --domain-adversary "$labels" --domain-adversary-mode "$mode" --domain-adversary-weight "$weight")
  if [ "$kind" = both ]; then
    run_arm "both-$name" "$CONTINUED" downstream-distorted "${NOISE[@]}" "${START_CONTINUED[@]}" "${dat[@]}" "${TEST[@]}"
  else
    run_arm "$name" "$BASELINE" downstream-distorted "${NOISE[@]}" "${START_BASELINE[@]}" "${dat[@]}" "${TEST[@]}"
  fi
done < "$OUT/chosen.txt"
wait_for_all
python recipes/robustness/downstream.py table "$OUT"
