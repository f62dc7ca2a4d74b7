#!/usr/bin/env bash
# Encoders for noisy speech: continual pre-training of HuBERT on distorted speech, with and without a domain adversary, and on
# more data, and as many steps of clean speech; then evaluation in every task and noise. Beside them task models that are trained
# on distorted speech, with and without domain-adversarial training (DAT).
# Run from the repository root. Finished stages are skipped; a killed run continues with the same command.
#   bash recipes/robustness/run.sh                             the published run (hours of 2 cores, see README.md; no GPU needed)
#   bash recipes/robustness/run.sh recipes/robustness/smoke.yaml exp/robustness-smoke    the same in minutes, only to show that it runs
# Environment:
#   SEED=1                      of sets, trainings, heads and noise; any but 0 goes to exp/robustness-SEED
#   UNSEEN="kitchen.wav bus/"   recordings of real noise that no training uses, files or folders, beside the generated ones
#   FSDD=FOLDER                 the Free Spoken Digit Dataset, for stage 5
#   CORPUS=FOLDER               a MiniSQA corpus; default: that of recipes/minisqa, made here if it is missing
#   MUSAN=FOLDER                MUSAN, instead of its generated stand-in
#   TRAININGS="continual"       of the trainings these alone; stage 6 needs continual, stage 8 continual-more
#   START=FOLDER                the models to start from (exp/minisqa/models, of recipes/minisqa; the smoke run: what ships)
CONFIG=recipes/robustness/base.yaml
SEED=${SEED:-0}
EXP=exp/robustness$([ "$SEED" = 0 ] || echo "-$SEED")
. recipes/common.sh
TRAININGS=(${TRAININGS:-continual continual-adversary-binary continual-adversary-multi continual-more continual-clean})
if grep -q "^corpus:" "$CONFIG"; then # smoke.yaml: a small corpus, and what ships
  CORPUS=${CORPUS:-$EXP/corpus} START=${START:-people-en}
fi
CORPUS=${CORPUS:-exp/minisqa/corpus}
export START=${START:-exp/minisqa/models} # for downstream.sh, too
READERS=$(python recipes/models.py "$START")
ENCODERS=("baseline=$EXP/models/baseline") # NAME=FOLDER, for the grids
for name in "${TRAININGS[@]}"; do ENCODERS+=("$name=$EXP/models/$name"); done
evaluate_grid() { # FOLDER SECTION TASK=DATA ...
  speechssl evaluate robustness "$1" --encoders "${ENCODERS[@]}" --tasks "${@:3}" --seen m+g+r --unseen held-out ${UNSEEN[@]:-} \
    --seed "$SEED" ${MUSAN:+--noise "musan=$MUSAN"} --config "$CONFIG" --stage "$2"
}

if stage 1 "the corpus of recipes/minisqa, and spoken sets for KS, IC, SID, style (which stands in for ER) and ASR"; then
  if [ "$CORPUS" = "$EXP/corpus" ]; then
    speechssl prepare minisqa "$CORPUS" --config "$CONFIG" --stage corpus
  elif [ ! -f "$CORPUS/card.json" ]; then
    speechssl prepare minisqa "$CORPUS" --config recipes/minisqa/base.yaml --stage corpus
  fi
  python recipes/superb/minisuperb.py "$EXP/tasks" --seed "$SEED" --config "$CONFIG" --stage sets
fi

if stage 2 "continual pre-training: predict the units of the clean signal from distorted speech"; then
  for name in "${TRAININGS[@]}"; do
    $LAUNCH speechssl pretrain continue "$CORPUS" "$EXP/$name" --start "$START/encoder" --codebook "$START/units.safetensors" \
      --seed "$SEED" ${MUSAN:+--noise "musan=$MUSAN"} --config "$CONFIG" --stage "$name"
  done
fi

