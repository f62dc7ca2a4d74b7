#!/usr/bin/env bash
# `make demo`: synthesises a new test set, evaluates three systems on it in clean and noisy speech, and writes a page. Nothing is trained.
set -euo pipefail
# Another test set, with other people, values and voices in other places: SEED=2 make demo (goes to exp/demo-2). PASSAGES=100 make demo
# makes a larger one (exp/demo-100-passages).
EXP=${EXP:-exp/demo${SEED:+-$SEED}${PASSAGES:+-$PASSAGES-passages}}
SEED=${SEED:-1}
speechssl prepare minisqa "$EXP/corpus" --passages 0 --dev-passages 0 --test-passages "${PASSAGES:-30}" --seed "$SEED"
speechssl evaluate qa "$EXP/corpus" "$EXP" --systems dual cascade-ctc speechbert
speechssl evaluate qa "$EXP/corpus" "$EXP" --systems cascade-pocketsphinx --conditions clean pink@5 --passages "${SPHINX_PASSAGES:-8}"
speechssl report "$EXP" "$EXP/corpus"
