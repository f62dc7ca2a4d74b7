"""`speechssl prepare minisqa | minisuperb | miniature`: the options of what is generated."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from speechssl.data.options import CORES, PROCESSES
from speechssl.options import Count, Share, Whole, argument, option

TASKS = ("pr", "asr", "ks", "qbe", "sid", "asv", "sd", "ic", "sf", "style", "se", "ss")


@dataclass(frozen=True, kw_only=True)
class MiniSqa:
    """make the synthetic spoken-QA corpus (needs speechssl[synth])

    Passages and questions of a text generator, spoken by voices of espeak-ng: 48 in train, 8 others
    in dev, 16 others in test. Finished work is kept; a killed run resumes with the same command.

      speechssl prepare minisqa corpus
      speechssl prepare minisqa small --language zh --passages 100 --dev-passages 10 \\
        --test-passages 10
      speechssl prepare minisqa new-words --held-out
    """

    out: Path = argument("folder to make")
    language: str = option("en", "language: en or zh")
    passages: Whole | None = option(
        None, "number of training passages, about 30 s each (default: 2000; with --held-out: 0)"
    )
    dev_passages: Whole | None = option(
        None, "number of development passages (default: 80; with --held-out: 0)"
    )
    test_passages: Whole = option(140, "number of test passages")
    held_out: bool = option(
        False,
        "make a test of names, values and sentences that the ordinary corpus does not have, and "
        "print the share of unknown words",
    )
    questions: Count = option(5, "questions per passage")
    unanswerable: Share = option(0.1, "share of questions that the passage does not answer")
    reference: bool = option(
        False, "record the training passages a second time with one neutral voice"
    )
    synthesiser: str = option(
        "espeak-ng",
        "espeak-ng, flite, kokoro, piper (which gives no times of words) or "
        "festival; English only but for espeak-ng",
    )
    seed: Whole = option(
        0,
        "seed of texts and voices; the same seed gives the same bytes (of "
        "kokoro: the same texts and times)",
    )
    workers: Count = option(CORES, PROCESSES)

    def run(self) -> None:
        from speechssl.synth.minisqa import MiniSqaSettings, prepare

        usual = {"train": 0, "dev": 0} if self.held_out else {"train": 2000, "dev": 80}
        given = {"train": self.passages, "dev": self.dev_passages, "test": self.test_passages}
        counts = usual | {split: n for split, n in given.items() if n is not None}
        settings = MiniSqaSettings(
            language=self.language,
            passages=counts,
            seed=self.seed,
            questions=self.questions,
            unanswerable=self.unanswerable,
            reference=self.reference,
            synthesiser=self.synthesiser,
            held_out=self.held_out,
        )
        card = prepare(self.out, settings, self.workers)
        sizes = ", ".join(
            (f"{n} {split} passage{'s' * (n != 1)}") for split, n in counts.items() if n
        )
        print(f"{self.out}: MiniSQA{' held-out' * self.held_out} {self.language}, {sizes}")
        for split, shares in card.get("unknown_words", {}).items():
            percentages = ", ".join(f"{share} % of the {kind}" for kind, share in shares.items())
            print(f"unknown to the training texts of MiniSQA, in {split}: {percentages}")


@dataclass(frozen=True, kw_only=True)
class MiniSuperb:
    """make a small synthetic SUPERB: a set for each of its tasks, without a download (needs
    speechssl[synth])

    pr: phones; asr: words; ks: keywords; qbe: documents and spoken queries; sid: which of 40
    speakers; asv: whether two recordings have one speaker; sd: which of two speakers is active
    when; ic: intents; sf: slots of commands; style: speaking style (in the place of er, emotions);
    se: speech in noise; ss: two speakers at once. Each is a folder OUT/TASK with card.json and
    manifests for train, dev and test (qbe: documents, dev and test); pr and asr share recordings,
    OUT/sentences. The voices of dev and test do not occur in training, except in sid. Finished work
    is kept; a killed run resumes with the same command.

      speechssl prepare minisuperb sets
      speechssl prepare minisuperb sets --tasks ks sid --scale 0.1
    """

    out: Path = argument("folder to make, with a folder for each set")
    tasks: tuple[str, ...] = option(TASKS, "sets to make", least=1)
    share: Share = option(
        1.0,
        "number of utterances, as a share of the usual number (asr: 900 + 100 + 200)",
        name="scale",
    )
    seed: Whole = option(0, "seed of texts and voices; the same seed gives the same bytes")
    workers: Count = option(CORES, PROCESSES)

    def run(self) -> None:
        from speechssl.data.superb import counted
        from speechssl.synth.minisuperb import MiniSuperbSettings, prepare, some_of

        for task, card in prepare(
            self.out, MiniSuperbSettings(some_of(self.tasks, self.share), self.seed), self.workers
        ).items():
            print(f"{self.out / task}: {counted(card)} utterances")


@dataclass(frozen=True, kw_only=True)
class Miniature:
    """make a tiny invented corpus in the layout of a published one, to try its recipe (needs
    speechssl[synth])

    CORPUS is nmsqa, odsqa, toefl-qa, spoken-squad or slue-sqa5. Passages and questions are
    MiniSQA's, the speech is espeak-ng's: results on it say nothing about the corpus. Finished work
    is kept.

      speechssl prepare miniature nmsqa tiny/nmsqa
      speechssl prepare nmsqa tiny/nmsqa corpus
    """

    corpus: str = argument("name of the published corpus")
    out: Path = argument("folder to make")
    passages: Count = option(6, "number of training passages")
    dev_passages: Count = option(2, "number of development passages")
    test_passages: Count = option(3, "number of test passages")
    questions: Count = option(4, "questions per passage")
    seed: Whole = option(0, "seed of texts and voices; the same seed gives the same bytes")

    def run(self) -> None:
        from speechssl.synth.miniature import make_miniature

        counts = {"train": self.passages, "dev": self.dev_passages, "test": self.test_passages}
        written = make_miniature(
            self.out, self.corpus.replace("_", "-"), counts, self.questions, self.seed
        )
        sizes = ", ".join(f"{number} {split}" for split, number in counts.items())
        print(
            f"{self.out}: an invented miniature of {self.corpus}, {sizes} "
            f"passages{'' if written else ' (there already)'}"
        )
