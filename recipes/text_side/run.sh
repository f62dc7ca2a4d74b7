#!/usr/bin/env bash
# The text side of Hung-yi Lee's lectures: what does a text-pre-trained encoder know that units can use?
# Run from the repository root. Finished stages are skipped; a killed run continues with the same command.
#   bash recipes/text_side/run.sh recipes/text_side/small.yaml exp/text_side texts/      small encoders: some hours of 2 cores
#   bash recipes/text_side/run.sh recipes/text_side/base.yaml exp/text_side texts/       published size: GPUs
#   bash recipes/text_side/run.sh recipes/text_side/smoke.yaml exp/text_side-smoke       almost nothing, to show that it runs
# The third argument is the text: a folder of .txt files (a document each) or a prepared corpus; parts 1, 5, 6 and 7 need it.
# Environment:
#   PARTS="1 5"     only these parts: 1 artificial data, 2 other symbols, 3 the frozen transformer, 4 languages, 5 objectives and
#                   devices, 6 language models of units, 7 loss surfaces; default: those of the configuration
#   SYMBOLS="tasks/h3 tasks/stability"   folders of tasks for part 2 (train.jsonl ... with symbols), beside the configuration's
#   GLUE=FOLDER     GLUE as it is published, a folder a task; adds the tasks that the configuration names to parts 1 and 5
CONFIG=recipes/text_side/small.yaml
EXP=exp/text_side
. recipes/common.sh
HERE=recipes/text_side # the programs of this recipe
PARTS=${PARTS:-$(setting parts)}
SEEDS=$(setting seeds)
START_SEED=${SEEDS%% *} # of the encoders that all seeds of fine-tuning begin from
TEXT=$SOURCE
if [[ -z $TEXT && $PARTS =~ [1567] ]]; then # these parts need a text: invented stories, where the configuration has a miniature
  grep -q "^miniature:" "$CONFIG" || refuse "$CONFIG needs a text: give a folder of .txt files or a prepared corpus as the third \
argument (recipes/text_side/README.md), or try the recipe on invented stories with recipes/text_side/smoke.yaml"
  TEXT=$EXP/text
  python tests/corpora/make.py toefl-qa "$EXP/miniature" --config "$CONFIG" --stage miniature
  speechssl prepare toefl-qa "$EXP/miniature" "$TEXT"
fi
part() { [[ " $PARTS " == *" $1 "* ]]; } # N: whether this part is to run
encoder() { echo "$EXP/encoders/$1/encoder"; } # NAME: prints the folder of an encoder of this recipe

