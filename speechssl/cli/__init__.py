"""Run the command line: find the verb, make its options from a dataclass, and call its function.
`VERBS` has the dataclass and the function of every verb."""

from __future__ import annotations

import ast
import inspect
import json
import os
import re
import sys
import time
import traceback
import warnings
from argparse import ArgumentParser, Namespace
from collections.abc import Callable, Iterable, Sequence
from contextlib import ExitStack, redirect_stderr, redirect_stdout, suppress
from functools import cache, partial
from importlib import import_module
from pathlib import Path
from typing import Any, NamedTuple, NoReturn

from speechssl import __version__
from speechssl.artifacts import CARD, describe_refusal, name_refused_file, read_json
from speechssl.cli.parser import parse_call, suggest_name
from speechssl.errors import InputError, escape_line, pop_set_aside
from speechssl.processes import is_main, measure_gpu_memory, measure_peak_memory, wait_before_exit

INTRODUCTION = """usage: speechssl VERB [options]

Speech understanding with self-supervised encoders: discrete units, spoken question answering
(DUAL), SUPERB.

  speechssl answer --passage lecture.mp3 --question question.wav
  speechssl units extract recordings/ people-en/encoder people-en/units.safetensors units
"""
FURTHER_HELP = """
All {count} verbs: speechssl --help. Options and examples of one: speechssl VERB --help.
What is installed here, and what is missing for what: speechssl doctor."""
ABOUT = f"""{INTRODUCTION}  speechssl VERB --help

Every option of a verb can also stand in a YAML file, under its name without the dashes (switches
as true or false): `--config recipes/minisqa/base.yaml --stage hubert-1` reads the options of a
call from the section `hubert-1`, and --config alone from a file without sections. Options on the
command line have precedence. --print-config prints such a file.

Every verb takes --json (print the result as one JSON value; everything else goes to stderr), -q
(print results and errors only), -v (also print warnings of libraries, where an error arose, time
and memory) and --strict. `speechssl doctor` prints versions.

Exit codes: 0 done; 1 training diverged; 2 bad input, in one sentence on stderr; 3 done, but items
were set aside and --strict is given; 130 stopped by the keyboard."""
# Environment variable: a file to which every verb adds a line with the time and memory it took.
USAGE = "SPEECHSSL_USAGE"


class Verb(NamedTuple):
    """A verb is a function that takes the dataclass of its options. Both are written as
    "module:name" below speechssl, and imported when they are used."""

    options: str
    function: str


GROUPS = {  # first word of some verbs -> what they are about
    "prepare": "turn a corpus into JSONL manifests and 16 kHz audio",
    "pretrain": (
        "self-supervised pre-training of encoders, from scratch or continued on distorted speech"
    ),
    "units": "fit, import, transfer and evaluate codebooks; extract units",
    "train": "train systems that answer questions, and their parts",
    "evaluate": (
        "evaluate spoken QA, multiple choice, and predictions of other systems; the robustness grid"
    ),
    "superb": "the SUPERB benchmark: small heads on a frozen encoder",
}

