"""Environments of the user's own, in processes next to the generator.

    EnvironmentProcesses (generator)      fork server (one for each environment: started clean,
                                          its module imported once)
      acquire ---- a connection ------->    fork -> environment: puts its profile on,
                                                    makes the instance,
        reset, call, reward --------------------->  answers on the connection, one request at a time
        <-- answers ------------------------------
      release, or the connection closes ->  ends it, with every process that it started

A warm module is forked, so that hundreds of environments cost little more than what each of them
changes in memory.
"""