# Fine-tunes an encoder on every sentence task, with every seed.
classify() { # ARM ENCODER [OPTION ...]
  local task seed tasks=("$EXP"/tasks/*/)
  [ -z "${GLUE:-}" ] || for task in $(setting glue); do tasks+=("$GLUE/$task"); done
  for task in "${tasks[@]}"; do
    for seed in $SEEDS; do
      python $HERE/classify.py "$task" "$2" "$EXP" --arm "$1" "${@:3}" --seed "$seed" --config "$CONFIG" --stage classify
    done
  done
}

# Extracts the units of the corpus by an encoder and a codebook that are trained already.
extract_corpus_units() { # SPLIT ...
  mkdir -p "$EXP/models"
  borrow "$(setting models)" "$EXP/models" encoder units.safetensors units.card.json
  local split
  for split in "$@"; do
    speechssl units extract "$EXP/corpus" "$EXP/models/encoder" "$EXP/models/units.safetensors" "$EXP/units" --split "$split"
  done
}

# Trains text QA from one encoder, with one seed. The encoder `scratch` is made here, another one with every seed.
train_text_reader() { # ARM SEED
  local start
  start=$(encoder "$1")
  if [ "$1" = scratch ]; then
    $LAUNCH python $HERE/pretrain.py "$EXP/encoders/scratch-$2" --data none --tokenizer "$(encoder english)" --seed "$2" \
      --config "$CONFIG" --stage scratch
    start=$(encoder "scratch-$2")
  fi
  $LAUNCH speechssl train text-qa "$EXP/corpus" "$EXP/models/text-$1-$2" --text-encoder "$start" --seed "$2" \
    --config "$CONFIG" --stage text-qa
}

# Prints the encoder that a setting names: the folder of one that this recipe made, or the name of any other.
find_encoder() { # SETTING
  local name
  name=$(setting "$1")
  if [ -d "$EXP/encoders/$name" ]; then encoder "$name"; return; fi
  if [ "$name" = english ]; then
    refuse "$1 of $CONFIG is the recipe's own English encoder, which is not in $EXP yet; run part 1 as well: PARTS=\"1 $PARTS\""
  fi
  echo "$name"
}

if [[ $PARTS =~ [1567] ]] && stage 1 "corpus, units, sentence tasks, and an encoder of the text, whose vocabulary all others share"; then
  speechssl prepare minisqa "$EXP/corpus" --config "$CONFIG" --stage corpus
  python $HERE/sentence_tasks.py "$TEXT" "$EXP/tasks" --config "$CONFIG" --stage tasks
  $LAUNCH python $HERE/pretrain.py "$EXP/encoders/english" --text "$TEXT" --seed "$START_SEED" --config "$CONFIG" --stage english
fi

if part 1 && stage 2 "part 1, artificial data: encoders that have only seen brackets, copies, shuffled runs"; then
  for data in $(setting data); do
    $LAUNCH python $HERE/pretrain.py "$EXP/encoders/$data" --data "$data" --text "$TEXT" --tokenizer "$(encoder english)" --seed "$START_SEED" \
      --config "$CONFIG" --stage artificial
  done
fi

if part 1 && stage 3 "part 1, fine-tuning on sentence tasks: from scratch, from artificial data, from English"; then
  classify scratch "$(encoder english)" --assignment scratch
  for arm in $(setting data) $(setting text-arms); do classify "$arm" "$(encoder "$arm")"; done
fi

if part 1 && stage 4 "part 1, text QA"; then
  mkdir -p "$EXP/models"
  for arm in $(setting readers); do
    for seed in $SEEDS; do
      train_text_reader "$arm" "$seed"
      speechssl evaluate qa "$EXP/corpus" "$EXP/answers" --systems text --reader "$EXP/models/text-$arm-$seed" \
        --config "$CONFIG" --stage evaluate
    done
  done
fi

if part 1 && stage 5 "part 1, DUAL on units: how long is the plateau, alone and on top of pre-training on text?"; then
  extract_corpus_units train test
  train_dual() { # ARM ENCODER ASSIGNMENT SEED
    python $HERE/plateau.py "$EXP/corpus" "$EXP/units" "$EXP" --arm "$1" --text-encoder "$2" --assignment "$3" --seed "$4" \
      --config "$CONFIG" --stage dual
  }
  for seed in $SEEDS; do
    for arm in $(setting readers); do
      if [ "$arm" = scratch ]; then train_dual scratch "$(encoder english)" scratch "$seed"
      else train_dual "$arm" "$(encoder "$arm")" most-frequent "$seed"; fi
    done
    for data in $(setting alone); do # small encoders that have seen nothing else, units among it
      $LAUNCH python $HERE/pretrain.py "$EXP/encoders/alone-$data-$seed" --data "$data" --units "$EXP/units" --tokenizer "$(encoder english)" \
        --seed "$seed" --config "$CONFIG" --stage artificial
      train_dual "$data" "$(encoder "alone-$data-$seed")" most-frequent "$seed"
    done
    TEXT_MODEL=$(setting text-encoder)
    if [ -n "$TEXT_MODEL" ]; then
      train_dual text "$TEXT_MODEL" most-frequent "$seed"
      train_dual text.scratch "$TEXT_MODEL" scratch "$seed" # the same shape from random weights
      if [ -n "$(setting plain-mlm)" ]; then # the same shape and vocabulary, pre-trained on the text by MLM alone
        $LAUNCH python $HERE/pretrain.py "$EXP/encoders/mlm-$seed" --text "$TEXT" --start "$TEXT_MODEL" --init default --seed "$seed" \
          --config "$CONFIG" --stage mlm
        train_dual text.mlm "$(encoder "mlm-$seed")" most-frequent "$seed"
      fi
      for data in $(setting warm-up); do # DATA, or DATA/OPTION=VALUE of pretrain.py
        arm=text.${data//[\/=]/.} options=${data#"${data%%/*}"}
        warm=$EXP/encoders/${arm/./-}-$seed
        $LAUNCH python $HERE/pretrain.py "$warm" --data "${data%%/*}" --units "$EXP/units" --start "$TEXT_MODEL" --seed "$seed" \
          --config "$CONFIG" --stage warm \
          ${options//\// --}
        train_dual "$arm" "$warm/encoder" most-frequent "$seed"
      done
    fi
  done
fi

if part 2 && stage 6 "part 2, BERT on other symbols: DNA, proteins, music; from four starts"; then
  BERT=$(find_encoder symbol-encoder)
  tasks=()
  for kind in $(setting symbols); do
    python $HERE/symbols.py "$kind" "$EXP/symbols/$kind" --config "$CONFIG" --stage symbols
    tasks+=("$EXP/symbols/$kind")
  done
  for task in "${tasks[@]}" ${SYMBOLS:-}; do
    specific=$EXP/encoders/symbols-${task##*/}
    $LAUNCH python $HERE/pretrain.py "$specific" --data symbols --symbols "$task" --seed "$START_SEED" \
      --config "$CONFIG" --stage specific
    for seed in $SEEDS; do
      classify_symbols() { # ARM ENCODER ASSIGNMENT
        python $HERE/classify.py "$task" "$2" "$EXP" --arm "$1" --assignment "$3" --seed "$seed" \
          --config "$CONFIG" --stage classify-symbols
      }
      classify_symbols specific "$specific/encoder" own
      classify_symbols bert "$BERT" random
      classify_symbols re-emb "$BERT" re-init
      classify_symbols random "$BERT" scratch
    done
  done
fi

if part 3 && stage 7 "part 3, the frozen pre-trained transformer: bits, expressions, images"; then
  FROZEN=$(find_encoder frozen-encoder)
  for task in $(setting frozen-tasks); do
    for seed in $SEEDS; do
      compute() { # ARM [OPTION ...]
        python $HERE/compute.py "$task" "$FROZEN" "$EXP" --arm "$1" "${@:2}" --seed "$seed" \
          --config "$CONFIG" --stage "compute-$(basename "$task" .npz)"
      }
      compute frozen
      compute statistics --init statistics
      compute default --init default
      compute full --trained all --learning-rates $(setting full-rates) # the others' rate suits few weights
    done
  done
fi

if part 4 && stage 8 "part 4, one space for languages: bilingual encoders, with and without shared symbols, with less data, of other depth"; then
  speechssl prepare minisqa "$EXP/corpus" --config "$CONFIG" --stage corpus
  speechssl prepare minisqa "$EXP/corpus-zh" --language zh --config "$CONFIG" --stage corpus
  make_bilingual() { # ARM SEED: an encoder of both languages, and how near it has words and their translations
    local letters=() lexicon=() second=$EXP/corpus-zh
    case $1 in
      pinyin) letters=(--letters pinyin) ;; # Mandarin in Latin letters: symbols are shared
      copy) letters=(--letters apart) lexicon=(--lexicon same) second=$EXP/corpus ;; # English twice, no symbol shared
    esac
    $LAUNCH python $HERE/pretrain.py "$EXP/encoders/$1-$2" --text "$EXP/corpus" --second-text "$second" "${letters[@]}" --seed "$2" \
      --config "$CONFIG" --stage "$1"
    python $HERE/align.py "$EXP/corpus" "$second" "$(encoder "$1-$2")" "$EXP" --arm "$1" "${letters[@]}" "${lexicon[@]}" --seed "$2" \
      --config "$CONFIG" --stage align
  }
  for seed in $SEEDS; do
    for arm in $(setting languages); do make_bilingual "$arm" "$seed"; done
    $LAUNCH python $HERE/pretrain.py "$EXP/encoders/random-weights-$seed" --data none --tokenizer "$(encoder "bilingual-$seed")" --seed "$seed" \
      --config "$CONFIG" --stage scratch
    python $HERE/align.py "$EXP/corpus" "$EXP/corpus-zh" "$(encoder "random-weights-$seed")" "$EXP" --arm random-weights --seed "$seed" \
      --config "$CONFIG" --stage align
    python $HERE/translate.py "$EXP/corpus" "$EXP/corpus-zh" "$(encoder "bilingual-$seed")" "$EXP" --arm bilingual --seed "$seed" \
      --config "$CONFIG" --stage translate
  done
  for name in $(setting multilingual); do
    case $name in intfloat/multilingual-e5-small) python recipes/fetch.py "${name#*/}" ;; esac
    python $HERE/align.py "$EXP/corpus" "$EXP/corpus-zh" "$name" "$EXP" --arm "${name##*/}" --config "$CONFIG" --stage align
  done
