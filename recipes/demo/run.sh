#!/usr/bin/env bash
# `make demo`: synthesises new test sets, evaluates three systems in clean speech, in noise and on another synthesiser, and writes pages.
# Nothing is trained.
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
SYSTEMS="dual cascade-ctc speechbert"
speechssl prepare minisqa "$EXP/corpus" --passages 0 --dev-passages 0 --test-passages "${PASSAGES:-30}" --seed "$SEED"
speechssl evaluate qa "$EXP/corpus" "$EXP" --systems $SYSTEMS
speechssl evaluate qa "$EXP/corpus" "$EXP" --systems cascade-pocketsphinx --conditions clean pink@5 --passages "${SPHINX_PASSAGES:-8}"

# recognisers of real speech, where they are on this machine (`speechssl models get whisper-base`); they take seconds a recording
WHISPERS=$(python "$(dirname "$0")/../whispers.py" openai/whisper-tiny.en openai/whisper-base)
[ -z "$WHISPERS" ] || speechssl evaluate qa "$EXP/corpus" "$EXP" --systems $WHISPERS --conditions clean pink@5 reverb \
  --passages "${WHISPER_PASSAGES:-4}"

# another synthesiser: festival, which no model was trained on, or flite, two of whose voices the models learned from
groups=()
for other in festival flite; do
  if command -v $other > /dev/null; then
    speechssl prepare minisqa "$EXP/$other/corpus" --synthesiser $other --passages 0 --dev-passages 0 \
      --test-passages "${OTHER_PASSAGES:-15}" --seed "$SEED" || continue # a voice of it is missing, and this was said
    speechssl evaluate qa "$EXP/$other/corpus" "$EXP/$other" --systems $SYSTEMS --conditions clean
    speechssl report "$EXP/$other" "$EXP/$other/corpus" --conditions clean
    groups+=("$other=$EXP/$other")
    break
  fi
done
python "$(dirname "$0")/groups.py" "$EXP" ${groups[@]+"${groups[@]}"}
speechssl report "$EXP" "$EXP/corpus" --tables "$EXP/groups.json"
