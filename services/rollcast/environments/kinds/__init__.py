"""The code of each kind of environment: one module a kind, with the name of the module that has its
settings (`rollcast.config.environments`).

    missing(settings, field)        a sentence for each file, program or package that it names and
                                    that is not there
    start(settings, surroundings)   its side of a generator: a `LiveSource`, or, of a kind whose
                                    programs take the turns themselves (`SessionEnvironment`), a
                                    `ProgramSource`
    join(record, trace)             only of a kind whose programs report a trace of each episode:
                                    the turns of the session's record that the trace trains

A module that is put into this folder is found by itself. `missing` runs no program, except the
interpreter of another package: only that finds the package.
"""
