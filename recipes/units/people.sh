#!/usr/bin/env bash
# Units that people share: a recogniser of phones that has heard people (hama) learns to hear them in noise, and is measured on other people.
# Run from the repository root. Finished stages are skipped; a killed run continues with the same command.
#   PEOPLE=... WORDS=... PRECISE=... FSDD=... KITCHEN=kitchen.wav bash recipes/units/people.sh
# Environment:
#   PEOPLE=FOLDER    sentences: utterances.tsv and audio/ (speechocean762, its train half); every eighth speaker only measures
#   WORDS=FOLDER     words by people (English Consistent Confusion Corpus); trains
#   PRECISE=FOLDER   Precise-Community-Data: amelia and athena train, computer and heychatterbox only measure
#   FSDD=FOLDER      digits: recordings 10 and later train, 5 to 9 are dev, 0 to 4 test
#   KITCHEN=FILE     a recording of noise that no training uses; default: pink noise
#   SPOKEN=FOLDER    speech by synthesisers, a corpus each; default: what recipes/real_questions/textless.sh (stage 2) has made
CONFIG=recipes/units/people.yaml
EXP=exp/units-people
. recipes/common.sh
SPOKEN=${SPOKEN:-exp/real_questions/textless/spoken}
LISTS=$EXP/lists
mkdir -p "$LISTS" "$EXP/quality"

if stage 1 "speech to learn from and to measure on"; then
  [ -n "${PEOPLE:-}" ] || refuse "give PEOPLE, the folder of utterances.tsv and audio/, in the environment"
  python recipes/units/sentences.py "$PEOPLE" "$LISTS" --synthesisers $(setting synthesisers)
  cat "$LISTS/people.txt" > "$EXP/all.txt"
  for source in $(setting passages); do # NAME=N
    [ -d "$SPOKEN/${source%=*}" ] || { echo "left out: $SPOKEN/${source%=*}, which is not there"; continue; }
    python recipes/units/lists.py speech "$LISTS/${source%=*}.txt" "$SPOKEN/${source%=*}" --passages "${source#*=}"
    cat "$LISTS/${source%=*}.txt" >> "$EXP/all.txt"
  done
  if [ -n "${WORDS:-}${PRECISE:-}" ]; then
    [ -f "$EXP/words.txt" ] || python recipes/units/pack.py "$EXP/words.txt" ${WORDS:+"$WORDS"} ${PRECISE:+"$PRECISE/amelia" "$PRECISE/athena"}
    cat "$EXP/words.txt" >> "$EXP/all.txt"
  fi
  if [ -n "${FSDD:-}" ]; then
    [ -f "$EXP/digits.txt" ] || python recipes/units/pack.py "$EXP/digits.txt" "$FSDD" --skip '_[0-9]\.wav$'
    cat "$EXP/digits.txt" >> "$EXP/all.txt"
  fi
  : > "$EXP/all.reference.jsonl" # no parallel readings
  python recipes/units/lists.py repeat "$EXP/speech.txt" "$EXP/all.txt" $(setting copies)
fi

if stage 2 "the recogniser's phones as units, and its student, who hears noise"; then
  [ -f "$EXP/phones.safetensors" ] || python recipes/units/phones.py "$EXP/phones.safetensors"
  $LAUNCH speechssl pretrain phones "$EXP/speech.txt" "$EXP/student" --config "$CONFIG" --stage phones
fi

if stage 3 "measured: people that did not train beside synthesisers, digits, two words"; then
  [ -z "${FSDD:-}${PRECISE:-}" ] || python recipes/units/lists.py measure "$LISTS" "$SPOKEN" ${FSDD:+--fsdd "$FSDD"} ${PRECISE:+--precise "$PRECISE"}
  measure() { # NAME ENCODER CODEBOOK OPTION ...: distances in the lists, and what noise changes in people's sentences
    local list out noise
    for list in "$LISTS"/dev-people.txt "$LISTS"/*.csv; do
      out=$EXP/quality/$1-on-$(basename "$list").json noise=
      [[ $list = *.csv ]] || noise=$(for snr in $(setting noise); do echo "${KITCHEN:-pink}@$snr"; done)
      [ -f "$out" ] || speechssl units evaluate "$list" "$2" "$3" "${@:4}" --out "$out" --noisy "$(setting noisy)" --conditions $noise > /dev/null
    done
  }
  for codebook in units words; do measure "people-en-$codebook" people-en/encoder "people-en/$codebook.safetensors"; done
  measure hama hama:phones "$EXP/phones.safetensors"
  measure every-frame "$EXP/student/encoder" "$EXP/student/units.safetensors"
  measure student "$EXP/student/encoder" "$EXP/student/units.safetensors" --price "$(setting price)"
  python recipes/units/people_table.py "$EXP/quality"
fi

if stage 4 "phones-en, as it lies beside this recipe"; then
  python recipes/units/ship_people.py "$EXP" "$EXP/phones-en"
fi
