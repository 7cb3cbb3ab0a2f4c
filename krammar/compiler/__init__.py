"""The compiler. Its stages are the files of this folder, in the order that data passes them:

``parser`` (text to tree to IR, by ``grammar.lark``), ``ir``, ``checks``, ``layout``, ``emitter``.
"""
