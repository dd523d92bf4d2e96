"""Containers of episodes.

    container.Container     a running one: commands in it, files into it and out of it
    podman.Podman           starts them, by podman's command line
    pool.ContainerPool      keeps some warm; ends those that are left when the generator stops
    disk_watch              ends one whose files take too much
    abandoned               removes those of a generator that was killed
    check                   what a machine lacks, looked for before the start

free -> started -> run, run, ... -> ended         one episode; none serves two
"""
