"""The language server of definition files: ``krammar lsp``.

``project`` reads and compiles files, and stores what did not change. The modules of features are functions of
its result; none of them knows the protocol's transport. ``server`` connects them to pygls.
"""

from krammar.util.extras import require

require("krammar.lsp", "lsp")
