"""Tables whose stored rows cannot become what the source's schema is now: the error, and the remedy that it names."""

import shlex

from headrace.errors import NeedsOperator


class Incompatible(NeedsOperator):
    """A table's stored rows, or earlier records, do not fit its present schema: it needs a new copy and a rebuild."""


def incompatible(table: str, problem: str) -> Incompatible:
    """Return the error for a table that has to be rebuilt."""
    # For a shell: a name is whatever the owner of a table made it.
    word = shlex.quote(table)
    return Incompatible(
        f"{table}: {problem}",
        hint=f"Copy the table again at each source that changed it ('headrace edge snapshot {word} --replace'), load the stream "
        f"when the copy is complete, then run 'headrace lake rebuild STREAM {word} --config FILE': silver is built from that "
        'copy, and the former rows are kept in a folder of their own. on_incompatible = "rebuild" in the lake\'s file does it '
        "in the load that finds the copy.",
    )


def retyped(table: str, name: str, old: str, new: str) -> Incompatible:
    """Return the error for a column whose new type cannot hold its old values, or differs between sources."""
    return incompatible(table, f"column {name} is {old} here and {new} there, and neither holds the other's values")


def rekeyed(table: str, old: str, new: str, missing: str) -> Incompatible:
    """Return the error for a key whose columns rows from before do not have."""
    return incompatible(
        table,
        f"its key was {old} and is {new} now, and rows from before have no value of {missing}: they could not be found",
    )


def recased(table: str, name: str, stored: str) -> Incompatible:
    """Return the error for a column whose name in silver changed, since one that differs by case alone came or went."""
    return incompatible(table, f"column {name} may be stored as {stored}: one that differs by case alone came or went")