fi

if part 4 && stage 9 "part 4, question answering from English to Mandarin, as it is and with shifts"; then
  mkdir -p "$EXP/models"
  ask() { # ARM SEED [OPTION ...]: on Mandarin
    speechssl evaluate qa "$EXP/corpus-zh" "$EXP/answers-zh" --systems text --reader "$EXP/models/text-$1-$2" "${@:3}" \
      --config "$CONFIG" --stage evaluate
  }
  write_vector() { # FILE FIRST SECOND ENCODER [OPTION ...]
    python $HERE/vector.py "$2" "$3" "$4" "$1" "${@:5}" --config "$CONFIG" --stage vector
  }
  transfer() { # NAME ENCODER SEED LAYER SECTION: a reader of English is asked in Mandarin, as it is and with both shifts
    local name=$1 start=$2 seed=$3 layer=(--layer "$4") section=$5 shifts=$EXP/shifts/$1-$3
    read_text() { # ARM CORPUS [OPTION ...]
      $LAUNCH speechssl train text-qa "$2" "$EXP/models/text-$1-$seed" --text-encoder "$start" --seed "$seed" "${@:3}" \
        --config "$CONFIG" --stage "$section"
    }
    read_text "$name" "$EXP/corpus"
    speechssl evaluate qa "$EXP/corpus" "$EXP/answers" --systems text --reader "$EXP/models/text-$name-$seed" \
      --config "$CONFIG" --stage evaluate
    ask "$name" "$seed"
    write_vector "$shifts/mean-difference.safetensors" "$EXP/corpus" "$EXP/corpus-zh" "$EXP/models/text-$name-$seed" "${layer[@]}"
    ask "$name" "$seed" --shift "$shifts/mean-difference.safetensors"
    write_vector "$shifts/en/zero-mean.safetensors" "$EXP/corpus-zh" "$EXP/corpus" "$start" --method zero-mean "${layer[@]}"
    read_text "$name.zero-mean" "$EXP/corpus" --shift "$shifts/en/zero-mean.safetensors"
    write_vector "$shifts/zero-mean.safetensors" "$EXP/corpus" "$EXP/corpus-zh" "$EXP/models/text-$name.zero-mean-$seed" --method zero-mean "${layer[@]}"
    ask "$name.zero-mean" "$seed" --shift "$shifts/zero-mean.safetensors"
    [ "$name" = bilingual ] && name=mandarin || name=mandarin.$name # what training on Mandarin gives
    read_text "$name" "$EXP/corpus-zh"
    ask "$name" "$seed"
  }
  for seed in $SEEDS; do
    [[ " $(setting languages) " != *" bilingual "* ]] || transfer bilingual "$(encoder "bilingual-$seed")" "$seed" "$(setting shift-layer)" text-qa
    for name in $(setting multilingual); do transfer "${name##*/}" "$name" "$seed" "$(setting multilingual-shift-layer)" multilingual-text-qa; done
  done
