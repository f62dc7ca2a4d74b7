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
CONFIG=recipes/odsqa/minisqa-zh.yaml
EXP=exp/odsqa
. recipes/common.sh
TRAIN=$(setting train)
CASCADES=$(setting cascades)
LISTEN=$(setting listen)       # whether there are recordings: else text QA alone is trained
SYNTHETIC=$(setting synthetic) # whether the corpus is Mandarin of a text generator
MODELS=$EXP/models
ENGLISH=${ENGLISH:-${SYNTHETIC:+$EXP/corpus-en}}
READERS="plain pinyin"
[ -z "$ENGLISH" ] || READERS="$READERS zero-shot$([ -z "$(setting both)" ] || echo " multilingual")"
[ -n "$SYNTHETIC$SOURCE" ] || refuse "$CONFIG needs ODSQA; give its folder as the third argument (data/odsqa/README.md says where \
to get it), or take the synthetic corpus with recipes/odsqa/minisqa-zh.yaml"

MULTILINGUAL=$(setting multilingual)
[ -z "$ENGLISH" ] || [ -n "$MULTILINGUAL" ] \
  || refuse "$CONFIG names no multilingual encoder (recipe: multilingual), which the zero-shot reader needs"

if stage 1 "corpus: ODSQA with its companions, or Mandarin of a text generator and espeak-ng"; then
  if [ -n "$SYNTHETIC" ]; then
    speechssl prepare minisqa "$EXP/corpus" --config "$CONFIG" --stage corpus
    speechssl prepare minisqa "$EXP/held-out/corpus" --held-out --config "$CONFIG" --stage held-out # new words and sentences
    speechssl prepare minisqa "$EXP/corpus-en" --config "$CONFIG" --stage corpus-en
    [ -z "$SOURCE" ] || speechssl prepare odsqa "$SOURCE" "$EXP/odsqa" --config "$CONFIG" --stage odsqa # readers across corpora
  else
    speechssl prepare odsqa "$SOURCE" "$EXP/corpus" --config "$CONFIG" --stage corpus
    [ -d "$EXP/corpus/$TRAIN" ] || refuse "$SOURCE has no $TRAIN, which $CONFIG trains on; add it, or evaluate the tests with readers \
of the synthetic corpus: recipes/odsqa/smoke.yaml or minisqa-zh.yaml"
  fi
fi

if stage 2 "text QA: characters alone, and with their pinyin; English questions only"; then
  for reader in $READERS; do mkdir -p "$MODELS/$reader"; done
  $LAUNCH speechssl train text-qa "$EXP/corpus" "$MODELS/plain/text-qa" --split "$TRAIN" --subwords none --config "$CONFIG" --stage text-qa
  $LAUNCH speechssl train text-qa "$EXP/corpus" "$MODELS/pinyin/text-qa" --split "$TRAIN" --subwords pinyin --config "$CONFIG" --stage text-qa
  if [ -n "$ENGLISH" ]; then
    case $MULTILINGUAL in intfloat/multilingual-e5-small) python recipes/fetch.py "${MULTILINGUAL#*/}" ;; esac
    $LAUNCH speechssl train text-qa "$ENGLISH" "$MODELS/zero-shot/text-qa" --text-encoder "$MULTILINGUAL" --config "$CONFIG" --stage zero-shot
    if [ -n "$(setting both)" ]; then # the same encoder on Chinese questions: what zero-shot falls short of
      $LAUNCH speechssl train text-qa "$EXP/corpus" "$MODELS/multilingual/text-qa" --split "$TRAIN" --text-encoder "$MULTILINGUAL" \
        --config "$CONFIG" --stage zero-shot
    fi
  else
    echo "left out: the zero-shot reader, which needs a prepared English corpus in ENGLISH"
  fi
fi

