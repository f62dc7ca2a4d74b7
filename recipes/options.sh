# What every run.sh takes, and sources this file for, before it reads CONFIG, EXP and SOURCE; `configure` follows when these are set.
# Stages are lines `stage "N what it does"`. Of those before --stage the commands are passed over, and what they made earlier is used.
RECIPE_STAGES='s/^ *(stage|step [a-z]+) +"(.*)"$/  \2/p'
usage() {
  sed -n '2,/^[^#]/{s/^# \{0,1\}//p;}' "$0"
  cat << TEXT

Options, before or behind the arguments:
  --stage N             begin with stage N: what the stages before it made is used
  --stop-stage N        end after stage N
  --set SECTION.NAME=VALUE   another value in the configuration, such as dual.learning-rate=1e-5; as often as you like
  --help                this text
Variables:
  LAUNCH                what starts pretrain and train on several processes, such as "torchrun --nproc-per-node 4"
EXP/usage.jsonl gets time, memory and disk of every command; \`python recipes/usage.py EXP\` prints them by stage.

Stages:
TEXT
  sed -nE "$RECIPE_STAGES" "$0"
}

GIVEN=("$@")
refuse() { echo "speechssl: $1" >&2; exit 2; }
FIRST=0 LAST=999 SKIPPED='' STAGE=0 SETTINGS=() ARGUMENTS=()
while [ $# -gt 0 ]; do
  case $1 in
    -h | --help) usage; exit ;;
    --stage=* | --stop-stage=* | --set=*) set -- "${1%%=*}" "${1#*=}" "${@:2}" ;;
    --stage | --stop-stage)
      [[ ${2:-} =~ ^[0-9]+$ ]] || refuse "$1 takes the number of a stage; \`bash $0 --help\` lists them"
      if [ "$1" = --stage ]; then FIRST=$2; else LAST=$2; fi
      shift 2 ;;
    --set)
      [[ ${2:-} == *.*=* ]] || refuse "--set takes SECTION.NAME=VALUE, such as dual.learning-rate=1e-5"
      SETTINGS+=("$2")
      shift 2 ;;
    --*) refuse "$0 has no option $1; \`bash $0 --help\` lists them" ;;
    *) ARGUMENTS+=("$1"); shift ;;
  esac
done
set -- ${ARGUMENTS[@]+"${ARGUMENTS[@]}"}
STAGES=$(sed -nE "$RECIPE_STAGES" "$0" | grep -oE '^ +[0-9]+' | tail -n 1 | tr -d ' ' || true)
[ "$FIRST" -le "${STAGES:-$FIRST}" ] || refuse "--stage $FIRST is behind the last stage, $STAGES; \`bash $0 --help\` lists them"
[ "$FIRST" -le "$LAST" ] || refuse "--stage $FIRST is behind --stop-stage $LAST; give them in their order"
type -P speechssl > /dev/null \
  || refuse "the command is not on the PATH; run \`make .venv/ready\` and \`source .venv/bin/activate\` first"

# After CONFIG and EXP are set: the configuration with what --set changes, in EXP/config.yaml; and what it sets of the recipe itself.
configure() {
  export SPEECHSSL_USAGE=$EXP/usage.jsonl
  RECIPE=${CONFIG%/*}
  [ -f "$CONFIG" ] || refuse "there is no configuration $CONFIG; give one of $(echo "$(dirname "$0")"/*.yaml)"
  if [ ${#SETTINGS[@]} -gt 0 ]; then
    command python recipes/settings.py "$CONFIG" --set "$EXP/config.yaml" "${SETTINGS[@]}" || exit 2
    CONFIG=$EXP/config.yaml
  fi
  CONFIGURED=$CONFIG
  VALUES=$(command python recipes/settings.py "$CONFIG")
  # small commands spend their time on imports: of a configuration with `forked` they are forks of one process
  if [ "$(setting forked)" = True ] && [ "$(uname)" = Linux ] && [[ $(type -P speechssl) != */preloaded-*/* ]]; then
    exec python recipes/preloaded.py "$0" ${GIVEN[@]+"${GIVEN[@]}"}
  fi
}

stage() { # "N what it does"
  if [[ $1 =~ ^[0-9]+ ]]; then STAGE=${BASH_REMATCH[0]}; fi
  if [ "$STAGE" -gt "$LAST" ]; then
    echo "== stopped before stage $1"
    exit 0
  fi
  export SPEECHSSL_STAGE=$1
  if [ "$STAGE" -lt "$FIRST" ]; then SKIPPED=yes; else SKIPPED=''; fi
  echo "== $1${SKIPPED:+ (passed over)}"
}
with() { echo "--stage $1"; } # speechssl and python add the --config that this needs, whose path may have blanks
setting() { # NAME: its values on one line; nothing where it is not set
  local values=$VALUES
  [ "$CONFIG" = "$CONFIGURED" ] || values=$(command python recipes/settings.py "$CONFIG")
  sed -n "s/^$1 //p" <<< "$values"
}

speechssl() {
  [ -z "$SKIPPED" ] || return 0
  [[ " $* " != *" --stage "* ]] || set -- "$@" --config "$CONFIG"
  case $1 in
    pretrain | train) if [ -n "${LAUNCH:-}" ]; then $LAUNCH -m -- speechssl "$@"; else command speechssl "$@"; fi ;;
    *) command speechssl "$@" ;;
  esac
}
python() {
  [[ " $* " != *" --stage "* ]] || set -- "$@" --config "$CONFIG"
  case "${SKIPPED:+passed over}$1" in
    *recipes/settings.py | *recipes/models.py | *-c) command python "$@" ;;
    passed*) return 0 ;;
    */pretrain.py) if [ -n "${LAUNCH:-}" ]; then $LAUNCH -- "$@"; else command python "$@"; fi ;;
    *) command python "$@" ;;
  esac
}
bash() { [ -n "$SKIPPED" ] || command bash "$@"; }
