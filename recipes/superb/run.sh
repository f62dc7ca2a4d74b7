#!/usr/bin/env bash
# SUPERB: small heads on frozen encoders, from hidden states that are computed once; clean and in noise.
# Run from the repository root. Finished stages are skipped; a killed run continues with the same command.
#   bash recipes/superb/run.sh                                       the synthetic benchmark (see README.md; no GPU, no download)
#   bash recipes/superb/run.sh recipes/superb/smoke.yaml exp/superb-smoke    the same in minutes, only to show that it runs
# Environment:
#   SEED=1                      of synthetic sets, heads and noise; any but 0 goes to exp/superb-SEED
#   UNSEEN="kitchen.wav"        recordings of real noise that no training used, beside the generated ones
#   FSDD=FOLDER                 the Free Spoken Digit Dataset, for stage 4
#   LIBRISPEECH SPEECH_COMMANDS QUESST14 VOXCELEB1 LIBRI2MIX FLUENT_COMMANDS AUDIO_SNIPS IEMOCAP VOICEBANK_DEMAND
#                               folders of the published sets, for stage 5; any of them (data/*/README.md has their layout)
#   LEXICON DIARIZATION LM      files of phones (or no pr), turns of Libri2Mix (or no sd), LibriSpeech's 4-gram.arpa.gz for asr
CONFIG=recipes/superb/base.yaml
SEED=${SEED:-0}
EXP=exp/superb$([ "$SEED" = 0 ] || echo "-$SEED")
. recipes/common.sh

if stage 1 "the synthetic SUPERB: all tasks, in clean speech and in noise"; then
  python recipes/superb/minisuperb.py "$EXP/data" --seed "$SEED" --config "$CONFIG" --stage sets
  speechssl superb run "$EXP" --data "$EXP/data" --seed "$SEED" --unseen held-out ${UNSEEN:-} --config "$CONFIG" --stage synthetic
fi

if stage 2 "what caching is worth: the same heads with the encoder in the loop"; then
  python recipes/superb/speed.py "$(setting timed)" "$EXP" --data "$EXP/data" --config "$CONFIG" --stage speed
  speechssl report "$EXP"
fi

if stage 3 "what units keep and lose: heads on the units of an encoder beside heads on its features"; then
  speechssl superb run "$EXP/units" --data "$EXP/data" --seed "$SEED" --config "$CONFIG" --stage units
fi

if stage 4 "real voices: digits and speakers of FSDD"; then
  if [ -n "${FSDD:-}" ]; then
    speechssl prepare fsdd "$FSDD" "$EXP/fsdd/data"
    speechssl superb run "$EXP/fsdd" --data "$EXP/fsdd/data" --seed "$SEED" --unseen held-out ${UNSEEN:-} \
      --config "$CONFIG" --stage fsdd
    speechssl report "$EXP/fsdd"
  else
    echo "left out: real voices, which need the Free Spoken Digit Dataset in FSDD"
  fi
fi

if stage 5 "the published sets, with the published settings"; then
  prepared=$EXP/published/data
  prepare() { # VERB FOLDER [OPTION ...]
    if [ -n "$2" ]; then speechssl prepare "$1" "$2" "$prepared" "${@:3}"; fi
  }
  if [ -n "${LEXICON:-}" ]; then words=(--lexicon $LEXICON); else words=(--tasks asr); fi # files without spaces in their names
  prepare librispeech "${LIBRISPEECH:-}" "${words[@]}"
  prepare speech-commands "${SPEECH_COMMANDS:-}"
  prepare quesst14 "${QUESST14:-}"
  prepare voxceleb1 "${VOXCELEB1:-}"
  if [ -n "${DIARIZATION:-}" ]; then turns=(--diarization "$DIARIZATION"); else turns=(--tasks ss); fi
  prepare libri2mix "${LIBRI2MIX:-}" "${turns[@]}"
  prepare fluent-speech-commands "${FLUENT_COMMANDS:-}"
  prepare audio-snips "${AUDIO_SNIPS:-}"
  prepare iemocap "${IEMOCAP:-}"
  prepare voicebank-demand "${VOICEBANK_DEMAND:-}"
  if [ -d "$prepared" ]; then
    speechssl superb run "$EXP/published" --data "$prepared" --seed "$SEED" ${LM:+--lm "$LM"} --config "$CONFIG" --stage published
    speechssl report "$EXP/published"
  else
    echo "left out: none of the published sets is named"
  fi
fi

if stage 6 "the tables of RESULTS.md"; then
  python recipes/superb/tables.py "$EXP"
fi
