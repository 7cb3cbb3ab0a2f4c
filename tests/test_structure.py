"""The measurement of ``make structure``, on a small package."""

from __future__ import annotations

from pathlib import Path

import pytest

from tools.architecture import Rooms, code_lines

FILES = {
    "../pyspark_app/__init__.py": "from app.spark.source import Source as DefaultSource\n__all__ = ['DefaultSource']\n",
    "__init__.py": "",
    "shop/__init__.py": "from app.shop.orders import Order\n__all__ = ['Order']\n",
    "shop/orders.py": "from app.shop.items import Item\nclass Order(Item):\n    def pay(self): return 1\n",
    "shop/items.py": "from app.shop.rows import Row\nclass Item(Row):\n    def price(self): return 1\n",
    "shop/rows.py": "from app.base import Base\nclass Row(Base):\n    def cells(self): return 1\n",
    "base.py": "class Base:\n    def __enter__(self): return self\n",
    "spark/__init__.py": "def register():\n    import app.spark.source\n",
    "spark/source.py": "",
    "till/__init__.py": "from app.till import coins as coins\n",
    "till/bills.py": "from app.shop import Order\nclass Row: ...\nclass Bill:\n    class Row: ...\n",
    "till/coins.py": "",
    "till/drawers.py": "",
    "till/prints.py": "from app.till import coins, drawers\nfrom app.till.bills import Bill\nfrom app.shop.rows import Row\n",
}


@pytest.fixture(name="rooms")
def fixture_rooms(tmp_path: Path) -> Rooms:
    (tmp_path / "docs").mkdir()
    (tmp_path / "docs" / "tills.md").write_text("Import `app.till.drawers.Drawer`.")
    for name, text in FILES.items():
        path = tmp_path / "app" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return Rooms(tmp_path, "app")


def test_corridors_have_one_importer_in_their_package(rooms: Rooms) -> None:
    # orders, coins and source are published, drawers is documented, rows has a second importer, and base is in another
    # package.
    assert rooms.corridors() == {
        "app.shop.items": "app.shop.orders",
        "app.till.bills": "app.till.prints",
    }


def test_names_are_followed_through_packages(rooms: Rooms) -> None:
    assert rooms.importers()["app.shop.orders"] == {"app.till.bills"}


def test_chains_count_files_with_code(rooms: Rooms) -> None:
    assert [[str(cls) for cls in chain] for chain in rooms.chains()] == [
        ["app.shop.orders.Order", "app.shop.items.Item", "app.shop.rows.Row"],
    ]


def test_class_names_with_two_meanings(rooms: Rooms) -> None:
    assert rooms.repeated_classes() == {"app.till": [("Row", ["app.till.bills"] * 2)]}
    assert list(rooms.shared_classes()) == ["Row"]


def test_code_lines_have_no_comments_blanks_or_docstrings(tmp_path: Path) -> None:
    path = tmp_path / "a.py"
    path.write_text(
        '"""Two\nlines."""\n\n# why\nTEXT = """\nthree\n"""\n\ndef f():\n    """One."""\n    return 1\n'
    )
    assert code_lines(path) == 5
