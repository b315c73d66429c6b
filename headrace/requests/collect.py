"""Puts the parts of one request's answer together, as they come to who asked. Pure."""

from headrace.errors import NeedsOperator, NotConnected, ReplicationError, Retryable
from headrace.requests.message import Content, Outcome, Part, Request, content_of


class Answered(ReplicationError):  # noqa: N818 - a state, which reads best without a suffix.
    """An error of the command in the region, with its exit code there."""

    def __init__(self, content: Content, source: str) -> None:
        super().__init__(f"{source}: {content.message}", hint=content.hint)
        self.exit_code = content.exit_code


class Collector:
    """The answer to one request: the first that is complete counts, whoever sent it."""

    def __init__(self, request: Request) -> None:
        self._request = request
        #: Contents by part, for each that answers: an edge and a bridge may do so both.
        self._contents: dict[tuple[str, Outcome], dict[int, str]] = {}
        self._last: dict[tuple[str, Outcome], int] = {}

    def add(self, part: Part) -> Content | None:
        """Add a part; return the content once it is whole, and raise what the answer means where it is no content.

        Raises:
            NeedsOperator: the edge refused the request, or did it before.
            Retryable: it was busy.
            NotConnected: the request expired.
            Answered: the edge tried, and an error ended it.
            CorruptInput: the parts are no answer.
        """
        if (part.id, part.source) != (self._request.id, self._request.source):
            return None
        whose = (part.by, part.outcome)
        found = self._contents.setdefault(whose, {})
        found.setdefault(part.part, part.content)
        if part.last:
            self._last[whose] = part.part
        last = self._last.get(whose)
        if last is None or any(number not in found for number in range(last + 1)):
            return None
        content = content_of("".join(found[number] for number in range(last + 1)))
        if part.outcome == "done":
            return content
        raise _meaning(part, content)


def _meaning(part: Part, content: Content) -> ReplicationError:
    message = f"{part.source}: {content.message}"
    match part.outcome:
        case "failed":
            return Answered(content, part.source)
        case "busy":
            return Retryable(message, hint=content.hint)
        case "expired":
            return NotConnected(message, hint=content.hint)
        case _:
            return NeedsOperator(message, hint=content.hint)
