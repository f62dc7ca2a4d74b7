"""Record what the program computes before a restructuring, and compare it with what it computes
afterwards.

  python tests/answers.py record FOLDER
      run a tiny chain of commands in FOLDER (a quarter of an hour of a core)
  python tests/answers.py compare A B
      compare two folders: numbers to 1e-6, everything else exactly; exit code 1 if something differs

The chain: MiniSQA, two iterations of HuBERT, units in each precision; DUAL, the cascade and
SpeechBERT, trained and evaluated in clean and noisy speech; a comparison, a small robustness grid,
every task of SUPERB; and `prepare` on the miniatures and, where they are there, on the published
corpora beside the checkout. The models are hardly trained: only equality counts.
"""

import hashlib
import json
import math
import subprocess
import sys
from collections import Counter
from pathlib import Path

ROOT = Path(__file__).parents[1]
SHARED = ROOT.parent / "shared" / "data"
MINISQA, ROBUSTNESS = "recipes/minisqa/smoke.yaml", "recipes/robustness/smoke.yaml"
SYSTEMS = "dual dual-scratch cascade-ctc speechbert text cascade-simulated@30"
PRECISIONS = ("fp32", "bf16")
CORPORA = {  # name of `prepare` -> folder of the published corpus in SHARED, "" for none
    "nmsqa": "nmsqa",
    "odsqa": "odsqa",
    "toefl-qa": "toefl_qa",
    "spoken-squad": "spoken_squad",
    "slue-sqa5": "",
    "fsdd": "fsdd",
}


def list_commands(w):
    """Yield the commands of the chain in their order: verbs, and programs after "python". w: the
    folder that they write to."""
    models, corpus = w / "models", w / "corpus"
    mini, grid = f"--config {MINISQA} --stage", f"--config {ROBUSTNESS} --stage"
    encoder, book = models / "encoder", models / "units.safetensors"
    first, start = f"{w}/hubert-1/encoder", f"--ctc {models}/ctc --start {models}/text-qa"
    yield f"prepare minisqa {corpus} {mini} corpus"
    yield f"pretrain hubert {corpus} {w}/hubert-1 {mini} hubert-1"
    yield f"pretrain hubert {corpus} {w}/hubert-2 --teacher {first} --start {first} {mini} hubert-2"
    yield f"units fit {corpus} {encoder} {book} {mini} units"
    for name in PRECISIONS:
        out = f"{w}/units-{name} --split test --precision {name}"
        yield f"units extract {corpus} {encoder} {book} {out}"
    yield f"units extract {corpus} {encoder} {book} {w}/units {mini} extract"
    dual = f"train dual {corpus} {w}/units {models}/dual"
    yield f"{dual} {mini} dual-1"
    yield f"{dual}-scratch --assignment scratch {mini} assignment"
    yield f"train ctc {corpus} {encoder} {models}/ctc {mini} ctc"
    yield f"train text-qa {corpus} {models}/text-qa {mini} text-qa"
    yield f"train speechbert {corpus} {encoder} {models}/speechbert {start} {mini} speechbert"
    confusions = f"python recipes/minisqa/confusions.py {corpus} {w}/errors"
    yield f"{confusions} --models {models} {mini} confusions"
    where = f"--models {models} --errors {w}/errors/simulated.jsonl --systems {SYSTEMS}"
    yield f"evaluate qa {corpus} {w}/qa {where} --conditions clean pink@5 reverb"
    yield f"compare {w}/qa --out {w}/compare"
    minisuperb = "python recipes/superb/minisuperb.py"
    yield f"{minisuperb} {w}/tasks --seed 0 {grid} sets"
    tasks = {task: f"{w}/tasks/{task}" for task in ("ks", "sid")}
    tasks |= dict.fromkeys(("asr", "units", "dual", "speechbert", "cascade-ctc"), corpus)
    tasks = " ".join(f"{task}={data}" for task, data in tasks.items())
    noise = "--seed 0 --seen m+g+r --unseen held-out"
    encoders = f"--encoders baseline={models} --tasks {tasks}"
    yield f"evaluate robustness {w}/grid {encoders} {noise} {grid} grid"
    few = "--preset small --steps 4 --learning-rates 1e-2 1e-3 --snr 5"
    yield f"{minisuperb} {w}/superb/data --seed 0 --scale 0.02"
    heads = f"--data {w}/superb/data --encoders own={encoder} fbank --tasks all"
    yield f"superb run {w}/superb {heads} {few} {noise}"
    for name, folder in CORPORA.items():
        if name != "fsdd":
            yield f"python tests/corpora/make.py {name} {w}/miniature/{name}"
            yield f"prepare {name} {w}/miniature/{name} {w}/prepared/{name}"
        if folder and (SHARED / folder).is_dir():
            yield f"prepare {name} {SHARED / folder} {w}/real/{name}"


