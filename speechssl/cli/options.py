"""`speechssl answer`, `serve`, `bundle` and `completion`: their options."""

from __future__ import annotations

import os
from dataclasses import MISSING, asdict, dataclass
from pathlib import Path
from typing import Annotated, Any, Literal

from speechssl.cascade.options import ReaderOptions
from speechssl.cli.parser import parser_of
from speechssl.cli.verbs import GROUPS, VERBS, config_of
from speechssl.errors import InputError
from speechssl.options import DEVICE, ENCODERS, Amount, Range, argument, group, option, use_device

LISTENS = "can only listen; record the question"


@dataclass(frozen=True, kw_only=True)
class AnswerQuestions:
    """answer questions from a spoken passage

    A question is a recording, or a text, which cascades alone can read. Prints start and end of
    every answer in the passage and, for a cascade, its words, and its transcript of a spoken
    question; the last lines say what each system is made of. Systems are dual, speechbert and
    cascade-ENGINE, with the engine ctc, ctc-greedy, pocketsphinx, or a Hugging Face model. In a
    long passage dual@5 or cascade-ENGINE@5 reads only the 5 windows that share most with the
    question.

    Without --systems they are dual and the best cascade on this machine: of what lies below
    --models, else below $SPEECHSSL_MODELS or in the hub's cache, the largest Whisper that knows the
    language (`speechssl models get whisper-base`), else the largest CTC model, and the largest
    reader that learnt from questions: a question-answering model of Hugging Face, or text QA
    trained on other questions than MiniSQA's (recipes/real_questions). Their config.json says what
    they are, not their names; languages are those of the card or README, else what the vocabulary
    shows; of two as large, one of this language alone comes first. What cannot be loaded is left
    out, as stderr says, and the next is taken. With such a reader the cascade comes before dual;
    without a recogniser it is cascade-ctc.

    The confidence, 0 to 1, is the share of the chosen span in a softmax over the best span of every
    window of the passage and "no answer". It is no probability of being right: in a short passage,
    which is one window, wrong answers are often near 1 as well. It ranks answers of one system, and
    does not compare systems.

      speechssl answer --passage lecture.mp3 --question question.wav --clip answer.wav
      speechssl answer --passage lecture.mp3 \\
        --question "When was the university founded?" "Who founded it?" --json
      speechssl answer --passage lecture.mp3 --question "Who founded it?" \\
        --reader deepset/minilm-uncased-squad2 --null-threshold 0
    """

    passage: Path = option(
        MISSING, "recording of the passage: WAV, FLAC, MP3 or OGG at any rate, of any length"
    )
    question: tuple[str, ...] = option(MISSING, "recordings of questions, or their texts", least=1)
    systems: tuple[str, ...] | None = option(None, "systems to run, from those above", least=1)
    models: str = option("people-en", "shipped set or model folder")
    reading: ReaderOptions = group(
        ReaderOptions(),
        "reader of words",
        without=("max_seq_length", "doc_stride", "max_answer_length", "shift"),
    )
    language: str = option(
        "en",
        "language of the speech, en or zh: for Whisper, and for the rules by which texts are read",
    )
    clip: Path | None = option(
        None,
        "write the answer of the first system that has one to this audio file; with "
        "several questions: FILE-1, ...",
    )
    device: str = option("auto", DEVICE)

    def run(self) -> dict[str, Any]:
        from speechssl.audio import check_clip, quiet_decoders, write_clip
        from speechssl.data.asked import read_question, read_recording
        from speechssl.text import language_of

        clips: list[Path] = []
        if self.clip:
            check_clip(self.clip)
            count = len(self.question)
            clips = (
                [self.clip.with_stem(f"{self.clip.stem}-{i}") for i in range(1, count + 1)]
                if count > 1
                else [self.clip]
            )
        for path in clips:
            if os.path.realpath(path) in map(os.path.realpath, (str(self.passage), *self.question)):
                raise InputError(f"--clip would overwrite the recording {path}; give another name")
        language_of(self.language)
        use_device(self.device)
        with quiet_decoders():
            passage, asked = (
                read_recording(self.passage),
                [read_question(question) for question in self.question],
            )
        from speechssl.cascade.data import Transcript  # loads torch, which takes seconds
        from speechssl.systems import QA

        qa = QA(
            self.models,
            self.systems,
            self.reading.reader,
            self.language,
            self.reading.null_threshold,
        )
        details = qa.details(passage, asked, str(self.passage))
        rows: list[dict[str, Any]] = []
        unasked = []
        for question, text, by_system in zip(self.question, asked, details, strict=True):
            if len(self.question) > 1:
                print(question)
            for name, (found, _, read) in by_system.items():
                transcript = (
                    read.text
                    if isinstance(read, Transcript) and not isinstance(text, str)
                    else None
                )
                words = "" if found.text is None else f'  "{found.text}"'
                times = (
                    f"{found.start:7.2f} to {found.end:7.2f} s  confidence "
                    f"{found.confidence:.2f}{words}"
                )
                print(f"{name:>20}  {'no answer' if found.text == '' else times}")
                if transcript is not None:
                    print(f'{"":>20}  the question, as recognised: "{transcript}"')
                # JSON has no nan
                known = {k: None if v != v else v for k, v in asdict(found).items()}
                rows.append(
                    {"question": question, "system": name}
                    | known
                    | {"question_transcript": transcript}
                )
            for name in (name for name in qa.about if name not in by_system):
                print(f"{name:>20}  {LISTENS}")
                unasked.append({"question": question, "system": name, "why": LISTENS})
        for made_of in dict.fromkeys(qa.about.values()):
            print(
                f"{', '.join(name for name, own in qa.about.items() if own == made_of)}: {made_of}"
            )
        for path, by_system in zip(clips, details, strict=False):
            first = next(
                (
                    (name, found.answer)
                    for name, found in by_system.items()
                    if found.answer.text != ""
                ),
                None,
            )
            if first:
                write_clip(path, passage, first[1].start, first[1].end)
            made = (
                f"the answer of {first[0]}"
                if first
                else (f"not written, {' and '.join(by_system)} has no answer")
            )
            print(f"{path}: {made}")
        return {
            "passage": str(self.passage),
            "systems": qa.about,
            "answers": rows,
            "unanswered": unasked,
        }