VERBS = {
    "prepare minisqa": Verb("synth.options:MiniSqa", "synth.minisqa:prepare_minisqa"),
    "prepare fsdd": Verb("data.options:Fsdd", "data.fsdd:prepare_fsdd"),
    "prepare nmsqa": Verb("data.options:Nmsqa", "data.nmsqa:prepare_nmsqa"),
    "prepare odsqa": Verb("data.options:Odsqa", "data.odsqa:prepare_odsqa"),
    "prepare toefl-qa": Verb("data.options:ToeflQa", "data.toefl_qa:prepare_toefl_qa"),
    "prepare spoken-squad": Verb(
        "data.options:SpokenSquad", "data.spoken_squad:prepare_spoken_squad"
    ),
    "prepare slue-sqa5": Verb("data.options:SlueSqa5", "data.slue_sqa5:prepare_slue_sqa5"),
    "prepare heysquad": Verb("data.options:HeySquad", "data.heysquad:prepare_heysquad"),
    "prepare squad-src": Verb("data.options:SquadSrc", "data.squad_src:prepare_squad_src"),
    "prepare sd-qa": Verb("data.options:SdQa", "data.sd_qa:prepare_sd_qa"),
    "prepare squad": Verb("data.options:Squad", "data.squad:prepare_squad"),
    "prepare table": Verb("data.options:TableCorpus", "data.table:prepare_table"),
    "prepare drcd": Verb("data.options:Drcd", "data.squad:prepare_drcd"),
    "prepare librispeech": Verb("data.options:LibriSpeech", "data.librispeech:prepare_librispeech"),
    "prepare speech-commands": Verb(
        "data.options:SpeechCommands", "data.speech_commands:prepare_speech_commands"
    ),
    "prepare quesst14": Verb("data.options:Quesst14", "data.quesst14:prepare_quesst14"),
    "prepare voxceleb1": Verb("data.options:VoxCeleb1", "data.voxceleb1:prepare_voxceleb1"),
    "prepare libri2mix": Verb("data.options:Libri2Mix", "data.libri2mix:prepare_libri2mix"),
    "prepare fluent-speech-commands": Verb(
        "data.options:FluentSpeechCommands",
        "data.fluent_speech_commands:prepare_fluent_speech_commands",
    ),
    "prepare audio-snips": Verb("data.options:AudioSnips", "data.audio_snips:prepare_audio_snips"),
    "prepare iemocap": Verb("data.options:Iemocap", "data.iemocap:prepare_iemocap"),
    "prepare voicebank-demand": Verb(
        "data.options:VoiceBankDemand", "data.voicebank_demand:prepare_voicebank_demand"
    ),
    "align": Verb("cascade.options:Align", "cascade.align_corpus:align_corpus"),
    "convert": Verb("encoders.options:Convert", "encoders.export:convert_encoder"),
    "pretrain hubert": Verb("pretrain.options:Hubert", "pretrain.run:pretrain_hubert"),
    "pretrain wav2vec2": Verb("pretrain.options:Wav2Vec2", "pretrain.run:pretrain_wav2vec2"),
    "pretrain continue": Verb("pretrain.options:Continue", "pretrain.run:continue_pretraining"),
    "pretrain spin": Verb("pretrain.options:Spin", "pretrain.spin:train_spin"),
    "pretrain phones": Verb("pretrain.options:Phones", "pretrain.phones:train_phones"),
    "units fit": Verb("units.options:Fit", "units.fit:fit_units"),
    "units extract": Verb("units.options:Extract", "units.corpus:extract_units"),
    "units pieces": Verb("units.options:FitPieces", "units.pieces:fit_pieces"),
    "units transfer": Verb("units.options:Transfer", "units.transfer:transfer_codebook"),
    "units import": Verb("units.options:Import", "units.fit:import_codebook"),
    "units evaluate": Verb("units.options:Evaluate", "units.quality:evaluate_units"),
    "train dual": Verb("dual.options:TrainDual", "dual.train:train_dual"),
    "train unit-words": Verb("dual.options:TrainUnitWords", "dual.teacher:train_unit_words"),
    "train text-qa": Verb("cascade.options:TrainTextQa", "cascade.train_text_qa:train_text_qa"),
    "train ctc": Verb("cascade.options:TrainCtc", "cascade.train:train_ctc"),
    "train ngram": Verb("cascade.options:TrainNgram", "cascade.train_ngram:train_ctc_ngram"),
    "train speechbert": Verb(
        "speechbert.options:TrainSpeechBert", "speechbert.train:train_speechbert"
    ),
    "train transfer-speechbert": Verb(
        "speechbert.options:TransferSpeechBert", "speechbert.train:transfer_speechbert"
    ),
    "train choice": Verb(
        "multiple_choice.options:TrainChoice", "multiple_choice.train:train_choice"
    ),
    "evaluate qa": Verb("eval.options:Qa", "eval.spoken_qa:evaluate_qa"),
    "evaluate predictions": Verb("eval.options:Predictions", "eval.imported:evaluate_predictions"),
    "evaluate robustness": Verb("eval.options:Robustness", "eval.robustness:evaluate_robustness"),
    "evaluate choice": Verb("eval.options:Choice", "eval.choice:evaluate_choice"),
    "compare": Verb("report.options:Compare", "report.comparison:compare_systems"),
    "superb run": Verb("superb.options:Superb", "eval.superb:evaluate_superb"),
    "superb export": Verb("superb.options:SuperbExport", "superb.export:export_encoder"),
    "report": Verb("report.options:Report", "report.build:report"),
    "answer": Verb("cli.options:AnswerQuestions", "cli.answer:answer_questions"),
    "serve": Verb("serve.options:Serve", "serve.page:serve"),
    "bundle": Verb("cli.options:Bundle", "cli.answer:bundle_parts"),
    "doctor": Verb("cli.options:Doctor", "cli.doctor:diagnose"),
}

