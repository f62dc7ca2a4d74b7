"""Alignments as aligners write them: TextGrids long and short, JSONL; gaps, names, and what is wrong with a file."""

import json

import pytest

from speechssl.errors import InputError
from speechssl.units.quality import SILENCE, read_alignment, read_textgrid

LONG = """File type = "ooTextFile"
Object class = "TextGrid"

xmin = 0
xmax = 0.75
tiers? <exists>
size = 3
item []:
    item [1]:
        class = "IntervalTier"
        name = "words"
        xmin = 0
        xmax = 0.75
        intervals: size = 1
        intervals [1]:
            xmin = 0
            xmax = 0.75
            text = "3 ""quoted"" [9] = 7"
    item [2]:
        class = "TextTier"
        name = "marks"
        xmin = 0
        xmax = 0.75
        points: size = 1
        points [1]:
            number = 0.5
            mark = "x"
    item [3]:
        class = "IntervalTier"
        name = "NAME - phones"
        xmin = 0
        xmax = 0.75
        intervals: size = 3
        intervals [1]:
            xmin = 0
            xmax = 0.25
            text = ""
        intervals [2]:
            xmin = 0.25
            xmax = 5e-1
            text = "AH0"
        intervals [3]:
            xmin = .5
            xmax = 0.75
            text = "s"
""".replace("xmin = .5", "xmin = 0.5")
SHORT = """File type = "ooTextFile"
Object class = "TextGrid"

0
0.75
<exists>
1
"IntervalTier"
"whatever"
0
0.75
3
0
0.25
""
0.25
0.5
"AH0"
0.5
0.75
"s"
"""
PHONES = [(SILENCE, 0.0, 0.25), ("AH0", 0.25, 0.5), ("s", 0.5, 0.75)]


@pytest.mark.parametrize("text", [LONG, SHORT])
@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig", "utf-16"])
@pytest.mark.parametrize("end", ["\n", "\r\n"])
def test_both_formats_of_a_textgrid_are_read(tmp_path, text, encoding, end):
    path = tmp_path / "a.TextGrid"
    path.write_bytes(text.replace("\n", end).encode(encoding))
    assert read_textgrid(path) == PHONES
    assert read_alignment(path) == {"a": PHONES}


def test_a_folder_is_read_by_the_paths_in_it(tmp_path):
    (tmp_path / "s1").mkdir()
    for name in ("x.TextGrid", "s1/y.textgrid"):
        (tmp_path / name).write_text(SHORT)
    (tmp_path / "notes.txt").write_text("no alignment")
    assert read_alignment(tmp_path) == {"s1/y": PHONES, "x": PHONES}


def test_jsonl_is_read_and_gaps_are_silence(tmp_path):
    path = tmp_path / "a.jsonl"
    lines = [{"id": 1, "phones": [["a", 0.1, 0.2], ["b", 0.4, 0.5]]}, {"id": "x", "phones": [["", 0, 0.5]], "more": 1}]
    path.write_text("\n".join(map(json.dumps, lines)))
    first = [(SILENCE, 0.0, 0.1), ("a", 0.1, 0.2), (SILENCE, 0.2, 0.4), ("b", 0.4, 0.5)]
    assert read_alignment(path) == {"1": first, "x": [(SILENCE, 0.0, 0.5)]}


def test_pauses_of_aligners_and_gaps_are_one_silence(tmp_path):
    (tmp_path / "a.jsonl").write_text(json.dumps({"id": "x", "phones": [["a", 0, 0.2], ["_", 0.2, 0.3], ["b", 0.5, 0.6]]}))
    found = read_alignment(tmp_path / "a.jsonl")["x"]
    assert found == [("a", 0.0, 0.2), (SILENCE, 0.2, 0.3), (SILENCE, 0.3, 0.5), ("b", 0.5, 0.6)]


def test_small_overlaps_are_clipped_and_phones_of_no_length_dropped(tmp_path):
    path = tmp_path / "a.jsonl"
    path.write_text(json.dumps({"id": "x", "phones": [["a", 0, 0.2], ["b", 0.19, 0.3], ["c", 0.3, 0.3], ["d", 0.3, 0.4]]}))
    assert read_alignment(path) == {"x": [("a", 0.0, 0.2), ("b", 0.2, 0.3), ("d", 0.3, 0.4)]}


def test_a_recording_that_cannot_be_used_is_set_aside(tmp_path, capsys):
    (tmp_path / "bad.TextGrid").write_text(SHORT.replace("0.25\n0.5\n", "0.1\n0.5\n"))
    (tmp_path / "good.TextGrid").write_text(SHORT)
    (tmp_path / "none.TextGrid").write_text("")
    assert read_alignment(tmp_path) == {"good": PHONES}
    told = capsys.readouterr().err
    assert "set aside bad: " in told and "times must go forward" in told and "2 recordings set aside" in told


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ('{"id": "x"}', "a.jsonl:1 is not"),
        ('{"phones": []}', "a.jsonl:1 is not"),
        ('{"id": "x", "phones": [["a", 0]]}', "a.jsonl:1 is not"),
        ('{"id": "x", "phones": [["a", "b", 1]]}', "a.jsonl:1 is not"),
        ('{"id": "x", "phones": []}', "a.jsonl:1 has no phones"),
        ('{"id": "x", "phones": [["a", 0, 1], ["b", 0.5, 2]]}', "times must go forward"),
        ('{"id": "x", "phones": [["a", 1, 1]]}', "a.jsonl:1 has no phones"),
        ('{"id": "x", "phones": [["a", 1, 0.5]]}', "times must go forward"),
        ('{"id": "x", "phones": [["a", 0, 1]]}\n{"id": "x", "phones": [["b", 0, 1]]}', "a.jsonl:2 has the id x, as line 1 has"),
        ('{"id": "x", "phones": [["a", 0, NaN]]}', "times must go forward"),
        ("{", "is not JSON"),
    ],
)
def test_a_bad_line_is_named(tmp_path, line, said):
    (tmp_path / "a.jsonl").write_text(line)
    with pytest.raises(InputError, match=said):
        read_alignment(tmp_path / "a.jsonl")


@pytest.mark.parametrize(
    "content", [b"", b"no grid", LONG[:600].encode(), SHORT[:-20].encode(), b"\xff\xff\xff", SHORT[40:].encode()]
)
def test_a_bad_textgrid_is_named(tmp_path, content):
    (tmp_path / "a.TextGrid").write_bytes(content)
    with pytest.raises(InputError, match="cannot read .*a.TextGrid as a TextGrid"):
        read_alignment(tmp_path / "a.TextGrid")


def test_the_tier_of_phones_must_be_clear(tmp_path):
    (tmp_path / "a.TextGrid").write_text(LONG.replace("NAME - phones", "lines"))
    with pytest.raises(InputError, match="has the interval tiers words, lines; give it one that is named phones"):
        read_alignment(tmp_path / "a.TextGrid")


def test_what_is_no_alignment_is_named(tmp_path):
    with pytest.raises(InputError, match="holds no alignment"):
        read_alignment(tmp_path)
    with pytest.raises(InputError, match="holds no alignment"):
        read_alignment(tmp_path / "none.TextGrid")
    with pytest.raises(InputError, match="cannot read the manifest"):
        read_alignment(tmp_path / "none.jsonl")
