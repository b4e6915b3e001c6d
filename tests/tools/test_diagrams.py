"""Every Mermaid diagram of the pages is drawn, and no other file lies beside the drawings."""

from __future__ import annotations

from xml.etree import ElementTree

from tools.diagrams import FOLDER, file_of, wanted


def test_each_diagram_is_drawn_and_none_is_left_over() -> None:
    assert {path.name for path in FOLDER.iterdir()} == {path.name for path in wanted()}, (
        "run `python -m tools.diagrams`"
    )


def test_the_drawings_have_their_size_and_no_html() -> None:
    for path in FOLDER.iterdir():
        drawing = ElementTree.fromstring(path.read_text())
        assert len(drawing.attrib["viewBox"].split()) == 4, path
        assert not [one for one in drawing.iter() if one.tag.endswith("foreignObject")], path


def test_a_file_is_named_by_its_diagram() -> None:
    assert file_of("flowchart LR\n  A --> B\n") == file_of("flowchart LR\n  A --> B")
    assert file_of("flowchart LR\n  A --> B") != file_of("flowchart LR\n  A --> C")
