#!/usr/bin/env bash
# ODSQA (Mandarin): text QA on transcripts with and without pinyin, the cascade, DUAL, and English -> Chinese without Chinese questions.
# Run from the repository root. Finished stages are skipped; a killed run continues with the same command.
#   bash recipes/odsqa/run.sh recipes/odsqa/base.yaml exp/odsqa /data/ODSQA        the published settings (a GPU; see README.md)
#   bash recipes/odsqa/run.sh recipes/odsqa/minisqa-zh.yaml exp/minisqa-zh         the same on synthetic Mandarin (hours of 2 cores)
#   bash recipes/odsqa/run.sh recipes/odsqa/smoke.yaml exp/odsqa-smoke             every stage on almost nothing (some minutes)
#   bash recipes/odsqa/run.sh recipes/odsqa/smoke.yaml exp/odsqa-slice /data/ODSQA  and its readers on a slice of ODSQA, or any part
# Environment:
#   ENGLISH=FOLDER          a prepared English corpus for the zero-shot reader, instead of MiniSQA in English; base.yaml needs one:
#                           speechssl prepare squad SQUAD FOLDER
#   SPEECHSSL_MODELS=FOLDER checkpoints as FOLDER/google-bert/bert-base-chinese, if the hub cannot be reached
set -euo pipefail
. recipes/options.sh
CONFIG=${1:-recipes/odsqa/minisqa-zh.yaml}
EXP=${2:-exp/odsqa}
SOURCE=${3:-}
. recipes/spoken_qa.sh
TRAIN=$(setting train)
READERS="plain pinyin zero-shot"

stage "1 corpus: ODSQA with its companions, or Mandarin of a text generator and espeak-ng"
if [ -n "$(setting synthetic)" ]; then
  speechssl prepare minisqa "$EXP/corpus" $(with corpus)
  speechssl prepare minisqa "$EXP/held-out/corpus" --held-out $(with held-out) # a test of new words and sentences
  if [ -n "$SOURCE" ]; then
    speechssl prepare odsqa "$SOURCE" "$EXP/odsqa" $(with odsqa)
    echo "$CONFIG trains on synthetic Mandarin (MiniSQA) only; on ODSQA its readers are evaluated across corpora"
  fi
elif [ -n "$SOURCE" ]; then
  speechssl prepare odsqa "$SOURCE" "$EXP/corpus" $(with corpus)
  if [ ! -d "$EXP/corpus/$TRAIN" ]; then
    echo "speechssl: $SOURCE has no $TRAIN, which $CONFIG trains on; add it, or evaluate the tests with readers of the" \
      "synthetic corpus: recipes/odsqa/smoke.yaml or minisqa-zh.yaml" >&2
    exit 2
  fi
else
  echo "speechssl: $CONFIG needs ODSQA; give its folder as the third argument (data/odsqa/README.md says where to get it), or take" \
    "the synthetic corpus with recipes/odsqa/minisqa-zh.yaml" >&2
  exit 2
fi
english=${ENGLISH:-}
if [ -z "$english" ] && [ -n "$(setting synthetic)" ]; then
  english=$EXP/corpus-en
  speechssl prepare minisqa "$english" $(with corpus-en)
fi

stage "2 text QA: characters alone, and with their pinyin; English questions only"
for reader in $READERS; do mkdir -p "$EXP/models/$reader"; done
speechssl train text-qa "$EXP/corpus" "$EXP/models/plain/text-qa" --split "$TRAIN" --subwords none $(with text-qa)
speechssl train text-qa "$EXP/corpus" "$EXP/models/pinyin/text-qa" --split "$TRAIN" --subwords pinyin $(with text-qa)
if [ -n "$english" ]; then
  multilingual=$(setting multilingual)
  if [ -z "$multilingual" ]; then
    multilingual=$EXP/multilingual
    python recipes/odsqa/multilingual.py "$multilingual" "$EXP/corpus" "$english" $(with multilingual)
  fi
  speechssl train text-qa "$english" "$EXP/models/zero-shot/text-qa" --text-encoder "$multilingual" $(with zero-shot)
  if [ -n "$(setting both)" ]; then # the same encoder on Chinese questions: what zero-shot falls short of
    READERS="$READERS multilingual"
    mkdir -p "$EXP/models/multilingual"
    speechssl train text-qa "$EXP/corpus" "$EXP/models/multilingual/text-qa" --split "$TRAIN" --text-encoder "$multilingual" \
      $(with zero-shot)
  fi
else
  READERS="plain pinyin"
  echo "left out: the zero-shot reader, which needs a prepared English corpus in ENGLISH"
fi

