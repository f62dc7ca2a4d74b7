#!/usr/bin/env bash
# `make demo`: synthesises new test sets, evaluates four systems in clean speech, in noise, by another synthesiser and on free English,
# and writes pages. Nothing is trained.
# Another test set, with other people, values and voices in other places: SEED=2 make demo (goes to exp/demo-2). PASSAGES=100 make demo
# makes a larger one (exp/demo-100-passages).
set -euo pipefail
case ${1:-} in
  '') ;;
  -h | --help) sed -n '2,/^[^#]/{s/^# \{0,1\}//p;}' "$0"; exit ;;
  *) echo "speechssl: $0 takes no arguments but --help: SEED, PASSAGES and EXP are variables, as in SEED=2 bash $0" >&2; exit 2 ;;
esac
EXP=${EXP:-exp/demo${SEED:+-$SEED}${PASSAGES:+-$PASSAGES-passages}}
SEED=${SEED:-1}
SYSTEMS="dual cascade-ctc cascade-ctc-greedy speechbert"
CHOOSE_PRECISION='from speechssl.encoders.load import has_bf16; print("bf16" if has_bf16(on_cpu=True) else "fp32")'
FAST="--precision $(python -c "$CHOOSE_PRECISION")" # of readers

EXAMPLES="--examples 10 --differ dual cascade-ctc" # to listen to
HERE=$(dirname "$0")

# Two evaluations run beside the others, in folders of their own. One is of another synthesiser: festival, on which no model was
# trained, or flite, two of whose voices the models heard in training. The other is of free English, questions.json, by festival, or
# else by voices of espeak-ng that are not in the training. Their output is printed when they have ended.
evaluate_other_speech() {
  local other speaker=espeak-ng
  for other in festival flite; do
    if command -v $other > /dev/null; then
      speechssl prepare minisqa "$EXP/$other/corpus" --synthesiser $other --passages 0 --dev-passages 0 \
        --test-passages "${OTHER_PASSAGES:-15}" --seed "$SEED" || continue # a voice of it is missing, and this was printed
      speechssl evaluate qa "$EXP/$other/corpus" "$EXP/$other" --systems $SYSTEMS $FAST --conditions clean
      speechssl report "$EXP/$other" "$EXP/$other/corpus" --conditions clean $EXAMPLES
      echo "$other=$EXP/$other" >> "$scratch/groups"
      [ $other = flite ] || speaker=$other
      break
    fi
  done
  speechssl prepare squad "$HERE/questions.json" "$EXP/free-english/corpus" --passages "${FREE_PASSAGES:-12}" \
    --speak --synthesiser $speaker --seed "$SEED"
  speechssl evaluate qa "$EXP/free-english/corpus" "$EXP/free-english" --split questions --systems $SYSTEMS text $FAST --conditions clean
  speechssl report "$EXP/free-english" "$EXP/free-english/corpus" --conditions clean $EXAMPLES
  echo "free English by $speaker=$EXP/free-english" >> "$scratch/groups"
}
scratch=$(mktemp -d) # has log, what the two print, and groups, a line NAME=FOLDER for groups.py an evaluation
set -m # gives the job a process group of its own, which can be ended as a whole
OMP_NUM_THREADS=1 evaluate_other_speech < /dev/null > "$scratch/log" 2>&1 &
job=$!
set +m
trap 'kill -- -$job 2> /dev/null || true; rm -rf "$scratch"' EXIT

speechssl prepare minisqa "$EXP/corpus" --passages 0 --dev-passages 0 --test-passages "${PASSAGES:-30}" --seed "$SEED"
speechssl evaluate qa "$EXP/corpus" "$EXP" --systems $SYSTEMS $FAST
# words and sentences that the models did not learn from
speechssl prepare minisqa "$EXP/held-out/corpus" --held-out --test-passages "${HELD_OUT_PASSAGES:-10}" --seed "$SEED"
speechssl evaluate qa "$EXP/held-out/corpus" "$EXP/held-out" --systems $SYSTEMS $FAST --conditions clean

# recognisers of real speech, where they are on this machine (`python recipes/fetch.py whisper-base`); they take seconds a recording
WHISPERS=$(python "$HERE/../whispers.py" openai/whisper-tiny.en openai/whisper-base)
[ -z "$WHISPERS" ] || speechssl evaluate qa "$EXP/corpus" "$EXP" --systems $WHISPERS $FAST --conditions clean pink@5 reverb \
  --passages "${WHISPER_PASSAGES:-2}"

code=0
wait "$job" || code=$?
cat "$scratch/log"
[ "$code" = 0 ] || exit "$code"
groups=()
while IFS= read -r group; do groups+=("$group"); done < "$scratch/groups"
python "$HERE/groups.py" "$EXP" "${groups[@]}"
speechssl report "$EXP" "$EXP/corpus" $EXAMPLES --tables "$EXP/groups.json"