fi

if part 4 && stage 10 "part 4, the step to speech: units of English and Mandarin in one encoder"; then
  extract_corpus_units train
  speechssl units extract "$EXP/corpus-zh" "$EXP/models/encoder" "$EXP/models/units.safetensors" "$EXP/units-zh" --split train
  UNITS=(--units "$EXP/units" --second-units "$EXP/units-zh")
  for seed in $SEEDS; do
    $LAUNCH python $HERE/pretrain.py "$EXP/encoders/units-$seed" --data units "${UNITS[@]}" --seed "$seed" \
      --config "$CONFIG" --stage unit-mlm
    $LAUNCH python $HERE/pretrain.py "$EXP/encoders/units-random-$seed" --data none --tokenizer "$(encoder "units-$seed")" --seed "$seed" \
      --config "$CONFIG" --stage scratch
    for arm in units units-random; do
      python $HERE/align.py "$EXP/corpus" "$EXP/corpus-zh" "$(encoder "$arm-$seed")" "$EXP" --arm "$arm" "${UNITS[@]}" --seed "$seed" \
        --config "$CONFIG" --stage align
    done
  done
fi

if part 5 && stage 11 "part 5, objectives: the same text and steps, something else to predict"; then
  for objective in $(setting objectives); do
    $LAUNCH python $HERE/pretrain.py "$EXP/encoders/$objective" --text "$TEXT" --objective "$objective" --tokenizer "$(encoder english)" --seed "$START_SEED" \
      --config "$CONFIG" --stage objective
    classify "$objective" "$(encoder "$objective")"
  done
  if ! part 1; then # which has made these
    classify scratch "$(encoder english)" --assignment scratch
    classify english "$(encoder english)"
  fi