@dataclass(frozen=True, kw_only=True)
class Serve:
    """serve a page on this machine that answers questions from a spoken passage

    Drop or record a passage and a question, or write the question; the page shows waveform, units,
    recognised words and the answers of all systems, and plays them. --conditions stand in a
    drop-down: those of `evaluate qa`, noise without its SNR, which a slider gives. Uploads are
    removed when they are read; nothing leaves this machine. Needs Gradio: pip install 'gradio>=6'

      speechssl serve
      speechssl serve --models people-en exp/mine --systems dual cascade-ctc \\
        --conditions pink kitchen.wav reverb@0.6
    """

    models: tuple[str, ...] = option(
        ("people-en",), "shipped sets or model folders, between which the page switches", least=1
    )
    systems: tuple[str, ...] | None = option(
        None, "systems of all models; default and names as in `answer`", least=1
    )
    reading: ReaderOptions = group(
        ReaderOptions(),
        "reader of words",
        without=("max_seq_length", "doc_stride", "max_answer_length", "shift"),
    )
    language: str = option(
        "en",
        "language of the speech, en or zh: for Whisper, and for the rules by which texts are read",
    )
    conditions: tuple[str, ...] = option(
        ("pink", "gaussian", "held-out", "reverb"),
        "conditions that can be chosen, beside clean",
        least=1,
    )
    host: str = option(
        "127.0.0.1", "address to listen at; 0.0.0.0 lets everyone in who reaches this machine"
    )
    port: Annotated[int, Range(1, 65535)] = option(7860, "port to listen at")
    max_seconds: Amount = option(300.0, "longest passage in seconds")
    max_megabytes: Amount = option(50.0, "largest upload in megabytes")
    timeout: Amount = option(120.0, "seconds after which an answer is given up")
    device: str = option("auto", DEVICE)

    def run(self) -> dict[str, Any]:
        from speechssl.serve import Limits, serve
        from speechssl.text import language_of

        language_of(self.language)
        use_device(self.device)
        limits = Limits(self.max_seconds, self.max_megabytes, self.timeout)
        serve(
            self.models,
            self.systems,
            self.reading,
            self.language,
            self.conditions,
            self.host,
            self.port,
            limits,
        )
        return {"models": list(self.models), "host": self.host, "port": self.port}