if stage 3 "a folder of models for each: units and SpeechBERT transferred from those of $START, its readers, a CTC head of its own"; then
  for name in baseline "${TRAININGS[@]}"; do
    models=$EXP/models/$name
    mkdir -p "$models"
    ln -sfn "$READERS"/dual "$READERS"/text-qa "$models/"
    if [ "$name" = baseline ]; then
      ln -sfn "$READERS"/encoder "$READERS"/units.safetensors "$READERS"/units.card.json "$READERS"/speechbert "$models/"
    else
      ln -sfn "../../$name/encoder" "$models/encoder"
      speechssl units transfer "$CORPUS" "$START/encoder" "$START/units.safetensors" "$models/encoder" "$models/units.safetensors" \
        --config "$CONFIG" --stage transfer
      $LAUNCH speechssl train transfer-speechbert "$CORPUS" "$START/encoder" "$START/speechbert" "$models/encoder" "$models/speechbert" \
        --seed "$SEED" --config "$CONFIG" --stage transfer-speechbert
    fi
    $LAUNCH speechssl train ctc "$CORPUS" "$models/encoder" "$models/ctc" --seed "$SEED" --config "$CONFIG" --stage ctc
    $LAUNCH speechssl train ngram "$CORPUS" "$models/encoder" "$models/ctc" --config "$CONFIG" --stage ngram
  done
fi

if stage 4 "the grid: encoders x tasks x noises x SNR, all with the same mixtures; classifier heads are trained on clean speech"; then
  SETS=("ks=$EXP/tasks/ks" "ic=$EXP/tasks/ic" "sid=$EXP/tasks/sid" "style=$EXP/tasks/style")
  TASKS=("${SETS[@]}" "asr=$CORPUS" "units=$CORPUS" "dual=$CORPUS" "speechbert=$CORPUS" "cascade-ctc=$CORPUS" "cascade-ctc-greedy=$CORPUS")
  evaluate_grid "$EXP" grid "${TASKS[@]}"
  if [[ " ${TRAININGS[*]} " == *" continual-clean "* ]]; then # the same scores again, against the control
    mkdir -p "$EXP/control"
    ln -sfn ../heads ../scores ../noise.jsonl ../noise.card.json "$EXP/control/"
    CONTROL=continual-clean=$EXP/models/continual-clean
    (
      trained=("${ENCODERS[@]:1}") ENCODERS=("$CONTROL")
      for encoder in "${trained[@]}"; do [ "$encoder" = "$CONTROL" ] || ENCODERS+=("$encoder"); done
      evaluate_grid "$EXP/control" grid "${TASKS[@]}"
    )
  fi
fi

if stage 5 "real voices: digits and speakers of FSDD"; then
  if [ -n "${FSDD:-}" ]; then
    speechssl prepare fsdd "$FSDD" "$EXP/fsdd"
    evaluate_grid "$EXP/fsdd" fsdd "ks=$EXP/fsdd/ks" "sid=$EXP/fsdd/sid"
    speechssl report "$EXP/fsdd"
  else
    echo "left out: real voices, which need the Free Spoken Digit Dataset in FSDD"
  fi
fi

if stage 6 "labelled distorted speech: heads, encoders trained with them, and domain-adversarial training (downstream.sh)"; then
  SEED=$SEED bash recipes/robustness/downstream.sh "$CONFIG" "$EXP"
fi

if stage 7 "report: $EXP/report.html, and the tables of RESULTS.md"; then
  speechssl report "$EXP"
  python recipes/robustness/tables.py "$EXP"
fi

if stage 8 "a set of all models: $EXP/minisqa-en-robust, from which recipes/units goes on"; then
  if [ "$START" = people-en ]; then
    echo "left out: $START is already a shipped set"
  else
    python recipes/ship.py "$EXP/models/continual-more" "$START/ctc" "$CORPUS" "$EXP/minisqa-en-robust" \
      "recipes/robustness/run.sh, base.yaml: continual-more"
    for condition in clean pink@20 pink@10 pink@5 pink@0 reverb; do
      speechssl evaluate qa "$CORPUS" "$EXP/shipped" --models "$EXP/minisqa-en-robust" --conditions "$condition" \
        --config "$CONFIG" --stage shipped
    done
    speechssl prepare minisqa "$EXP/held-out/corpus" --held-out # a test of new words and sentences
    speechssl evaluate qa "$EXP/held-out/corpus" "$EXP/held-out" --models "$EXP/minisqa-en-robust" --conditions clean \
      --config "$CONFIG" --stage shipped
    python recipes/ship.py scores "$EXP/minisqa-en-robust" "$EXP/shipped" "held-out words=$EXP/held-out"
  fi
fi
