"""Test TextGrids of Praat and of aligners, whatever their headers count."""

import pytest

from speechssl.data.textgrid import read_tiers

from ..files import refused

SHORT = """File type = "ooTextFile"
Object class = "TextGrid"

0
0.75
<exists>
1
"IntervalTier"
"phones"
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
TIERS = [("phones", [("", 0.0, 0.25), ("AH0", 0.25, 0.5), ("s", 0.5, 0.75)])]


@pytest.mark.parametrize("encoding", ["utf-8-sig", "utf-16"])
@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("", ""),
        ('ooTextFile"\nObject class = ', 'ooTextFile short"\n'),  # P2FA, old Praat
        ("\n3\n0\n", "\n2\n0\n"),  # counts fewer intervals than follow
        ('"phones"', '"phones" ! a remark of p1'),
    ],
)
def test_every_interval_is_read_whatever_the_header_counts(old, new, encoding, tmp_path):
    path = tmp_path / "a.TextGrid"
    path.write_bytes(SHORT.replace(old, new).encode(encoding))
    assert read_tiers(path) == TIERS


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("no grid", "cannot read .*a.TextGrid as a TextGrid"),
        (SHORT[: SHORT.index("0.5\n0.75")], "its tier phones counts 3 and 2 follow"),
        (SHORT.replace("<exists>\n1", "<exists>\n2"), "it counts 2 tiers and 1 follow"),
    ],
)
def test_a_textgrid_that_is_cut_off_is_refused(content, message, tmp_path):
    (tmp_path / "a.TextGrid").write_text(content)
    refused(message, read_tiers, tmp_path / "a.TextGrid")