@dataclass(frozen=True, kw_only=True)
class Bundle:
    """make a folder of models, which --models takes, from an encoder, a codebook and what was
    trained on them

    Copies the parts to OUT/encoder, OUT/units.safetensors, OUT/dual, ... and loads every system
    that they make: parts that were not made for each other are refused, and nothing is left.

      speechssl bundle exp/mine --encoder facebook/hubert-base-ls960 \\
        --codebook hubert-l6.safetensors --dual exp/dual
      speechssl bundle exp/mine --encoder exp/hubert/encoder --ctc exp/ctc \\
        --text-qa deepset/minilm-uncased-squad2
      speechssl answer --models exp/mine --passage lecture.mp3 --question question.wav
    """

    out: Path = argument("folder to make")
    encoder: str = option(MISSING, ENCODERS)
    codebook: Path | None = option(
        None,
        "codebook of the encoder: what `units fit`, import or transfer wrote, or a shipped name",
    )
    dual: Path | None = option(None, "folder of `train dual`, on units of this codebook")
    ctc: Path | None = option(None, "folder of `train ctc`, on this encoder")
    text_qa: Path | None = option(
        None, "folder of `train text-qa`, or a question-answering model of Hugging Face"
    )
    speechbert: Path | None = option(None, "folder of `train speechbert`, on this encoder")

    def run(self) -> dict[str, Any]:
        from speechssl.systems import Parts, bundle

        card = bundle(
            Parts(self.encoder, self.codebook, self.dual, self.ctc, self.text_qa, self.speechbert),
            self.out,
        )
        print(f"{self.out}: {', '.join(card['systems']) or 'an encoder'}")
        return {"out": str(self.out), "card": card}


@dataclass(frozen=True, kw_only=True)
class Completion:
    """print what completes verbs, options and their choices in a shell

    Put the line of your shell into its start-up file:

      source <(speechssl completion bash)     # ~/.bashrc
      source <(speechssl completion zsh)      # ~/.zshrc
    """

    shell: Literal["bash", "zsh"] = argument("shell: bash or zsh")

    def run(self) -> dict[str, Any]:
        made = script(self.shell)
        print(made, end="")
        return {"script": made}


# ---- completion: a function in the shell's own language, with all verbs, options and choices in
# it.
# A shell calls nothing of ours while somebody types: to import the options of all verbs takes a
# second.

BASH = """_speechssl() {{
  local word=${{COMP_WORDS[COMP_CWORD]}} before=${{COMP_WORDS[COMP_CWORD - 1]}} first=${{COMP_WORDS[1]}} second=${{COMP_WORDS[2]}}
  local words=
  case "$COMP_CWORD:$first $second:$before" in
{cases}
  esac
  COMPREPLY=($(compgen -W "$words" -- "$word"))
}}
complete -o default -F _speechssl speechssl
"""
ZSH = "autoload -U +X compinit && compinit\nautoload -U +X bashcompinit && bashcompinit\n"


def script(shell: str) -> str:
    """For bash, or for zsh, which takes bash's by its module bashcompinit. Files complete where
    nothing else does."""
    first = dict.fromkeys((*(verb.partition(" ")[0] for verb in VERBS), "--help", "--version"))
    cases = [f'    1:*) words="{" ".join(first)}" ;;']
    for words in GROUPS:
        inside = [verb.partition(" ")[2] for verb in VERBS if verb.startswith(f"{words} ")]
        cases.append(f'    2:"{words} "*) words="{" ".join(inside)}" ;;')
    for verb in VERBS:
        options, first_argument = [], ""
        typed = f'"{verb}":' if " " in verb else f'"{verb} "*:'
        for action in parser_of(verb, config_of(verb))._actions:
            options += action.option_strings
            if action.choices and action.option_strings:
                cases.append(
                    f"    *:{typed}{action.option_strings[0]}) "
                    f'words="{" ".join(map(str, action.choices))}" ;;'
                )
            elif action.choices:
                first_argument = " ".join(action.choices)
        if first_argument:
            place = len(verb.split()) + 1
            cases.append(
                f'    {place}:{typed}*) words="{first_argument}"; [[ $word != -* ]] || '
                f'words="{" ".join(options)}" ;;'
            )
        cases.append(f'    *:{typed}*) [[ $word != -* ]] || words="{" ".join(options)}" ;;')
    return (ZSH if shell == "zsh" else "") + BASH.format(cases="\n".join(cases))