# `speechssl` alone shows these verbs, and `speechssl --help` shows the daily ones first.
FIRST = ("answer", "serve", "units extract", "train dual", "evaluate qa", "pretrain continue")
DAILY = (
    *FIRST,
    *("prepare squad", "prepare table", "align", "units fit", "report", "compare", "bundle"),
    "doctor",
)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the verb that the arguments name, and return the exit code, which ABOUT explains.
    arguments: None for those of this process. An InputError becomes one sentence on stderr and the
    exit code 2."""
    return _attempt(partial(parse_arguments, sys.argv[1:] if arguments is None else arguments))


def script(function: Callable[[Any], Any], options: type) -> int:
    """Run a function of a recipe as `main` runs a verb, and return the exit code.

    options: the dataclass that the function takes. The command line is made from it as for a verb,
    with --config, --json and the other common options. A recipe ends with
    `if __name__ == "__main__": sys.exit(script(function, Options))`.
    """
    file = Path(inspect.getfile(function))
    program = f"python {'/'.join(file.parts[-3:])}"  # recipes/NAME/FILE.py
    return _attempt(partial(parse_call, program, options, sys.argv[1:]), function)


def run_program(
    function: Any = None, parser: ArgumentParser | None = None, **commands: Callable[..., None]
) -> NoReturn:
    """Call the function of a small program with the words of the shell, and end the process.

    A word becomes a str, int, float or Path, as its parameter is annotated. --help prints the
    docstring of the program; a call that does not fit prints it on stderr, with exit code 2.
    parser: makes the function's only argument from the words. commands: functions that a first word
    chooses, which may have dashes; function: None where there must be such a word.
    """
    words = sys.argv[1:]
    usage = inspect.cleandoc(sys.modules["__main__"].__doc__ or "")
    if parser:
        arguments: tuple[Any, ...] = (parser.parse_args(),)
    elif "--help" in words or "-h" in words:
        print(usage)
        sys.exit()
    else:
        if words and words[0].replace("-", "_") in commands:
            function = commands[words.pop(0).replace("-", "_")]
        try:
            arguments = convert_words(function, words)
        except (TypeError, ValueError):
            print(usage, file=sys.stderr)
            sys.exit(2)

    def work() -> None:  # after which `_attempt` has nothing left to call
        function(*arguments)

    sys.exit(_attempt(work))


def convert_words(function: Callable[..., None], words: Sequence[str]) -> tuple[Any, ...]:
    """Convert words of the shell to the arguments of a function, by the annotations of its
    parameters. Raises TypeError or ValueError for words that do not fit."""
    call = inspect.signature(function, eval_str=True).bind(*words)
    for name, value in call.arguments.items():
        kind = call.signature.parameters[name].annotation
        call.arguments[name] = [*map(kind, value)] if isinstance(value, tuple) else kind(value)
    return call.args


def _attempt(
    read_call: Callable[[], tuple[Any, Namespace] | None],
    function: Callable[[Any], Any] | None = None,
) -> int:
    """Read the options, call the function with them, and turn exceptions into exit codes.

    read_call: returns None where nothing is left to call. function: None stands for the function of
    the verb that the options belong to.
    """
    verbose = strict = False
    try:
        call = read_call()
        if call is not None:
            options, flags = call
            verbose, strict = flags.verbose, flags.strict
            _run(function, options, flags)
            wait_before_exit()
        sys.stdout.flush()
    except BrokenPipeError:  # `| head` has read enough; the rest of the buffer goes nowhere
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 141  # the exit code of a program that SIGPIPE ends
    except (InputError, OSError) as error:  # OSError: a folder that cannot be written, a full disk
        if verbose:
            traceback.print_exc()
        sentence = str(error) if isinstance(error, InputError) else describe_refusal(error)
        print(f"speechssl: {escape_line(sentence)}", file=sys.stderr)
        return 2
    except FloatingPointError as error:
        print(f"speechssl: training stopped: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print("speechssl: stopped; the same command resumes what is written", file=sys.stderr)
        return 130
    set_aside = pop_set_aside()
    if strict and set_aside:
        print(f"speechssl: {set_aside} set aside (--strict)", file=sys.stderr)
        return 3
    return 0


def _run(function: Callable[[Any], Any] | None, options: Any, flags: Namespace) -> None:
    """Run a verb. With --json, print what it returns, or a description of its output where it
    returns nothing.

    flags: --verbose, --quiet and --json.
    """
    pop_set_aside()  # forget the items of an earlier call in this process
    _quiet_libraries(flags.verbose)
    started = time.monotonic()
    out = sys.stdout
    with ExitStack() as stack:
        stack.enter_context(warnings.catch_warnings())
        if not flags.verbose:  # a line, without the code that warned
            warnings.showwarning = lambda message, *_, **__: print(
                f"warning: {message}", file=sys.stderr
            )
        if flags.quiet:
            stack.enter_context(redirect_stderr(stack.enter_context(open(os.devnull, "w"))))
        if flags.json:
            stack.enter_context(redirect_stdout(sys.stderr))
        with name_refused_file("a file"):
            if device := getattr(options, "device", None):
                use_device(device)
            # the function is imported now, and not at the top: most import torch, which is slow
            if function is None:
                function = import_function(options)
            result = function(options)
    seconds = time.monotonic() - started
    if os.environ.get(USAGE) and is_main():
        _record_usage(options, seconds)
    if flags.json:
        if result is None:
            result = _read_product(options)
        print(json.dumps(result, ensure_ascii=False, indent=1, default=str), file=out)
    if flags.verbose:
        print(f"took {seconds:.1f} s; peak memory {measure_peak_memory():.2f} GB", file=sys.stderr)


def _read_product(options: Any) -> Any:
    """Return the rows of the results file that a verb adds to, or otherwise the card of the folder,
    encoder or file that it wrote."""
    if hasattr(options, "results"):
        from speechssl.results import list_rows  # imports NumPy

        return list_rows(options.results)
    out = Path(options.out)
    for path in (out / CARD, out / "encoder" / CARD, out.with_suffix(f".{CARD}")):
        if path.is_file():
            return {"out": str(out), "card": read_json(path)}
    return {"out": str(out)}


def _record_usage(options: Any, seconds: float) -> None:
    """Add a line with the time, memory and disk that a verb took to the file $SPEECHSSL_USAGE. That
    file lies in the folder of a recipe's run, whose size is the disk."""
    file = Path(os.environ[USAGE])
    disk = 0
    for path in file.parent.rglob("*"):
        with suppress(FileNotFoundError):  # another verb of the run may remove files meanwhile
            disk += path.lstat().st_size
    paths = [str(getattr(options, name)) for name in ("corpus", "out") if hasattr(options, name)]
    line = {
        "stage": os.environ.get("SPEECHSSL_STAGE", ""),
        "command": " ".join([type(options).__name__, *paths]),
        "seconds": round(seconds, 1),
        "peak_gb": round(measure_peak_memory(), 3),
        "gpu_gb": round(measure_gpu_memory(), 3),
        "disk_gb": round(disk / 2**30, 3),
    }
    file.parent.mkdir(parents=True, exist_ok=True)
    with file.open("a", encoding="utf-8") as lines:
        lines.write(json.dumps(line) + "\n")


