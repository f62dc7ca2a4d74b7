# Sourced by every run.sh, which has set CONFIG and EXP to its defaults:
#   bash recipes/NAME/run.sh [CONFIG [EXP [SOURCE]]] [--stage N] [--stop-stage N]
# LAUNCH="torchrun --nproc-per-node 4 --no-python --" trains on several processes.
# `python recipes/usage.py EXP` prints time and memory of the stages.
set -euo pipefail
refuse() { echo "speechssl: $1" >&2; exit 2; }
FIRST=0 LAST=999 LAUNCH=${LAUNCH:-} ARGUMENTS=()
while [ $# -gt 0 ]; do
  case $1 in
    -h | --help)
      for file in "$0" recipes/common.sh; do sed -n '2,/^[^#]/s/^# \{0,1\}//p' "$file"; done
      sed -nE 's/.*stage ([0-9]+) "(.*)".*/  \1 \2/p' "$0"
      exit ;;
    --stage) FIRST=$2; shift 2 ;;
    --stop-stage) LAST=$2; shift 2 ;;
    --*) refuse "$0 has no option $1; see bash $0 --help" ;;
    *) ARGUMENTS+=("$1"); shift ;;
  esac
done
CONFIG=${ARGUMENTS[0]:-$CONFIG} EXP=${ARGUMENTS[1]:-$EXP} SOURCE=${ARGUMENTS[2]:-}
[ -f "$CONFIG" ] || refuse "there is no configuration $CONFIG; give one of $(echo "$(dirname "$0")"/*.yaml)"
SETTINGS=$(python recipes/settings.py "$CONFIG")
export SPEECHSSL_USAGE=$EXP/usage.jsonl SPEECHSSL_STAGE=

stage() { # N TITLE: prints the title of stage N; fails where the stage is not to be run
  [ "$1" -ge "$FIRST" ] && [ "$1" -le "$LAST" ] || return 1
  SPEECHSSL_STAGE="$1 $2"
  echo "== $1 $2"
}
setting() { sed -n "s/^$1 //p" <<< "$SETTINGS"; } # NAME: prints its values in the section `recipe` of CONFIG, if it is set
choose_source() { # NAME: where SOURCE is not given, sets it to an invented miniature of the corpus NAME; refuses a CONFIG without one
  [ -z "$SOURCE" ] || return 0
  grep -q "^miniature:" "$CONFIG" || refuse "$CONFIG needs the published corpus; give its folder as the third argument \
(data/$1/README.md says where to get it), or try the recipe on an invented miniature with $(dirname "$0")/smoke.yaml"
  SOURCE=$EXP/miniature
  python tests/corpora/make.py "$1" "$SOURCE" --config "$CONFIG" --stage miniature
}
list_splits() { # prints the splits of CONFIG that the corpus has, or, where it has none of them, all its splits but train
  local found
  found=$(for split in $(setting splits); do [ ! -d "$EXP/corpus/$split" ] || echo "$split"; done)
  echo "${found:-$(cd "$EXP/corpus" && ls -d */ | sed -n '/^train/d; s,/,,p')}"
}
has_training_set() { # fails where the corpus has no training set, so that readers of the set `shipped` of CONFIG are used; refuses a CONFIG without it
  [ ! -d "$EXP/corpus/train" ] || return 0
  local instead
  instead=$(setting shipped)
  [ -n "$instead" ] || refuse "$SOURCE has no train, which $CONFIG trains on; add it, or try the splits that it has with $(dirname "$0")/smoke.yaml"
  echo "left out: $SOURCE has no train, so nothing is trained; readers are those of $instead, which know little but the English of a generator"
  return 1
}
borrow() { # SET FOLDER [PART ...]: copies a shipped set, or parts of it, into FOLDER where it lacks them
  local part from
  from=$(python recipes/models.py "$1")
  mkdir -p "$2"
  for part in ${3:-$(ls "$from")} "${@:4}"; do [ -e "$2/$part" ] || cp -r "$from/$part" "$2/$part"; done
}