if [ -n "$LISTEN" ]; then
  if stage 3 "encoder and units: HuBERT, k-means"; then
    if [ -n "$(setting pretrain)" ]; then # continue an encoder on Mandarin
      from=$(python recipes/models.py "$(setting pretrain)")
      $LAUNCH speechssl pretrain hubert "$EXP/corpus" "$EXP/hubert" --teacher "$from/encoder" --start "$from/encoder" \
        --config "$CONFIG" --stage hubert
      [ -e "$EXP/encoder" ] || ln -s hubert/encoder "$EXP/encoder"
    fi
    [ -d "$EXP/encoder" ] || speechssl convert "$(setting encoder)" "$EXP/encoder" --to huggingface
    for reader in $READERS; do
      mkdir -p "$MODELS/$reader"
      [ -e "$MODELS/$reader/encoder" ] || ln -s ../../encoder "$MODELS/$reader/encoder"
    done
    speechssl units fit "$EXP/corpus" "$EXP/encoder" "$MODELS/plain/units.safetensors" --split "$TRAIN" --config "$CONFIG" --stage units
    speechssl units extract "$EXP/corpus" "$EXP/encoder" "$MODELS/plain/units.safetensors" "$EXP/units" --split "$TRAIN" \
      --config "$CONFIG" --stage extract
  fi

  if stage 4 "DUAL: a text encoder is trained to answer from units"; then
    $LAUNCH speechssl train dual "$EXP/corpus" "$EXP/units" "$MODELS/plain/dual" --split "$TRAIN" --config "$CONFIG" --stage dual
  fi

  if stage 5 "a CTC head on characters, for the cascade (unless the configuration names other recognisers) and to segment audio words"; then
    if [[ " $CASCADES " == *" cascade-ctc "* ]] || [ -n "$(setting speechbert)" ]; then
      $LAUNCH speechssl train ctc "$EXP/corpus" "$EXP/encoder" "$MODELS/plain/ctc" --split "$TRAIN" --config "$CONFIG" --stage ctc
      for reader in $READERS; do [ -e "$MODELS/$reader/ctc" ] || ln -s ../plain/ctc "$MODELS/$reader/ctc"; done
    fi
    if [[ " $CASCADES " == *" cascade-ctc "* ]]; then
      $LAUNCH speechssl train ngram "$EXP/corpus" "$EXP/encoder" "$MODELS/plain/ctc" --split "$TRAIN" --config "$CONFIG" --stage ngram
    fi
  fi

  if [ -n "$(setting speechbert)" ] && stage 6 "SpeechBERT: audio characters, read by the text BERT of the cascade"; then
    $LAUNCH speechssl train speechbert "$EXP/corpus" "$EXP/encoder" "$MODELS/plain/speechbert" --split "$TRAIN" \
      --ctc "$MODELS/plain/ctc" --start "$MODELS/plain/text-qa" --config "$CONFIG" --stage speechbert
  fi
fi

if stage 7 "evaluation, split by split and reader by reader: EXP/SPLIT/READER"; then
  WHISPERS=$([ -z "$LISTEN" ] || python recipes/whispers.py $(setting whispers))
  evaluate() { # CORPUS SPLIT SYSTEM ...: with every reader. SYSTEM: those that read text; those of speech are added here
    local reader spoken
    for reader in $READERS; do
      spoken= # stays empty where a passage or a question has no recording
      if [ -n "$LISTEN" ] && ! grep -q '"audio": ""' "$1/$2/passages.jsonl" "$1/$2/questions.jsonl"; then
        spoken="$CASCADES $WHISPERS"
        [ "$reader" != plain ] || spoken="dual $([ ! -d "$MODELS/plain/speechbert" ] || echo speechbert) $spoken"
      fi
      speechssl evaluate qa "$1" "$EXP/$2/$reader" --models "$MODELS/$reader" --split "$2" --systems $spoken "${@:3}" \
        --config "$CONFIG" --stage evaluate
      speechssl report "$EXP/$2/$reader" "$1" --split "$2" --config "$CONFIG" --stage report
    done
  }
  for split in $(list_splits); do evaluate "$EXP/corpus" "$split" $(setting written); done
  if [ -d "$EXP/odsqa" ]; then # beside the synthetic corpus
    for folder in "$EXP"/odsqa/*/; do evaluate "$EXP/odsqa" "$(basename "$folder")" cascade-given; done
  fi
  if [ -n "$SYNTHETIC" ]; then
    for reader in $READERS; do
      speechssl evaluate qa "$EXP/held-out/corpus" "$EXP/held-out/$reader" --models "$MODELS/$reader" \
        --systems $([ "$reader" != plain ] || echo dual) $CASCADES $(setting written) --config "$CONFIG" --stage evaluate
    done
  fi
fi

SIMULATED=$(setting simulated)
if [ -n "$SIMULATED" ] && stage 8 "what pinyin is worth: the errors of the CTC head, simulated at several rates, and a paired test at each"; then
  python recipes/minisqa/confusions.py "$EXP/corpus" "$EXP/errors" --models "$MODELS/plain" --config "$CONFIG" --stage confusions
  for reader in plain pinyin; do
    speechssl evaluate qa "$EXP/corpus" "$EXP/errors/$reader" --models "$MODELS/$reader" --errors "$EXP/errors/simulated.jsonl" \
      --systems $SIMULATED --config "$CONFIG" --stage simulated
  done
  speechssl compare "$EXP/errors/plain" "$EXP/errors/pinyin" --out "$EXP/errors/compare" --config "$CONFIG" --stage compare
fi

if stage 9 "tables: all readers; simulated errors"; then
  python recipes/odsqa/tables.py "$EXP" $(cd "$EXP" && ls -d */plain | sed '/^models/d; /^errors/d; s,/plain,,')
fi
