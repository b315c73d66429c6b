"""What the JVM writes to standard error next to its log."""

import os

from spark_jobs import session


def test_what_the_jvm_says_goes_on_but_for_the_notice_of_modules_that_spark_asks_for(capfd):
    ours, its = os.pipe()
    os.write(its, b"WARNING: Using incubator modules: jdk.incubator.vector\nout of memory\n")
    os.close(its)

    session._pass_on(ours)

    assert capfd.readouterr().err == "out of memory\n"
