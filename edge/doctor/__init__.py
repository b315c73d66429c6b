"""`headrace edge doctor`: looks at everything a source needs, changes nothing, and reports what is wrong and how to fix it.

A check is a function from what it looks at to findings. Those of the machine are the same for every engine; each engine has a
list of its own (edge/doctor/postgres.py).
"""
