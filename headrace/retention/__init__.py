"""How long Kafka keeps what the lake has not loaded: for the console, its metrics and `headrace lake check`.

kafka_reader    the module that imports Kafka's client: what topics hold, and for how long they keep it
headroom        the time until a record may be removed that bronze lacks
"""