stage "3 encoder and units: HuBERT, k-means"
if [ -n "$(setting listen)" ]; then
  if [ -n "$(setting pretrain)" ]; then # continue an encoder on Mandarin
    from=$(python recipes/models.py "$(setting pretrain)")
    speechssl pretrain hubert "$EXP/corpus" "$EXP/hubert" --teacher "$from/encoder" --start "$from/encoder" $(with hubert)
    [ -e "$EXP/encoder" ] || ln -s hubert/encoder "$EXP/encoder"
  fi
  [ -d "$EXP/encoder" ] || speechssl convert "$(setting encoder)" "$EXP/encoder" --to huggingface
  for reader in $READERS; do [ -e "$EXP/models/$reader/encoder" ] || ln -s ../../encoder "$EXP/models/$reader/encoder"; done
  speechssl units fit "$EXP/corpus" "$EXP/encoder" "$EXP/models/plain/units.safetensors" --split "$TRAIN" $(with units)
  speechssl units extract "$EXP/corpus" "$EXP/encoder" "$EXP/models/plain/units.safetensors" "$EXP/units" --split "$TRAIN" $(with extract)

  stage "4 DUAL: a text encoder is trained to answer from units"
  speechssl train dual "$EXP/corpus" "$EXP/units" "$EXP/models/plain/dual" --split "$TRAIN" $(with dual)

  stage "5 a CTC head on characters, for the cascade (unless the configuration names other recognisers) and to segment audio words"
  if [[ " $(setting cascades) " == *" cascade-ctc "* ]] || [ -n "$(setting speechbert)" ]; then
    speechssl train ctc "$EXP/corpus" "$EXP/encoder" "$EXP/models/plain/ctc" --split "$TRAIN" $(with ctc)
    if [[ " $(setting cascades) " == *" cascade-ctc "* ]]; then
      speechssl train ngram "$EXP/corpus" "$EXP/encoder" "$EXP/models/plain/ctc" --split "$TRAIN" $(with ngram)
    fi
    for reader in $READERS; do [ -e "$EXP/models/$reader/ctc" ] || ln -s ../plain/ctc "$EXP/models/$reader/ctc"; done
  fi

  stage "6 SpeechBERT: audio characters, read by the text BERT of the cascade"
  if [ -n "$(setting speechbert)" ]; then
    speechssl train speechbert "$EXP/corpus" "$EXP/encoder" "$EXP/models/plain/speechbert" --split "$TRAIN" \
      --ctc "$EXP/models/plain/ctc" --start "$EXP/models/plain/text-qa" $(with speechbert)
  fi
else
  echo "left out: stages 4 to 6, which need recordings (listen: true in $CONFIG)"
fi

stage "7 evaluation, split by split and reader by reader: EXP/SPLIT/READER"
audible() { [ -n "$(setting listen)" ] && ! grep -q '"audio": ""' "$1/passages.jsonl" "$1/questions.jsonl"; }
WHISPERS=$([ -z "$(setting listen)" ] || whispers)
evaluate() { # CORPUS SPLIT SYSTEM THAT READS ...
  audible "$1/$2" || echo "left out: systems that need audio, since $2 is text only (or $CONFIG has no listen: true)"
  for reader in $READERS; do
    spoken=$(! audible "$1/$2" || echo $(setting cascades) $WHISPERS)
    [ "$reader" != plain ] || ! audible "$1/$2" || spoken="dual $([ ! -d "$EXP/models/plain/speechbert" ] || echo speechbert) $spoken"
    speechssl evaluate qa "$1" "$EXP/$2/$reader" --models "$EXP/models/$reader" --split "$2" --systems $spoken "${@:3}" $(with evaluate)
    speechssl report "$EXP/$2/$reader" "$1" --split "$2" $(with report)
  done
}
evaluated=
for split in $(setting splits); do
  if [ ! -d "$EXP/corpus/$split" ]; then
    echo "left out: $SOURCE has no $split"
    continue
  fi
  evaluate "$EXP/corpus" "$split" $(setting written)
  evaluated="$evaluated $split"
done
if [ -d "$EXP/odsqa" ]; then # beside the synthetic corpus
  for split in $(cd "$EXP/odsqa" && ls -d */ | tr -d /); do
    evaluate "$EXP/odsqa" "$split" cascade-given
    evaluated="$evaluated $split"
  done
fi
if [ -n "$(setting synthetic)" ]; then
  for reader in $READERS; do
    speechssl evaluate qa "$EXP/held-out/corpus" "$EXP/held-out/$reader" --models "$EXP/models/$reader" \
      --systems $([ "$reader" != plain ] || echo dual) $(setting cascades) $(setting written) $(with evaluate)
  done
  evaluated="$evaluated held-out"
fi

stage "8 what pinyin is worth: the errors of the CTC head, simulated at several rates, and a paired test at each"
if [ -n "$(setting simulated)" ]; then
  python recipes/minisqa/confusions.py "$EXP/corpus" "$EXP/errors" --models "$EXP/models/plain" $(with confusions)
  for reader in plain pinyin; do
    speechssl evaluate qa "$EXP/corpus" "$EXP/errors/$reader" --models "$EXP/models/$reader" --errors "$EXP/errors/simulated.jsonl" \
      --systems $(setting simulated) $(with simulated)
  done
  speechssl compare "$EXP/errors/plain" "$EXP/errors/pinyin" --out "$EXP/errors/compare" $(with compare)
else
  echo "left out: $CONFIG simulates no errors"
fi

stage "9 tables: all readers; simulated errors"
python recipes/odsqa/tables.py "$EXP" $evaluated
