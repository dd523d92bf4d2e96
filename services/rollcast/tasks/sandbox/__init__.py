"""Grading in processes that can only compute: for verifiers of others, and for programs that a
model wrote.

    Sandbox (in the generator)           fork server (one per verifier, started clean, imports done)
      grade() --- connection, limits --->  fork -> judge: locked down, reads the request from the
        request over the connection                       connection, answers on it; alone knows
        <-- verdict ---------------------                 the expected answer
                                                     |  asks for a program
        <-- how it ended ----------------  fork -> program: locked down harder, runs what the model
                                                            wrote, hears inputs, answers with plain
                                                            values
      deadline, judge ended, client gone  ->  both are killed

The fork server never reads a request, so neither it nor a program it forks has ever seen a test. A
program talks to its judge only by values that the judge rebuilds as plain Python data; the verdict
is made where the program's code never runs. What is contained, by what, and what is not:
docs/sandbox.md.
"""
