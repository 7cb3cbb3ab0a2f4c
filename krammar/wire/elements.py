"""Modules that older releases generated import ``check_empty`` from here."""

from krammar.wire.skip import check_empty as check_empty
