"""`krammar docs`: pages whose links lead somewhere, with every field and every layout."""

from __future__ import annotations

from html.parser import HTMLParser
from pathlib import Path

from click.testing import CliRunner

from krammar.cli import main
from tests.compiler.conftest import write_files

# How many words after a field's name its versions are.
FIELDS = {"topics": 2, "partitions": 2, "index": 2, "leader": 3, "epoch": 2}
DEFINITIONS = Path(__file__).parents[2] / "definitions"
VOID = {"meta", "input", "link", "br"}

OWN = """\
// Which <way>.
Kind int8 (
  0: PLAIN
  1: ODD // retriable
)

// Asks `politely`.
//
// A second paragraph with <script>.
AskRequest => key 3, max version 2, flexible v2+, group coordinator
  Name: nullable-string-v1+(null) // v1+
  Kinds: [enum-Kind]
  Inner: [=>]
    // How many.
    Count: int32(7)
  Late: bool(true) // tag 0
  Shared: Common

AskResponse =>
  Size: int16
  Rest: length-field-minus => Size - 2

Common => not top level, no encoding
  Value: varint
"""


class Page(HTMLParser):
    """The links, the places that links can lead to, and the text of a page; its tags are balanced."""

    def __init__(self, path: Path) -> None:
        super().__init__()
        self.path = path
        self.links: list[str] = []
        self.places: set[str] = set()
        self.text = ""
        self.open: list[str] = []
        self.feed(path.read_text())
        assert self.open == []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        known = dict(attrs)
        if link := known.get("href") or known.get("src"):
            self.links.append(link)
        if place := known.get("id"):
            self.places.add(place)
        if tag not in VOID:
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        # HTML lets these end by themselves.
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.text += data


def pages(source: Path, out: Path) -> dict[Path, Page]:
    done = CliRunner().invoke(main, ["docs", str(source), "-o", str(out)])
    assert done.exit_code == 0, done.output
    return {path: Page(path) for path in out.rglob("*.html")}


def test_all_links_lead_somewhere(tmp_path: Path) -> None:
    found = pages(DEFINITIONS, tmp_path)
    links = 0
    for path, page in found.items():
        for link in page.links:
            name, _, place = link.partition("#")
            target = (path.parent / name).resolve() if name else path
            assert target.is_file(), f"{path}: {link}"
            # The script of the pages reads the version after `@`.
            place = place.partition("@")[0]
            assert not place or place in found[target].places, f"{path}: {link}"
            links += 1
    assert links > 5000
    index = found[tmp_path / "kafka_wire" / "index.html"]
    assert "ProduceRequest" in index.text and "ErrorCode" in index.text


def test_a_page_of_ones_own(tmp_path: Path) -> None:
    write_files(tmp_path / "ask", {"ask.krm": OWN})
    found = pages(tmp_path / "ask", tmp_path / "out")
    assert {path.name for path in found} == {"index.html", "ask.html", "kafka_headers.html"}
    text = found[tmp_path / "out" / "ask.html"].text
    assert "key 3, versions v0-v2, flexible v2+, to the group coordinator" in text
    assert "A second paragraph with <script>." in text
    for notation in [
        "AskRequest => kinds [inner] shared",
        "AskRequest => name kinds [inner] shared _tagged_fields",
        "  name => COMPACT_NULLABLE_STRING",
        "  kinds => COMPACT_ARRAY of INT8",
        "  inner => count _tagged_fields\n    count => INT32",
        "  <tag 0> late => BOOLEAN",
        "    value => VARINT",
        "  rest => bytes, size - 2",
        "Bytes of v2",
    ]:
        assert notation in text.replace("[kinds]", "kinds"), notation
    html = (tmp_path / "out" / "ask.html").read_text()
    for cell in ["nullable-string-v1+", "[Kind (int8)]", "v0+, tag 0", "7", "true", "retriable"]:
        assert f">{cell}<" in html, cell
    assert "<code>politely</code>" in html
    assert "<script>" not in html
    assert "Used by AskRequest.kinds" in text
    assert "From v2: RequestHeader v2 precedes it." in text


