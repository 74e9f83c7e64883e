"""One module per command of ``sigmacube``, each with a click command called ``command``.

Modules are imported when the command is used or listed: heavy imports belong inside functions.
Raise `ValueError` or an `OSError` for what the user can mend (exit code 2); the frame in
`sigmacube.cli` turns any error into one line. ``--quiet`` and ``--debug`` come from there too.
"""
