"""AMQP 1.0 for whoever speaks it: edges, bridges and commands, as senders and as receivers.

`transport` runs Proton's loop and is the one module that imports Proton; `links` reads messages and settles deliveries;
`security` has certificates and credentials, and what is known of the other side; `connection` is one connection out, from the
attempt to its end, and what keeps one open, from address to address; `errors` states why one ended, and who has to act. A bridge
that listens (bridge/amqp/listener.py) uses the same loop, links and certificates.
"""
