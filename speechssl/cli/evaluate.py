"""`speechssl report`: a page from what was evaluated."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from speechssl.cli.parser import add_group, add_verb, count, snr_over_flag, whole
from speechssl.cli.train import add_evaluate_choice
from speechssl.trainer import PLAIN

# `speechssl compare`: systems beside each other; `speechssl evaluate confusions`: the errors that its sweeps simulate.

CONFUSIONS = """confusions.json: which errors a recogniser makes, to simulate more or fewer of them

Fitted on what a recogniser makes of a split that nothing is tested on. `evaluate qa` reads it for systems such as
cascade-simulated@30: text QA on the reference text with errors of this kind at a WER of 30 %.

  speechssl evaluate confusions corpus exp/errors --models exp/models --asr ctc --split dev
  speechssl evaluate qa corpus exp/sweep --systems text cascade-simulated@10 cascade-simulated@30 --conditions clean \\
    --errors exp/errors/confusions.json
"""

COMPARE = """systems beside each other: tables, paired tests, where the lines cross, and which answers are missed

Reads what `evaluate` left in folders, and pairs what is about the same questions. Without --pairs every system without a transcript
is tested against every other. A sweep of the word error rate is several conditions of one cascade, cascades with several
recognisers, or cascade-simulated@WER. Leaves compare.json, tables.md and compare.html in --out.

  speechssl compare exp/mine exp/sweep --out exp/compare
  speechssl compare exp/nmsqa/dev exp/nmsqa/test --pairs dual,cascade-ctc --metric ff1
"""


def add_compare(verbs: Any) -> None:
    verb = add_verb(verbs, "compare", _compare, COMPARE)
    verb.add_argument("results", type=Path, nargs="+", help="folders that `evaluate` wrote to")
    verb.add_argument("--out", type=Path, default=Path("exp/compare"), help="folder; gets compare.json, tables.md, compare.html")
    verb.add_argument("--metric", default="", help="ff1, f1, em, aos, set_accuracy or accuracy; default: the first that is there")
    verb.add_argument("--pairs", nargs="+", default=[], metavar="A,B", help="systems to test against each other")
    verb.add_argument("--systems", nargs="+", default=[], help="only these")
    verb.add_argument("--common", action="store_true", help="compare on the questions that all systems of a corpus have")
    verb.add_argument("--seed", type=whole, default=0, help="of the bootstrap")


def _compare(o: argparse.Namespace) -> None:
    from speechssl.report.comparison import run_comparison

    print(run_comparison(o.results, o.out, o.metric, o.pairs, o.systems, o.common, o.seed))


def add_confusions(what: Any) -> None:
    verb = add_verb(what, "confusions", _fit_confusions, CONFUSIONS)
    verb.add_argument("corpus", type=Path, help="prepared corpus")
    verb.add_argument("out", type=Path, help="folder; gets confusions.json")
    verb.add_argument("--models", default="minisqa-en-robust", help="shipped set or model folder of the recogniser")
    verb.add_argument("--asr", default="ctc", help="ctc, ctc-NAME, pocketsphinx, MODEL of Hugging Face, or given: the corpus's own")
    verb.add_argument("--split", default="dev", help="any but test")
    verb.add_argument("--passages", type=count, help="only the first N passages")
    verb.add_argument("--condition", default="clean", help="what is heard, as `evaluate qa` writes conditions")
    snr_over_flag(verb)
    verb.add_argument("--seed", type=whole, default=0, help="of the noise")
    verb.add_argument("--workers", type=count, default=2, help="threads")


def _fit_confusions(o: argparse.Namespace) -> None:
    from speechssl.eval.recogniser_errors import fit_on_corpus

    print(fit_on_corpus(o.corpus, o.out, o.models, o.asr, o.split, o.passages, o.condition, o.seed, o.workers, o.snr_over))


# `speechssl evaluate`: spoken QA under conditions; the robustness grid.

QA = """systems x conditions on a corpus: predictions and results.jsonl

Systems: dual, dual-NAME (a reader of that name in --models), cascade-ctc, cascade-ctc-NAME, cascade-pocketsphinx, cascade-MODEL
(of Hugging Face), speechbert, speechbert-aligned (words cut where the manifest has them, a bound). Without audio: text (text QA
on the reference text, the topline), cascade-given (on the corpus's own transcripts), cascade-simulated@30 (on the text with
errors at a WER of 30 %, see `evaluate confusions`).
Conditions: clean; noise at an SNR in dB as pink@10, babble@5, m+g+r@5 or kitchen.wav@5; reverb or reverb@0.6 (seconds); pitch@-2;
band@1000-2000 (Hz); codec@mp3:16; and several in order, joined by +. What is in OUT stays, rows of the same cell are replaced.

  speechssl evaluate qa corpus exp/mine --models exp/models --systems dual cascade-ctc --conditions clean pink@5 kitchen.wav@5
  speechssl report exp/mine corpus
"""
PREDICTIONS = """answers of a system of your own, scored as ours and put beside them