def use_device(name: str) -> None:
    """Choose the device of this process, before a model is loaded: with cpu it sees no GPU, with
    cuda:N only that one; auto changes nothing, so that a GPU is used where there is one. Raises
    InputError for a device that does not exist."""
    if name == "auto":
        return
    if name == "cpu":
        os.environ["CUDA_VISIBLE_DEVICES"] = ""
        return
    import torch

    count = torch.cuda.device_count()
    match = re.fullmatch(r"cuda(?::(\d+))?", name)
    number = int(match[1] or 0) if match else count
    if number >= count:
        raise InputError(
            f"there is no device {name} ({count} GPUs are visible); give --device cpu, cuda, "
            "cuda:N or auto"
        )
    visible = os.environ.get("CUDA_VISIBLE_DEVICES", "").split(",")
    os.environ["CUDA_VISIBLE_DEVICES"] = visible[number] if visible != [""] else str(number)


def import_options(verb: str) -> Any:
    """Import the dataclass of a verb's options. Its module imports neither torch nor the
    function."""
    return _import_named(VERBS[verb].options)


def import_function(options: Any) -> Callable[[Any], Any]:
    """Import the function of the verb that takes these options."""
    place = f"{type(options).__module__.removeprefix('speechssl.')}:{type(options).__name__}"
    verb = next(verb for verb in VERBS.values() if verb.options == place)
    return _import_named(verb.function)


