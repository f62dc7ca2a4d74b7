"""`speechssl superb export`: its options."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from speechssl.config import CHECKPOINTS, argument


@dataclass(frozen=True, kw_only=True)
class Export:
    """export an encoder for s3prl's own runner of SUPERB

    OUT gets the encoder in Hugging Face's format (verified as `speechssl convert` does), the published settings of every task of
    SUPERB as s3prl's config files, run.sh with the command lines, a README and a card. Finished work is kept.

      speechssl superb export exp/hubert-2/encoder exp/s3prl
      FLUENT_COMMANDS=/data/fluent_speech_commands_dataset bash exp/s3prl/run.sh ic
    """

    encoder: str = argument(CHECKPOINTS)
    out: Path = argument("folder to make")

    def run(self) -> None:
        from speechssl.superb.export import export_upstream

        card = export_upstream(self.encoder, self.out)
        made = f"{card['made_from']['name']} ({card['made_from']['hash']})"
        print(f"{self.out}: {made} for s3prl's upstreams {', '.join(card['upstreams'])}")
        print(f"bash {self.out}/run.sh {'|'.join(card['tasks'])}")
