#!/usr/bin/env bash
# What faults do: broken files, kills, full disks, flipped bits; and a manifest of a million lines.
# Run from the repository root. It trains nothing and needs no data.
#   bash recipes/faults/run.sh                                            the published run (an hour and a half of 1 core)
#   bash recipes/faults/run.sh recipes/faults/smoke.yaml exp/faults-smoke the same in minutes, only to show that it runs
set -euo pipefail
. recipes/options.sh
CONFIG=${1:-recipes/faults/base.yaml}
EXP=${2:-exp/faults}
configure
mkdir -p "$EXP"

stage "1 faults: every case of tests/faults, which must all end as they should"
FAULTS=$(setting cases) FAULTS_TABLE=$EXP/faults.md OMP_NUM_THREADS=1 python -m pytest $(setting tests)

stage "2 a manifest of a million lines: planning, sharding, resume, what failed"
python recipes/faults/million.py "$CONFIG" "$EXP/million"

stage "3 the tables: $EXP/faults.md, $EXP/million/million.md"
python -c "import pathlib, sys; print(*(pathlib.Path(p).read_text() for p in sys.argv[1:]), sep='\n')" "$EXP/faults.md" "$EXP/million/million.md"
