"""A bridge that carries requests, in tests in which edges are asked: what its file and the lake's have for it."""

from headrace.configuration.sections import Topics

SOURCE = "jakarta/bank"


class AskedTopics:
    """The two topics of a test, and the section that names them."""

    def __init__(self, topic) -> None:
        self.names = Topics(topic(), topic())
        self.section = f'\n[requests]\ntopic = "{self.names.requests}"\nanswers_topic = "{self.names.answers}"\n'