FILE is JSON, question -> answer: a text (the format of SQuAD's scorer), [start, end] in seconds, or {"text", "start", "end"}.
What it does not answer counts as wrong. Leaves predictions and rows in OUT, for `report` and `compare`.

  speechssl evaluate predictions corpus exp/mine predictions.json --name my-system --split dev
"""
ROBUSTNESS = """encoders x tasks x noises x SNR: what noise costs, and how much of it an encoder saves

An encoder is a folder, hub id or shipped name, or for the tasks units, dual, speechbert and cascade-ctc a folder of models:
encoder/ with units.safetensors, dual/, speechbert/, ctc/, text-qa/. The first is the baseline. Heads that are missing are trained
on clean speech, into OUT/heads. Tasks with their data: ks, ic, sid, style (a set of `prepare minisuperb` or fsdd), asr, dual,
speechbert, cascade-ctc (a prepared corpus), units (any recordings). Mixtures are frozen in OUT/noise.jsonl before anything is
heard: every system hears the same. Leaves OUT/results.jsonl, degradation.json and tables.md; `speechssl report OUT` draws them. A
killed run goes on. To choose settings, judge on --split dev in the noise dev, which is neither training's nor the test's: what
belongs to another split than test, heads excepted, lies in OUT/SPLIT. Heads are always trained on train, and choose their
learning rate on clean speech of dev.

  speechssl evaluate robustness exp/robust --encoders shipped=minisqa-en-robust mine=exp/mine \\
    --tasks ks=tasks/ks units=recordings/ \\
    --seen m+g+r --unseen kitchen.wav held-out --snr 20 10 5 0
  speechssl evaluate robustness exp/robust --encoders a=exp/a b=exp/b --tasks ks=tasks/ks --split dev --unseen dev --snr 5
"""


def add_evaluate(verbs: Any) -> None:
    what = add_group(verbs, "evaluate", "spoken QA and multiple choice under conditions, answers of your own; the robustness grid")
    _add_qa(what)
    _add_predictions(what)
    _add_robustness(what)
    add_evaluate_choice(what)
    add_confusions(what)


BF16 = "the text encoders read in bfloat16: fast with AVX512-BF16 or AMX, slow without"


def _add_qa(what: Any) -> None:
    verb = add_verb(what, "qa", _evaluate_qa, QA)
    verb.add_argument("corpus", type=Path, help="prepared corpus")
    verb.add_argument("out", type=Path, help="folder; gets predictions/ and results.jsonl")
    verb.add_argument("--models", default="minisqa-en-robust", help="shipped set or model folder")
    verb.add_argument("--systems", nargs="+", default=["dual", "cascade-ctc"], help="see above")
    verb.add_argument(
        "--conditions", nargs="+", default=["clean", "pink@20", "pink@10", "pink@5", "pink@0", "reverb"],
        help="see above",
    )  # fmt: skip
    verb.add_argument("--split", default="test", help="train, dev, test, or any other that the corpus has")
    verb.add_argument("--passages", type=whole, help="only the first N passages")
    snr_over_flag(verb)
    verb.add_argument("--voices", type=Path, nargs="*", default=[], help="recordings to make babble from")
    verb.add_argument("--errors", type=Path, help="confusions.json of what is simulated; default: that in --models")
    verb.add_argument("--bf16", action="store_true", help=BF16)
    verb.add_argument("--seed", type=whole, default=0, help="of the noise, simulated errors and the bootstrap")
    verb.add_argument("--workers", type=count, default=2, help="threads")


def _evaluate_qa(o: argparse.Namespace) -> None:
    from speechssl.eval.spoken_qa import run_evaluation

    run = (o.passages, o.voices, o.seed, o.workers, o.bf16, o.errors, o.snr_over)
    print(run_evaluation(o.corpus, o.out, o.models, o.systems, o.conditions, o.split, *run))


def _add_predictions(what: Any) -> None:
    verb = add_verb(what, "predictions", _evaluate_predictions, PREDICTIONS)
    verb.add_argument("corpus", type=Path, help="prepared corpus")
    verb.add_argument("out", type=Path, help="folder; gets predictions/ and results.jsonl")
    verb.add_argument("file", type=Path, help="JSON of question -> answer")
    verb.add_argument("--name", required=True, help="what tables call the system")
    verb.add_argument("--condition", default="clean", help="in which it heard, written as for `evaluate qa`")
    verb.add_argument("--split", default="test", help="train, dev, test, or any other that the corpus has")
    verb.add_argument("--seed", type=whole, default=0, help="of the bootstrap")


def _evaluate_predictions(o: argparse.Namespace) -> None:
    from speechssl.eval.spoken_qa import import_predictions

    print(import_predictions(o.corpus, o.out, o.file, o.name, o.split, o.condition, o.seed))


def _add_robustness(what: Any) -> None:
    verb = add_verb(what, "robustness", _evaluate_robustness, ROBUSTNESS)
    verb.add_argument(
        "out", type=Path, help="folder; gets heads/, noise.jsonl, scores/, results.jsonl, degradation.json, tables.md"
    )
    verb.add_argument(
        "--encoders", nargs="+", required=True, metavar="NAME=WHERE", help="what is compared; the first is the baseline"
    )
    verb.add_argument(
        "--tasks",
        nargs="+",
        required=True,
        metavar="TASK=DATA",
        help="ks, ic, sid, style, asr, units, dual, speechbert, cascade-ctc",
    )
    verb.add_argument("--seen", nargs="*", default=["m+g+r"], help="conditions that training heard, as `evaluate qa` writes them")
    verb.add_argument(
        "--unseen", nargs="*", default=["held-out"], help="and that it never did: held-out, dev, kitchen.wav, a NAME of --noises"
    )
    verb.add_argument("--snr", type=float, nargs="*", default=[20.0, 10.0, 5.0, 0.0], help="dB, of conditions that name none")
    snr_over_flag(verb)
    verb.add_argument("--at", type=float, default=5.0, help="dB, of the table clean | seen | unseen")
    verb.add_argument("--noises", nargs="*", default=[], metavar="NAME=FOLDER", help="recordings of noise: musan, fsd50k, ...")
    verb.add_argument("--voices", type=Path, nargs="*", default=[], help="recordings to make babble from")
    verb.add_argument(
        "--split", default="test", help="that tasks are judged on: dev to choose settings, test, or another of the data"
    )
    verb.add_argument("--passages", type=count, help="only the first N passages of spoken QA")
    verb.add_argument("--recordings", type=count, help="only N recordings of every other task, drawn by the seed")
    verb.add_argument("--no-holm", dest="corrected", action="store_false", help="stars at p < 0.05 in every cell by itself")
    verb.add_argument("--asr-passages", type=count, default=200, help="the first N training passages for a CTC head")
    verb.add_argument("--asr-steps", type=count, default=800, help="updates of a CTC head")
    verb.add_argument("--head-steps", type=count, default=3000, help="updates of a classifier at most, for each learning rate")
    verb.add_argument("--bf16", action="store_true", help=BF16)
    verb.add_argument("--seed", type=whole, default=0, help="of noise, heads, draws and bootstrap")
    verb.add_argument("--workers", type=count, default=2, help="threads")


def _evaluate_robustness(o: argparse.Namespace) -> None:
    from speechssl.cascade.train import CtcOptions
    from speechssl.eval.grid_tasks import Setup
    from speechssl.eval.robustness import Plan, parse_named, run_robustness
    from speechssl.superb.tasks.classification import ClassifierOptions
    from speechssl.trainer import TrainingOptions

    asr = CtcOptions(TrainingOptions(o.asr_steps, 4e-3, 100, **vars(PLAIN)), None, o.asr_passages, longest=4.0, lstm_width=192)
    heads = ClassifierOptions(steps=o.head_steps)
    plan = Plan(
        encoders=parse_named(o.encoders, "--encoders"),
        tasks={task: Path(data) for task, data in parse_named(o.tasks, "--tasks").items()},
        seen=tuple(o.seen),
        unseen=tuple(o.unseen),
        snrs=tuple(o.snr),
        snr_over=o.snr_over,
        voices=tuple(o.voices),
        folders={name: Path(folder) for name, folder in parse_named(o.noises, "--noises").items()},
        at=o.at,
        corrected=o.corrected,
        setup=Setup(o.split, o.passages, o.recordings, o.seed, o.workers, heads, asr, o.bf16),
    )
    print(run_robustness(o.out, plan))


REPORT = """report.html from what `evaluate` left in a folder

One self-contained page: tables, figures, and questions to listen to with what was answered.

  speechssl report exp/mine corpus
  speechssl report exp/robust
  speechssl report exp/superb
"""


def add_report(verbs: Any) -> None:
    verb = add_verb(verbs, "report", _report, REPORT)
    verb.add_argument("out", type=Path, help="folder that `evaluate` wrote to; gets report.html")
    verb.add_argument("corpus", type=Path, nargs="?", help="prepared corpus of the questions; none for a robustness grid or SUPERB")
    verb.add_argument("--split", default="test", help="train, dev, test, or any other that the corpus has")
    verb.add_argument("--examples", type=whole, default=20, help="questions to listen to")
    verb.add_argument(
        "--conditions", nargs="+", default=["clean", "pink@5"], help="the examples are taken from these, as far as evaluated"
    )
    verb.add_argument(
        "--seed", type=whole, default=0, help="of the draw of examples and of the bootstrap; the noise is what `evaluate` used"
    )
    verb.add_argument("--tables", type=Path, nargs="*", default=[], help="JSON tables to print beside the results")
    verb.add_argument("--voices", type=Path, nargs="*", default=[], help="recordings that `evaluate` made babble from")


def _report(o: argparse.Namespace) -> None:
    from speechssl.report.build import write_report

    write_report(o.out, o.corpus, o.split, o.examples, o.conditions, o.seed, o.tables, o.voices)
    print(f"{o.out / 'report.html'}: open it in a browser")
