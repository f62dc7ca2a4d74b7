"""Files of others that are damaged, lead out of their folder, or hold code."""

import ast
import io
import json
import shutil
import tarfile
import zipfile
from pathlib import Path

import pytest

import speechssl
from speechssl.data.files import ARCHIVES, list_files, unpack
from speechssl.errors import InputError

from .conftest import check_refusal, run_verb

PACKAGE = Path(speechssl.__file__).parent


@pytest.mark.parametrize(
    ("name", "content", "refused_line"),  # "" for none
    [
        ("m.jsonl", '{"audio": "../q0.flac"}', "m.jsonl:1"),
        ("m.txt", "in.flac\n../q0.flac", "m.txt"),
        ("m.tsv", "INNER\nin.flac\t1\n../q0.flac\t1", "m.tsv"),
        ("m.jsonl", '{"audio": "x/../in.flac"}', ""),
        ("m.txt", "OUTER/q0.flac", ""),  # an absolute path is meant
    ],
)
def test_a_manifest_leads_out_of_its_folder_by_absolute_paths_alone(
    name, content, refused_line, workshop, tmp_path
):
    inner = tmp_path / "inner"
    (inner / "x").mkdir(parents=True)
    shutil.copyfile(workshop / "audio/q0.flac", tmp_path / "q0.flac")
    shutil.copyfile(workshop / "audio/q1.flac", inner / "in.flac")
    content = content.replace("INNER", str(inner)).replace("OUTER", str(tmp_path))
    (inner / name).write_text(content)
    book = workshop / "mfcc.safetensors"
    outcome = run_verb("units", "extract", inner / name, "mfcc", book, tmp_path / "out")
    if refused_line:
        check_refusal(outcome, refused_line, "../q0.flac")
    else:
        assert outcome.code == 0, outcome


def test_an_archive_writes_nowhere_but_into_its_folder(tmp_path):
    source = tmp_path / "source"
    names = ("../out.txt", "/tmp/speechssl-out.txt", "a/../../out.txt", "in/side.txt")
    source.mkdir()
    with zipfile.ZipFile(source / "a.zip", "w") as archive:
        for name in names:
            archive.writestr(name, "x")
    with tarfile.open(source / "b.tar", "w") as tape:
        link = tarfile.TarInfo("link.txt")
        link.type, link.linkname = tarfile.SYMTYPE, str(tmp_path)
        tape.addfile(link)
        for name in (*names, "link.txt/through.txt"):
            entry = tarfile.TarInfo(name)
            entry.size = 1
            tape.addfile(entry, io.BytesIO(b"x"))
    before = set(tmp_path.rglob("*"))
    with pytest.raises(InputError, match="b.tar is truncated or damaged"):
        unpack(source, tmp_path / "out", list_files(source, *ARCHIVES))
    assert (tmp_path / "out/unpacked/a.zip/in/side.txt").is_file()
    for path in set(tmp_path.rglob("*")) - before:
        assert path.is_relative_to(tmp_path / "out")
        assert not path.is_symlink()
    assert not Path("/tmp/speechssl-out.txt").exists()


UNSAFE = {"pickle.load", "pickle.loads", "pickle.Unpickler", "marshal.load", "marshal.loads"}
UNSAFE |= {"yaml.load", "yaml.full_load", "yaml.unsafe_load", "shelve.open"}
UNSAFE |= {"joblib.load", "dill.load", "torch.load"}


def find_unsafe_calls(code):
    """Yield the calls that run what a file says, or ask whether to, and are not restricted."""
    for node in ast.walk(ast.parse(code)):
        if not isinstance(node, ast.Call):
            continue
        function = ast.unparse(node.func)
        options = {k.arg: ast.unparse(k.value) for k in node.keywords}
        if function.endswith("from_pretrained") and ("Auto" in function or "loader" in function):
            is_safe = options.get("trust_remote_code") == "False"  # transformers' for any model
        else:
            # a module that is restricted, see test_unpickle.py
            is_restricted = options.get("weights_only") == "True" or "pickle_module" in options
            # numpy refuses pickles by itself
            is_safe = (function not in UNSAFE or is_restricted) and "allow_pickle" not in options
        if not is_safe:
            yield f"{function} in line {node.lineno}"


