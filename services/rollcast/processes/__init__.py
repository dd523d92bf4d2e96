"""Processes: how they talk, how they are limited, and how they end together.

    frames          messages over a stream, bounded in size and time
    tree            a process and all that it starts end together: guards, killers
    fork_server     a process with its imports done forks for each connection that it is sent
    server_process  the client's end of such a process
    descriptors     how many of them a fork server may have, and which ones its forks keep
    limits          limits of the kernel on this process
    locked_folder   a temporary folder that is locked while its process lives
    variables       the environment of programs that are not ours
    linux           calls and numbers of the kernel that Python has no names for

No file here imports another package of Rollcast. `frames` and `tree` import the standard library
alone, because adapters load them by their paths in the Python of another package.

One kind is elsewhere: `generator/vllm/engine_warden.py` knows an engine by vLLM's own variable, and
runs by its path without any other file.
"""
