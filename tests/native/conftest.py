"""One compilation for all tests of this folder."""

from __future__ import annotations

import shutil

import pytest

from tests.native.support import Builds, compile_both


@pytest.fixture(scope="session")
def builds(tmp_path_factory: pytest.TempPathFactory) -> Builds:
    """Both builds of the definitions in ``protocol.krm``; takes half a minute."""
    pytest.importorskip("mypyc")
    if shutil.which("cc") is None:
        pytest.skip("needs a C compiler")
    return compile_both(tmp_path_factory.mktemp("builds"))
