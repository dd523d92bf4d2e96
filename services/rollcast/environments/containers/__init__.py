"""Containers of episodes.

    container.Container         a running one: commands in it, files into it and out of it
    container.ContainerEngine   starts them, and says before a run what keeps it from that
    engines                     the engine that a run file names
    podman.Podman               an engine of this machine, by podman's command line; disk_watch ends
                                a container whose files take too much, abandoned removes those of a
                                generator that was killed, check looks before the start
    pods.engine.Kubernetes      an engine of the cluster: each container is a pod
    pool.ContainerPool          keeps some warm; ends those that are left when the generator stops

free -> started -> run, run, ... -> ended         one episode; none serves two
"""
