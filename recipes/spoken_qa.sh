# What the recipes of published spoken-QA corpora have in common; their run.sh, which set CONFIG, EXP and SOURCE, source it.
stage() { echo "== $1"; }
with() { echo "--config $CONFIG --stage $1"; }
setting() { python recipes/settings.py "$CONFIG" "$1"; }

# The corpus as it is published: SOURCE, or the invented miniature where the configuration wants one.
published() { # NAME
  if [ -n "$SOURCE" ]; then
    return
  elif [ -n "$(setting miniature)" ]; then
    SOURCE=$EXP/miniature
    speechssl prepare miniature "$1" "$SOURCE" $(with miniature)
  else
    echo "speechssl: $CONFIG needs the published corpus; give its folder as the third argument (data/$1/README.md says where" \
      "to get it), or try the recipe on an invented miniature with ${CONFIG%/*}/smoke.yaml" >&2
    exit 2
  fi
}

# A folder of models with the encoder of the recipe in it, and with all that a shipped set has where the configuration names one.
models() { # FOLDER
  mkdir -p "$1"
  local shipped
  shipped=$(setting shipped)
  if [ -n "$shipped" ] && [ ! -d "$1/encoder" ]; then
    cp -r "$(python -c "import sys; from speechssl.systems import model_folder; print(model_folder(sys.argv[1]))" "$shipped")/." "$1"
  fi
  [ -e "$1/encoder" ] || ln -s "$(realpath "$EXP/encoder")" "$1/encoder"
}
