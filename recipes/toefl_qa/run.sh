#!/usr/bin/env bash
# TOEFL-QA: listening comprehension by multiple choice, on units, in the cascade and by SpeechBERT.
# Its audio was never published, so it is synthesised.
# Run from the repository root. Finished stages are skipped; a killed run continues with the same command.
#   bash recipes/toefl_qa/run.sh recipes/toefl_qa/base.yaml exp/toefl_qa /data/TOEFL-QA      large models, trained on its train split
#   bash recipes/toefl_qa/run.sh recipes/toefl_qa/smoke.yaml exp/toefl_qa-smoke              shipped ones on an invented miniature
#   bash recipes/toefl_qa/run.sh recipes/toefl_qa/smoke.yaml exp/toefl_qa-slice /data/TOEFL-QA
# Environment:
#   LIBRISPEECH=FOLDER      train-clean-100, which the codebook is fitted on (else on the synthesised stories)
#   SPEECHSSL_MODELS=FOLDER checkpoints as FOLDER/facebook/hubert-large-ll60k and so on, if the hub cannot be reached
set -euo pipefail
. recipes/options.sh
CONFIG=${1:-recipes/toefl_qa/base.yaml}
EXP=${2:-exp/toefl_qa}
SOURCE=${3:-}
MODELS=$EXP/models
. recipes/spoken_qa.sh

stage "1 corpus: stories, questions and options, synthesised by espeak-ng"
published toefl-qa
speechssl prepare toefl-qa "$SOURCE" "$EXP/corpus" --speak $(with corpus)

stage "2 units of stories, questions and options"
[ -d "$EXP/encoder" ] || speechssl convert "$(setting encoder)" "$EXP/encoder" --to huggingface
models "$MODELS"
if [ -d "$EXP/corpus/train" ]; then
  [ -n "$(setting shipped)" ] \
    || speechssl units fit "${LIBRISPEECH:-$EXP/corpus}" "$EXP/encoder" "$MODELS/units.safetensors" $(with units)
  speechssl units extract "$EXP/corpus" "$EXP/encoder" "$MODELS/units.safetensors" "$EXP/units" $(with extract)

  stage "3 multiple choice on units"
  start=${START_UNITS:-$MODELS/dual} # of a shipped set, or your own: a reader of these units to go on from
  speechssl train choice "$EXP/corpus" "$MODELS/choice-units" --units "$EXP/units" \
    $([ -d "$start" ] && echo "--start $start") $(with choice-units)

  stage "4 multiple choice on words"
  speechssl train choice "$EXP/corpus" "$MODELS/choice-text" $(with choice-text)

  stage "5 a recogniser: a CTC head on the same encoder, trained on the stories"
  speechssl train ctc "$EXP/corpus" "$EXP/encoder" "$MODELS/$(setting recogniser)" $(with ctc)
  speechssl train ngram "$EXP/corpus" "$EXP/encoder" "$MODELS/$(setting recogniser)" $(with ngram)

  stage "6 SpeechBERT: audio words and masked words of the stories, then multiple choice; a CTC head segments the words"
  speechssl train speechbert "$EXP/corpus" "$EXP/encoder" "$EXP/speechbert" --ctc "$MODELS/ctc" --no-spans $(with speechbert)
  [ -L "$MODELS/speechbert" ] || rm -rf "$MODELS/speechbert" # that of a shipped set, which knows other words
  ln -sfn ../speechbert "$MODELS/speechbert"
  speechssl train choice "$EXP/corpus" "$MODELS/choice-speechbert" --speechbert "$MODELS/speechbert" --encoder "$EXP/encoder" \
    --ctc "$MODELS/ctc" $(with choice-speechbert)
  systems="--systems $(setting systems) $(whispers)"
else
  systems="--systems chance longest-option"
  echo "left out: $SOURCE has no train, so nothing is trained; only chance and the longest option are evaluated"
fi

stage "7 evaluation: EXP/SPLIT; chance and the longest option beside the systems"
for split in $(splits); do
  has "$split" || continue
  speechssl evaluate choice "$EXP/corpus" "$EXP/$split" --models "$MODELS" --split "$split" $systems $(with evaluate)
  speechssl report "$EXP/$split" "$EXP/corpus" --split "$split"
done
