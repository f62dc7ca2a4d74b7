"""Copy an encoder and its units out of a finished run as a model folder, which reads with the readers that ship.

python recipes/robustness/ship.py EXP ENCODER OUT      e.g. exp/robustness continual-more speechssl/models/minisqa-en-robust
"""

import shutil
import sys
from pathlib import Path

from speechssl.io import read_json, write_json
from speechssl.results import BY_A_RECOGNISER, read_rows

READERS = "minisqa-en"  # whose units were carried over
RECIPE = "recipes/robustness/run.sh, base.yaml"


def main(exp: Path, encoder: str, out: Path) -> None:
    scores = {
        f"{row.system} {row.metric}, {row.condition}" + (f" {row.snr_db:g} dB" if row.snr_db is not None else ""): {
            "value": row.value,
            "low": row.low,
            "high": row.high,
            "n": row.n,
            "drawn": row.drawn,
            "groups": row.groups,
        }
        for row in read_rows(exp / "results.jsonl")
        if row.encoder == encoder and not row.system.startswith((*BY_A_RECOGNISER, "asr"))  # their heads do not ship
    }
    models = exp / "models" / encoder
    shutil.copytree(models / "encoder", out / "encoder", dirs_exist_ok=True)
    for name in ("units.safetensors", "units.card.json"):
        shutil.copyfile(models / name, out / name)
    for card in (out / "encoder" / "card.json", out / "units.card.json"):
        write_json(card, read_json(card) | {"recipe": f"{RECIPE}: {encoder}", "scores": scores})
    write_json(out / "parts.json", {"from": READERS})
    print(f"{out}: {sum(p.stat().st_size for p in out.rglob('*') if p.is_file()) / 1e6:.1f} MB")


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2], Path(sys.argv[3]))