fi

if part 5 && stage 12 "part 5, devices: few weights are trained, of readers of units and of words, and of a speech encoder with its head"; then
  extract_corpus_units train test
  DEVICES=$EXP/devices START=$(find_encoder device-encoder) SPEECH=$(setting models)
  mkdir -p "$DEVICES/readers"
  train_readers() { # ARM DEVICE ENCODER SEED: of units and of words
    local start=(--trained "$2" --text-encoder "$3" --seed "$4") reader=$DEVICES/readers/text-$1-$4
    python $HERE/plateau.py "$EXP/corpus" "$EXP/units" "$DEVICES" --arm "$1" "${start[@]}" --config "$CONFIG" --stage dual
    $LAUNCH speechssl train text-qa "$EXP/corpus" "$reader" "${start[@]}" --config "$CONFIG" --stage text-qa
    speechssl evaluate qa "$EXP/corpus" "$DEVICES/answers" --systems text --reader "$reader" --config "$CONFIG" --stage evaluate
  }
  for init in $(setting frozen-inits); do # the frozen transformer of part 3 as a reader, beside the device `frozen`
    for seed in $SEEDS; do
      $LAUNCH python $HERE/pretrain.py "$EXP/encoders/$init-$seed" --data none --start "$START" --init "$init" --seed "$seed"
      train_readers "frozen.$init" frozen "$(encoder "$init-$seed")" "$seed"
    done
  done
  python recipes/superb/minisuperb.py "$DEVICES/sets" --config "$CONFIG" --stage sets
  for device in $(setting devices); do
    for seed in $SEEDS; do train_readers "$device" "$device" "$START" "$seed"; done
    case $device in
      weighted-sum) speechssl superb run "$DEVICES/superb" --data "$DEVICES/sets" --encoders "$SPEECH" --seed $SEEDS \
        --config "$CONFIG" --stage superb ;;
      all | frozen | biases | adapters | lora)
        speechssl superb run "$DEVICES/superb" --data "$DEVICES/sets" --encoders "$SPEECH" --seed $SEEDS --finetune --trained "$device" \
          --config "$CONFIG" --stage superb ;;
    esac
  done
  python $HERE/devices.py "$EXP"
