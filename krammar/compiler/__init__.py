"""The compiler of definition files. Data passes its parts in this order:

1. ``front`` parses text into the IR (``ir``), and reports diagnostics.
2. ``layout`` makes every decision about bytes.
3. ``backends`` render files, and ``write`` writes them.
"""

from krammar.util.extras import require

require("krammar.compiler", "compiler")
