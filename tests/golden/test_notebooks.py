"""The notebooks run, top to bottom, on the committed runs, as Jupyter runs them; and there is something to see."""

from __future__ import annotations

from pathlib import Path

import jupytext
import pytest
from nbclient import NotebookClient

NOTEBOOKS = sorted((Path(__file__).parents[2] / "notebooks").glob("*.py"))


@pytest.mark.filterwarnings("ignore::DeprecationWarning:jupyter_client.*")
@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_a_notebook_runs_and_shows_its_results(path: Path) -> None:
    notebook = jupytext.read(path)
    assert notebook.metadata["jupytext"]["formats"] == "ipynb,py:percent"
    NotebookClient(notebook, timeout=120, resources={"metadata": {"path": str(path.parent)}}).execute()
    code = [cell for cell in notebook.cells if cell.cell_type == "code"]
    outputs = [output for cell in code for output in cell.outputs]
    assert not [output for output in outputs if output.output_type in {"error", "stream"}]
    # Every cell that ends in an expression shows it, and at least two of them draw or tabulate.
    shown = [output for output in outputs if output.output_type in {"execute_result", "display_data"}]
    assert len(shown) >= 5
    assert sum(any(kind.startswith(("text/html", "application/vnd.plotly")) for kind in o.data) for o in shown) >= 4


def test_there_are_four() -> None:
    assert [path.stem[:2] for path in NOTEBOOKS] == ["01", "02", "03", "04"]