fi

if part 6 && stage 13 "part 6, language models of units: from a language model of text, and from scratch"; then
  extract_corpus_units train dev test
  python $HERE/spoken_words.py "$EXP/corpus" "$EXP/words" --config "$CONFIG" --stage words
  speechssl units extract "$EXP/words/words.jsonl" "$EXP/models/encoder" "$EXP/models/units.safetensors" "$EXP/word-units"
  GPT=$(setting language-model)
  if [ -z "$GPT" ]; then # of the same text as the encoders, with their vocabulary
    $LAUNCH python $HERE/pretrain.py "$EXP/encoders/gpt" --text "$TEXT" --objective causal --tokenizer "$(encoder english)" --seed "$START_SEED" \
      --config "$CONFIG" --stage gpt
    GPT=$(encoder gpt)
  fi
  probe() { # MODEL ARM
    python $HERE/probe.py "$1" "$EXP/units" "$EXP" --arm "$2" --spoken-words "$EXP/words" --word-units "$EXP/word-units" \
      --config "$CONFIG" --stage probe
  }
  for seed in $SEEDS; do
    for arm in text scratch; do
      lm=$EXP/models/lm-$arm-$seed rows=re-init
      [ "$arm" = text ] || rows=scratch
      python $HERE/unit_lm.py "$EXP/units" "$lm" --start "$GPT" --assignment $rows --eval-split dev --seed "$seed" \
        --config "$CONFIG" --stage unit-lm
      probe "$lm" "$arm"
    done
  done
  probe bigram bigram
fi

if part 7 && stage 14 "part 7, loss surfaces around readers of units and of words, from scratch and from text"; then
  extract_corpus_units train dev
  measure_around() { # READER ARM [OPTION ...]
    python $HERE/surface.py "$EXP/corpus" "$1" "$EXP" --arm "$2" "${@:3}" --config "$CONFIG" --stage surface
  }
  train_reader() { # ARM ENCODER ASSIGNMENT SEED
    $LAUNCH speechssl train dual "$EXP/corpus" "$EXP/units" "$EXP/models/dual-$1-$4" --text-encoder "$2" --assignment "$3" --seed "$4" \
      --config "$CONFIG" --stage reader
    measure_around "$EXP/models/dual-$1-$4" "$1" --units "$EXP/units"
  }
  TEXT_MODEL=$(setting surface-encoder)
  for seed in $SEEDS; do
    train_reader scratch "$(encoder english)" scratch "$seed"
    train_reader english "$(encoder english)" most-frequent "$seed"
    [ -z "$TEXT_MODEL" ] || train_reader text "$TEXT_MODEL" most-frequent "$seed"
    for arm in scratch english; do
      train_text_reader "$arm" "$seed"
      measure_around "$EXP/models/text-$arm-$seed" "$arm"
    done
  done
fi

if stage 15 "gains, and the page"; then
  ANSWERS=()
  for folder in "$EXP/answers" "$EXP/answers-zh"; do [ ! -d "$folder" ] || ANSWERS+=("$folder"); done
  [ ${#ANSWERS[@]} = 0 ] || ANSWERS=(--answers "${ANSWERS[@]}")
  python $HERE/gains.py "$EXP" "${ANSWERS[@]}"
  python $HERE/page.py "$EXP"
fi
