#!/usr/bin/env bash
# SLUE-SQA-5: questions and documents of real speech; DUAL, cascades with two recognisers and with Whisper, SpeechBERT, and the topline on the text, by frame-F1.
# Run from the repository root. Finished stages are skipped; a killed run continues with the same command.
#   bash recipes/slue_sqa5/run.sh recipes/slue_sqa5/base.yaml exp/slue_sqa5 /data/slue-phase-2      the published settings (a GPU)
#   bash recipes/slue_sqa5/run.sh recipes/slue_sqa5/smoke.yaml exp/slue_sqa5-smoke      on an invented miniature, two minutes
# Environment:
#   LIBRISPEECH=FOLDER      train-clean-100, which the codebook is fitted on (else on the fine-tuning documents, a deviation)
#   SPEECHSSL_MODELS=FOLDER checkpoints as FOLDER/facebook/hubert-large-ll60k and so on, if the hub cannot be reached
set -euo pipefail
. recipes/options.sh
CONFIG=${1:-recipes/slue_sqa5/base.yaml}
EXP=${2:-exp/slue_sqa5}
SOURCE=${3:-}
MODELS=$EXP/models
. recipes/spoken_qa.sh

stage "1 corpus: documents and questions, words with their times"
published slue-sqa5
speechssl prepare slue-sqa5 "$SOURCE" "$EXP/corpus" $(with corpus)

stage "2 units: HuBERT, k-means, then the whole fine-tuning set"
[ -d "$EXP/encoder" ] || speechssl convert "$(setting encoder)" "$EXP/encoder" --to huggingface
models "$MODELS"
if trains "any reader"; then
  [ -n "${LIBRISPEECH:-}" ] || echo "LIBRISPEECH names no folder: the codebook is fitted on the fine-tuning set, not as published"
  speechssl units fit "${LIBRISPEECH:-$EXP/corpus}" "$EXP/encoder" "$MODELS/units.safetensors" $(with units)
  speechssl units extract "$EXP/corpus" "$EXP/encoder" "$MODELS/units.safetensors" "$EXP/units" $(with extract)

  stage "3 DUAL"
  speechssl train dual "$EXP/corpus" "$EXP/units" "$MODELS/dual" $(with dual)

  stage "4 text QA on the words of the fine-tuning set, for the cascades and the topline"
  speechssl train text-qa "$EXP/corpus" "$MODELS/text-qa" $(with text-qa)
else
  borrow "$(setting stand-in)" "$MODELS" units.safetensors units.card.json dual text-qa
fi

stage "5 SpeechBERT: audio words, segmented by a CTC head on the same encoder"
if [ -n "$(setting stand-in)" ]; then
  borrow "$(setting stand-in)" "$MODELS" ctc speechbert
elif aligned; then
  speechssl train ctc "$EXP/corpus" "$EXP/encoder" "$MODELS/ctc" $(with ctc)
  speechssl train speechbert "$EXP/corpus" "$EXP/encoder" "$MODELS/speechbert" --ctc "$MODELS/ctc" $(with speechbert)
fi

stage "6 evaluation: EXP/SPLIT; FF1 is SLUE's frame-F1"
WHISPERS=$(whispers)
for split in $(splits); do
  has "$split" || continue
  speechssl evaluate qa "$EXP/corpus" "$EXP/$split" --models "$MODELS" --split "$split" \
    --systems $(setting systems) $WHISPERS $([ ! -d "$MODELS/speechbert" ] || echo speechbert) $(with evaluate)
  speechssl report "$EXP/$split" "$EXP/corpus" --models "$MODELS" --split "$split" $(with report)
done