def test_no_pickle_is_loaded_unrestricted():
    for path in PACKAGE.rglob("*.py"):
        assert not list(find_unsafe_calls(path.read_text(encoding="utf-8"))), path
    calls = ["torch.load(x)", "pickle.loads(y)", "AutoModel.from_pretrained(z)"]
    code = "\n".join([*calls, "torch.load(x, weights_only=True)"])
    assert len(list(find_unsafe_calls(code))) == 3


@pytest.mark.parametrize("kind", ["evil", "whisper"])
def test_no_code_beside_a_checkpoint_is_run_nor_asked_for(kind, workshop, tmp_path, monkeypatch):
    model, ran = tmp_path / "model", tmp_path / "ran"
    model.mkdir()
    autos = "Config Model Tokenizer FeatureExtractor ModelForCTC ModelForQuestionAnswering".split()
    config = {"model_type": kind, "auto_map": {f"Auto{name}": f"evil.{name}" for name in autos}}
    config |= {"feature_extractor_type": "Evil", "tokenizer_class": "Evil"}
    for name in ("config.json", "preprocessor_config.json", "tokenizer_config.json"):
        (model / name).write_text(json.dumps(config))
    (model / "evil.py").write_text(f"open({str(ran)!r}, 'w')\n")
    monkeypatch.setattr("builtins.input", lambda *_: pytest.fail("it asks whether to run code"))
    qa = ("evaluate", "qa", workshop / "corpus", tmp_path / "qa", "--split", "test", "--systems")
    verbs = (
        ("units", "fit", workshop / "audio", model, tmp_path / "book.safetensors", "--clusters", 4),
        (*qa, f"cascade-{model}"),
        (*qa, "text", "--reader", model),
    )
    for arguments in verbs:
        check_refusal(run_verb(*arguments), str(model))
    assert not ran.exists()


# ---- damaged files of others: used, or refused in one sentence that names the file

LISTS = {
    "m.jsonl": '{"audio": "AUDIO/q0.flac"}\n{"audio": "AUDIO/q1.flac"}\n',
    "m.csv": "audio,id\nAUDIO/q0.flac,a\nAUDIO/q1.flac,b\n",
    "m.txt": "AUDIO/q0.flac\nAUDIO/q1.flac\n",
    "m.tsv": "AUDIO\nq0.flac\t4800\nq1.flac\t4800\n",
}
SPOKEN = "audio,text,speaker,group\nAUDIO/q0.flac,a,s0,g\nAUDIO/q1.flac,b,s1,g\n"
DAMAGE = {
    "cut": lambda content: content[: len(content) // 2],
    "not UTF-8": lambda content: content[:30] + b"\xff\xfe\x00" + content[30:],
}


@pytest.mark.parametrize("damage", DAMAGE)
@pytest.mark.parametrize("name", [*LISTS, "s.csv", "a.json"])
def test_a_damaged_file_is_used_or_refused_in_one_sentence(name, damage, workshop, tmp_path):
    audio, path, book = workshop / "audio", tmp_path / name, workshop / "mfcc.safetensors"
    arguments = ("units", "extract", path, "mfcc", book, tmp_path / "out")
    if name in LISTS:
        path.write_text(LISTS[name].replace("AUDIO", str(audio)))
    elif name == "a.json":
        path.write_text(json.dumps({"q0": "boat", "q1": [0.3, 0.5], "q2": {"text": "red"}}))
        arguments = ("evaluate", "predictions", workshop / "corpus", tmp_path / "out", path)
        arguments += ("--name", "mine")
    else:
        path.write_text(SPOKEN.replace("AUDIO", str(audio)))
        arguments = ("units", "evaluate", path, "mfcc", book, "--conditions")
    path.write_bytes(DAMAGE[damage](path.read_bytes()))
    outcome = run_verb(*arguments)
    if outcome.code:
        check_refusal(outcome)