def _import_named(place: str) -> Any:
    """Import an object by "module:name" below speechssl."""
    module, name = place.split(":")
    return getattr(import_module(f"speechssl.{module}"), name)


def parse_arguments(arguments: Sequence[str]) -> tuple[Any, Namespace] | None:
    """Parse the arguments of a call. Returns the dataclass of the verb's options, and all values by
    name; None where help or the version was printed. Raises InputError for an unknown verb, and for
    arguments that the verb does not take."""
    words = list(arguments)
    if words[:1] == ["help"]:  # `speechssl help units fit`
        words = [*words[1:], "--help"]
    for length in (1, 2):
        verb = " ".join(words[:length])
        if verb in VERBS:
            return parse_call(f"speechssl {verb}", import_options(verb), words[length:])
    if words[:1] == ["--version"]:
        print(f"speechssl {__version__}")
        return None
    if not words:
        further = FURTHER_HELP.format(count=len(VERBS))
        print("\n".join([INTRODUCTION, *list_verbs(FIRST), further]))
        return None
    group = words[0] if words[0] in GROUPS else ""
    rest = words[1:] if group else words
    if rest[:1] in (["-h"], ["--help"]):
        print(format_overview(group))
        return None
    if not rest:
        names = ", ".join(verb for verb in VERBS if verb.startswith(f"{group} "))
        raise InputError(f"`speechssl {group}` needs a verb: {names}")
    verb = " ".join(words[:2] if group else words[:1])
    near = suggest_name(verb, [*VERBS, *GROUPS]) or "; `speechssl --help` lists them"
    raise InputError(f"speechssl has no verb {verb}{near}")


def format_overview(group: str) -> str:
    """Return the help of a group, with a line about each of its verbs; for "" the help of
    speechssl, with a line about every verb, those for daily use first."""
    if group:
        lines = [f"usage: speechssl {group} VERB [options]\n\n{GROUPS[group]}\n"]
        return "\n".join(lines + list_verbs(v for v in VERBS if v.startswith(f"{group} ")))
    seldom = [verb for verb in VERBS if verb not in DAILY]
    lines = [ABOUT, "\ndaily:", *list_verbs(DAILY), "\nseldom:"]
    lines += list_verbs(verb for verb in seldom if " " not in verb)
    for name, about in GROUPS.items():
        lines.append(f"\nseldom, {name}: {about}")
        lines += list_verbs(verb for verb in seldom if verb.startswith(f"{name} "))
    return "\n".join(lines)


def list_verbs(verbs: Iterable[str]) -> list[str]:
    """Return a line about each of the verbs: its name, and the first paragraph of its help."""
    verbs = list(verbs)
    width = max(map(len, verbs)) + 2
    lines = []
    for verb in verbs:
        module, name = VERBS[verb].options.split(":")
        about = _read_docstrings(module)[name].split("\n\n")[0].replace("\n", " ")
        lines.append(f"  {verb:<{width}}{about}")
    return lines


@cache
def _read_docstrings(module: str) -> dict[str, str]:
    """Return the docstrings of the classes of a module below speechssl, by name. The module is
    parsed and not imported, because making all dataclasses of options takes four times as long."""
    path = Path(__file__).parents[1].joinpath(*module.split(".")).with_suffix(".py")
    tree = ast.parse(path.read_text("utf-8"))
    return {c.name: ast.get_docstring(c) or "" for c in tree.body if isinstance(c, ast.ClassDef)}


def _quiet_libraries(verbose: bool) -> None:
    """Keep messages of libraries off the terminal, except where verbose."""
    os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
    if not sys.stderr.isatty():  # a log file gets a line of a progress bar now and then
        os.environ.setdefault("TQDM_MININTERVAL", "30")
    if not is_main():  # the first process prints for all
        sys.stdout = open(os.devnull, "w")  # noqa: SIM115
    if verbose:
        return
    os.environ.setdefault("TRANSFORMERS_VERBOSITY", "error")
    os.environ.setdefault("HF_HUB_DISABLE_PROGRESS_BARS", "1")
    # otherwise every process warns of how DistributedDataParallel was built
    os.environ.setdefault("TORCH_CPP_LOG_LEVEL", "ERROR")