def test_reserved_tags_and_annotations(tmp_path: Path) -> None:
    text = OWN.replace(
        "  Late: bool(true) // tag 0\n",
        "  Late: bool(true) // tag 0, ignorable\n  reserved tag 3, 1, 2\n",
    )
    text = text.replace(
        "    Count: int32(7)\n", "    Count: int32(7) // entity brokerId\n    reserved tag 0\n"
    )
    source = write_files(tmp_path / "p", text)
    result = CliRunner().invoke(main, ["docs", str(source), "-o", str(tmp_path / "docs")])
    assert result.exit_code == 0, result.output
    shown = Page(next((tmp_path / "docs").rglob("a.html"))).text

    assert "v0+, tag 0, ignorable" in shown
    assert "v0+, brokerId" in shown
    assert "Reserved tags of AskRequest: 1, 2, 3. Removed fields had them." in shown
    assert "Reserved tags of AskRequest.inner: 0. Removed fields had them." in shown


def test_records_have_the_name_that_the_protocol_guide_gives_them(tmp_path: Path) -> None:
    definitions = """\
PutRequest => key 0, max version 1, flexible v1+
  Records: nullable-bytes
  UnalignedRecords: bytes
  MedicalRecords: bytes
  RecordBatches: varint-bytes

PutResponse =>
"""
    write_files(tmp_path / "put", {"put.krm": definitions})
    text = pages(tmp_path / "put", tmp_path / "out")[tmp_path / "out" / "put.html"].text
    for notation in [
        "records => RECORDS",
        "records => COMPACT_RECORDS",
        "unaligned_records => RECORDS",
        "medical_records => BYTES",
        "record_batches => VARINT_NULLABLE_BYTES",
    ]:
        assert f"  {notation}\n" in text, notation
    assert "nullable-bytes" in text


def test_nothing_is_written_with_errors(tmp_path: Path) -> None:
    write_files(tmp_path / "bad", "Nonsense")
    done = CliRunner().invoke(main, ["docs", str(tmp_path / "bad"), "-o", str(tmp_path / "out")])
    assert done.exit_code == 1
    assert "nothing was written" in done.output
    assert not (tmp_path / "out").exists()


def test_layouts_that_differ_are_shown_differently(tmp_path: Path) -> None:
    source = write_files(
        tmp_path / "own",
        {
            "ask.krm": (
                "Ask => not top level, max version 4, flexible v4+\n"
                "  Topics: nullable-v1+[=>]\n"
                "    Name: string\n"
                "    Partitions: [=>] // v2+\n"
                "      Index: int32\n"
                "      Leader: nullable=> // v3+\n"
                "        Epoch: int32\n"
            )
        },
    )
    text = pages(source, tmp_path / "out")[tmp_path / "out" / "ask.html"].text

    assert "Bytes of v0\nAsk => [topics]\n  topics => name\n" in text
    assert "Bytes of v1\nAsk => [topics]\n  topics => NULLABLE_ARRAY of name\n" in text
    assert "topics => COMPACT_NULLABLE_ARRAY of name [partitions] _tagged_fields\n" in text
    assert "      leader => NULLABLE epoch _tagged_fields\n" in text
    # The values of a struct live as long as the struct.
    rows = text.partition("Bytes of")[0].split()
    versions = {name: rows[rows.index(name) + kind] for name, kind in FIELDS.items()}
    assert versions == {
        "topics": "v0+",
        "partitions": "v2+",
        "index": "v2+",
        "leader": "v3+",
        "epoch": "v3+",
    }


def test_bytes_of_kafkas_messages_differ_by_layout(tmp_path: Path) -> None:
    for page in pages(DEFINITIONS / "kafka_wire", tmp_path / "out").values():
        notations = [part.partition("\n")[2] for part in page.text.split("Bytes of ")[1:]]
        shown = [part.split("\n\n")[0] for part in notations]
        assert len(shown) == len(set(shown)), page.path
