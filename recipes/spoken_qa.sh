# Functions for the recipes of published spoken-QA corpora; their run.sh sources options.sh, sets CONFIG, EXP and SOURCE, and
# sources this file.
configure

# The Whisper cascades that the configuration names and this machine has, as systems; the others are left out and named.
whispers() { python recipes/whispers.py $(setting whispers); }

# The published corpus: SOURCE, or the invented miniature if the configuration asks for one.
published() { # NAME
  if [ -n "$SOURCE" ]; then
    return
  elif [ -n "$(setting miniature)" ]; then
    SOURCE=$EXP/miniature
    python tests/corpora/make.py "$1" "$SOURCE" $(with miniature)
  else
    echo "speechssl: $CONFIG needs the published corpus; give its folder as the third argument (data/$1/README.md says where" \
      "to get it), or try the recipe on an invented miniature with $RECIPE/smoke.yaml" >&2
    exit 2
  fi
}

# Whether the corpus has a split; missing splits are left out and named.
has() { # SPLIT
  [ -d "$EXP/corpus/$1" ] || { echo "left out: $SOURCE has no $1"; false; }
}

# The splits to evaluate: those of the configuration, or, if the corpus has none of them, all it has except train.
splits() {
  local split there=
  for split in $(setting splits); do [ ! -d "$EXP/corpus/$split" ] || there=yes; done
  if [ -n "$there" ]; then setting splits; else (cd "$EXP/corpus" && ls -d */) | sed -n '/^train/d; s,/,,p'; fi
}

# Whether there is a split to train on. If not, the shipped small readers replace those that would be trained, if the configuration
# names them (shipped, or stand-in), and the run prints that.
trains() { # WHAT
  [ ! -d "$EXP/corpus/train" ] || return 0
  local instead
  instead=$(setting stand-in)
  instead=${instead:-$(setting shipped)}
  if [ -z "$instead" ]; then
    echo "speechssl: $SOURCE has no train, which $CONFIG trains on; add it, or try the splits that it has with" \
      "$RECIPE/smoke.yaml" >&2
    exit 2
  fi
  echo "left out: $SOURCE has no train, so $1 is not trained; that of $instead is used, which was trained on synthetic English only"
  return 1
}

# Whether the words of the training passages have times, which SpeechBERT and the recogniser that segments its words need.
aligned() {
  grep -qm1 '"words": \[\[' "$EXP/corpus/train/passages.jsonl" 2> /dev/null && return
  echo "left out: SpeechBERT, since no word of the training passages has a time"
  return 1
}

# Copies parts of a shipped set into a folder of models that lacks them.
borrow() { # SET FOLDER PART ...
  local from
  from=$(python recipes/models.py "$1")
  for part in "${@:3}"; do [ -e "$2/$part" ] || cp -r "$from/$part" "$2/$part"; done
}

# Makes a folder of models with the encoder of the recipe, and with the parts of a shipped set if the configuration names one.
models() { # FOLDER
  mkdir -p "$1"
  local shipped
  shipped=$(setting shipped)
  if [ -n "$shipped" ] && [ ! -d "$1/encoder" ]; then
    cp -r "$(python recipes/models.py "$shipped")/." "$1"
  fi
  [ -e "$1/encoder" ] || ln -s "$(realpath "$EXP/encoder")" "$1/encoder"
}
