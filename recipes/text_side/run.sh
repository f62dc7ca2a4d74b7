#!/usr/bin/env bash
# The text side of the lectures: what does a text-pre-trained encoder know that units can use?
# Run from the repository root. Finished stages are skipped; a killed run continues with the same command.
#   bash recipes/text_side/run.sh recipes/text_side/small.yaml exp/text_side texts/      small encoders: some hours of 2 cores
#   bash recipes/text_side/run.sh recipes/text_side/base.yaml exp/text_side texts/       published size: GPUs
#   bash recipes/text_side/run.sh recipes/text_side/smoke.yaml exp/text_side-smoke       almost nothing, to show that it runs
# The third argument is the text: a folder of .txt files (a document each) or a prepared corpus; it is needed for parts 1 and 5.
# Environment:
#   PARTS="1 5"     only these parts: 1 artificial data, 3 the frozen transformer, 4 languages, 5 objectives; default: those of the
#                   configuration
#   GLUE=FOLDER     GLUE as it is published, a folder a task; adds the tasks that the configuration names to parts 1 and 5
set -euo pipefail
. recipes/options.sh
CONFIG=${1:-recipes/text_side/small.yaml}
EXP=${2:-exp/text_side}
SOURCE=${3:-}
. recipes/spoken_qa.sh
PARTS=${PARTS:-$(setting parts)}
SEEDS=$(setting seeds)
part() { [[ " $PARTS " == *" $1 "* ]]; }
encoder() { echo "$EXP/encoders/$1/encoder"; }

# Fine-tune on every sentence task from one start, with every seed.
classify() { # ARM ENCODER [OPTION ...]
  local task seed
  for task in "$EXP"/tasks/*/ $( [ -z "${GLUE:-}" ] || setting glue | tr ' ' '\n' | sed "s,^,$GLUE/,"); do
    for seed in $SEEDS; do
      speechssl text classify "$task" "$2" "$EXP" --arm "$1" "${@:3}" --seed "$seed" $(with classify)
    done
  done
}

if part 1 || part 5; then
  TEXT=$SOURCE
  if [ -z "$TEXT" ] && [ -n "$(setting miniature)" ]; then # invented stories
    TEXT=$EXP/text
    speechssl prepare miniature toefl-qa "$EXP/miniature" $(with miniature)
    speechssl prepare toefl-qa "$EXP/miniature" "$TEXT"
  elif [ -z "$TEXT" ]; then
    echo "speechssl: $CONFIG needs a text: give a folder of .txt files or a prepared corpus as the third argument" \
      "(recipes/text_side/README.md), or try the recipe on invented stories with recipes/text_side/smoke.yaml" >&2
    exit 2
  fi
  stage "1 corpus, units, sentence tasks, and an encoder of the text, whose vocabulary all others share"
  speechssl prepare minisqa "$EXP/corpus" $(with corpus)
  speechssl prepare sentence-tasks "$TEXT" "$EXP/tasks" $(with tasks)
  speechssl pretrain text "$EXP/encoders/english" --text "$TEXT" $(with english)
fi

if part 1; then
  stage "2 part 1, artificial data: encoders that have only seen brackets, copies, shuffled runs"
  for data in $(setting data); do
    speechssl pretrain text "$EXP/encoders/$data" --data "$data" --text "$TEXT" --tokenizer "$(encoder english)" $(with artificial)
  done
  stage "3 part 1, fine-tuning on sentence tasks: from scratch, from artificial data, from English"
  classify scratch "$(encoder english)" --assignment scratch
  for arm in $(setting data) $(setting text-arms); do classify "$arm" "$(encoder "$arm")"; done

  stage "4 part 1, text QA"
  mkdir -p "$EXP/models"
  for arm in $(setting readers); do
    for seed in $SEEDS; do
      start=$(encoder "$arm")
      if [ "$arm" = scratch ]; then
        speechssl pretrain text "$EXP/encoders/scratch-$seed" --data none --tokenizer "$(encoder english)" --seed "$seed" $(with scratch)
        start=$(encoder "scratch-$seed")
      fi
      reader=$EXP/models/text-$arm-$seed
      speechssl train text-qa "$EXP/corpus" "$reader" --text-encoder "$start" --seed "$seed" $(with text-qa)
      speechssl evaluate qa "$EXP/corpus" "$EXP/answers" --systems text --reader "$reader" $(with evaluate)
    done
  done

  stage "5 part 1, DUAL on units: how long is the plateau, alone and on top of pre-training on text?"
  borrow "$(setting models)" "$EXP/models" encoder units.safetensors units.card.json
  for split in train test; do
    speechssl units extract "$EXP/corpus" "$EXP/models/encoder" "$EXP/models/units.safetensors" "$EXP/units" --split "$split"
  done
  plateau() { # ARM ENCODER ASSIGNMENT SEED
    speechssl text plateau "$EXP/corpus" "$EXP/units" "$EXP" --arm "$1" --text-encoder "$2" --assignment "$3" --seed "$4" $(with dual)
  }
  for seed in $SEEDS; do
    for arm in $(setting readers); do
      if [ "$arm" = scratch ]; then plateau scratch "$(encoder english)" scratch "$seed"
      else plateau "$arm" "$(encoder "$arm")" most-frequent "$seed"; fi
    done
    TEXT_MODEL=$(setting text-encoder)
    if [ -n "$TEXT_MODEL" ]; then
      plateau text "$TEXT_MODEL" most-frequent "$seed"
      for data in $(setting warm-up); do
        warm=$EXP/encoders/text-$data-$seed
        speechssl pretrain text "$warm" --data "$data" --units "$EXP/units" --start "$TEXT_MODEL" --seed "$seed" $(with warm)
        plateau "text.$data" "$warm/encoder" most-frequent "$seed"
      done
    fi
  done
fi

if part 3; then
  stage "6 part 3, the frozen pre-trained transformer: bits, expressions, images"
  FROZEN=$(setting frozen-encoder)
  [ ! -d "$EXP/encoders/$FROZEN" ] || FROZEN=$(encoder "$FROZEN") # one that this recipe made
  for task in $(setting frozen-tasks); do
    for seed in $SEEDS; do
      compute() { # ARM [OPTION ...]
        speechssl text compute "$task" "$FROZEN" "$EXP" --arm "$1" "${@:2}" --seed "$seed" $(with "compute-${task##*/}")
      }
      compute frozen
      compute statistics --init statistics
      compute default --init default
      compute full --trained all
    done
  done