def record(w):
    """Run the commands of the chain in the folder w, and keep their output in a log."""
    w.mkdir(parents=True, exist_ok=True)
    log = w / "log.txt"
    for command in list_commands(w):
        print(command, flush=True)
        with log.open("a") as out:
            words = command.split()
            program = words[1:] if words[0] == "python" else ["-m", "speechssl", *words]
            done = subprocess.run(
                [sys.executable, *program], cwd=ROOT, stdout=out, stderr=subprocess.PIPE, text=True
            )
            out.write(done.stderr)
        if done.returncode:
            sys.exit(done.stderr[-2000:])
        if command.startswith("pretrain") and (w / "hubert-2").exists():
            (w / "models").mkdir(exist_ok=True)
            subprocess.run(["cp", "-r", w / "hubert-2/encoder", w / "models"], check=True)


def collect_values(w):
    """Collect the values in a recorded folder: name -> number or text."""
    import pyarrow.parquet as pq

    from speechssl.eval.predict import read_predictions

    collected = {}
    for folder in ("units-fp32", "units-bf16", "units"):
        for part in sorted((w / folder).rglob("*.parquet")):
            for row in pq.read_table(part, use_threads=False).to_pylist():
                collected[f"{folder}/{row['id']}"] = hashlib.sha256(
                    json.dumps([row["units"], row["lengths"]]).encode()
                ).hexdigest()
    for path in sorted((w / "qa/predictions").rglob("*.parquet")):
        predictions = read_predictions(path)
        name = f"{path.parent.name}/{path.stem}"
        for question, answer in predictions["answers"].items():
            for key in ("text", "start", "end", "confidence"):
                collected[f"qa/{name}/{question}/{key}"] = answer[key]
        for item, text in predictions["transcripts"].items():
            collected[f"qa/{name}/{item}/transcript"] = text
    for folder in ("qa", "grid", "superb"):
        for line in (w / folder / "results.jsonl").read_text().splitlines():
            row = json.loads(line)
            if row["metric"].startswith(("seconds", "x_", "ratio")):  # measured times
                continue
            row["encoder"] = str(row["encoder"]).removeprefix(f"{w.name}/")
            name = row["task"] if row["system"] == "head" else row["system"]
            cell = [row[key] for key in ("encoder", "condition", "snr_db", "metric")]
            place = "/".join(map(str, (name, *cell)))
            collected |= {
                f"{folder}/{place}/{key}": row[key]
                for key in ("value", "low", "high", "n", "drawn", "groups")
            }
    for corpus in sorted((*w.glob("prepared/*"), *w.glob("real/*"))):
        name = f"{corpus.parent.name}/{corpus.name}"
        for path in sorted(corpus.rglob("*.jsonl")):
            lines = [json.loads(line) for line in path.read_text().splitlines()]
            collected[f"{name}/{path.relative_to(corpus)}"] = len(lines)
            if path.name == "set_aside.jsonl":
                collected |= {
                    f"{name}/set aside/{why}": n
                    for why, n in Counter(line["reason"] for line in lines).items()
                }
    return collected


def same(a, b):
    """Return whether two values are equal, numbers to 1e-6. NaN is equal to NaN."""
    if isinstance(a, (int, float)) and isinstance(b, (int, float)):
        return math.isclose(a, b, rel_tol=1e-6, abs_tol=1e-6) or (a != a and b != b)
    return bool(a == b)


def compare(a, b):
    """Print the values of two folders that differ. Returns the exit code."""
    before, after = collect_values(a), collect_values(b)
    names = sorted(before.keys() | after.keys())
    different = [name for name in names if not same(before.get(name), after.get(name))]
    for name in different[:200]:
        print(f"{name}: {before.get(name)} -> {after.get(name)}")
    print(f"{len(before)} values before, {len(after)} after, {len(different)} differ")
    return int(bool(different))


if __name__ == "__main__":
    if sys.argv[1:2] == ["record"] and len(sys.argv) == 3:
        record(Path(sys.argv[2]).resolve())
    elif sys.argv[1:2] == ["compare"] and len(sys.argv) == 4:
        sys.exit(compare(Path(sys.argv[2]), Path(sys.argv[3])))
    else:
        sys.exit(__doc__)
