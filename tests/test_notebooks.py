"""The notebooks run from their first cell to the last, in an empty folder, and show what they
announce; `make smoke` runs all of them."""

import os
import sys
from pathlib import Path

import pytest

nbclient = pytest.importorskip("nbclient", reason="needs speechssl[notebooks,dev]")
nbformat = pytest.importorskip("nbformat")
FOLDER = Path(__file__).parents[1] / "docs/notebooks"
# in the output of which cell something must stand: (a line of its source, a part of its output)
SHOWN = {
    "dual_in_20_lines": [
        ("table.round(2)", "mean F1 of the time spans"),
        ("    Audio(", "audio"),
        ("cascade.transcribe", " s"),
    ],
    "robustness_of_two_encoders": [
        ("pandas.DataFrame(scores)", "AUC, same word"),
        ("axes.legend()", "image/png"),
    ],
    "units_of_a_folder": [
        ("scan_parquet", "num_rows"),
        ("axes.axvspan", "image/png"),
        ("normalized_distance", "->"),
    ],
}


def test_every_notebook_is_tested():
    assert {path.stem for path in FOLDER.glob("*.ipynb")} == {*SHOWN}


long = pytest.mark.skipif(not os.environ.get("SMOKE"), reason="a minute: make smoke")


@pytest.mark.slow
@pytest.mark.parametrize(
    "name",
    ["dual_in_20_lines", *(pytest.param(n, marks=long) for n in SHOWN if n != "dual_in_20_lines")],
)
def test_a_notebook_runs_from_its_first_cell_to_the_last(name, tmp_path, monkeypatch):
    monkeypatch.setenv(
        "PYTHONPATH", os.pathsep.join([str(FOLDER.parents[1]), os.environ.get("PYTHONPATH", "")])
    )
    # cells run `speechssl`
    monkeypatch.setenv(
        "PATH", os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])
    )
    for name_of_folder in ("JUPYTER_CONFIG_DIR", "IPYTHONDIR"):
        monkeypatch.setenv(name_of_folder, str(tmp_path / "settings"))
    (tmp_path / "here").mkdir()
    notebook = nbformat.read(FOLDER / f"{name}.ipynb", 4)
    for cell in notebook.cells:
        if cell.cell_type == "code":
            cell.outputs = []
    nbclient.NotebookClient(
        notebook, timeout=300, resources={"metadata": {"path": str(tmp_path / "here")}}
    ).execute()
    for source, output in SHOWN[name]:
        (cell,) = [
            cell for cell in notebook.cells if cell.cell_type == "code" and source in cell.source
        ]
        assert output in str(cell.outputs), source
    printed = [str(out.get("text")) for cell in notebook.cells for out in cell.get("outputs", [])]
    assert not [text for text in printed if "speechssl: " in text or "Warning" in text]
