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
BF16='from speechssl.encoders.load import has_bf16; print("bf16" if has_bf16(on_cpu=True) else "fp32")'
FAST="--precision $(python -c "$BF16")" # of what reads units and words

EXAMPLES="--examples 10 --differ dual cascade-ctc" # to listen to
HERE=$(dirname "$0")

# Beside the rest run, in folders of their own: another synthesiser, festival, which no model was trained on, or flite, two of whose
# voices the models learned from; and free English, questions.json, by festival or else by voices of espeak-ng that trained nothing.
# What they print is kept until they are through.
beside_the_rest() {
  local other reader=espeak-ng
  for other in festival flite; do
    if command -v $other > /dev/null; then
      speechssl prepare minisqa "$EXP/$other/corpus" --synthesiser $other --passages 0 --dev-passages 0 \
        --test-passages "${OTHER_PASSAGES:-15}" --seed "$SEED" || continue # a voice of it is missing, and this was printed
      speechssl evaluate qa "$EXP/$other/corpus" "$EXP/$other" --systems $SYSTEMS $FAST --conditions clean
      speechssl report "$EXP/$other" "$EXP/$other/corpus" --conditions clean $EXAMPLES
      echo "$other=$EXP/$other" >> "$kept/groups"
      [ $other = flite ] || reader=$other
      break
    fi
  done
  speechssl prepare squad "$HERE/questions.json" "$EXP/free-english/corpus" --passages "${FREE_PASSAGES:-12}" \
    --speak --synthesiser $reader --seed "$SEED"
  speechssl evaluate qa "$EXP/free-english/corpus" "$EXP/free-english" --split questions --systems $SYSTEMS text $FAST --conditions clean
  speechssl report "$EXP/free-english" "$EXP/free-english/corpus" --conditions clean $EXAMPLES
  echo "free English by $reader=$EXP/free-english" >> "$kept/groups"
}
kept=$(mktemp -d)
set -m # a process group of its own, all of which can be ended
OMP_NUM_THREADS=1 beside_the_rest < /dev/null > "$kept/log" 2>&1 &
beside=$!
set +m
trap 'kill -- -$beside 2> /dev/null || true; rm -rf "$kept"' EXIT

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
wait "$beside" || code=$?
cat "$kept/log"
[ "$code" = 0 ] || exit "$code"
groups=()
while IFS= read -r group; do groups+=("$group"); done < "$kept/groups"
python "$HERE/groups.py" "$EXP" "${groups[@]}"
speechssl report "$EXP" "$EXP/corpus" $EXAMPLES --tables "$EXP/groups.json"
