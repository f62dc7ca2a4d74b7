"""Copy what the package ships out of a finished run: weights and cards, without checkpoints, the cards completed with their scores.
Readers that grew out of the text encoder of text-qa become their difference from it.

python recipes/minisqa/ship.py EXP OUT      e.g. exp/minisqa speechssl/models/minisqa-en
"""

import shutil
import sys
from pathlib import Path

from speechssl.dual.weights import DIFFERENCE, save_difference
from speechssl.io import SHIPPED, read_json, write_json
from speechssl.results import read_rows

RECIPE = "recipes/minisqa/run.sh, base.yaml"
LIMIT = 60  # MB, of all sets that ship
SET = "minisqa-en"  # which OUT becomes


def scores(exp: Path) -> dict[str, dict]:
    """Part -> what it reaches on the test set."""
    rows = [r for r in read_rows(exp / "results.jsonl") if r.system in ("dual", "cascade-ctc", "speechbert")]
    kept = ("value", "low", "high", "n", "drawn", "groups")
    cells = {(r.system, r.metric, r.condition, r.snr_db): {name: getattr(r, name) for name in kept} for r in rows}

    def of(system: str, *metrics: str) -> dict:
        return {
            f"{metric}, {condition}" + (f" {snr:g} dB" if snr is not None else ""): cell
            for (name, metric, condition, snr), cell in cells.items()
            if name == system and metric in metrics
        }

    quality = read_json(exp / "quality" / "shipped.json")
    return {
        "encoder": quality,
        "units": quality,
        "dual": of("dual", "ff1", "aos"),
        "ctc": of("cascade-ctc", "wer"),
        "text-qa": of("cascade-ctc", "em", "f1", "ff1", "aos"),
        "speechbert": of("speechbert", "ff1", "aos"),
    }


def main(exp: Path, out: Path) -> None:
    found, models = scores(exp), exp / "models"
    for part in ("encoder", "dual", "ctc", "text-qa", "speechbert"):
        (out / part).mkdir(parents=True, exist_ok=True)
        for path in (p for p in (models / part).iterdir() if p.is_file()):
            shutil.copyfile(path, out / part / path.name)
        _complete(out / part / "card.json", found[part])
    for part in ("dual", "speechbert"):
        model = out / part / "model.safetensors"
        save_difference(model, out / "text-qa" / model.name, model.with_name(DIFFERENCE))
        model.unlink()
    for name in ("units.safetensors", "units.card.json"):
        shutil.copyfile(models / name, out / name)
    _complete(out / "units.card.json", found["units"])
    others = [p.parent for p in SHIPPED.glob("*/encoder") if p.parent.name != SET]
    size, whole = megabytes(out), megabytes(out, *others)
    print(f"{out}: {size:.1f} MB; as {SET}, with {', '.join(f.name for f in others) or 'no other set'}, {whole:.1f} MB")
    if whole > LIMIT:
        sys.exit(f"what ships is larger than {LIMIT} MB; the package must stay small")


def megabytes(*folders: Path) -> float:
    return sum(p.stat().st_size for folder in folders for p in folder.rglob("*") if p.is_file()) / 1e6


def _complete(path: Path, reached: dict) -> None:
    write_json(path, read_json(path) | {"recipe": RECIPE, "scores": reached})


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]))
