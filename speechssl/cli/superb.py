"""`speechssl superb`: the benchmark."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from speechssl.cli.shared import CHECKPOINTS, add_group, add_verb

EXPORT = """hand an encoder to s3prl's own runner

OUT gets the encoder in Hugging Face's format (proven as `speechssl convert` proves it), the published settings of every task of
SUPERB as s3prl's config files, run.sh with the command lines, a README and a card. Nothing is done where it is there already.

  speechssl superb export exp/hubert-2/encoder exp/s3prl
  FLUENT_COMMANDS=/data/fluent_speech_commands_dataset bash exp/s3prl/run.sh ic
"""


def add_superb(verbs: Any) -> None:
    what = add_group(verbs, "superb", "the SUPERB benchmark: small heads on a frozen encoder")
    for add in (_add_export,):
        add(what)


def _add_export(what: Any) -> None:
    verb = add_verb(what, "export", _export, EXPORT)
    verb.add_argument("encoder", help=CHECKPOINTS)
    verb.add_argument("out", type=Path, help="folder to make")


def _export(o: argparse.Namespace) -> None:
    from speechssl.superb.export import export_upstream

    card = export_upstream(o.encoder, o.out)
    print(
        f"{o.out}: {card['made_from']['name']} ({card['made_from']['hash']}) for s3prl's upstreams {', '.join(card['upstreams'])}"
    )
    print(f"bash {o.out}/run.sh {'|'.join(card['tasks'])}")