fi

if part 5; then
  stage "7 part 5, objectives: the same text and steps, something else to predict"
  for objective in $(setting objectives); do
    speechssl pretrain text "$EXP/encoders/$objective" --text "$TEXT" --objective "$objective" --tokenizer "$(encoder english)" $(with objective)
    classify "$objective" "$(encoder "$objective")"
  done
  if ! part 1; then # which has made these
    classify scratch "$(encoder english)" --assignment scratch
    classify english "$(encoder english)"
  fi
fi

if part 4; then
  stage "8 part 4, one space for languages: bilingual encoders, with and without shared symbols, with less data, of other depth"
  speechssl prepare minisqa "$EXP/corpus" $(with corpus)
  speechssl prepare minisqa "$EXP/corpus-zh" --language zh $(with corpus)
  bilingual() { # ARM SEED: an encoder of both languages, and how near it has words and their translations
    local letters=() lexicon=() second=$EXP/corpus-zh
    case $1 in
      pinyin) letters=(--letters pinyin) ;; # Mandarin in Latin letters: symbols are shared
      copy) letters=(--letters apart) lexicon=(--lexicon same) second=$EXP/corpus ;; # English twice, no symbol shared
    esac
    speechssl pretrain text "$EXP/encoders/$1-$2" --text "$EXP/corpus" --second-text "$second" "${letters[@]}" --seed "$2" $(with "$1")
    speechssl text align "$EXP/corpus" "$second" "$(encoder "$1-$2")" "$EXP" --arm "$1" "${letters[@]}" "${lexicon[@]}" --seed "$2" $(with align)
  }
  for seed in $SEEDS; do
    for arm in $(setting languages); do bilingual "$arm" "$seed"; done
    speechssl pretrain text "$EXP/encoders/random-weights-$seed" --data none --tokenizer "$(encoder "bilingual-$seed")" --seed "$seed" $(with scratch)
    speechssl text align "$EXP/corpus" "$EXP/corpus-zh" "$(encoder "random-weights-$seed")" "$EXP" --arm random-weights --seed "$seed" $(with align)
    speechssl text translate "$EXP/corpus" "$EXP/corpus-zh" "$(encoder "bilingual-$seed")" "$EXP" --arm bilingual --seed "$seed" $(with translate)
  done
  for name in $(setting multilingual); do
    case $name in intfloat/multilingual-e5-small) speechssl models get "${name#*/}" ;; esac
    speechssl text align "$EXP/corpus" "$EXP/corpus-zh" "$name" "$EXP" --arm "${name##*/}" $(with align)
  done

  stage "9 part 4, question answering from English to Mandarin, as it is and with shifts"
  mkdir -p "$EXP/models"
  ask() { # ARM SEED [OPTION ...]: on Mandarin
    speechssl evaluate qa "$EXP/corpus-zh" "$EXP/answers-zh" --systems text --reader "$EXP/models/text-$1-$2" "${@:3}" $(with evaluate)
  }
  read_english() { # ARM SEED CORPUS [OPTION ...]
    speechssl train text-qa "$3" "$EXP/models/text-$1-$2" --text-encoder "$(encoder "bilingual-$2")" --seed "$2" "${@:4}" $(with text-qa)
  }
  vector() { # FILE FIRST SECOND ENCODER [OPTION ...]
    speechssl text vector "$2" "$3" "$4" "$1" --layer "$(setting shift-layer)" "${@:5}" $(with vector)
  }
  for seed in $SEEDS; do
    shifts=$EXP/shifts/$seed
    read_english bilingual "$seed" "$EXP/corpus"
    speechssl evaluate qa "$EXP/corpus" "$EXP/answers" --systems text --reader "$EXP/models/text-bilingual-$seed" $(with evaluate)
    ask bilingual "$seed"
    vector "$shifts/mean-difference.safetensors" "$EXP/corpus" "$EXP/corpus-zh" "$EXP/models/text-bilingual-$seed"
    ask bilingual "$seed" --shift "$shifts/mean-difference.safetensors"
    vector "$shifts/en/zero-mean.safetensors" "$EXP/corpus-zh" "$EXP/corpus" "$(encoder "bilingual-$seed")" --method zero-mean
    read_english bilingual.zero-mean "$seed" "$EXP/corpus" --shift "$shifts/en/zero-mean.safetensors"
    vector "$shifts/zero-mean.safetensors" "$EXP/corpus" "$EXP/corpus-zh" "$EXP/models/text-bilingual.zero-mean-$seed" --method zero-mean
    ask bilingual.zero-mean "$seed" --shift "$shifts/zero-mean.safetensors"
    read_english mandarin "$seed" "$EXP/corpus-zh" # what training on Mandarin gives
    ask mandarin "$seed"
  done

  stage "10 part 4, the step to speech: units of English and Mandarin in one encoder"
  borrow "$(setting models)" "$EXP/models" encoder units.safetensors units.card.json
  for language in "" -zh; do
    speechssl units extract "$EXP/corpus$language" "$EXP/models/encoder" "$EXP/models/units.safetensors" "$EXP/units$language" --split train
  done
  UNITS=(--units "$EXP/units" --second-units "$EXP/units-zh")
  for seed in $SEEDS; do
    speechssl pretrain text "$EXP/encoders/units-$seed" --data units "${UNITS[@]}" --seed "$seed" $(with unit-mlm)
    speechssl pretrain text "$EXP/encoders/units-random-$seed" --data none --tokenizer "$(encoder "units-$seed")" --seed "$seed" $(with scratch)
    for arm in units units-random; do
      speechssl text align "$EXP/corpus" "$EXP/corpus-zh" "$(encoder "$arm-$seed")" "$EXP" --arm "$arm" "${UNITS[@]}" --seed "$seed" $(with align)
    done
  done
fi

stage "11 gains, and the page"
ANSWERS=()
for folder in "$EXP/answers" "$EXP/answers-zh"; do [ ! -d "$folder" ] || ANSWERS+=("$folder"); done
[ ${#ANSWERS[@]} = 0 ] || ANSWERS=(--answers "${ANSWERS[@]}")
speechssl text gains "$EXP" "${ANSWERS[@]}"
speechssl report "$EXP"
